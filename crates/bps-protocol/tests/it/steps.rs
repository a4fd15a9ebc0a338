//! What can happen next in the world, one step at a time; the rules that decide are those of `src/ha`.

use bps_protocol::{
    Agent, AgentId, BootTime, EndEvidence, Hold, Incarnation, Message, Moment, Ping, Purpose, Replacement,
    Role, Seen, Version, Write, forced_replacement,
};

use crate::arena::Arena;
use crate::mutations::{self, Mutation};
use crate::world::{A, AGENTS, CURRENT, NOW, Packet, S, S2, World, index, now};

/// One step of the world.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Tick(usize),
    Deliver(Packet),
    /// Deliver, and keep a copy in flight.
    DeliverCopy(Packet),
    Lose(Packet),
    Ask(AgentId, AgentId),
    Renew(AgentId, Hold),
    Claim(AgentId),
    Repeat(AgentId),
    Read(AgentId),
    Stop(AgentId),
    /// The application that is being stopped ends.
    End(AgentId),
    /// The agent learns that its application has ended.
    Notice(AgentId),
    HandOver(AgentId),
    Release(AgentId),
    Admit(AgentId),
    OperatorRequests(AgentId),
    /// The operator asks for a vacant place instead of this member.
    OperatorVacates(AgentId),
    OperatorForces,
    Restart(AgentId),
    Crash(AgentId),
    Die(AgentId),
}

impl World {
    /// Every step that may be possible; [`World::step`] says which are.
    pub(crate) fn steps(&self, arena: &Arena) -> Vec<Step> {
        let mut steps: Vec<Step> = (0..4).map(Step::Tick).collect();
        for packet in &self.net {
            steps.extend([Step::Deliver(packet.clone()), Step::Lose(packet.clone())]);
            if matches!(packet, Packet::Message { message: Message::Handover(_), .. }) {
                steps.push(Step::DeliverCopy(packet.clone()));
            }
        }
        for id in AGENTS {
            let Some(role) = self.role(id) else { continue };
            match role {
                Role::Active => {
                    steps.extend([Step::Renew(id, Hold::Api), Step::Renew(id, Hold::Peer), Step::Admit(id)]);
                    steps.extend(AGENTS.into_iter().filter(|to| *to != id).map(|to| Step::Ask(id, to)));
                    steps.extend([Step::Stop(id), Step::Crash(id), Step::Notice(id)]);
                }
                Role::Stopping => {
                    steps.extend([Step::Renew(id, Hold::Api), Step::Renew(id, Hold::Peer)]);
                    steps.extend(AGENTS.into_iter().filter(|to| *to != id).map(|to| Step::Ask(id, to)));
                    steps.extend([Step::End(id), Step::Notice(id), Step::Crash(id), Step::Release(id)]);
                }
                Role::Ended => steps.extend([Step::HandOver(id), Step::Release(id)]),
                Role::Standby | Role::Lapsed | Role::HandedOver => {
                    steps.extend([Step::Claim(id), Step::HandOver(id), Step::Release(id)]);
                }
            }
            steps.extend([Step::Repeat(id), Step::Read(id), Step::Restart(id), Step::Die(id)]);
        }
        if arena.has_operator {
            let may_leave = [
                (A, true),
                (S, !arena.starts_alone),
                (AgentId::NOBODY, arena.starts_alone || arena.may_vacate),
            ];
            let leaving = may_leave.into_iter().filter(|(_, may_leave)| *may_leave);
            steps.extend(leaving.map(|(id, _)| Step::OperatorRequests(id)));
            if arena.may_vacate {
                steps.extend([A, S].map(Step::OperatorVacates));
            }
            steps.push(Step::OperatorForces);
        }
        steps
    }

    /// The world after this step, or `None` where it is not possible.
    pub(crate) fn step(&self, arena: &Arena, step: &Step) -> Option<Self> {
        let mut world = match step {
            Step::Tick(clock) => self.tick(arena, *clock),
            Step::Deliver(packet) => self.deliver(arena, packet),
            Step::DeliverCopy(packet) => self.deliver(arena, packet).map(|mut world| {
                world.send(arena, packet.clone());
                world
            }),
            Step::Lose(packet) => Some(self.without(packet)),
            Step::Ask(id, to) => self.ask(arena, *id, *to),
            Step::Renew(id, hold) => self.renew(arena, *id, *hold),
            Step::Claim(id) => self.write(arena, *id, |agent, at| mutations::claim(arena, agent, at)),
            Step::Repeat(id) => self.repeat(arena, *id),
            Step::Read(id) => self.read(arena, *id),
            Step::Stop(id) => self.stop(arena, *id),
            Step::End(id) => self.end(arena, *id),
            Step::Notice(id) => self.notice(arena, *id),
            Step::HandOver(id) => self.hand_over(arena, *id),
            Step::Release(id) => self.write(arena, *id, |agent, at| mutations::release(arena, agent, at)),
            Step::Admit(id) => self.write(arena, *id, |agent, at| mutations::admit(arena, agent, at)),
            Step::OperatorRequests(leaving) => self.request_replacement(arena, *leaving),
            Step::OperatorVacates(leaving) => self.request_vacancy(arena, *leaving),
            Step::OperatorForces => self.force_replacement(arena),
            Step::Restart(id) => self.restart(arena, *id),
            Step::Crash(id) => self.crash(arena, *id),
            Step::Die(id) => self.die(arena, *id),
        }?;
        mutations::everywhere(arena, &mut world);
        world.settle(arena);
        Some(world)
    }

    /// Lets an agent do something, and notes when it begins to act.
    pub(crate) fn act<T>(
        &mut self,
        arena: &Arena,
        id: AgentId,
        act: impl FnOnce(&mut Agent, &Moment<'_>) -> T,
    ) -> Option<T> {
        let mut agent = *self.at(id)?;
        let result = act(&mut agent, &now(&arena.timing));
        self.put(&agent);
        Some(result)
    }

    /// An agent is as it has become.
    fn put(&mut self, agent: &Agent) {
        let was_acting = self.role(agent.id).is_some_and(Role::is_acting);
        self.agents[index(agent.id)] = Some(*agent);
        if agent.role.is_acting() && !was_acting {
            self.began(agent.epoch);
        }
    }

    /// The world with this agent as it has become, and what it sends.
    fn sending(&self, arena: &Arena, agent: &Agent, packet: Packet) -> Self {
        let mut world = self.clone();
        world.put(agent);
        world.send(arena, packet);
        world
    }

    /// The agent as it knows the present Lease, if it decides on it without a write whose outcome it would learn from it.
    fn refreshed(&self, id: AgentId) -> Option<Agent> {
        let mut agent = *self.at(id)?;
        let is_resolved = agent.unresolved.is_none_or(|unresolved| unresolved.write.base.0 == CURRENT);
        if !agent.role.is_standby() && is_resolved {
            agent.seen = Some(Seen { lease: self.lease, version: Version(CURRENT), since: NOW });
        }
        Some(agent)
    }

    /// A rule that writes the Lease. A decision on an older version only costs a conflict and is left out.
    fn write(
        &self,
        arena: &Arena,
        id: AgentId,
        rule: impl FnOnce(&mut Agent, &Moment<'_>) -> Option<Write>,
    ) -> Option<Self> {
        // Most steps of most worlds end here, before the world is copied.
        let mut agent = self.refreshed(id).filter(|_| self.has_room(arena))?;
        agent.seen.filter(|seen| seen.version.0 == CURRENT)?;
        let write = rule(&mut agent, &now(&arena.timing))?;
        let is_bounded = write.lease.epoch.term <= arena.most_terms;
        is_bounded.then(|| self.sending(arena, &agent, Packet::Write { from: id, write }))
    }

    fn renew(&self, arena: &Arena, id: AgentId, hold: Hold) -> Option<Self> {
        let is_known = arena.has_peer_mode || hold == Hold::Api;
        let world = || self.write(arena, id, |agent, at| mutations::renew(arena, agent, at, hold));
        is_known.then(world)?
    }

    fn repeat(&self, arena: &Arena, id: AgentId) -> Option<Self> {
        let is_repeated = !arena.has(Mutation::NoRepeat);
        let write =
            self.at(id)?.r3_repeat().filter(|_| is_repeated).filter(|write| write.base.0 == CURRENT)?;
        let packet = Packet::Write { from: id, write };
        let mut world = (self.has_room(arena) && !self.net.contains(&packet)).then(|| self.clone())?;
        world.send(arena, packet);
        Some(world)
    }

    fn read(&self, arena: &Arena, id: AgentId) -> Option<Self> {
        let agent = self.at(id)?;
        let moved_on = agent.unresolved.is_some_and(|unresolved| unresolved.write.base.0 < CURRENT);
        let is_unread = agent.seen.is_none_or(|seen| seen.version.0 < CURRENT);
        let is_news = is_unread && (agent.role.is_standby() || agent.epoch < self.lease.epoch);
        let mut world = (moved_on || is_news).then(|| self.clone())?;
        let lease = self.lease;
        world.act(arena, id, |agent, at| mutations::read(arena, agent, at, lease))?;
        Some(world)
    }

    fn ask(&self, arena: &Arena, id: AgentId, to: AgentId) -> Option<Self> {
        let is_between = |packet: &Packet| match packet {
            Packet::Message { from, to: target, message: Message::PromiseRequest(_) } => {
                (*from, *target) == (id, to)
            }
            Packet::Message { from, to: target, message: Message::Promise(_) } => {
                (*from, *target) == (to, id)
            }
            Packet::Message { .. }
            | Packet::Certificate { .. }
            | Packet::Write { .. }
            | Packet::Answer { .. } => false,
        };
        let is_possible = self.has_room(arena) && !self.net.iter().any(is_between);
        let agent = self.refreshed(id).filter(|_| is_possible)?;
        let to = agent.r2_promisers().find(|promiser| *promiser == to)?;
        let request = agent.r2_request(&now(&arena.timing))?;
        let message = Message::PromiseRequest(request);
        Some(self.sending(arena, &agent, Packet::Message { from: id, to, message }))
    }

    pub(crate) fn without(&self, packet: &Packet) -> Self {
        let mut world = self.clone();
        world.net.retain(|other| other != packet);
        world
    }

    pub(crate) fn deliver(&self, arena: &Arena, packet: &Packet) -> Option<Self> {
        let mut world = self.without(packet);
        match *packet {
            Packet::Message { from, to, message } => world.receive(arena, (from, to), message),
            Packet::Certificate { to, epoch } => {
                world.act(arena, to, |agent, at| mutations::certificate(arena, agent, at, epoch));
            }
            Packet::Write { from, write } => world.apply(arena.has_api.then_some(arena)?, from, write),
            Packet::Answer { to, unresolved, version } => {
                world
                    .act(arena, to, |agent, at| mutations::answered(arena, agent, at, (unresolved, version)));
            }
        }
        Some(world)
    }

    fn receive(&mut self, arena: &Arena, (from, to): (AgentId, AgentId), message: Message) {
        match message {
            Message::Ping(ping) => {
                self.act(arena, to, |agent, _| agent.hear(from, ping));
            }
            Message::PromiseRequest(request) => {
                let promise = self.act(arena, to, |agent, at| mutations::grant(arena, agent, at, request));
                if let Some(promise) = promise.flatten() {
                    self.send(
                        arena,
                        Packet::Message { from: to, to: from, message: Message::Promise(promise) },
                    );
                }
            }
            Message::Promise(promise) => {
                self.refreshed(to).into_iter().for_each(|agent| self.put(&agent));
                self.act(arena, to, |agent, at| mutations::promised(arena, agent, at, (from, promise)));
            }
            // The policy sends it; no rule reads it.
            Message::Farewell(_) => {}
            Message::Handover(handover) => {
                self.act(arena, to, |agent, at| mutations::accept(arena, agent, at, (from, handover)));
            }
        }
    }

    /// The API server applies a write, whose base is the present version, and answers.
    fn apply(&mut self, arena: &Arena, from: AgentId, write: Write) {
        self.replace_lease(arena, write.lease);
        let unresolved = self.at(from).and_then(|agent| agent.unresolved);
        let unresolved = unresolved.filter(|unresolved| unresolved.write.number == write.number);
        if let Some(unresolved) = unresolved.filter(|unresolved| unresolved.purpose != Purpose::Release) {
            self.send(arena, Packet::Answer { to: from, unresolved, version: Version(CURRENT) });
        }
    }

    fn stop(&self, arena: &Arena, id: AgentId) -> Option<Self> {
        let is_active = self.role(id) == Some(Role::Active) && !self.unnoticed[index(id)];
        let mut world = self.fault(arena.may_switch_over && is_active)?;
        world.act(arena, id, |agent, _| agent.r1_stop())?;
        if arena.timing.stop.is_zero() && !arena.stops_slowly {
            world.end_application(arena, id);
            world.notice_end(arena, id);
        }
        Some(world)
    }

    fn end(&self, arena: &Arena, id: AgentId) -> Option<Self> {
        let mut world = self.is_acting(id).then(|| self.clone())?;
        world.end_application(arena, id);
        if !arena.may_notice_late {
            world.notice_end(arena, id);
        }
        Some(world)
    }

    fn notice(&self, arena: &Arena, id: AgentId) -> Option<Self> {
        let mut world = self.unnoticed[index(id)].then(|| self.clone())?;
        world.notice_end(arena, id);
        Some(world)
    }

    /// The agent learns that its application has ended. It is taken to have heard of its peer just before.
    pub(crate) fn notice_end(&mut self, arena: &Arena, id: AgentId) {
        self.unnoticed[index(id)] = false;
        self.act(arena, id, |agent, at| {
            hear_peer(agent);
            mutations::ended(arena, agent, at);
        });
    }

    fn hand_over(&self, arena: &Arena, id: AgentId) -> Option<Self> {
        let mut agent = *self.at(id).filter(|_| self.has_room(arena))?;
        hear_peer(&mut agent);
        let (to, handover) = mutations::hand_over(arena, &mut agent, &now(&arena.timing))?;
        let is_bounded =
            handover.epoch.sequence <= arena.most_delegations && handover.epoch.term <= arena.most_terms;
        let message = Message::Handover(handover);
        is_bounded.then(|| self.sending(arena, &agent, Packet::Message { from: id, to, message }))
    }

    /// The operator asks; this write restarts nobody's watch.
    fn request_replacement(&self, arena: &Arena, leaving: AgentId) -> Option<Self> {
        let is_possible = self.at(S2).is_none() && self.lease.members.contains(&leaving);
        // A Pod has come for a place that was to become vacant: the operator changes its mind.
        let is_asked = self.lease.pending.is_some_and(|pending| pending.joining != AgentId::NOBODY);
        if !is_possible || is_asked || self.lease.members.contains(&S2) {
            return None;
        }
        let mut world = self.requesting(arena, Replacement { leaving, joining: S2 });
        world.agents[index(S2)] = Some(Agent::new(S2, Incarnation(CURRENT)));
        Some(world)
    }

    /// The operator asks for a vacant place, at any time: that the member has gone makes it useful, not safe.
    fn request_vacancy(&self, arena: &Arena, leaving: AgentId) -> Option<Self> {
        let is_possible = self.lease.members.contains(&leaving) && !self.lease.is_lone();
        (is_possible && self.lease.pending.is_none())
            .then(|| self.requesting(arena, Replacement { leaving, joining: AgentId::NOBODY }))
    }

    fn requesting(&self, arena: &Arena, replacement: Replacement) -> Self {
        let mut world = self.clone();
        world.replace_lease(arena, bps_protocol::Lease { pending: Some(replacement), ..self.lease });
        world.unwritten_since = NOW;
        world
    }

    fn force_replacement(&self, arena: &Arena) -> Option<Self> {
        let at = now(&arena.timing);
        let has_ended = |id: &AgentId| *id == AgentId::NOBODY || self.at(*id).is_none();
        let mut members = self.lease.members.iter();
        let have_ended =
            if arena.has(Mutation::EvidenceOfOne) { members.any(has_ended) } else { members.all(has_ended) };
        let have_ended = have_ended && arena.has_evidence;
        let evidence = EndEvidence { unwritten_since: self.unwritten_since, have_ended };
        let lease = forced_replacement(&at, &self.lease, evidence)?;
        let mut world = self.clone();
        world.replace_lease(arena, lease);
        world.unwritten_since = BootTime(NOW.0);
        Some(world)
    }
}

/// The newest ping of the peer arrives in no time, which is the worst case for safety.
pub(crate) fn hear_peer(agent: &mut Agent) {
    if let Some(tenure) = agent.tenure.filter(|tenure| tenure.peer.id != AgentId::NOBODY) {
        agent.hear(tenure.peer.id, Ping { incarnation: Incarnation(CURRENT), sent: NOW });
    }
}
