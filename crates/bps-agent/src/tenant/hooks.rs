//! The hooks of a tenant: run when its part changes, one at a time.

use std::io;

use bps_api::keys;
use bps_protocol::BootTime;
use tracing::{error, warn};

use super::{Posture, Tenant};
use crate::hook::{Helper, Hook, Occasion};
use crate::tree::{Ending, Environment};
use crate::world::Machine;

impl<On: Machine> Tenant<On> {
    /// Whether the application runs in both roles.
    pub fn runs_in_standby(&self) -> bool {
        self.hooks.runs_in_standby
    }

    /// What a hook or an application is told.
    pub(super) fn environment(&self, occasion: Occasion) -> Environment {
        let Posture { epoch, peer } = self.posture;
        let role = match occasion {
            Occasion::Active => keys::HA_ROLE_ACTIVE,
            Occasion::Standby | Occasion::Fence => keys::HA_ROLE_STANDBY,
        };
        let mut environment = Environment::from([
            (keys::ENV_HA_EPOCH, u64::from(epoch).to_string()),
            (keys::ENV_HA_ROLE, role.to_owned()),
        ]);
        environment.extend(self.pair.clone().map(|pair| (keys::ENV_HA_PAIR, pair)));
        environment.extend(peer.map(|peer| (keys::ENV_HA_PEER, peer.to_string())));
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
            Ok(hook) => self.hook = hook,
            Err(error) => {
                error!(error = &error as &dyn std::error::Error, ?occasion, "Could not start a hook");
                self.not_done(occasion);
            }
        }
        self.hook.is_some()
    }

    /// Promotes what runs already, once nothing of an earlier tenure can be left.
    pub(super) fn promote_once_due(&mut self, now: BootTime) {
        if self.promote_at.take_if(|at| *at <= now).is_some() {
            self.run_hook(Occasion::Active);
        }
    }

    pub(super) fn ask_to_end(&self) -> io::Result<()> {
        self.pass(self.hooks.stop_signal.signal())
    }

    pub(super) fn end_hook(&mut self) {
        if let Some(Err(error)) = self.hook.take().map(|hook| hook.helper.kill()) {
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
            Occasion::Fence => self.ask_to_end(),
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

/// How a process beside the application ended, if there is one; else it waits for ever.
pub(super) async fn helper_ended<On: Machine>(helper: Option<&mut Helper<On>>) -> io::Result<Ending> {
    match helper {
        Some(helper) => helper.ended().await,
        None => std::future::pending().await,
    }
}
