//! What one agent knows: its role, its tenure, its promise, the Lease as last read, and its write under way.
//!
//! What it may do with that is decided in `rules`, when it does it in `policy`.

use super::{AgentId, BootTime, Epoch, Incarnation, Lease, Moment, Ping, Version, Write};

/// What an agent is to its pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// Does not act.
    Standby,
    /// A standby whose last tenure ended without a handover or release: nobody follows it but through the Lease.
    Lapsed,
    /// A standby that delegated, and may repeat the handover while its old hold lasts.
    HandedOver,
    /// Its application runs in active mode.
    Active,
    /// Its application is being stopped, and counts as acting until it has ended.
    Stopping,
    /// Its application has certainly ended; it may hand over or release, not both.
    Ended,
}

impl Role {
    /// Whether its application may be producing output.
    pub const fn is_acting(self) -> bool {
        matches!(self, Self::Active | Self::Stopping)
    }

    /// Neither acting nor about to hand over.
    pub const fn is_standby(self) -> bool {
        matches!(self, Self::Standby | Self::Lapsed | Self::HandedOver)
    }
}

/// The other member, or the one that is to become it, as an active sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Peer {
    /// Who it is.
    pub id: AgentId,
    /// End of the hold that its promises give.
    pub hold_end: BootTime,
    /// Its newest ping.
    pub ping: Option<Ping>,
    /// Its incarnation when the application ended; only this one may be handed over to.
    pub witness: Option<Incarnation>,
}

impl Peer {
    /// A peer that has promised nothing.
    pub(super) const fn new(id: AgentId) -> Self {
        Self { id, hold_end: BootTime(0), ping: None, witness: None }
    }
}

/// What a tenure lives on; an agent has one from acting until it hands over for the last time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tenure {
    /// End of the hold that answered writes give.
    pub api_hold_end: BootTime,
    /// Until then promises suffice.
    pub grace_end: BootTime,
    /// The other member.
    pub peer: Peer,
    /// The agent that the operator wants instead of the peer.
    pub joining: Option<Peer>,
}

/// The Lease as an agent last read or wrote it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Seen {
    /// Its content.
    pub lease: Lease,
    /// Its version.
    pub version: Version,
    /// Receipt of the first read since an active wrote it.
    pub since: BootTime,
}

/// What a write is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Purpose {
    /// Keep or switch what the active lives on.
    Renew,
    /// Take over.
    Claim,
    /// Renew, and make the joining agent a member.
    Admit,
    /// Let any member take over at once.
    Release,
}

/// A write whose outcome is not known yet; an agent has at most one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Unresolved {
    /// The write; it is repeated unchanged.
    pub write: Write,
    /// What it is for.
    pub purpose: Purpose,
    /// When its first copy was sent.
    pub sent: BootTime,
}

/// One member of a pair, or one that waits to become a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Agent {
    /// Who it is.
    pub id: AgentId,
    /// Its last start.
    pub incarnation: Incarnation,
    /// What it is to its pair.
    pub role: Role,
    /// Own epoch in a tenure, else the highest it knows of.
    pub epoch: Epoch,
    /// There is one in the roles `Active`, `Stopping`, `Ended` and `HandedOver`.
    pub tenure: Option<Tenure>,
    /// Until then it does not take over.
    pub promise_end: BootTime,
    /// Whether it has a certificate that the application of `epoch` has ended.
    pub is_certified: bool,
    /// The Lease.
    pub seen: Option<Seen>,
    /// Its write under way.
    pub unresolved: Option<Unresolved>,
    /// Number of its last write.
    pub last_write: u64,
}

impl Agent {
    /// An agent whose Pod starts for the first time: it can have promised nothing.
    pub const fn new(id: AgentId, incarnation: Incarnation) -> Self {
        Self {
            id,
            incarnation,
            role: Role::Standby,
            epoch: Epoch { term: 0, sequence: 0 },
            tenure: None,
            promise_end: BootTime(0),
            is_certified: false,
            seen: None,
            unresolved: None,
            last_write: 0,
        }
    }

    /// Whether a write for this purpose is under way.
    pub(super) fn is_writing(&self, purpose: Purpose) -> bool {
        self.unresolved.is_some_and(|unresolved| unresolved.purpose == purpose)
    }

    /// Whether its claim under way is made because whoever acted has certainly ended, or was not heard of for T. One whose own
    /// tenure has lapsed waited for nobody.
    pub fn is_bereaved(&self) -> bool {
        let Some(Unresolved { write, purpose: Purpose::Claim, .. }) = self.unresolved else { return false };
        let former = self.seen.filter(|seen| seen.version == write.base).and_then(|seen| seen.lease.holder);
        let is_other = former.is_some_and(|former| former != self.id);
        self.is_certified || self.role == Role::Standby && is_other
    }

    /// Notes a sign of life of the peer or of the agent that is to replace it; an older one changes nothing.
    pub fn hear(&mut self, from: AgentId, ping: Ping) {
        let Some(tenure) = &mut self.tenure else { return };
        for peer in [Some(&mut tenure.peer), tenure.joining.as_mut()].into_iter().flatten() {
            let is_newer =
                peer.ping.is_none_or(|known| known.incarnation != ping.incarnation || known.sent < ping.sent);
            if peer.id == from && is_newer {
                peer.ping = Some(ping);
            }
        }
    }

    /// Ends the tenure. The watch begins anew, as what was seen before belongs to the tenure.
    pub(super) fn end_tenure(&mut self, at: &Moment<'_>, role: Role) {
        if let (Some(seen), false) = (&mut self.seen, self.role.is_standby()) {
            seen.since = at.now;
        }
        self.role = role;
        self.tenure = None;
        self.unresolved = None;
    }

    /// Begins a tenure; what was known about earlier ones is history.
    pub(super) fn begin_tenure(&mut self, epoch: Epoch, tenure: Tenure) {
        self.role = Role::Active;
        self.epoch = epoch;
        self.tenure = Some(tenure);
        self.promise_end = BootTime::default();
        self.is_certified = false;
        self.unresolved = None;
    }

    /// A standby hears of a tenure: its own last one, or another's end, is history then. A write goes on.
    pub(super) fn learn(&mut self, at: &Moment<'_>, epoch: Epoch) {
        if self.epoch < epoch {
            let unresolved = self.unresolved;
            self.end_tenure(at, Role::Standby);
            self.epoch = epoch;
            self.is_certified = false;
            self.unresolved = unresolved;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Hold;

    #[test]
    fn only_who_waited_as_a_standby_is_bereaved_without_a_certificate() {
        let [own, other] = [1, 2].map(AgentId);
        let lease = |holder| Lease {
            epoch: Epoch { term: 3, sequence: 0 },
            holder,
            members: [own, other],
            pending: None,
            hold: Hold::Peer,
            writes: 9,
        };
        let write = Write { number: 4, base: Version(7), lease: lease(Some(own)) };
        let claim = Unresolved { write, purpose: Purpose::Claim, sent: BootTime(1) };
        let bereaved = |role, holder, is_certified| {
            let seen = Some(Seen { lease: lease(holder), version: Version(7), since: BootTime(1) });
            let agent = Agent::new(own, Incarnation(5));
            Agent { role, seen, is_certified, unresolved: Some(claim), ..agent }.is_bereaved()
        };
        let told = [
            bereaved(Role::Standby, Some(other), false),
            bereaved(Role::Lapsed, Some(other), false),
            bereaved(Role::Standby, Some(own), false),
            bereaved(Role::Standby, None, false),
            bereaved(Role::Lapsed, Some(other), true),
        ];
        assert_eq!(told, [true, false, false, false, true]);
    }
}
