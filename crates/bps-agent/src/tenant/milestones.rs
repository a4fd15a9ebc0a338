//! What the record of a takeover asks of the application.

use bps_protocol::BootTime;
use tracing::info;

use super::{Lingering, Running, Tenant};
use crate::metrics::AgentMetrics;
use crate::world::Machine;

impl<On: Machine> Tenant<On> {
    /// What counts its starts and hooks.
    pub fn metrics(&self) -> &AgentMetrics {
        &self.metrics
    }

    /// Notes when the end of what ran was noticed, and tells of it; returns what it ended with, if it ran.
    pub(super) fn note_end(&mut self) -> Option<u8> {
        self.end_seen = match &self.running {
            Running::Application(application) => application.end_seen(),
            Running::Nothing | Running::Waiting(_) | Running::Lingering(_) | Running::Stillborn => None,
        };
        let (Running::Application(application) | Running::Lingering(Lingering { application, .. })) =
            &self.running
        else {
            return None;
        };
        let exit_code = application.ending()?.exit_code();
        let (epoch, was_asked) = (self.assignment.epoch(), self.deadlines.is_ending());
        info!(exit_code, was_asked, %epoch, "The application has ended");
        Some(exit_code)
    }

    /// When the end of the last application was noticed, before the last of its processes had ended.
    pub fn end_seen(&self) -> Option<BootTime> {
        self.end_seen
    }

    /// Whether the application runs in active mode, and its hook for actives has done its work.
    pub fn is_promoted(&self) -> bool {
        let is_running = matches!(self.running, Running::Application(_)) && !self.deadlines.is_ending();
        let is_promoting = self.deadlines.awaits_promotion() || self.helpers.is_promoting();
        self.assignment.is_tenure() && is_running && !is_promoting
    }
}
