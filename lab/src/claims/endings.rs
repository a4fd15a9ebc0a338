//! What may be the end of a fault at the active of a pair: pure, so that `tests/checkers.rs` can show that it would see a broken
//! failover.
//!
//! No time decides, because a machine that also compiles must not break a claim: a quick takeover is told from a slow one by
//! its reason.

use crate::app::{Outage, Sample};
use crate::bench::pairs::faults::Fault;
use crate::bench::pairs::site::Serving;
use crate::bench::pairs::target::Target;
use bps_protocol::Cause;

/// Whether nobody can tell of the fault, so that the standby waits until the Lease has run out.
fn is_untold(fault: Fault) -> bool {
    matches!(fault, Fault::NodeLost | Fault::NodeCutOff)
}

/// What is wrong about the reason of a takeover: whether it had to wait for the Lease is not as it should be.
pub fn wrong_reason(is_untold: bool, reason: &str) -> Option<String> {
    let has_waited = reason == Cause::LeaseExpired.as_str();
    (has_waited != is_untold).then(|| format!("it was taken over because of {reason}"))
}

fn is_answered_by_another(samples: &[Sample], pod: &str) -> bool {
    samples.iter().any(|sample| sample.is_ok() && sample.pod != pod)
}

/// How a fault ended.
pub struct End {
    /// Who served before it.
    pub before: Serving,
    /// Who serves when it is undone.
    pub after: Serving,
    /// What a client saw that opens a connection for each request.
    pub samples: Vec<Sample>,
    /// What one saw that keeps its connection.
    pub kept: Outage,
    /// Why another Pod took over, if one did.
    pub reason: Option<String>,
}

impl End {
    /// What is wrong about it.
    pub fn wrong(&self, fault: Fault) -> Vec<String> {
        let Self { before, after, samples, kept, reason } = self;
        let outage = Outage::from_samples(samples);
        let is_followed =
            before.epochs.is_disjoint(&after.epochs) && is_answered_by_another(samples, &before.pod);
        // A Service that shows no epoch says nothing about tenures.
        let is_shown = !before.epochs.is_empty() && !after.epochs.is_empty();
        let is_right =
            is_shown && if fault == Fault::ApiServerCutOff { before == after } else { is_followed };
        let may_fail = |target: Target| target != Target::NoneFailed;
        let wrong = [
            (!is_right).then(|| format!("{before:?} was followed by {after:?}")),
            (!outage.is_answered).then(|| format!("nobody answers in the end: {outage}")),
            reason.as_deref().and_then(|reason| wrong_reason(is_untold(fault), reason)),
            (outage.failed > 0 && !may_fail(fault.target())).then(|| format!("requests failed: {outage}")),
            (!kept.is_answered).then(|| format!("nobody answers on a kept connection: {kept}")),
            (kept.failed > 0 && !may_fail(fault.target_kept()))
                .then(|| format!("requests failed on a kept connection: {kept}")),
        ];
        wrong.into_iter().flatten().collect()
    }
}
