//! How long clients of a pair may be without an answer: pure, so that `tests/checkers.rs` can show that it would see a broken
//! failover.
//!
//! Generous: a machine that also compiles must not break a claim, and a takeover by another way than the intended one must.

use std::time::Duration;

use backuppodset::ha::Timing;
use lab::app::{Outage, Sample};
use lab::bench::pairs::faults::Fault;
use lab::bench::pairs::site::Serving;

/// What a machine that also compiles may add to an outage that takes seconds anyway.
const BUSY_EXTRA: Duration = Duration::from_secs(5);

/// The longest time without an answer when somebody notices the fault and tells of it. 1.5 s; the benchmark's worst is 0.1 s.
///
/// Less than a standby needs that is told nothing: it watches for 2 s, and at the fault less than two periods of promises
/// had passed since it last heard of its active.
pub(crate) fn told_within() -> Duration {
    let timing = Timing::default();
    timing.watch.saturating_sub(2 * timing.promise_period)
}

/// The longest time without an answer when nobody can tell: the standby watches for as long as the Lease lasts. 7 s; the
/// benchmark's worst is 2.3 s.
pub(crate) fn lost_within() -> Duration {
    Timing::default().watch + BUSY_EXTRA
}

/// The longest time without an answer that this fault may cost.
fn bound(fault: Fault) -> Duration {
    match fault {
        Fault::ApplicationKilled
        | Fault::ContainerKilled
        | Fault::SandboxKilled
        | Fault::PodDeleted
        | Fault::SwitchedOver
        | Fault::ApiServerStoppedThenKilled
        | Fault::OperatorKilledThenKilled => told_within(),
        Fault::NodeLost | Fault::NodeCutOff => lost_within(),
        Fault::ApiServerCutOff => Duration::ZERO,
    }
}

/// What is wrong if nobody answered for longer than this, or in the end.
pub(crate) fn too_long(outage: &Outage, within: Duration) -> Option<String> {
    let is_in_time = outage.whole_again.is_some() && outage.longest_gap.is_some_and(|gap| gap <= within);
    (!is_in_time).then(|| format!("more than {within:?} without an answer: {outage}"))
}

fn is_answered_by_another(samples: &[Sample], pod: &str) -> bool {
    samples.iter().any(|sample| sample.is_ok() && sample.pod != pod)
}

/// How a fault ended.
pub(crate) struct End {
    /// Who served before it.
    pub(crate) before: Serving,
    /// Who serves when it is undone.
    pub(crate) after: Serving,
    /// What a client saw.
    pub(crate) samples: Vec<Sample>,
}

impl End {
    /// What is wrong about it.
    pub(crate) fn wrong(&self, fault: Fault) -> Vec<String> {
        let Self { before, after, samples } = self;
        let outage = Outage::from_samples(samples);
        let is_followed =
            before.epochs.is_disjoint(&after.epochs) && is_answered_by_another(samples, &before.pod);
        // A Service that shows no epoch says nothing about tenures.
        let is_shown = !before.epochs.is_empty() && !after.epochs.is_empty();
        let is_right =
            is_shown && if fault == Fault::ApiServerCutOff { before == after } else { is_followed };
        let may_fail = !matches!(fault, Fault::PodDeleted | Fault::ApiServerCutOff);
        let wrong = [
            (!is_right).then(|| format!("{before:?} was followed by {after:?}")),
            too_long(&outage, bound(fault)),
            (outage.failed > 0 && !may_fail).then(|| format!("requests failed: {outage}")),
        ];
        wrong.into_iter().flatten().collect()
    }
}
