//! R5 Release: instead of a handover, so that any member may take over at once.

use crate::agent::{Agent, Purpose, Role, Seen};
use crate::{Epoch, Moment, Write};

impl Agent {
    /// R5: says in the Lease that nobody acts and nothing is delegated. Never after a handover.
    pub fn r5_release(&mut self, at: &Moment<'_>) -> Option<Write> {
        let seen = self.own_base().filter(|_| self.role == Role::Ended && self.is_held(at))?;
        let lease = seen.lease.released(self.epoch);
        self.end_tenure(at, Role::Standby);
        Some(self.begin_write(at, Purpose::Release, (seen, lease)))
    }

    /// R5: says it again in a version that differs from the one before only in what no active writes.
    pub(super) fn r5_release_again(&mut self, at: &Moment<'_>, (seen, epoch): (Seen, Epoch)) {
        self.begin_write(at, Purpose::Release, (seen, seen.lease.released(epoch)));
    }
}
