//! An application that was killed and does not end: one of its processes waits for a disk or a device in the kernel.
//!
//! Nobody may take its place before it has ended or its hold is over, so all that is left to do is to let the hold run out.

use bps_protocol::BootTime;

use super::{Running, Tenant};
use crate::world::Machine;

impl<On: Machine> Tenant<On> {
    /// Since when nothing of it is meant to live: it was killed, or its command has ended and only others are left.
    pub(super) fn being_killed_since(&self) -> Option<BootTime> {
        let Running::Application(application) = &self.running else { return None };
        self.deadlines.killed_since(application.end_seen())
    }

    /// Whether a tenure goes on with an application that should have ended: killing it has taken as long as stopping it
    /// may as a whole.
    pub fn is_stuck(&self, now: BootTime) -> bool {
        let is_overdue = |since| self.deadlines.is_overdue(since, now);
        self.assignment.is_tenure() && self.being_killed_since().is_some_and(is_overdue)
    }
}
