//! Counts requests and answers: kube-scheduler drops an answer that fails, and logs that at V(5) only.

use std::sync::Arc;

use bps_runtime::metrics::Basics;
use bps_runtime::metrics::rest::RestMetrics;
use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

/// Upper bounds of the time for an answer. Unit: seconds. The scheduler waits for 0.5.
const BUCKETS_SECONDS: [f64; 10] = [0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5];

/// Counters of the extender; clones share the values.
#[derive(Clone, Debug)]
pub struct ExtenderMetrics {
    /// Requests to the API server.
    pub rest: RestMetrics,
    /// Time from the head of a request to its answer.
    pub(super) seconds: Histogram,
    answers: Family<AnswerLabels, Counter>,
    waits: Family<WaitLabels, Counter>,
    registry: Arc<Registry>,
}

/// Answers to requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelValue)]
pub(super) enum Answered {
    /// With scores.
    Scored,
    /// Not at all: nodes or Pods were not listed yet.
    Unready,
    /// Not at all: the API server has been away, so that the sums lack what was bound since.
    Stale,
    /// Not at all: it is no request of kube-scheduler.
    BadRequest,
    /// Not at all: kube-scheduler gave up before.
    Abandoned,
}

/// Ends of waits for the binding of the Pod that was scored before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelValue)]
pub(super) enum Waited {
    /// Nothing was waited for.
    NotNeeded,
    /// Its binding, refusal or end was seen.
    Seen,
    /// It was not seen in time: the scores do not count it.
    TimedOut,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct AnswerLabels {
    result: Answered,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct WaitLabels {
    result: Waited,
}

impl ExtenderMetrics {
    /// Registers every metric, all at zero, and the `version` of this build.
    pub fn new(version: &'static str) -> Self {
        let Basics { rest, mut registry } = Basics::new(version);
        let seconds = Histogram::new(BUCKETS_SECONDS);
        let (answers, waits) = (Family::default(), Family::default());
        let answered =
            [Answered::Scored, Answered::Unready, Answered::Stale, Answered::BadRequest, Answered::Abandoned];
        for result in answered {
            drop(Family::<_, Counter>::get_or_create(&answers, &AnswerLabels { result }));
        }
        for result in [Waited::NotNeeded, Waited::Seen, Waited::TimedOut] {
            drop(Family::<_, Counter>::get_or_create(&waits, &WaitLabels { result }));
        }

        let own = registry.sub_registry_with_prefix("backuppodset_extender");
        own.register("prioritize", "Requests of the scheduler, by how they were answered", answers.clone());
        own.register(
            "wait",
            "Waits for the binding of the Pod that was scored before, by how they ended",
            waits.clone(),
        );
        own.register("prioritize_seconds", "Time for an answer, with the wait", seconds.clone());
        Self { rest, seconds, answers, waits, registry: Arc::new(registry) }
    }

    /// Holds all metrics.
    pub fn registry(&self) -> Arc<Registry> {
        Arc::clone(&self.registry)
    }

    pub(super) fn count_answer(&self, result: Answered) {
        self.answers.get_or_create(&AnswerLabels { result }).inc();
    }

    pub(super) fn count_wait(&self, result: Waited) {
        self.waits.get_or_create(&WaitLabels { result }).inc();
    }
}
