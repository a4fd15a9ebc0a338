//! What the model can make of an agent at one moment, for `whole`.

use std::collections::HashSet;

use bps_protocol::{Agent, AgentId, Effect, Hold, Incarnation, Message, Moment, Role};

use crate::arena::Arena;
use crate::steps::Step;
use crate::whole::{Stimulus, is_current, read};
use crate::world::{AGENTS, CURRENT, Packet, World, index};

type Rule = fn(&mut Agent, &Moment<'_>);

/// What the model can make of an agent at one moment.
pub(crate) struct Possible {
    worlds: HashSet<World>,
    /// What the agent can have sent on the way.
    sent: HashSet<Packet>,
}

impl Possible {
    pub(crate) fn of(
        arena: &Arena,
        (world, id): (&World, AgentId),
        is_fenced: bool,
        stimulus: &Stimulus,
    ) -> Self {
        let mut possible = Self { worlds: HashSet::from([settled(arena, world)]), sent: HashSet::new() };
        let acted = world.role(id).is_some_and(|role| !role.is_standby());
        // The model forgets what an active has read until it is needed.
        let read = acted.then_some(Step::Read(id));
        // A fenced agent starts no application, and counts it as ended at once.
        let end = is_fenced.then_some(Step::End(id));
        let others: Vec<Step> = read.into_iter().chain(end).collect();
        possible.decide(arena, id, &others);
        let before = std::mem::take(&mut possible.worlds);
        for world in before {
            possible.add(stimulated(arena, (&world, id), stimulus));
        }
        possible.decide(arena, id, &others);
        possible
    }

    fn add(&mut self, mut world: World) -> Option<World> {
        self.sent.extend(std::mem::take(&mut world.net));
        self.worlds.insert(world.clone()).then_some(world)
    }

    /// Adds whatever the agent can decide, or make of these steps.
    fn decide(&mut self, arena: &Arena, id: AgentId, others: &[Step]) {
        let mut open: Vec<World> = self.worlds.iter().cloned().collect();
        while let Some(world) = open.pop() {
            for decided in decisions(arena, &world, id, others) {
                open.extend(self.add(decided));
            }
        }
    }

    /// Why this is not one of them.
    pub(crate) fn objection(
        &self,
        arena: &Arena,
        (world, id): (&World, AgentId),
        (whole, effects): (&Agent, &[Effect]),
    ) -> Option<String> {
        let mut ended = World { net: Vec::new(), ..world.clone() };
        ended.agents[index(id)] = Some(*whole);
        let ended = settled(arena, &ended);
        let agent = ended.at(id).map(|agent| as_bound(*agent, arena));
        let alike = |agent: &Agent| as_bound(with_witness_of(*agent, whole), arena);
        if !self.worlds.iter().any(|world| world.at(id).map(alike) == agent) {
            let possible: Vec<_> = self.worlds.iter().map(|world| world.at(id)).collect();
            return Some(format!("became {agent:?}\ninstead of one of {possible:#?}"));
        }
        let is_impossible = |effect: &&Effect| !self.permits(id, **effect);
        let impossible = effects.iter().find(is_impossible)?;
        Some(format!("wanted {impossible:?}, and only {:#?} can be sent", self.sent))
    }

    fn permits(&self, id: AgentId, effect: Effect) -> bool {
        match effect {
            Effect::Send { message: Message::Ping(_) | Message::Farewell(_), .. } => true,
            Effect::Send { to, message } => self.sent.contains(&Packet::Message { from: id, to, message }),
            // What it repeats on an old version changes nothing.
            Effect::WriteLease(write) if !is_current(&write) => true,
            Effect::WriteLease(mut write) => {
                write.number = 1;
                self.sent.contains(&Packet::Write { from: id, write })
            }
            Effect::Activate { epoch, .. } => {
                let acts = |agent: &Agent| agent.role == Role::Active && agent.epoch == epoch;
                self.worlds.iter().any(|world| world.at(id).is_some_and(acts))
            }
            Effect::Stop { .. }
            | Effect::StopBy { .. }
            | Effect::Kill
            | Effect::StandBy
            | Effect::ReadLease
            | Effect::WakeAt(_) => true,
        }
    }
}

/// The model takes it that the peer is heard of as the application ends; who is not heard of gets no handover.
fn with_witness_of(mut possible: Agent, whole: &Agent) -> Agent {
    if let (Some(tenure), Some(other)) = (&mut possible.tenure, whole.tenure)
        && other.peer.witness != Some(Incarnation(CURRENT))
    {
        tenure.peer.witness = other.peer.witness;
    }
    possible
}

/// An agent that is bound by a promise takes over by expiry no sooner than if it had read the Lease so much later.
fn as_bound(mut agent: Agent, arena: &Arena) -> Agent {
    if let (Some(seen), true) = (&mut agent.seen, agent.role.is_standby()) {
        seen.since = seen.since.max(agent.promise_end.before(arena.timing.api_watch));
    }
    agent
}

fn settled(arena: &Arena, world: &World) -> World {
    let mut world = world.clone();
    world.settle(arena);
    world
}

/// What the model makes of it.
fn stimulated(arena: &Arena, (world, id): (&World, AgentId), stimulus: &Stimulus) -> World {
    let mut world = world.clone();
    match stimulus {
        Stimulus::TimePasses => {}
        Stimulus::Arrival(packet) => world = world.deliver(arena, packet).expect("it can arrive"),
        Stimulus::Reading => read(arena, &mut world, id),
        Stimulus::ApplicationEnds => {
            world.end_application(arena, id);
            world.notice_end(arena, id);
        }
    }
    settled(arena, &world)
}

/// The worlds after each single decision of this agent.
fn decisions(arena: &Arena, world: &World, id: AgentId, others: &[Step]) -> Vec<World> {
    let own = [
        Step::Renew(id, Hold::Api),
        Step::Renew(id, Hold::Peer),
        Step::Claim(id),
        Step::Repeat(id),
        Step::HandOver(id),
        Step::Release(id),
        Step::Admit(id),
    ];
    let asked = AGENTS.into_iter().filter(|to| *to != id).map(|to| Step::Ask(id, to));
    let steps = own.into_iter().chain(asked).chain(others.iter().cloned());
    let stepped = steps.filter_map(|step| world.step(arena, &step));
    // The model stops the application in one step where that takes no time, and looks at holds when a clock ticks.
    let enforce = |agent: &mut Agent, at: &Moment<'_>| agent.r1_enforce(at);
    let stop = |agent: &mut Agent, _: &Moment<'_>| {
        agent.r1_stop();
    };
    // Who ends a tenure as it begins has not heard of its peer in it. The model takes it to have, which only allows more.
    let end: Rule = |agent, at| agent.r1_application_ended(at);
    let end = others.contains(&Step::End(id)).then_some(end);
    let rules: [Rule; 2] = [enforce, stop];
    let at_once = rules.into_iter().chain(end).map(|rule| {
        let mut world = world.clone();
        world.act(arena, id, rule);
        settled(arena, &world)
    });
    stepped.chain(at_once).collect()
}
