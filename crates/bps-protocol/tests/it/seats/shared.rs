//! The world of the model for a Pod that is the standby of two actives: the world of a pair twice, the real turnstile
//! between its two seats, and the directories that the Leases call in sync.
//!
//! In both pairs A is the active, S the same Pod, and S2 a spare that promises, and acts only when nothing fails any
//! more. One clock for all.

use std::collections::HashSet;
use std::sync::Mutex;

use bps_protocol::{Agent, AgentId, Lease, Peer, Role, SeatNumber, Tenure, Turnstile};

use crate::arena::{Arena, ticks};
use crate::seats::Omission;
use crate::steps::Step;
use crate::world::{A, AGENTS, Packet, S, S2, World, index};

/// Both pairs.
pub(crate) const PAIRS: [usize; 2] = [0, 1];
/// The pair whose seat the operator replaces, and whose directories fall behind: what happens in one is enough.
const REPLACED: usize = 1;

/// Rounds after which a pair is expected to have settled: three times the watch of a calm world, and some for messages.
const SETTLES_WITHIN: usize = 10;

/// One step of this world.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SharedStep {
    /// A step of one pair, and of nothing else.
    Of(usize, Box<Step>),
    Tick,
    /// The container of the shared Pod is started again: both seats and the turnstile lose their memory.
    RestartShared,
    /// The active of a pair writes that its directory alone is in sync.
    LeaveOut(usize),
    /// The active of a pair has brought its peer's directory in sync, and writes so.
    Bring(usize),
    /// The operator asks for the spare in the place of a seat whose Pod acts for the other pair.
    Replace(usize),
    /// The seat is given up, with what is in its directory.
    GiveUp(usize),
    /// The Lease of a pair is deleted, and the seat is dismissed, also while its claim is unanswered.
    Delete(usize),
}

/// What happens to a pair from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Meddling {
    Nothing,
    /// The operator replaces seats whose Pod acts elsewhere.
    Replaces,
    /// The Lease of the first pair is deleted.
    Deletes,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct SharedStandby {
    pub(crate) pairs: [World; 2],
    pub(crate) turnstile: Turnstile,
    /// Agents whose directories the Lease of each pair calls in sync.
    pub(crate) in_sync: [[bool; 3]; 2],
    /// A seat was given up while its directory was the only living one that was in sync.
    pub(crate) has_lost_copy: bool,
    /// An agent began to act with a directory that was not in sync.
    pub(crate) acts_without: bool,
}

/// What is searched.
#[derive(Clone, Debug)]
pub(crate) struct Harbour {
    /// Of each pair; packets and faults are those of both together.
    pub(crate) arena: Arena,
    /// At first the active of the first pair is dead for ever, and the shared Pod acts for it.
    pub(crate) starts_busy: bool,
    pub(crate) meddling: Meddling,
    /// Directories fall behind and are brought in sync.
    pub(crate) may_lag: bool,
    pub(crate) omission: Option<Omission>,
}

impl Harbour {
    pub(crate) fn has(&self, omission: Omission) -> bool {
        self.omission == Some(omission)
    }
}

fn seat(pair: usize) -> SeatNumber {
    SeatNumber(u8::try_from(pair).expect("there are two"))
}

impl SharedStandby {
    /// Each A is active, and S its standby with all of the state.
    pub(crate) fn running(harbour: &Harbour) -> Self {
        let world = World::running(&harbour.arena);
        let first = if harbour.starts_busy { succeeded(&harbour.arena, &world) } else { world.clone() };
        let mut turnstile = Turnstile::default();
        first.at(S).into_iter().for_each(|agent| turnstile.follow(seat(0), agent, true));
        Self {
            pairs: [first, world],
            turnstile,
            in_sync: [[true, true, false]; 2],
            has_lost_copy: false,
            acts_without: false,
        }
    }

    /// Whether the application of the shared Pod runs for this pair.
    pub(crate) fn acts_for(&self, pair: usize) -> bool {
        self.pairs[pair].is_acting(S)
    }

    pub(crate) fn moves(&self, harbour: &Harbour) -> Vec<SharedStep> {
        let mut moves = vec![SharedStep::Tick, SharedStep::RestartShared];
        for pair in PAIRS {
            let is_own = |step: &Step| match of(step) {
                // What becomes of the shared Pod becomes of both seats.
                Some(id) => id != S2 && !(id == S && matches!(step, Step::Restart(_) | Step::Die(_))),
                None => !matches!(step, Step::Tick(_)),
            };
            let steps = self.pairs[pair].steps(&harbour.arena).into_iter().filter(is_own);
            moves.extend(steps.map(|step| SharedStep::Of(pair, Box::new(step))));
            moves.extend([
                SharedStep::LeaveOut(pair),
                SharedStep::Bring(pair),
                SharedStep::Replace(pair),
                SharedStep::GiveUp(pair),
                SharedStep::Delete(pair),
            ]);
        }
        moves
    }

    /// The world after this step, or `None` where it is not possible.
    pub(crate) fn step(&self, harbour: &Harbour, step: &SharedStep) -> Option<Self> {
        let mut next = match step {
            SharedStep::Of(pair, step) => self.step_of(harbour, *pair, step),
            SharedStep::Tick => self.both(|world| {
                // Of a pair that is over no clock runs, and those of the other one go on.
                let is_over = world.agents.iter().all(Option::is_none);
                if is_over { Some(world.clone()) } else { world.step(&harbour.arena, &Step::Tick(0)) }
            }),
            SharedStep::RestartShared => self.restarted(harbour),
            SharedStep::LeaveOut(pair) => self.said_by_active(harbour, *pair, false),
            SharedStep::Bring(pair) => self.said_by_active(harbour, *pair, true),
            SharedStep::Replace(pair) => self.replacing(harbour, *pair),
            SharedStep::GiveUp(pair) => self.giving_up(harbour, *pair),
            SharedStep::Delete(pair) => self.deleting(harbour, *pair),
        }?;
        for pair in PAIRS {
            next.follow(harbour, pair);
            next.acts_without |= next.begins_without(self, pair);
        }
        Some(next)
    }

    fn both(&self, step: impl Fn(&World) -> Option<World>) -> Option<Self> {
        let [one, two] = &self.pairs;
        Some(Self { pairs: [step(one)?, step(two)?], ..self.clone() })
    }

    fn step_of(&self, harbour: &Harbour, pair: usize, step: &Step) -> Option<Self> {
        self.permits(harbour, pair, step).then_some(())?;
        let others = self.pairs[1 - pair].net.len();
        let arena = Arena { packets: harbour.arena.packets.saturating_sub(others), ..harbour.arena.clone() };
        let world = self.pairs[pair].step(&arena, step)?;
        let mut next = self.clone();
        next.pairs[1 - pair].faults_left = world.faults_left;
        next.pairs[pair] = world;
        next.end_fenced(harbour, pair);
        Some(next)
    }

    /// What agents do not do although the rules of a pair permit it: claim or hand over to a directory that lacks
    /// something, and claim while they are fenced.
    fn permits(&self, harbour: &Harbour, pair: usize, step: &Step) -> bool {
        let in_sync = &self.in_sync[pair];
        match step {
            Step::Claim(id) => {
                let is_open = *id != S || self.is_open_to(harbour, pair);
                is_open && (in_sync[index(*id)] || harbour.has(Omission::ClaimsWhatItLacks))
            }
            Step::HandOver(id) => {
                let peer =
                    self.pairs[pair].at(*id).and_then(|agent| agent.tenure).map(|tenure| tenure.peer.id);
                peer.is_some_and(|peer| {
                    AGENTS.iter().all(|id| in_sync[index(*id)] == [A, S].contains(id)) && peer != S2
                })
            }
            Step::Tick(_)
            | Step::Deliver(_)
            | Step::DeliverCopy(_)
            | Step::Lose(_)
            | Step::Ask(..)
            | Step::Renew(..)
            | Step::Repeat(_)
            | Step::Read(_)
            | Step::Stop(_)
            | Step::End(_)
            | Step::Notice(_)
            | Step::Release(_)
            | Step::Admit(_)
            | Step::OperatorRequests(_)
            | Step::OperatorVacates(_)
            | Step::OperatorForces
            | Step::Restart(_)
            | Step::Crash(_)
            | Step::Die(_) => true,
        }
    }

    fn is_open_to(&self, harbour: &Harbour, pair: usize) -> bool {
        self.turnstile.is_open_to(seat(pair)) || harbour.has(Omission::ClaimsWithoutAsking)
    }

    /// A fenced agent that was handed over to, or whose claim was answered, starts nothing: the policy counts its
    /// application as ended in the same step.
    fn end_fenced(&mut self, harbour: &Harbour, pair: usize) {
        let is_fenced = !self.turnstile.is_open_to(seat(pair));
        let starts = [Omission::ClaimsWithoutAsking, Omission::StartsThoughFenced];
        if is_fenced && self.acts_for(pair) && !starts.into_iter().any(|omission| harbour.has(omission)) {
            let arena = &harbour.arena;
            self.pairs[pair].act(arena, S, Agent::r1_application_ended);
            self.pairs[pair].settle(arena);
        }
    }

    fn follow(&mut self, harbour: &Harbour, pair: usize) {
        let Some(agent) = self.pairs[pair].at(S).copied() else { return };
        let is_empty = !self.acts_for(pair);
        let stays = harbour.has(Omission::NeverComesOut) && self.turnstile.inside() == Some(seat(pair));
        let sneaks = harbour.has(Omission::TakesHandoversOutside) && agent.epoch.is_delegated();
        if !stays && !sneaks {
            self.turnstile.follow(seat(pair), &agent, is_empty);
        }
    }

    /// All memory of the Pod is lost.
    fn restarted(&self, harbour: &Harbour) -> Option<Self> {
        let lives = |world: &World| world.at(S).is_some();
        let restart = |world: &World| {
            if lives(world) { world.step(&harbour.arena, &Step::Restart(S)) } else { Some(world.clone()) }
        };
        let mut next = self.pairs.iter().any(lives).then(|| self.both(restart))??;
        let faults_left = next.pairs.iter().map(|world| world.faults_left).min().unwrap_or_default();
        next.pairs.iter_mut().for_each(|world| world.faults_left = faults_left);
        next.turnstile = Turnstile::default();
        Some(next)
    }

    /// The agent in whose tenure a Lease is: it alone may write which directories are in sync.
    fn writer(&self, pair: usize) -> Option<&Agent> {
        let world = &self.pairs[pair];
        let Lease { holder, epoch, .. } = world.lease;
        world.at(holder?).filter(|agent| agent.role == Role::Active && agent.epoch == epoch)
    }

    fn said_by_active(&self, harbour: &Harbour, pair: usize, brings: bool) -> Option<Self> {
        let writer = self.writer(pair).filter(|_| harbour.may_lag && pair == REPLACED)?;
        let peer = writer.tenure?.peer.id;
        let mut in_sync = [false; 3];
        in_sync[index(writer.id)] = true;
        if brings {
            self.pairs[pair].at(peer)?;
            in_sync[index(peer)] = true;
        }
        let mut next = (in_sync != self.in_sync[pair]).then(|| self.clone())?;
        next.in_sync[pair] = in_sync;
        // A write of its own: what was based on the version before is refused.
        let lease = next.pairs[pair].lease;
        next.pairs[pair].replace_lease(&harbour.arena, lease);
        next.pairs[pair].settle(&harbour.arena);
        Some(next)
    }

    /// The operator sees in the Lease of the other pair that the Pod acts there.
    fn replacing(&self, harbour: &Harbour, pair: usize) -> Option<Self> {
        let is_busy = self.pairs[1 - pair].lease.holder == Some(S);
        (harbour.meddling == Meddling::Replaces && is_busy && pair == REPLACED).then_some(())?;
        let mut next = self.clone();
        next.pairs[pair] = self.pairs[pair].step(&harbour.arena, &Step::OperatorRequests(S))?;
        Some(next)
    }

    /// The agent forgets a Lease that needs it no more, and takes another active's state into the directory.
    fn giving_up(&self, harbour: &Harbour, pair: usize) -> Option<Self> {
        let world = &self.pairs[pair];
        let agent = world.at(S)?;
        let (is_named, is_in_sync) = (world.lease.names(S), self.in_sync[pair][index(S)]);
        // Only an active says that a directory is not in sync any more: then it has all of the state itself.
        let may = !is_named && (!is_in_sync || harbour.has(Omission::GivesUpUnnamed));
        let is_idle =
            agent.role.is_standby() && agent.unresolved.is_none() && agent.promise_end <= crate::world::NOW;
        let mut next = (may && is_idle && agent.seen.is_some()).then(|| self.clone())?;
        let has_copy = |id: &AgentId| *id != S && self.in_sync[pair][index(*id)] && world.at(*id).is_some();
        next.has_lost_copy |= is_in_sync && !AGENTS.iter().any(has_copy);
        let world = &mut next.pairs[pair];
        world.agents[index(S)] = None;
        world.net.retain(|packet| !is_of(packet, S));
        world.begin_round(&harbour.arena);
        world.settle(&harbour.arena);
        Some(next)
    }

    /// No write of a deleted Lease is applied, so that the pair is over. The seat takes no further step.
    fn deleting(&self, harbour: &Harbour, pair: usize) -> Option<Self> {
        let agent = self.pairs[pair].at(S)?;
        let is_idle = agent.role.is_standby() && agent.promise_end <= crate::world::NOW;
        (harbour.meddling == Meddling::Deletes && pair != REPLACED && is_idle).then_some(())?;
        let mut next = self.clone();
        let world = &mut next.pairs[pair];
        world.agents = [None; 3];
        world.net.clear();
        world.begin_round(&harbour.arena);
        world.settle(&harbour.arena);
        if !harbour.has(Omission::StaysInsideDismissed) {
            next.turnstile.leave(seat(pair));
        }
        Some(next)
    }

    /// Whether an agent of this pair that did not act does now, and its directory lacks something.
    fn begins_without(&self, before: &Self, pair: usize) -> bool {
        AGENTS.into_iter().any(|id| {
            let begins = self.pairs[pair].is_acting(id) && !before.pairs[pair].is_acting(id);
            begins && !self.in_sync[pair][index(id)]
        })
    }

    /// Whether a member of the pair could act: it lives, has all of the state, and its Pod does not act elsewhere.
    fn has_candidate(&self, pair: usize) -> bool {
        let world = &self.pairs[pair];
        world.lease.members.into_iter().any(|id| {
            let is_busy = id == S && self.acts_for(1 - pair);
            id != AgentId::NOBODY && world.at(id).is_some() && self.in_sync[pair][index(id)] && !is_busy
        })
    }

    /// C: when nothing fails any more, each pair settles on exactly one active if it has a candidate, and else waits.
    ///
    /// `known`: worlds of earlier schedules in this order that settled.
    pub(crate) fn converges(&self, harbour: &Harbour, forward: bool, known: &Mutex<HashSet<Self>>) -> bool {
        let arena =
            Arena { most_terms: 100, most_delegations: 100, packets: 32, faults: 0, ..harbour.arena.clone() };
        // In the shortest times no hold is renewed before it ends.
        let arena = arena.with(|timing| {
            for time in [&mut timing.hold, &mut timing.watch, &mut timing.api_hold, &mut timing.api_watch] {
                *time = ticks(2);
            }
        });
        let calm = Harbour { arena, meddling: Meddling::Nothing, may_lag: false, ..harbour.clone() };
        let mut shared = self.clone();
        shared.pairs.iter_mut().for_each(|world| world.faults_left = 0);
        let mut schedule = Vec::new();
        for _ in 0..SETTLES_WITHIN {
            if known.lock().expect("nobody panics").contains(&shared) {
                break;
            }
            let next = shared.clone().calm_round(&calm, forward);
            let is_still = next == shared;
            schedule.push(std::mem::replace(&mut shared, next));
            if is_still {
                break;
            }
        }
        let is_settled = |pair: usize| shared.pairs[pair].acting() == usize::from(shared.has_candidate(pair));
        let settles =
            known.lock().expect("nobody panics").contains(&shared) || PAIRS.into_iter().all(is_settled);
        if settles {
            known.lock().expect("nobody panics").extend(schedule);
        }
        settles
    }

    fn calm_round(mut self, calm: &Harbour, forward: bool) -> Self {
        let (mut pairs, mut agents) = (PAIRS, [A, S, S2]);
        if !forward {
            pairs.reverse();
            agents.reverse();
        }
        for pair in pairs {
            self.deliver_all(calm, pair);
            for id in agents {
                let mut steps = vec![Step::Notice(id), Step::Read(id), Step::Repeat(id)];
                steps.extend(self.pairs[pair].duties(&calm.arena, id, AGENTS));
                // A fenced agent whose tenure has no application, or whose peer may not act, releases its Lease.
                steps.push(Step::Release(id));
                for step in steps {
                    self.go(calm, SharedStep::Of(pair, Box::new(step)));
                }
                self.deliver_all(calm, pair);
            }
        }
        self.go(calm, SharedStep::Tick);
        self
    }

    fn go(&mut self, calm: &Harbour, step: SharedStep) {
        if let Some(next) = self.step(calm, &step) {
            *self = next;
        }
    }

    fn deliver_all(&mut self, calm: &Harbour, pair: usize) {
        while let Some(packet) = self.pairs[pair].net.first().cloned() {
            let delivered = self.step(calm, &SharedStep::Of(pair, Box::new(Step::Deliver(packet.clone()))));
            *self = delivered.unwrap_or_else(|| {
                let mut without = self.clone();
                without.pairs[pair] = without.pairs[pair].without(&packet);
                without
            });
        }
    }
}

/// The world of a pair in which S acts as A did, and A is dead for ever.
fn succeeded(arena: &Arena, world: &World) -> World {
    let mut world = world.clone();
    let tenure = world.at(A).and_then(|agent| agent.tenure);
    let standby = world.at(S).copied();
    world.agents[index(S)] = standby.zip(tenure).map(|(standby, tenure)| Agent {
        role: Role::Active,
        epoch: world.lease.epoch,
        tenure: Some(Tenure { peer: Peer { id: A, ..tenure.peer }, ..tenure }),
        ..standby
    });
    world.agents[index(A)] = None;
    world.lease.holder = Some(S);
    world.begin_round(arena);
    world
}

/// Whether a packet is to or from this agent.
fn is_of(packet: &Packet, id: AgentId) -> bool {
    match packet {
        Packet::Message { from, to, .. } => [from, to].contains(&&id),
        Packet::Certificate { to, .. } | Packet::Answer { to, .. } => *to == id,
        Packet::Write { from, .. } => *from == id,
    }
}

/// The agent that takes this step.
fn of(step: &Step) -> Option<AgentId> {
    match step {
        Step::Ask(id, _)
        | Step::Renew(id, _)
        | Step::Claim(id)
        | Step::Repeat(id)
        | Step::Read(id)
        | Step::Stop(id)
        | Step::End(id)
        | Step::Notice(id)
        | Step::HandOver(id)
        | Step::Release(id)
        | Step::Admit(id)
        | Step::Restart(id)
        | Step::Crash(id)
        | Step::Die(id) => Some(*id),
        Step::Tick(_)
        | Step::Deliver(_)
        | Step::DeliverCopy(_)
        | Step::Lose(_)
        | Step::OperatorRequests(_)
        | Step::OperatorVacates(_)
        | Step::OperatorForces => None,
    }
}
