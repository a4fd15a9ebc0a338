//! The hooks of a tenant: run when its part changes, one at a time.

use std::io;

use bps_api::keys;
use bps_protocol::BootTime;
use tracing::{error, warn};

use super::Tenant;
use crate::hook::Occasion;
use crate::tree::{Ending, Environment};
use crate::world::Machine;

impl<On: Machine> Tenant<On> {
    /// Whether the application runs in both roles.
    pub fn runs_in_standby(&self) -> bool {
        self.hooks.runs_in_standby
    }

    /// What a hook or an application is told.
    pub(super) fn environment(&self, occasion: Occasion) -> Environment {
        let mut environment = self.assignment.environment(occasion);
        let file = self.hooks.state_file.as_ref();
        environment.extend(file.map(|file| (keys::ENV_HA_STATE_FILE, file.display().to_string())));
        let socket = self.hooks.sync_socket.as_ref();
        environment.extend(socket.map(|socket| (keys::ENV_HA_SYNC_SOCKET, socket.display().to_string())));
        environment
    }

    /// Runs a hook instead of the one before; whether one runs now.
    pub(super) fn run_hook(&mut self, occasion: Occasion) -> bool {
        self.end_hook();
        match self.hooks.start(occasion, (&self.machine, &self.launcher), &self.environment(occasion)) {
            Ok(hook) => self.helpers.add_hook(hook),
            Err(error) => {
                error!(error = &error as &dyn std::error::Error, ?occasion, "Could not start a hook");
                self.not_done(occasion);
            }
        }
        self.helpers.has_hook()
    }

    /// Promotes what runs already, once nothing of an earlier tenure can be left.
    pub(super) fn promote_once_due(&mut self, now: BootTime) {
        if self.deadlines.takes_promotion(now) {
            self.run_hook(Occasion::Active);
        }
    }

    pub(super) fn ask_to_end(&self) -> io::Result<()> {
        self.pass(self.hooks.stop_signal.signal())
    }

    pub(super) fn end_hook(&mut self) {
        if let Err(error) = self.helpers.end_hook() {
            warn!(error = &error as &dyn std::error::Error, "Could not kill a hook");
        }
    }

    /// A hook has ended.
    pub(super) fn hooked(&mut self, occasion: Occasion, ending: Ending) -> io::Result<()> {
        if ending != Ending::Exited(0) {
            warn!(?occasion, code = ending.exit_code(), "A hook failed");
            self.not_done(occasion);
        }
        match occasion {
            Occasion::Fence => self.ask_to_end(),
            Occasion::Active | Occasion::Standby => Ok(()),
        }
    }

    /// An application that was not promoted is of no use in its tenure, and is killed as soon as possible.
    pub(super) fn not_done(&mut self, occasion: Occasion) {
        self.metrics.hook_failures.inc();
        if occasion == Occasion::Active && self.hooks.runs_in_standby {
            self.deadlines.kill_at_once();
        }
    }
}
