//! The process that checks whether the application still works.

use tracing::{error, warn};

use super::Tenant;
use crate::check::EXIT_FAILED;
use crate::hook::Helper;
use crate::tree::{Ending, Environment};
use crate::world::Machine;

impl<On: Machine> Tenant<On> {
    /// Starts it beside an application that was just started. Without it the application runs on.
    pub(super) fn start_check(&mut self, environment: &Environment) {
        let Some(check) = &self.hooks.check else { return };
        // Whoever runs in one role only runs in its tenures.
        let state_file = self.hooks.state_file.as_deref().filter(|_| self.hooks.runs_in_standby);
        let command = check.command(&self.launcher, state_file);
        match Helper::start((&self.machine, &self.launcher), &command, environment) {
            Ok(helper) => self.helpers.add_check(helper),
            Err(error) => {
                error!(error = &error as &dyn std::error::Error, "The application is not checked");
            }
        }
    }

    /// An application that is asked to end need not work any more.
    pub(super) fn end_check(&mut self) {
        if let Err(error) = self.helpers.end_check() {
            warn!(error = &error as &dyn std::error::Error, "Could not end the check of the application");
        }
    }

    /// It has ended. An application that works no more is killed, which is the same as if it had crashed.
    pub(super) fn checked(&mut self, ending: Ending) {
        if ending == Ending::Exited(EXIT_FAILED.into()) {
            error!("The application works no more: kills it");
            self.crashes.found_dead();
            self.deadlines.kill_at_once();
        } else {
            let code = ending.exit_code();
            error!(code, "The application is not checked any more until it is started again");
        }
    }
}
