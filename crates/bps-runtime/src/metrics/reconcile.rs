//! Metrics of reconciles, of the work queue and of leadership, with the names and labels of controller-runtime and
//! client-go, so that their dashboards and alerts work unchanged.

use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use super::seconds_by;

/// How a reconcile ended; the label values of controller-runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReconcileResult {
    /// Done, nothing to do until something changes.
    Success,
    /// Failed, to be tried again.
    Error,
    /// Done, to be looked at again as soon as possible.
    Requeue,
    /// Done, to be looked at again at a known time.
    RequeueAfter,
}

/// Reconciles, work queue and leadership of one process; clones share the values.
#[derive(Clone, Debug)]
pub struct ReconcileMetrics {
    reconciles: Family<ReconcileLabels, Counter>,
    errors: Family<ControllerLabels, Counter>,
    panics: Family<ControllerLabels, Counter>,
    seconds: Family<ControllerLabels, Histogram>,
    active_workers: Family<ControllerLabels, Gauge>,
    max_workers: Family<ControllerLabels, Gauge>,
    depth: Family<QueueLabels, Gauge>,
    adds: Family<QueueLabels, Counter>,
    retries: Family<QueueLabels, Counter>,
    queued_seconds: Family<QueueLabels, Histogram>,
    worked_seconds: Family<QueueLabels, Histogram>,
    is_leader: Family<LeaseLabels, Gauge>,
}

/// One running reconcile; counted in `controller_runtime_active_workers` until it is dropped.
#[derive(Debug)]
pub struct ActiveWorker {
    gauge: Gauge,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ControllerLabels {
    controller: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReconcileLabels {
    controller: &'static str,
    result: &'static str,
}

/// controller-runtime names the queue and its controller, which are the same word.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct QueueLabels {
    name: &'static str,
    controller: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct LeaseLabels {
    name: &'static str,
}

impl ReconcileResult {
    /// The label value.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::Error => "error",
            Self::Requeue => "requeue",
            Self::RequeueAfter => "requeue_after",
        }
    }
}

impl ReconcileMetrics {
    pub(super) fn register(registry: &mut Registry) -> Self {
        let metrics = Self {
            reconciles: Family::default(),
            errors: Family::default(),
            panics: Family::default(),
            seconds: seconds_by(),
            active_workers: Family::default(),
            max_workers: Family::default(),
            depth: Family::default(),
            adds: Family::default(),
            retries: Family::default(),
            queued_seconds: seconds_by(),
            worked_seconds: seconds_by(),
            is_leader: Family::default(),
        };
        metrics.register_controller(registry);
        metrics.register_queue(registry);
        metrics
    }

    fn register_controller(&self, registry: &mut Registry) {
        let controller = registry.sub_registry_with_prefix("controller_runtime");
        controller.register("reconcile", "Reconciles by controller and result", self.reconciles.clone());
        controller.register("reconcile_errors", "Reconciles that failed", self.errors.clone());
        controller.register("reconcile_panics", "Reconciles that panicked", self.panics.clone());
        controller.register("reconcile_time_seconds", "Time of one reconcile", self.seconds.clone());
        controller.register("active_workers", "Reconciles that run now", self.active_workers.clone());
        controller.register(
            "max_concurrent_reconciles",
            "Reconciles that may run at once",
            self.max_workers.clone(),
        );
    }

    fn register_queue(&self, registry: &mut Registry) {
        let queue = registry.sub_registry_with_prefix("workqueue");
        queue.register("depth", "Objects that wait for a reconcile", self.depth.clone());
        queue.register("adds", "Objects that were queued", self.adds.clone());
        queue.register("retries", "Objects that were queued again after a failure", self.retries.clone());
        queue.register(
            "queue_duration_seconds",
            "Time an object waited for its reconcile",
            self.queued_seconds.clone(),
        );
        queue.register(
            "work_duration_seconds",
            "Time from taking an object to done",
            self.worked_seconds.clone(),
        );
        registry.register(
            "leader_election_master_status",
            "1 while this process holds the lease, else 0",
            self.is_leader.clone(),
        );
    }

    /// Counts one reconcile that ended with `result` after `elapsed`.
    pub fn reconciled(&self, controller: &'static str, result: ReconcileResult, elapsed: Duration) {
        let labels = ControllerLabels { controller };
        self.reconciles.get_or_create(&ReconcileLabels { controller, result: result.as_str() }).inc();
        self.seconds.get_or_create(&labels).observe(elapsed.as_secs_f64());
        if result == ReconcileResult::Error {
            self.errors.get_or_create(&labels).inc();
        }
    }

    /// Counts one reconcile that panicked; call [`Self::reconciled`] with `Error` as well, as controller-runtime does.
    pub fn panicked(&self, controller: &'static str) {
        self.panics.get_or_create(&ControllerLabels { controller }).inc();
    }

    /// Counts one worker as busy until the returned value is dropped.
    pub fn start_worker(&self, controller: &'static str) -> ActiveWorker {
        let gauge = self.active_workers.get_or_create_owned(&ControllerLabels { controller });
        gauge.inc();
        ActiveWorker { gauge }
    }

    /// Says how many reconciles may run at once.
    pub fn set_max_workers(&self, controller: &'static str, workers: u16) {
        self.max_workers.get_or_create(&ControllerLabels { controller }).set(i64::from(workers));
    }

    /// Counts one object that went through the queue `name`.
    pub fn queued(&self, name: &'static str) {
        self.adds.get_or_create(&QueueLabels::of(name)).inc();
    }

    /// Counts one object that was added to the queue `name` again after a failure.
    pub fn retried(&self, name: &'static str) {
        self.retries.get_or_create(&QueueLabels::of(name)).inc();
    }

    /// Says how many objects wait in the queue `name`.
    pub fn set_depth(&self, name: &'static str, depth: usize) {
        let depth = i64::try_from(depth).unwrap_or(i64::MAX);
        self.depth.get_or_create(&QueueLabels::of(name)).set(depth);
    }

    /// Records how long an object waited in the queue `name` before its reconcile began.
    pub fn left_queue(&self, name: &'static str, waited: Duration) {
        self.queued_seconds.get_or_create(&QueueLabels::of(name)).observe(waited.as_secs_f64());
    }

    /// Records how long the work on an object of the queue `name` took.
    pub fn worked(&self, name: &'static str, elapsed: Duration) {
        self.worked_seconds.get_or_create(&QueueLabels::of(name)).observe(elapsed.as_secs_f64());
    }

    /// Says whether this process holds the lease `name`.
    pub fn set_leader(&self, name: &'static str, is_leader: bool) {
        self.is_leader.get_or_create(&LeaseLabels { name }).set(i64::from(is_leader));
    }
}

impl QueueLabels {
    const fn of(name: &'static str) -> Self {
        Self { name, controller: name }
    }
}

impl Drop for ActiveWorker {
    fn drop(&mut self) {
        self.gauge.dec();
    }
}
