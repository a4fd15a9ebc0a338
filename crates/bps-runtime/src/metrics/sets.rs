//! Metrics of what was done to sets of Pods; each label value is the word that events, conditions and logs use too.

use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use super::{seconds, seconds_by};

/// What was done to sets of Pods; clones share the values.
#[derive(Clone, Debug)]
pub struct SetMetrics {
    conversions: Family<Conversion, Counter>,
    steps: Family<StepLabels, Counter>,
    holds: Family<HoldLabels, Counter>,
    plan_violations: Counter,
    handling: Family<OperationLabels, Histogram>,
    transitions: Family<Transition, Histogram>,
    wakeups: Histogram,
    failovers: Family<PhaseLabels, Histogram>,
    spares: Family<SpareLabels, Counter>,
    pods: Family<Tier, Gauge>,
    at_risk: Family<LossLabels, Gauge>,
    storm_brake: Gauge,
    unlimited: Gauge,
    events_dropped: Counter,
    relists: Counter,
    refreshes: Counter,
}

/// One Pod's change of role.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct Conversion {
    /// Role before.
    pub from: &'static str,
    /// Role after.
    pub to: &'static str,
    /// Why.
    pub reason: &'static str,
}

/// One step of a plan and what became of it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct StepLabels {
    /// What was to be done.
    pub action: &'static str,
    /// Why.
    pub reason: &'static str,
    /// What became of it: done, stale or failed.
    pub outcome: &'static str,
}

/// The roles between which a Pod changed.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct Transition {
    /// Role before.
    pub from: &'static str,
    /// Role after.
    pub to: &'static str,
}

/// Pods of all sets that are counted together.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct Tier {
    /// primary, hot or cold.
    pub role: &'static str,
    /// ready or not-ready.
    pub state: &'static str,
}

/// Whether a spare Pod was at hand when one was needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spare {
    /// A backup Pod took over.
    Hit,
    /// None could: a Pod had to be created.
    Miss,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct HoldLabels {
    reason: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OperationLabels {
    operation: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PhaseLabels {
    phase: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct LossLabels {
    loss: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct SpareLabels {
    result: &'static str,
}

impl SetMetrics {
    pub(super) fn register(registry: &mut Registry) -> Self {
        let metrics = Self {
            conversions: Family::default(),
            steps: Family::default(),
            holds: Family::default(),
            plan_violations: Counter::default(),
            handling: seconds_by(),
            transitions: seconds_by(),
            wakeups: seconds(),
            failovers: seconds_by(),
            spares: Family::default(),
            pods: Family::default(),
            at_risk: Family::default(),
            storm_brake: Gauge::default(),
            unlimited: Gauge::default(),
            events_dropped: Counter::default(),
            relists: Counter::default(),
            refreshes: Counter::default(),
        };
        let sets = registry.sub_registry_with_prefix("backuppodset");
        metrics.register_counts(sets);
        metrics.register_times(sets);
        metrics
    }

    fn register_counts(&self, sets: &mut Registry) {
        sets.register("conversions", "Pods that changed their role", self.conversions.clone());
        sets.register("steps", "Steps of plans by outcome", self.steps.clone());
        sets.register("holds", "Decisions to wait, by reason", self.holds.clone());
        sets.register(
            "plan_violations",
            "Plans that were refused because they broke a rule: a bug",
            self.plan_violations.clone(),
        );
        sets.register("spare", "Whether a backup Pod was at hand when one was needed", self.spares.clone());
        sets.register("pods", "Pods of all sets by role and state", self.pods.clone());
        sets.register(
            "sets_at_risk",
            "Sets that would lack primaries after the loss of one node or of one zone",
            self.at_risk.clone(),
        );
        sets.register(
            "storm_brake",
            "1 while deletions are held because too many Pods seem lost at once",
            self.storm_brake.clone(),
        );
        sets.register(
            "unlimited",
            "1 while no admission policy limits which Secrets the operator may write",
            self.unlimited.clone(),
        );
        sets.register(
            "events_dropped",
            "Events that were dropped because too many waited to be written",
            self.events_dropped.clone(),
        );
        sets.register(
            "relists",
            "Times that everything was listed again because a watch had not shown for too long what was written",
            self.relists.clone(),
        );
        sets.register(
            "refreshes",
            "Times that the objects of one set were read anew because its writes met newer versions again and again",
            self.refreshes.clone(),
        );
    }

    fn register_times(&self, sets: &mut Registry) {
        sets.register(
            "handling_seconds",
            "Time from an event to the last acknowledged write",
            self.handling.clone(),
        );
        sets.register("transition_seconds", "Time a Pod took to change its role", self.transitions.clone());
        sets.register("wakeup_seconds", "Time from the ticket to the running Pod", self.wakeups.clone());
        sets.register("failover_seconds", "Time of each phase of a failover", self.failovers.clone());
    }

    /// Counts a Pod that changed its role.
    pub fn converted(&self, conversion: &Conversion) {
        self.conversions.get_or_create(conversion).inc();
    }

    /// Counts a step of a plan.
    pub fn stepped(&self, step: &StepLabels) {
        self.steps.get_or_create(step).inc();
    }

    /// Counts a decision to wait.
    pub fn held(&self, reason: &'static str) {
        self.holds.get_or_create(&HoldLabels { reason }).inc();
    }

    /// Counts a plan that broke a rule and was not applied.
    pub fn refused_plan(&self) {
        self.plan_violations.inc();
    }

    /// Records the time from an event to the last acknowledged write of what it led to.
    pub fn handled(&self, operation: &'static str, elapsed: Duration) {
        self.handling.get_or_create(&OperationLabels { operation }).observe(elapsed.as_secs_f64());
    }

    /// Records how long a Pod took to change its role.
    pub fn transitioned(&self, transition: &Transition, elapsed: Duration) {
        self.transitions.get_or_create(transition).observe(elapsed.as_secs_f64());
    }

    /// Records how long a cold Pod took from its ticket until it ran.
    pub fn woke(&self, elapsed: Duration) {
        self.wakeups.observe(elapsed.as_secs_f64());
    }

    /// Records how long one phase of a failover took.
    pub fn failed_over(&self, phase: &'static str, elapsed: Duration) {
        self.failovers.get_or_create(&PhaseLabels { phase }).observe(elapsed.as_secs_f64());
    }

    /// Counts whether a backup Pod was at hand when one was needed.
    pub fn asked_for_spare(&self, spare: Spare) {
        let result = match spare {
            Spare::Hit => "hit",
            Spare::Miss => "miss",
        };
        self.spares.get_or_create(&SpareLabels { result }).inc();
    }

    /// Says how many Pods of all sets are in a tier.
    pub fn set_pods(&self, tier: &Tier, count: usize) {
        self.pods.get_or_create(tier).set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    /// Says how many sets the loss of one domain of a kind, `node` or `zone`, would leave with too few primaries.
    pub fn set_at_risk(&self, loss: &'static str, count: usize) {
        self.at_risk.get_or_create(&LossLabels { loss }).set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    /// Says whether the storm brake holds deletions.
    pub fn set_storm_brake(&self, is_on: bool) {
        self.storm_brake.set(i64::from(is_on));
    }

    /// Counts an event that was dropped because too many waited.
    pub fn dropped_event(&self) {
        self.events_dropped.inc();
    }

    /// Counts that everything is listed again.
    pub fn asked_for_relist(&self) {
        self.relists.inc();
    }

    /// Counts that the objects of a set are read anew.
    pub fn read_anew(&self) {
        self.refreshes.inc();
    }

    /// Shows whether no admission policy limits the operator's writes of Secrets.
    pub fn set_unlimited(&self, is_so: bool) {
        self.unlimited.set(i64::from(is_so));
    }
}
