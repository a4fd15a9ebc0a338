//! The ports on which the application listens.

use std::os::fd::OwnedFd;

use tracing::info;

use super::{Running, Tenant};
use crate::relay::RelaySettings;
use crate::world::Machine;

impl<On: Machine> Tenant<On> {
    /// The sockets on which it listens for those who come there, as far as they may be had.
    pub fn listening(&self, at: &RelaySettings) -> Vec<OwnedFd> {
        let Running::Application(application) = &self.running else { return Vec::new() };
        application.listening(at).unwrap_or_else(|source| {
            let error = &source as &dyn std::error::Error;
            info!(
                error,
                "Could not keep the ports of the application open: who connects just as it ends is refused"
            );
            Vec::new()
        })
    }
}
