//! A small world in simulated time: real agents with their policy, drifting clocks, a network and an API server that
//! lose, delay and repeat, and applications that must never act at the same time.

mod faults;
mod watched;

use std::collections::BTreeMap;
use std::time::Duration;

use bps_protocol::{
    Agent, AgentId, BootTime, Effect, EndEvidence, Epoch, Event, Hold, Incarnation, Lease, Moment, Order,
    Protocol, Timing, Version, Write, forced_replacement,
};

use crate::trail::Trail;
use crate::world::AGENTS;

/// Nanoseconds of true time since the start.
pub(crate) type Time = u64;

pub(crate) const MILLISECOND: Time = 1_000_000;
pub(crate) const SECOND: Time = 1_000 * MILLISECOND;

/// What is to happen at some time.
#[derive(Clone, Debug)]
enum Happening {
    /// Delivered to this start of an agent.
    Event {
        node: usize,
        incarnation: u64,
        event: Event,
    },
    Timer {
        node: usize,
        incarnation: u64,
        number: u64,
    },
    WriteArrives {
        node: usize,
        incarnation: u64,
        write: Write,
    },
    ReadArrives {
        node: usize,
        incarnation: u64,
    },
    /// The application that began to act with this epoch ends.
    ApplicationEnds {
        node: usize,
        epoch: Epoch,
    },
    /// It is killed, if this is still when it has to have ended.
    IsOverdue {
        node: usize,
        epoch: Epoch,
        number: u64,
    },
    Starts {
        node: usize,
    },
    OperatorLooks,
    Fault(Fault),
    Mends(Fault),
}

/// What goes wrong, or is ordered. Nodes by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    ApplicationCrashes(usize),
    /// Agent and application die at once; the container starts again after a second.
    ContainerDies(usize),
    /// Nobody is told, as there is no kernel left to do it.
    NodeDies {
        node: usize,
        is_for_ever: bool,
    },
    Partition(usize, usize),
    ApiUnreachable(usize),
    /// Packets are lost, repeated and late.
    Storm,
    Order(usize, Order),
    /// Somebody changes what no agent reads of the Lease.
    Annotate,
    /// The operator wants the third agent in the place of this one.
    Replace(usize),
    /// The operator wants the place of this one vacant.
    Vacate(usize),
}

pub(crate) struct Node {
    id: AgentId,
    /// True nanoseconds to own ones: an offset, and a deviation in millionths.
    clock: (u64, i64),
    incarnation: u64,
    pub(crate) protocol: Option<Protocol>,
    timer: u64,
    pub(crate) acting: Option<Epoch>,
    /// Counts the times at which its application had to have ended.
    overdue: u64,
    is_fenced: bool,
}

pub(crate) struct Simulation {
    pub(crate) now: Time,
    pub(crate) timing: Timing,
    pub(crate) nodes: Vec<Node>,
    queue: BTreeMap<(Time, u64), Happening>,
    scheduled: u64,
    random: u64,
    broken: Vec<Fault>,
    lease: Lease,
    version: u64,
    unwritten_since: Time,
    fence: Epoch,
    pub(crate) writes: u64,
    /// When somebody began to act, and when an application ended.
    pub(crate) began: Vec<(Time, usize)>,
    pub(crate) ended: Vec<(Time, usize)>,
    /// How long applications take at least that are asked to end, and how long they are given.
    pub(crate) stops_in: Time,
    pub(crate) patience: Duration,
    /// Who judges every step, if anybody does.
    pub(crate) trail: Option<Trail>,
}

impl Simulation {
    /// Three nodes, of which the first two are the pair, and a Lease that nobody holds.
    pub(crate) fn new(timing: &Timing, seed: u64) -> Self {
        let (timing, ids) = (*timing, AGENTS);
        let lease = Lease {
            epoch: Epoch::default(),
            holder: None,
            members: [ids[0], ids[1]],
            pending: None,
            hold: Hold::Api,
            writes: 0,
        };
        // Each clock deviates by at most half of the drift between any two.
        let clocks = [(7 * SECOND, 499), (0, -499), (SECOND / 3, 120)];
        let node = |(id, clock)| Node {
            id,
            clock,
            incarnation: 0,
            protocol: None,
            timer: 0,
            acting: None,
            overdue: 0,
            is_fenced: false,
        };
        let mut simulation = Self {
            now: 0,
            timing,
            nodes: ids.into_iter().zip(clocks).map(node).collect(),
            queue: BTreeMap::new(),
            scheduled: 0,
            random: seed,
            broken: Vec::new(),
            lease,
            version: 1,
            unwritten_since: 0,
            fence: Epoch::default(),
            writes: 0,
            began: Vec::new(),
            ended: Vec::new(),
            stops_in: 0,
            patience: Duration::ZERO,
            trail: None,
        };
        (0..2).for_each(|node| simulation.schedule(0, Happening::Starts { node }));
        simulation.schedule(SECOND, Happening::OperatorLooks);
        simulation
    }

    /// `fault` happens at `time` and is over after `lasts`.
    pub(crate) fn plan(&mut self, time: Time, fault: Fault, lasts: Time) {
        self.schedule(time, Happening::Fault(fault));
        self.schedule(time + lasts, Happening::Mends(fault));
    }

    pub(crate) fn run_until(&mut self, end: Time) {
        while let Some(entry) = self.queue.first_entry().filter(|entry| entry.key().0 <= end) {
            let ((time, _), happening) = entry.remove_entry();
            self.now = time;
            self.happen(happening);
        }
        self.now = end;
    }

    pub(crate) fn acting(&self) -> Vec<usize> {
        (0..self.nodes.len()).filter(|node| self.nodes[*node].acting.is_some()).collect()
    }

    fn schedule(&mut self, time: Time, happening: Happening) {
        self.scheduled += 1;
        self.queue.insert((time.max(self.now), self.scheduled), happening);
    }

    /// `SplitMix64`, below `limit`.
    fn below(&mut self, limit: u64) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.random;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % limit
    }

    fn local(&self, node: usize, time: Time) -> BootTime {
        let (offset, deviation) = self.nodes[node].clock;
        let scaled = i128::from(time) * i128::from(1_000_000 + deviation) / 1_000_000;
        BootTime(offset + u64::try_from(scaled).expect("time is positive"))
    }

    /// The first time at which the clock of the node shows at least this.
    fn global(&self, node: usize, local: BootTime) -> Time {
        let (offset, deviation) = self.nodes[node].clock;
        let scaled = i128::from(local.0.saturating_sub(offset)) * 1_000_000;
        let time = (scaled + i128::from(1_000_000 + deviation) - 1) / i128::from(1_000_000 + deviation);
        u64::try_from(time).expect("time is positive")
    }

    fn happen(&mut self, happening: Happening) {
        match happening {
            Happening::Event { node, incarnation, event } => self.give(node, incarnation, event),
            Happening::Timer { node, incarnation, number } => {
                if self.nodes[node].timer == number {
                    self.give(node, incarnation, Event::Timer);
                }
            }
            Happening::WriteArrives { node, incarnation, write } => self.write(node, incarnation, write),
            Happening::ReadArrives { node, incarnation } => self.answer(node, incarnation, self.read()),
            Happening::ApplicationEnds { node, epoch } => self.end_application(node, epoch),
            Happening::IsOverdue { node, epoch, number } => {
                if self.nodes[node].overdue == number {
                    self.end_application(node, epoch);
                }
            }
            Happening::Starts { node } => self.start(node),
            Happening::OperatorLooks => self.operate(),
            Happening::Fault(fault) => self.fail(fault),
            Happening::Mends(fault) => self.mend(fault),
        }
    }

    fn give(&mut self, node: usize, incarnation: u64, event: Event) {
        if self.nodes[node].incarnation != incarnation {
            return;
        }
        for effect in self.step(node, event) {
            self.carry_out(node, effect);
        }
        if self.nodes[node].protocol.is_none() {
            return;
        }
        let Node { protocol, acting, .. } = &self.nodes[node];
        let believes = protocol.as_ref().map(|protocol| protocol.agent().role.is_acting());
        assert_eq!(
            believes,
            Some(acting.is_some()),
            "node {node} is wrong about its application at {}",
            self.now
        );
    }

    fn carry_out(&mut self, node: usize, effect: Effect) {
        let (from, incarnation) = (self.nodes[node].id, self.nodes[node].incarnation);
        match effect {
            Effect::Send { to, message } => {
                let target = self.nodes.iter().position(|other| other.id == to).expect("agents are known");
                self.send(node, target, Event::Received { from, message });
            }
            Effect::WriteLease(write) => {
                if let Some(delay) = self.api_delay(node) {
                    self.schedule(self.now + delay, Happening::WriteArrives { node, incarnation, write });
                }
            }
            Effect::ReadLease => {
                if let Some(delay) = self.api_delay(node) {
                    self.schedule(self.now + delay, Happening::ReadArrives { node, incarnation });
                }
            }
            Effect::Activate { epoch, .. } => self.activate(node, epoch),
            Effect::Stop { by } => {
                let ended = self.now + self.stops_in + self.below(MILLISECOND * 150);
                if let Some(epoch) = self.nodes[node].acting {
                    self.schedule(ended, Happening::ApplicationEnds { node, epoch });
                }
                self.kill_by(node, by);
            }
            Effect::StopBy { by } => self.kill_by(node, by),
            Effect::Kill => {
                if let Some(epoch) = self.nodes[node].acting {
                    self.schedule(self.now, Happening::ApplicationEnds { node, epoch });
                }
            }
            Effect::StandBy => assert_eq!(self.nodes[node].acting, None, "told to stand by while it acts"),
            Effect::WakeAt(at) => {
                self.nodes[node].timer += 1;
                let number = self.nodes[node].timer;
                self.schedule(self.global(node, at), Happening::Timer { node, incarnation, number });
            }
        }
    }

    /// As late as a supervisor may be.
    fn kill_by(&mut self, node: usize, by: BootTime) {
        let late = self.below(u64::try_from(self.timing.lateness.as_nanos()).expect("it is short"));
        self.nodes[node].overdue += 1;
        let number = self.nodes[node].overdue;
        if let Some(epoch) = self.nodes[node].acting {
            self.schedule(self.global(node, by) + late, Happening::IsOverdue { node, epoch, number });
        }
    }

    /// I1, I2 and I3 are checked whenever somebody begins to act.
    fn activate(&mut self, node: usize, epoch: Epoch) {
        assert_eq!(self.acting(), [0; 0], "I1: node {node} begins to act with {epoch} at {}", self.now);
        assert!(epoch > self.fence, "I2, I3: {epoch} after {}", self.fence);
        self.fence = epoch;
        self.nodes[node].acting = Some(epoch);
        self.began.push((self.now, node));
    }

    /// Nothing of it is left: its agent learns of it, or if there is none, the others by a certificate.
    fn end_application(&mut self, node: usize, epoch: Epoch) {
        if self.nodes[node].acting != Some(epoch) {
            return;
        }
        self.nodes[node].acting = None;
        self.ended.push((self.now, node));
        self.give(node, self.nodes[node].incarnation, Event::ApplicationEnded);
        // An agent that lives says "void" before its lines end.
        if self.nodes[node].protocol.is_some() {
            return;
        }
        for other in (0..self.nodes.len()).filter(|other| *other != node) {
            self.send(node, other, Event::Certificate { epoch });
        }
    }

    fn send(&mut self, node: usize, target: usize, event: Event) {
        let has_storm = self.broken.contains(&Fault::Storm);
        let is_cut = self.broken.iter().any(|fault| {
            matches!(fault, Fault::Partition(a, b) if (*a, *b) == (node, target) || (*b, *a) == (node, target))
        });
        let copies = if has_storm { self.below(3) } else { 1 };
        for _ in 0..if is_cut { 0 } else { copies } {
            let slowest = if has_storm && self.below(4) == 0 { SECOND } else { MILLISECOND };
            let delay = MILLISECOND / 5 + self.below(slowest);
            let incarnation = self.nodes[target].incarnation;
            self.schedule(self.now + delay, Happening::Event { node: target, incarnation, event });
        }
    }

    /// How long a request or an answer takes; `None`: it is lost.
    fn api_delay(&mut self, node: usize) -> Option<Time> {
        let is_lost = self.broken.contains(&Fault::ApiUnreachable(node))
            || self.broken.contains(&Fault::Storm) && self.below(3) == 0;
        let delay = MILLISECOND * 2 + self.below(MILLISECOND * 8);
        (!is_lost).then_some(delay)
    }

    fn read(&self) -> Event {
        Event::LeaseRead { lease: self.lease, version: Version(self.version) }
    }

    fn answer(&mut self, node: usize, incarnation: u64, event: Event) {
        if let Some(delay) = self.api_delay(node) {
            self.schedule(self.now + delay, Happening::Event { node, incarnation, event });
        }
    }

    fn write(&mut self, node: usize, incarnation: u64, write: Write) {
        if write.base != Version(self.version) {
            self.answer(node, incarnation, Event::WriteConflicted);
            return;
        }
        self.writes += 1;
        self.unwritten_since = self.now;
        self.put(write.lease);
        let version = Version(self.version);
        self.answer(node, incarnation, Event::WriteApplied { number: write.number, version });
    }

    /// The Lease changes, and every watch shows it.
    fn put(&mut self, lease: Lease) {
        self.lease = lease;
        self.version += 1;
        let event = self.read();
        for node in 0..self.nodes.len() {
            self.answer(node, self.nodes[node].incarnation, event);
        }
    }

    fn start(&mut self, node: usize) {
        let now = self.local(node, self.now);
        let at = Moment { now, timing: &self.timing };
        let Node { id, incarnation, .. } = self.nodes[node];
        let next = Incarnation(incarnation + 1);
        let agent = if incarnation == 0 { Agent::new(id, next) } else { Agent::r7_restarted(&at, id, next) };
        self.nodes[node].incarnation = next.0;
        self.nodes[node].is_fenced = false;
        let mut protocol = Protocol::new(agent, self.timing);
        protocol.be_patient(self.patience);
        self.nodes[node].protocol = Some(protocol);
        if incarnation > 0 {
            self.watch_restart(node);
        }
        self.give(node, next.0, Event::Timer);
        self.answer(node, next.0, self.read());
    }

    fn operate(&mut self) {
        self.schedule(self.now + SECOND, Happening::OperatorLooks);
        let at = Moment { now: BootTime(self.now), timing: &self.timing };
        let evidence = EndEvidence { unwritten_since: BootTime(self.unwritten_since), have_ended: false };
        if let Some(lease) = forced_replacement(&at, &self.lease, evidence) {
            self.unwritten_since = self.now;
            self.put(lease);
        }
    }

    pub(crate) fn holder(&self) -> Option<AgentId> {
        self.lease.holder
    }

    pub(crate) fn hold(&self) -> Hold {
        self.lease.hold
    }
}
