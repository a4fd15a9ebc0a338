//! The world of the model: real agents, the Lease, what is in flight, and which applications act.
//!
//! Worlds that differ only in names are made equal: the Lease always has version 1 and write number 1, older ones are 0;
//! a living agent is incarnation 1, an earlier one of it 0; now is always the same moment, and what lies before it moves
//! away from it (see `clock`).

use bps_protocol::{
    Agent, AgentId, BootTime, Epoch, Hold, Incarnation, Lease, Message, Moment, Peer, Role, Seen, Tenure,
    Timing, Unresolved, Version, Write,
};

use crate::arena::Arena;
use crate::mutations::Mutation;

/// Now, on every clock: later than any time since some moment in a test, be it in ticks or in nanoseconds.
pub(crate) const NOW: BootTime = BootTime(1 << 50);
/// The pair, and the agent that the operator may bring in.
pub(crate) const A: AgentId = AgentId(1);
pub(crate) const S: AgentId = AgentId(2);
pub(crate) const S2: AgentId = AgentId(3);
pub(crate) const AGENTS: [AgentId; 3] = [A, S, S2];
/// Index of the operator among those who have a clock; the agents come before it.
pub(crate) const OPERATOR: usize = 3;
/// Version of the Lease, and number of the incarnation, that counts now.
pub(crate) const CURRENT: u64 = 1;

/// Something in flight. It may be lost or stay for ever, and overtake others: so partitions and outages of the API need
/// no fault of their own.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Packet {
    Message {
        from: AgentId,
        to: AgentId,
        message: Message,
    },
    /// The connections to the application of this tenure are closed.
    Certificate {
        to: AgentId,
        epoch: Epoch,
    },
    /// A write on its way to the API server; its base is the present version.
    Write {
        from: AgentId,
        write: Write,
    },
    /// Its positive answer, and what the sender knew of it.
    Answer {
        to: AgentId,
        unresolved: Unresolved,
        version: Version,
    },
}

/// An invariant that is broken by the last step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Broken {
    /// I2: somebody began to act with an epoch below one that was acted with.
    StaleEpoch,
    /// I3: somebody began to act with an epoch that was acted with.
    ReusedEpoch,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct World {
    pub(crate) lease: Lease,
    /// `None`: not created yet, or dead for ever.
    pub(crate) agents: [Option<Agent>; 3],
    /// The application has ended, and the agent does not know yet.
    pub(crate) unnoticed: [bool; 3],
    /// Sorted.
    pub(crate) net: Vec<Packet>,
    /// Which clocks have made the present tick: none gets more than one ahead.
    pub(crate) ticked: [bool; 4],
    /// Since when the operator has seen no write.
    pub(crate) unwritten_since: BootTime,
    /// Highest epoch that was acted with.
    pub(crate) fence: Epoch,
    pub(crate) broken: Option<Broken>,
    pub(crate) faults_left: u8,
}

pub(crate) const fn index(id: AgentId) -> usize {
    match id {
        A => 0,
        S => 1,
        _ => 2,
    }
}

pub(crate) fn now(timing: &Timing) -> Moment<'_> {
    Moment { now: NOW, timing }
}

impl World {
    /// A is active with a fresh API hold, S is its standby.
    pub(crate) fn running(arena: &Arena) -> Self {
        let first = Epoch { term: 1, sequence: 0 };
        let peer = Peer { id: S, hold_end: BootTime(0), ping: None, witness: None };
        let tenure = Tenure {
            api_hold_end: NOW + arena.timing.api_hold,
            grace_end: NOW + arena.timing.grace,
            peer,
            joining: None,
        };
        let agent = |id| Agent::new(id, Incarnation(CURRENT));
        let active = Agent { role: Role::Active, epoch: first, tenure: Some(tenure), ..agent(A) };
        Self {
            lease: Lease {
                epoch: first,
                holder: Some(A),
                members: [A, S],
                pending: None,
                hold: Hold::Api,
                writes: CURRENT,
            },
            agents: [Some(active), Some(agent(S)), None],
            unnoticed: [false; 3],
            net: Vec::new(),
            ticked: [false; 4],
            unwritten_since: NOW,
            fence: first,
            broken: None,
            faults_left: arena.faults,
        }
    }

    /// A is active, and the place beside it is vacant.
    pub(crate) fn alone(arena: &Arena) -> Self {
        let mut world = Self::running(arena);
        world.lease.members = [A, AgentId::NOBODY];
        world.agents[index(S)] = None;
        let tenure = world.agents[index(A)].as_mut().and_then(|agent| agent.tenure.as_mut());
        if let Some(tenure) = tenure {
            tenure.api_hold_end = NOW + arena.timing.lone_hold;
            tenure.peer.id = AgentId::NOBODY;
        }
        world
    }

    /// The Lease is released, both members are standbys.
    pub(crate) fn released(arena: &Arena) -> Self {
        let mut world = Self::running(arena);
        world.lease = Lease { epoch: Epoch::default(), holder: None, ..world.lease };
        world.agents[0] = Some(Agent::new(A, Incarnation(CURRENT)));
        world.fence = Epoch::default();
        world
    }

    pub(crate) fn at(&self, id: AgentId) -> Option<&Agent> {
        if id == AgentId::NOBODY { None } else { self.agents[index(id)].as_ref() }
    }

    pub(crate) fn role(&self, id: AgentId) -> Option<Role> {
        self.at(id).map(|agent| agent.role)
    }

    /// Whether the application of this agent may be producing output.
    pub(crate) fn is_acting(&self, id: AgentId) -> bool {
        self.role(id).is_some_and(Role::is_acting) && !self.unnoticed[index(id)]
    }

    /// Whether the Lease knows the term of everybody who acts.
    pub(crate) fn is_known_to_lease(&self) -> bool {
        let acting = self.agents.iter().flatten().filter(|agent| agent.role.is_acting());
        acting.into_iter().all(|agent| agent.epoch.term <= self.lease.epoch.term)
    }

    pub(crate) fn acting(&self) -> usize {
        AGENTS.into_iter().filter(|id| self.is_acting(*id)).count()
    }

    pub(crate) fn send(&mut self, arena: &Arena, packet: Packet) {
        if let (true, Err(place)) = (self.has_room(arena), self.net.binary_search(&packet)) {
            self.net.insert(place, packet);
        }
    }

    pub(crate) fn has_room(&self, arena: &Arena) -> bool {
        self.net.len() < arena.packets
    }

    /// Notes that an agent began to act.
    pub(crate) fn began(&mut self, epoch: Epoch) {
        self.broken = match epoch.cmp(&self.fence) {
            std::cmp::Ordering::Less => Some(Broken::StaleEpoch),
            std::cmp::Ordering::Equal => Some(Broken::ReusedEpoch),
            std::cmp::Ordering::Greater => self.broken,
        };
        self.fence = self.fence.max(epoch);
    }

    /// The Lease has another content: what is based on the one before can no longer be applied.
    pub(crate) fn replace_lease(&mut self, arena: &Arena, lease: Lease) {
        let is_cas = !arena.has(Mutation::ClaimsWithoutCas);
        let grew = u64::from(lease.writes != self.lease.writes || !is_cas);
        self.lease = Lease { writes: CURRENT, ..lease };
        self.net.retain(|packet| !is_cas || !matches!(packet, Packet::Write { .. }));
        let older = |write: &mut Write| {
            write.base = Version(write.base.0.saturating_sub(1));
            write.lease.writes = write.lease.writes.saturating_sub(grew);
        };
        for agent in self.agents.iter_mut().flatten() {
            if let Some(seen) = &mut agent.seen {
                seen.version = Version(0);
                seen.lease.writes = seen.lease.writes.saturating_sub(grew);
            }
            agent.unresolved.iter_mut().for_each(|unresolved| older(&mut unresolved.write));
        }
        for packet in &mut self.net {
            match packet {
                Packet::Answer { unresolved, version, .. } => {
                    *version = Version(0);
                    older(&mut unresolved.write);
                }
                Packet::Write { write, .. } => older(write),
                Packet::Message { .. } | Packet::Certificate { .. } => {}
            }
        }
        if grew > 0 {
            self.unwritten_since = NOW;
        }
    }

    /// Makes worlds equal that differ only in what no rule can tell apart any more.
    pub(crate) fn settle(&mut self, arena: &Arena) {
        for id in AGENTS {
            let Some(agent) = &mut self.agents[index(id)] else { continue };
            // An active reads the Lease anew before each write, so that it need not remember it unless somebody took over.
            // A standby may forget a Lease that was written over since.
            let epoch = agent.epoch;
            let is_standby = agent.role.is_standby();
            let matters =
                |seen: &Seen| seen.lease.writes == CURRENT && (is_standby || epoch < seen.lease.epoch);
            agent.seen = agent.seen.filter(matters);
            if let Some(tenure) = &mut agent.tenure {
                if !arena.has_grace() {
                    tenure.grace_end = NOW + arena.timing.grace;
                }
                let joining = tenure.joining.as_mut();
                for peer in [Some(&mut tenure.peer), joining].into_iter().flatten() {
                    peer.ping = None; // Pings arrive when they are needed.
                }
            }
            let number = agent.unresolved.as_ref().map(|unresolved| unresolved.write.number);
            for packet in &mut self.net {
                match packet {
                    Packet::Write { from, write } if *from == id => {
                        write.number = u64::from(Some(write.number) == number);
                    }
                    Packet::Answer { to, unresolved, .. } if *to == id => {
                        unresolved.write.number = u64::from(Some(unresolved.write.number) == number);
                    }
                    Packet::Message { .. }
                    | Packet::Certificate { .. }
                    | Packet::Write { .. }
                    | Packet::Answer { .. } => {}
                }
            }
            agent.last_write = u64::from(number.is_some());
            agent.unresolved.iter_mut().for_each(|unresolved| unresolved.write.number = 1);
        }
        let keeps_late = arena.keeps_late_answers();
        for packet in &mut self.net {
            if let (Packet::Message { message: Message::Handover(handover), .. }, false) =
                (packet, arena.has_grace())
            {
                handover.grace_left = arena.timing.grace;
            }
        }
        self.net.retain(|packet| match packet {
            Packet::Answer { unresolved, .. } => unresolved.write.number == 1 || keeps_late,
            Packet::Message { .. } | Packet::Certificate { .. } | Packet::Write { .. } => true,
        });
        self.net.sort_unstable();
        self.net.dedup();
    }
}
