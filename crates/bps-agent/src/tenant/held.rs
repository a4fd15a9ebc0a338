//! An application that must not be started although its tenure has begun: not yet, or not any more.

use std::io;

use bps_protocol::BootTime;

use super::{Posture, Running, Tenant};
use crate::world::Machine;

impl<On: Machine> Tenant<On> {
    /// Begins nothing of the next tenure before this time.
    pub fn wait_until(&mut self, not_before: BootTime) {
        self.deadlines.wait_until(not_before);
    }

    /// Does not start the application before [`Tenant::let_go`], or may do so from now on; one that runs goes on.
    pub fn hold_back(&mut self, is_held_back: bool) {
        self.assignment.hold_back(is_held_back);
    }

    /// Starts what was held back, if it is still wanted and its time has come.
    ///
    /// # Errors
    /// The process list cannot be read.
    pub fn let_go(&mut self, now: BootTime) -> io::Result<()> {
        self.assignment.hold_back(false);
        self.go_on(now)
    }

    /// A tenure whose hold was over before anything could be done for it: it ends at once.
    pub fn miss(&mut self, posture: Posture) {
        self.assignment.miss(posture);
        match self.running {
            Running::Nothing | Running::Waiting(_) | Running::Stillborn => self.running = Running::Stillborn,
            Running::Application(_) | Running::Lingering(_) => self.deadlines.kill_at_once(),
        }
    }
}
