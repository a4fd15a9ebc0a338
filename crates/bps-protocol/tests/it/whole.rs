//! Whatever the model puts before an agent is put before a whole one, with its policy: what [`Protocol::step`] makes of it must
//! be what the model makes of it, before and after which it may have decided what the model can decide at the same moment.
//!
//! So the agents do not drift from what is checked. What they decide must be possible in the model; when they decide it is
//! for `scripts` to tell.

use std::collections::{BTreeSet, HashSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bps_protocol::{
    Agent, AgentId, Effect, Event, Hold, Lease, Message, Order, Protocol, Timing, Version, Write,
};

use crate::arena::{Arena, ticks};
use crate::model::Search;
use crate::mutations::{self, Mutation};
use crate::possible::Possible;
use crate::steps::{Step, hear_peer};
use crate::world::{AGENTS, CURRENT, NOW, Packet, World, index};

/// Something from outside.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Stimulus {
    TimePasses,
    Arrival(Box<Packet>),
    Reading,
    ApplicationEnds,
}

/// What was said to an agent besides.
struct Mood {
    keeps_state: bool,
    before: &'static [Order],
    after: &'static [Order],
}

const MOODS: [Mood; 9] = [
    Mood { keeps_state: false, before: &[], after: &[] },
    Mood { keeps_state: false, before: &[Order::Fence], after: &[Order::Unfence] },
    Mood { keeps_state: false, before: &[Order::Leave], after: &[] },
    Mood { keeps_state: false, before: &[Order::SwitchOver], after: &[] },
    Mood { keeps_state: false, before: &[Order::PeerFenced(true)], after: &[] },
    Mood { keeps_state: false, before: &[Order::GiveUp], after: &[] },
    Mood { keeps_state: true, before: &[Order::Withhold], after: &[Order::Permit] },
    Mood { keeps_state: true, before: &[], after: &[Order::Settle { is_level: true }] },
    Mood { keeps_state: true, before: &[], after: &[Order::Settle { is_level: false }] },
];

impl Mood {
    fn is_fenced(&self) -> bool {
        self.before.iter().any(|order| [Order::Fence, Order::Leave].contains(order))
    }
}

/// What was put before whole agents, and what came of it.
#[derive(Default)]
pub(crate) struct Audit {
    asked: HashSet<(Agent, Lease, bool, Stimulus)>,
    decided: BTreeSet<&'static str>,
    /// The first; nothing is asked after it.
    difference: Option<String>,
}

impl Audit {
    /// Looks at a step that the model took, and tells whether to go on.
    pub(crate) fn watch(&mut self, arena: &Arena, worlds: (&World, &World), step: &Step) -> bool {
        self.look(arena, worlds, step);
        self.difference.is_none()
    }

    fn look(&mut self, arena: &Arena, (before, after): (&World, &World), step: &Step) {
        let arena = unbounded(arena);
        for id in AGENTS {
            self.ask(&arena, (after, id), &Stimulus::TimePasses);
        }
        let (id, stimulus) = match step {
            Step::Deliver(packet) | Step::DeliverCopy(packet) => match packet {
                Packet::Message { to, .. } | Packet::Certificate { to, .. } | Packet::Answer { to, .. } => {
                    (*to, Stimulus::Arrival(Box::new(packet.clone())))
                }
                Packet::Write { .. } => return,
            },
            Step::Read(id) => (*id, Stimulus::Reading),
            Step::End(id) | Step::Notice(id) | Step::Crash(id) => (*id, Stimulus::ApplicationEnds),
            Step::Tick(_)
            | Step::Lose(_)
            | Step::Ask(..)
            | Step::Renew(..)
            | Step::Claim(_)
            | Step::Repeat(_)
            | Step::Stop(_)
            | Step::HandOver(_)
            | Step::Release(_)
            | Step::Admit(_)
            | Step::OperatorRequests(_)
            | Step::OperatorVacates(_)
            | Step::OperatorForces
            | Step::Restart(_)
            | Step::Die(_) => return,
        };
        self.ask(&arena, (before, id), &stimulus);
    }

    fn ask(&mut self, arena: &Arena, (world, id): (&World, AgentId), stimulus: &Stimulus) {
        let Some(agent) = world.at(id).filter(|_| self.difference.is_none()) else { return };
        if !self.asked.insert((*agent, world.lease, world.unnoticed[index(id)], stimulus.clone())) {
            return;
        }
        let mut world = World { net: Vec::new(), ..world.clone() };
        if !agent.role.is_standby() && agent.unresolved.is_none_or(|unresolved| is_current(&unresolved.write))
        {
            read(arena, &mut world, id);
        }
        world.agents[index(id)].iter_mut().for_each(hear_peer);
        for mood in &MOODS {
            let (whole, effects) = answer(arena, (&world, id), mood, stimulus);
            if decides_on_old_version(&whole, world.at(id)) {
                continue;
            }
            self.decided.extend(effects.iter().filter_map(decision));
            let possible = Possible::of(arena, (&world, id), mood.is_fenced(), stimulus);
            if let Some(impossible) = possible.objection(arena, (&world, id), (&whole, &effects)) {
                let told = (mood.before, stimulus, mood.after);
                self.difference = Some(format!("{:?}\n{told:?}\n{impossible}", world.at(id)));
                return;
            }
        }
    }
}

/// The same rules and times; nothing is left out because the search would not end, or to see what one feature does.
pub(crate) fn unbounded(arena: &Arena) -> Arena {
    let arena = arena.clone();
    Arena {
        packets: usize::MAX,
        most_terms: u32::MAX,
        most_delegations: u32::MAX,
        has_peer_mode: true,
        ..arena
    }
}

/// The times that rules do not ask for are such that everything is due at once, in ticks as well.
fn eager(timing: &Timing) -> Timing {
    Timing {
        ping_period: ticks(NOW.0),
        promise_period: ticks(1),
        renew_period: ticks(1),
        keep_alive_period: ticks(1),
        request_timeout: ticks(1),
        second_copy: ticks(1),
        round_trip: ticks(1),
        certificate_wait: Duration::ZERO,
        peer_margin: Duration::ZERO,
        ..*timing
    }
}

/// A whole agent that is what the world's agent is, after these orders and the stimulus.
fn answer(
    arena: &Arena,
    (world, id): (&World, AgentId),
    mood: &Mood,
    stimulus: &Stimulus,
) -> (Agent, Vec<Effect>) {
    let protocol = Protocol::new(*world.at(id).expect("it lives"), eager(&arena.timing));
    let mut protocol = if mood.keeps_state { protocol.keeping_state() } else { protocol };
    let event = match stimulus {
        Stimulus::TimePasses => Event::Timer,
        Stimulus::Reading => Event::LeaseRead { lease: world.lease, version: Version(CURRENT) },
        Stimulus::ApplicationEnds => Event::ApplicationEnded,
        Stimulus::Arrival(packet) => match **packet {
            Packet::Message { from, message, .. } => Event::Received { from, message },
            Packet::Certificate { epoch, .. } => Event::Certificate { epoch },
            Packet::Answer { unresolved, version, .. } => {
                Event::WriteApplied { number: unresolved.write.number, version }
            }
            Packet::Write { .. } => unreachable!("it is not for an agent"),
        },
    };
    let ordered = |orders: &'static [Order]| orders.iter().copied().map(Event::Ordered);
    let events = ordered(mood.before).chain([event]).chain(ordered(mood.after));
    let effects = events.flat_map(|event| protocol.step(NOW, event)).collect();
    (*protocol.agent(), effects)
}

pub(crate) fn read(arena: &Arena, world: &mut World, id: AgentId) {
    let lease = world.lease;
    world.act(arena, id, |agent, at| mutations::read(arena, agent, at, lease));
}

pub(crate) fn is_current(write: &Write) -> bool {
    write.base.0 == CURRENT
}

/// The model leaves out what the compare-and-swap refuses.
pub(crate) fn decides_on_old_version(whole: &Agent, before: Option<&Agent>) -> bool {
    let under_way = before.and_then(|agent| agent.unresolved).map(|unresolved| unresolved.write);
    let write = whole.unresolved.map(|unresolved| unresolved.write);
    write.is_some_and(|write| !is_current(&write) && Some(write) != under_way)
}

/// A name for a decision.
pub(crate) fn decision(effect: &Effect) -> Option<&'static str> {
    Some(match effect {
        Effect::Send { message, .. } => match message {
            Message::PromiseRequest(_) => "ask",
            Message::Promise(_) => "promise",
            Message::Handover(_) => "hand over",
            Message::Ping(_) | Message::Farewell(_) => return None,
        },
        Effect::WriteLease(write) => match (write.lease.holder, write.lease.hold) {
            (None, _) => "release",
            (Some(_), Hold::Api) => "write",
            (Some(_), Hold::Peer) => "enter Peer mode",
        },
        Effect::Activate { .. } => "act",
        Effect::Stop { .. } => "stop",
        Effect::StopBy { .. } => "stop later",
        Effect::Kill => "kill",
        Effect::StandBy => "stand by",
        Effect::ReadLease | Effect::WakeAt(_) => return None,
    })
}

fn audit(arena: Arena) -> Audit {
    let audit = Arc::new(Mutex::new(Audit::default()));
    let found = Search { audit: Some(Arc::clone(&audit)), ..Search::of(arena) }.run();
    let audit = std::mem::take(&mut *audit.lock().expect("nobody panics"));
    println!("{} worlds, {:.1?}: {} questions", found.worlds, found.time, audit.asked.len());
    audit
}

fn pair(faults: u8) -> Arena {
    Arena { may_restart: false, ..Arena::pair().packets(1).faults(faults) }
}

/// What the whole agents decided in these arenas.
fn decided(arenas: impl IntoIterator<Item = Arena>) -> BTreeSet<&'static str> {
    let audits = arenas.into_iter().map(audit);
    let decided = audits.map(|audit| {
        assert!(audit.difference.is_none(), "{}", audit.difference.unwrap_or_default());
        audit.decided
    });
    decided.flatten().collect()
}

#[test]
fn whole_agents_take_no_step_that_the_model_does_not_know() {
    let all =
        ["act", "ask", "enter Peer mode", "hand over", "promise", "release", "stand by", "stop", "write"];
    let released = Arena { starts_released: true, ..pair(0) };
    assert_eq!(decided([pair(1), released]), BTreeSet::from(all));
}

#[test]
#[ignore = "takes a minute: `make explore`"]
fn explore_what_whole_agents_do() {
    let stopping = pair(1).without_peer_mode().with(|timing| timing.stop = ticks(1));
    let admitting =
        Arena { most_terms: 2, most_delegations: 1, ..Arena::trio().packets(1).faults(0) }.plain();
    assert!(decided([stopping, admitting]).contains("stop"));
}

/// The audit can fail: rules that differ from those of the agents are found out, whatever they break.
#[test]
fn whole_agents_differ_from_a_model_with_other_rules() {
    let others = [
        (Mutation::PromiseBindsNobody, pair(0).without_certificates()),
        (Mutation::ApiHoldFromAnswer, pair(0).plain()),
        (Mutation::TakeoverRaisesSequence, Arena { starts_released: true, ..pair(0).plain() }),
        (Mutation::HandoverIsNoPromise, pair(1).without_certificates()),
        (Mutation::AcceptsAnyEpoch, pair(1).plain()),
    ];
    for (mutation, arena) in others {
        assert!(audit(arena.mutated(mutation)).difference.is_some(), "{mutation:?}");
    }
}
