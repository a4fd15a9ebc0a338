//! The hooks of a tenant: run when its part changes, one at a time.

use std::io;

use rustix::process::Signal;
use tracing::{error, warn};

use super::Tenant;
use crate::agent::hook::{Hook, Occasion};
use crate::agent::tree::Ending;
use crate::agent::world::Machine;
use crate::ha::BootTime;

impl<On: Machine> Tenant<On> {
    /// Runs a hook instead of the one before; whether one runs now.
    pub(super) fn run_hook(&mut self, occasion: Occasion) -> bool {
        self.end_hook();
        match self.hooks.start(occasion, (&self.machine, &self.launcher), &self.environment(occasion)) {
            Ok(hook) => self.hook = hook,
            Err(error) => {
                error!(error = &error as &dyn std::error::Error, ?occasion, "Could not start a hook");
                self.not_done(occasion);
            }
        }
        self.hook.is_some()
    }

    pub(super) fn end_hook(&mut self) {
        if let Some(Err(error)) = self.hook.take().map(Hook::kill) {
            warn!(error = &error as &dyn std::error::Error, "Could not kill a hook");
        }
    }

    /// A hook has ended.
    pub(super) fn hooked(&mut self, ending: Ending) -> io::Result<()> {
        let Some(Hook { occasion, .. }) = self.hook.take() else { return Ok(()) };
        if ending != Ending::Exited(0) {
            warn!(?occasion, code = ending.exit_code(), "A hook failed");
            self.not_done(occasion);
        }
        match occasion {
            Occasion::Fence => self.pass(Signal::TERM),
            Occasion::Active | Occasion::Standby => Ok(()),
        }
    }

    /// An application that was not promoted is of no use in its tenure, and is killed as soon as possible.
    pub(super) fn not_done(&mut self, occasion: Occasion) {
        self.metrics.hook_failures.inc();
        if occasion == Occasion::Active && self.hooks.runs_in_standby {
            self.kill_at = Some(BootTime::default());
        }
    }
}
