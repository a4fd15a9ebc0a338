//! What an answer to a write, or a read of the Lease, means for rules R1, R2, R3 and R6.

use std::time::Duration;

use crate::agent::{Agent, Peer, Purpose, Role, Seen, Tenure, Unresolved};
use crate::{AgentId, BootTime, Hold, Lease, Moment, Version};

impl Agent {
    /// The API server applied the write of this number. Holds count from the send of the first copy.
    ///
    /// An answer to another write than the one under way changes nothing, however late it arrives.
    pub fn answered(&mut self, at: &Moment<'_>, number: u64, version: Version) {
        let Some(unresolved) = self.unresolved.filter(|unresolved| unresolved.write.number == number) else {
            return;
        };
        self.note(at, unresolved.write.lease, version);
        self.applied(at, unresolved);
    }

    /// The Lease was read. A version that is older than the newest known one changes nothing.
    pub fn read(&mut self, at: &Moment<'_>, lease: Lease, version: Version) {
        if self.seen.is_some_and(|seen| version < seen.version) {
            return;
        }
        self.note(at, lease, version);
        if let Some(unresolved) = self.unresolved.filter(|unresolved| unresolved.write.base < version) {
            self.resolve(at, unresolved, &Seen { lease, version, since: at.now });
        }
        self.r1_overtaken(at);
        if self.role.is_standby() {
            self.learn(at, lease.epoch);
        }
    }

    /// Remembers the newest content; only another write of an active restarts the watch.
    fn note(&mut self, at: &Moment<'_>, lease: Lease, version: Version) {
        let before = self.seen.filter(|seen| seen.lease.writes == lease.writes);
        if self.seen.is_none_or(|seen| seen.version <= version) {
            self.seen = Some(Seen { lease, version, since: before.map_or(at.now, |seen| seen.since) });
        }
    }

    /// The Lease has moved on: the write was applied, or it never will be.
    fn resolve(&mut self, at: &Moment<'_>, unresolved: Unresolved, seen: &Seen) {
        let lease = &seen.lease;
        let written = &unresolved.write.lease;
        let is_ours = lease.holder == Some(self.id) && lease.epoch == written.epoch;
        if lease.holder == written.holder && lease.epoch == written.epoch && lease.writes == written.writes {
            self.applied(at, unresolved);
            return;
        }
        self.unresolved = None;
        // No active wrote meanwhile, so that what was to be released still is.
        if unresolved.purpose == Purpose::Release && lease.writes + 1 == written.writes {
            self.r5_release_again(at, (*seen, written.epoch));
        }
        // Somebody took over, perhaps because the switch to Peer mode had been applied.
        if let (Some(tenure), false) = (&mut self.tenure, is_ours) {
            tenure.api_hold_end = BootTime::default();
        }
    }

    fn applied(&mut self, at: &Moment<'_>, unresolved: Unresolved) {
        match unresolved.purpose {
            Purpose::Claim => self.claimed(at, unresolved),
            Purpose::Release => self.unresolved = None,
            Purpose::Renew | Purpose::Admit => self.renewed(at, unresolved),
        }
    }

    /// A claim whose hold is already over starts nothing; it may be resumed.
    fn claimed(&mut self, at: &Moment<'_>, Unresolved { write, sent, .. }: Unresolved) {
        let Some(peer) = write.lease.other_member(self.id) else { return };
        self.end_tenure(at, Role::Standby);
        let tenure = Tenure {
            api_hold_end: sent + api_hold(at, &write.lease),
            grace_end: sent + at.timing.grace,
            peer: Peer::new(peer),
            joining: None,
        };
        self.begin_tenure(write.lease.epoch, tenure);
        if !self.is_held_long_enough(at) {
            self.end_tenure(at, Role::Lapsed);
        }
    }

    fn renewed(&mut self, at: &Moment<'_>, Unresolved { write, purpose, sent }: Unresolved) {
        let is_held = self.is_held(at);
        self.unresolved = None;
        let Some(tenure) = &mut self.tenure else { return };
        if is_held {
            tenure.grace_end = tenure.grace_end.max(sent + at.timing.grace);
        }
        match write.lease.hold {
            Hold::Api if is_held => {
                tenure.api_hold_end = tenure.api_hold_end.max(sent + api_hold(at, &write.lease));
            }
            Hold::Api => {}
            Hold::Peer => tenure.api_hold_end = BootTime::default(),
        }
        if let (Purpose::Admit, Some(joined)) = (purpose, tenure.joining) {
            // From now on it acts by its writes alone.
            tenure.peer = if joined.id == AgentId::NOBODY { Peer::new(joined.id) } else { joined };
            tenure.joining = None;
        }
    }
}

/// How long an answered write lets its writer act. Ha is how long nobody else may take over; where nobody else is a member, it
/// takes the operator to have anybody act, or the writer to admit somebody.
fn api_hold(at: &Moment<'_>, written: &Lease) -> Duration {
    if written.is_lone() { at.timing.lone_hold } else { at.timing.api_hold }
}
