//! R3 Takeover: on which grounds a standby claims the Lease.

use crate::agent::{Agent, Purpose, Role, Seen};
use crate::{Epoch, Hold, Moment, Write};

/// Why a standby may take over, in the very version of the Lease that its claim is based on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ground {
    /// 1: no active wrote the Lease for Ta.
    Expired,
    /// 2: nobody holds the Lease.
    Released,
    /// 3: the Lease names its own tenure, which lapsed.
    Resumed,
    /// 4: whoever acts lives on promises alone.
    PeerMode,
    /// 5: the application of the last tenure has certainly ended.
    Certified,
}

impl Agent {
    /// R3: takes over, if the agent is a member, has a ground, and no promise binds it.
    pub fn r3_claim(&mut self, at: &Moment<'_>) -> Option<Write> {
        let seen = self.seen.filter(|_| self.role.is_standby() && self.unresolved.is_none())?;
        self.r3_ground(at)?;
        let epoch = seen.lease.epoch.takeover()?;
        if self.role == Role::HandedOver {
            // A claim ends the right to repeat the handover.
            self.end_tenure(at, Role::Standby);
        }
        let lease = seen.lease.held_by(self.id, epoch, Hold::Api);
        Some(self.begin_write(at, Purpose::Claim, (seen, lease)))
    }

    /// The ground on which it may take over now; none on a Lease that forgot a term, as one put back from a backup did.
    fn r3_ground(&self, at: &Moment<'_>) -> Option<Ground> {
        let seen = self.seen.filter(|seen| self.epoch.term <= seen.lease.epoch.term)?;
        let is_bound = at.now < self.promise_end;
        let grounds = [
            (Ground::Certified, self.is_last_tenure_certified(&seen), true),
            // It covers every epoch the agent knows: whoever the promise was given to has ended.
            (Ground::Released, seen.lease.holder.is_none(), self.epoch <= seen.lease.epoch),
            (Ground::Resumed, self.is_own_tenure(&seen), false),
            (Ground::PeerMode, seen.lease.hold == Hold::Peer, false),
            (Ground::Expired, seen.since + at.timing.api_watch <= at.now, false),
        ];
        let is_member = seen.lease.members.contains(&self.id);
        let permitted = grounds.into_iter().filter(|(_, is_given, _)| *is_given && is_member);
        // Two grounds show that what was promised is over; they free the others, too.
        let is_free = !is_bound || permitted.clone().any(|(_, _, voids_promise)| voids_promise);
        permitted.map(|(ground, _, _)| ground).next().filter(|_| is_free)
    }

    /// The epoch that it takes over with, if that is by ground 5.
    pub(crate) fn r3_inheritance(&self) -> Option<Epoch> {
        let seen = self.seen.filter(|seen| seen.lease.members.contains(&self.id))?;
        self.is_last_tenure_certified(&seen).then(|| seen.lease.epoch.takeover()).flatten()
    }

    fn is_last_tenure_certified(&self, seen: &Seen) -> bool {
        self.is_certified && seen.lease.epoch <= self.epoch
    }

    fn is_own_tenure(&self, seen: &Seen) -> bool {
        let is_ours = seen.lease.holder == Some(self.id) && seen.lease.epoch.term == self.epoch.term;
        self.role == Role::Lapsed && is_ours
    }

    /// R3: a write without an answer may be repeated, unchanged, until the Lease is known to have moved on.
    pub fn r3_repeat(&self) -> Option<Write> {
        self.unresolved.map(|unresolved| unresolved.write)
    }

    /// R3, ground 5: all connections to the application of this tenure were closed in order; it has ended.
    pub fn r3_certificate(&mut self, at: &Moment<'_>, epoch: Epoch) {
        if self.role.is_standby() && self.epoch <= epoch {
            self.learn(at, epoch);
            self.is_certified = true;
        }
    }
}
