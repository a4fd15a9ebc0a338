//! Metrics of what happened in groups of pairs, by the words that status, events and logs use too.

use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use super::seconds_by;

/// What happened in groups of pairs; clones share the values.
#[derive(Clone, Debug)]
pub struct GroupMetrics {
    takeovers: Family<ReasonLabels, Counter>,
    phases: Family<PhaseLabels, Histogram>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReasonLabels {
    reason: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PhaseLabels {
    phase: &'static str,
}

impl GroupMetrics {
    pub(super) fn register(registry: &mut Registry) -> Self {
        let metrics = Self { takeovers: Family::default(), phases: seconds_by() };
        let groups = registry.sub_registry_with_prefix("backuppodset");
        groups.register("takeovers", "Takeovers in pairs, by reason", metrics.takeovers.clone());
        groups.register(
            "takeover_phase_seconds",
            "Time from the beginning of a takeover to the end of a phase, the phases before it included",
            metrics.phases.clone(),
        );
        metrics
    }

    /// Counts a takeover.
    pub fn took_over(&self, reason: &'static str) {
        self.takeovers.get_or_create(&ReasonLabels { reason }).inc();
    }

    /// Records how long after its beginning a takeover reached the end of a phase.
    pub fn reached(&self, phase: &'static str, after: Duration) {
        self.phases.get_or_create(&PhaseLabels { phase }).observe(after.as_secs_f64());
    }
}
