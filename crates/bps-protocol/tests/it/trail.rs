//! Follows whole agents on their way through the simulated world: whatever one makes of an event, with all that it decided and
//! remembered before, must be what the model can make of it.
//!
//! `whole` asks every question of the model, but each of an agent that has just started. Here agents live on for minutes,
//! restart, are fenced and replaced, and their clocks drift.

use std::collections::BTreeSet;

use bps_protocol::{
    Agent, AgentId, BootTime, Effect, Epoch, Event, Handover, Incarnation, Lease, Message, Moment, Peer,
    Ping, Promise, PromiseRequest, Seen, Tenure, Timing, Unresolved, Version, Write,
};

use crate::arena::Arena;
use crate::possible::Possible;
use crate::whole::{Stimulus, decides_on_old_version, decision, unbounded};
use crate::world::{CURRENT, NOW, Packet, World, index};

/// A step that a whole agent took.
pub(crate) struct Taken<'a> {
    pub(crate) before: Agent,
    pub(crate) event: Event,
    pub(crate) effects: &'a [Effect],
    pub(crate) after: Agent,
    pub(crate) is_fenced: bool,
    /// Now, on the clock of each agent.
    pub(crate) clocks: [BootTime; 3],
    /// The Lease, for who has not read it.
    pub(crate) lease: (Lease, Version),
}

/// What agents did on their way.
pub(crate) struct Trail {
    arena: Arena,
    pub(crate) judged: usize,
    pub(crate) decided: BTreeSet<&'static str>,
    /// The first; nothing is judged after it.
    pub(crate) difference: Option<String>,
}

impl Trail {
    /// Judges by the rules of this arena, with these times.
    pub(crate) fn new(arena: &Arena, timing: &Timing) -> Self {
        let arena = unbounded(&Arena { timing: *timing, has_operator: true, ..arena.clone() });
        Self { arena, judged: 0, decided: BTreeSet::new(), difference: None }
    }

    /// A step was taken.
    pub(crate) fn follow(&mut self, taken: &Taken<'_>) {
        if self.difference.is_none() {
            self.difference = self.unenforced(taken).or_else(|| self.judge(taken));
        }
    }

    /// An agent has started again.
    pub(crate) fn restarted(&mut self, taken: &Taken<'_>) {
        let (view, id) = (View::of(taken), taken.after.id);
        let world = World { faults_left: 1, ..view.world(&self.arena, &taken.before) };
        let restarted = world.restart(&self.arena, id).and_then(|world| world.at(id).copied());
        let whole = view.agent(&taken.after);
        if restarted != Some(whole) {
            self.difference.get_or_insert(format!("started as {whole:?}\ninstead of {restarted:?}"));
        }
    }

    /// R1 is not a choice.
    fn unenforced(&self, Taken { after, clocks, .. }: &Taken<'_>) -> Option<String> {
        let mut enforced = *after;
        enforced.r1_enforce(&Moment { now: clocks[index(after.id)], timing: &self.arena.timing });
        (enforced.role != after.role).then(|| format!("{after:?}\nshould be {:?} by now", enforced.role))
    }

    fn judge(&mut self, taken: &Taken<'_>) -> Option<String> {
        let (view, id) = (View::of(taken), taken.before.id);
        let world = view.world(&self.arena, &taken.before);
        let whole = view.agent(&taken.after);
        let effects: Vec<Effect> = taken.effects.iter().map(|effect| view.effect(id, *effect)).collect();
        let stimulus = view.stimulus(taken);
        let is_idle = view.world(&self.arena, &taken.after).at(id) == world.at(id)
            && taken.effects.iter().all(|effect| decision(effect).is_none());
        if is_idle && stimulus != Stimulus::ApplicationEnds || decides_on_old_version(&whole, world.at(id)) {
            return None;
        }
        self.judged += 1;
        self.decided.extend(taken.effects.iter().filter_map(decision));
        // Whatever arrives may be ignored: it could have been lost.
        let is_arrival = matches!(stimulus, Stimulus::Arrival(_));
        let ignored = is_arrival.then_some(Stimulus::TimePasses);
        let objections = [Some(stimulus), ignored].into_iter().flatten().map(|stimulus| {
            let possible = Possible::of(&self.arena, (&world, id), taken.is_fenced, &stimulus);
            possible.objection(&self.arena, (&world, id), (&whole, &effects))
        });
        let objections: Option<Vec<String>> = objections.collect();
        objections.map(|all| format!("{:?}\n{:?}\n{}", world.at(id), taken.event, all.join("\n")))
    }
}

/// What an agent knows, in which terms the model sees the world: the newest Lease and start of its peer that it has heard of
/// are the present ones, and it is the same moment on every clock.
struct View {
    clocks: [BootTime; 3],
    lease: Lease,
    version: Version,
    incarnations: [Option<Incarnation>; 3],
}

impl View {
    fn of(taken: &Taken<'_>) -> Self {
        let Taken { before, event, after, clocks, .. } = taken;
        let seen = before.seen.map_or(taken.lease, |Seen { lease, version, .. }| (lease, version));
        let told = match *event {
            Event::LeaseRead { lease, version } => Some((lease, version)),
            Event::WriteApplied { number, version } => {
                answered(before, number).map(|unresolved| (unresolved.write.lease, version))
            }
            Event::WriteConflicted
            | Event::Received { .. }
            | Event::ApplicationEnded
            | Event::Certificate { .. }
            | Event::Timer
            | Event::Ordered(_) => None,
        };
        let is_new = |(_, version): &(Lease, Version)| before.seen.is_none() || seen.1 <= *version;
        let (lease, version) = told.filter(is_new).unwrap_or(seen);
        let mut incarnations = [None; 3];
        for agent in [before, after] {
            incarnations[index(agent.id)] = Some(agent.incarnation);
            for peer in
                agent.tenure.into_iter().flat_map(|Tenure { peer, joining, .. }| [Some(peer), joining])
            {
                let known = peer.and_then(|Peer { id, ping, .. }| Some((id, ping?.incarnation)));
                if let Some((id, newest)) = known {
                    incarnations[index(id)] = Some(newest);
                }
            }
        }
        Self { clocks: *clocks, lease, version, incarnations }
    }

    /// All that the model need know to let this agent take a step.
    fn world(&self, arena: &Arena, agent: &Agent) -> World {
        let mut world = World {
            lease: self.lease(self.lease),
            agents: [None; 3],
            fence: Epoch::default(),
            ..World::released(arena)
        };
        world.agents[index(agent.id)] = Some(self.agent(agent));
        world.settle(arena);
        world
    }

    fn stimulus(&self, taken: &Taken<'_>) -> Stimulus {
        let to = taken.before.id;
        let arrival = |packet| Stimulus::Arrival(Box::new(packet));
        match taken.event {
            Event::LeaseRead { version, .. } if version == self.version => Stimulus::Reading,
            Event::WriteApplied { number, version } => {
                let answer = answered(&taken.before, number).map(|unresolved| {
                    let unresolved = self.unresolved(to, unresolved);
                    let unresolved =
                        Unresolved { write: Write { number: 1, ..unresolved.write }, ..unresolved };
                    arrival(Packet::Answer { to, unresolved, version: self.version(version) })
                });
                answer.unwrap_or(Stimulus::TimePasses)
            }
            Event::Received { from, message } => match message {
                Message::Ping(_) | Message::Farewell(_) => Stimulus::TimePasses,
                Message::PromiseRequest(_) | Message::Promise(_) | Message::Handover(_) => {
                    arrival(Packet::Message { from, to, message: self.message((from, to), message) })
                }
            },
            Event::ApplicationEnded => Stimulus::ApplicationEnds,
            Event::Certificate { epoch } => arrival(Packet::Certificate { to, epoch }),
            Event::LeaseRead { .. } | Event::WriteConflicted | Event::Timer | Event::Ordered(_) => {
                Stimulus::TimePasses
            }
        }
    }

    /// A moment on the clock of this agent. The beginning of time stays what it is.
    fn moment(&self, id: AgentId, moment: BootTime) -> BootTime {
        let moved = BootTime(NOW.0 + moment.0 - self.clocks[index(id)].0);
        if moment == BootTime::default() { moment } else { moved }
    }

    fn incarnation(&self, id: AgentId, incarnation: Incarnation) -> Incarnation {
        Incarnation(if self.incarnations[index(id)] == Some(incarnation) { CURRENT } else { 0 })
    }

    fn version(&self, version: Version) -> Version {
        Version(if version >= self.version { CURRENT } else { 0 })
    }

    fn lease(&self, lease: Lease) -> Lease {
        Lease { writes: (lease.writes + CURRENT).saturating_sub(self.lease.writes), ..lease }
    }

    fn write(&self, Write { number, base, lease }: Write) -> Write {
        Write { number, base: self.version(base), lease: self.lease(lease) }
    }

    fn unresolved(&self, id: AgentId, Unresolved { write, purpose, sent }: Unresolved) -> Unresolved {
        Unresolved { write: self.write(write), purpose, sent: self.moment(id, sent) }
    }

    /// Every field is named, so that a new one cannot be forgotten.
    fn agent(&self, agent: &Agent) -> Agent {
        let Agent { id, incarnation, role, epoch, promise_end, is_certified, .. } = *agent;
        let Agent { tenure, seen, unresolved, last_write, .. } = *agent;
        let peer = |Peer { id: other, hold_end, ping: _, witness }: Peer| Peer {
            id: other,
            hold_end: self.moment(id, hold_end),
            ping: None,
            witness: witness.map(|witness| self.incarnation(other, witness)),
        };
        let tenure = tenure.map(|tenure| Tenure {
            api_hold_end: self.moment(id, tenure.api_hold_end),
            grace_end: self.moment(id, tenure.grace_end),
            peer: peer(tenure.peer),
            joining: tenure.joining.map(peer),
        });
        let seen = seen.map(|Seen { lease, version, since }| Seen {
            lease: self.lease(lease),
            version: self.version(version),
            since: self.moment(id, since),
        });
        Agent {
            id,
            incarnation: self.incarnation(id, incarnation),
            role,
            epoch,
            tenure,
            promise_end: self.moment(id, promise_end),
            is_certified,
            seen,
            unresolved: unresolved.map(|unresolved| self.unresolved(id, unresolved)),
            last_write,
        }
    }

    fn message(&self, (from, to): (AgentId, AgentId), message: Message) -> Message {
        let request =
            |asker, PromiseRequest { epoch, sent }| PromiseRequest { epoch, sent: self.moment(asker, sent) };
        match message {
            Message::PromiseRequest(asked) => Message::PromiseRequest(request(from, asked)),
            Message::Promise(promise) => Message::Promise(Promise { request: request(to, promise.request) }),
            Message::Handover(handover) => {
                let Ping { incarnation, sent } = handover.echo;
                let echo =
                    Ping { incarnation: self.incarnation(to, incarnation), sent: self.moment(to, sent) };
                Message::Handover(Handover { echo, ..handover })
            }
            Message::Ping(_) | Message::Farewell(_) => message,
        }
    }

    fn effect(&self, from: AgentId, effect: Effect) -> Effect {
        match effect {
            Effect::Send { to, message } => {
                let mut message = self.message((from, to), message);
                if let Message::Handover(handover) = &mut message {
                    // The newest ping of the model has come in no time; a hold that begins earlier ends earlier.
                    handover.echo.sent = handover.echo.sent.max(NOW);
                }
                Effect::Send { to, message }
            }
            Effect::WriteLease(write) => Effect::WriteLease(self.write(write)),
            Effect::Activate { .. }
            | Effect::Stop { .. }
            | Effect::StopBy { .. }
            | Effect::Kill
            | Effect::StandBy
            | Effect::ReadLease
            | Effect::WakeAt(_) => effect,
        }
    }
}

/// The write that an answer of this number is about.
fn answered(agent: &Agent, number: u64) -> Option<Unresolved> {
    agent.unresolved.filter(|unresolved| unresolved.write.number == number)
}
