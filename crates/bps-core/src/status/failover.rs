//! Reports the last loss of a primary: who was lost, who took its place, and how long that took.
//!
//! Reads only facts of this pass and the previous report; a report is replaced by the next loss and never withdrawn.

use bps_api::status::FailoverReport;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;

use super::{StatusInput, tally};
use crate::model::{Action, Lifecycle, Outcome, PodName, Reason, Role, StepResult};

/// The report after this pass.
pub(super) fn report(input: &StatusInput<'_>) -> Option<FailoverReport> {
    let mut report = new_report(input).or_else(|| input.previous.last_failover.clone())?;
    let successor = PodName(report.successor.clone()?);
    if report.exposed_after_milliseconds.is_none() {
        report.exposed_after_milliseconds =
            exposed_at(input, &successor).and_then(|at| milliseconds(report.time.0, at));
    }
    if report.ready_after_milliseconds.is_none() && is_ready_primary(input, &successor) {
        report.ready_after_milliseconds = milliseconds(report.time.0, input.snapshot.now);
    }
    Some(report)
}

/// A report about the first promotion of this pass that a loss caused.
fn new_report(input: &StatusInput<'_>) -> Option<FailoverReport> {
    let promotion = |result: &&StepResult| {
        let is_promotion = matches!(&result.step.action, Action::Convert { to: Role::Primary, .. });
        is_promotion && is_done(result) && result.step.reason.is_loss()
    };
    let order = |result: &&StepResult| (result.started, result.step.action.pod_name().cloned());
    let first = input.results.iter().filter(promotion).min_by_key(order)?;
    let (successor, reason) = (first.step.action.pod_name()?, first.step.reason);
    let lost = lost_pod(input, reason);
    // A Pod too many for a rollout is "missing" too; it is a loss only if somebody is gone.
    if lost.is_none() && reason == Reason::PodMissing {
        return None;
    }
    let time = whole_microseconds(input.results.iter().map(|result| result.started).min()?);
    Some(FailoverReport {
        time: MicroTime(time),
        detected_after_milliseconds: lost.as_ref().and_then(|lost| detected_after(input, lost, time)),
        lost_pod: lost.map(|lost| lost.0).unwrap_or_default(),
        successor: Some(successor.0.clone()),
        reason: reason.as_str().to_owned(),
        exposed_after_milliseconds: None,
        ready_after_milliseconds: None,
    })
}

/// Whose place was taken, from the surest trace to the faintest.
fn lost_pod(input: &StatusInput<'_>, reason: Reason) -> Option<PodName> {
    let done = || input.results.iter().filter(|result| is_done(result));
    let demoted = || {
        let is_demotion = |result: &&StepResult| {
            matches!(&result.step.action, Action::Convert { from: Role::Primary, .. })
                && result.step.reason == reason
        };
        done().find(is_demotion).and_then(|result| result.step.action.pod_name().cloned())
    };
    let is_primary_now = |name: &&PodName| {
        let mut pods = input.snapshot.pods.iter();
        pods.any(|view| view.pod.name == **name && view.role == Role::Primary && tally::is_counted(view))
    };
    let fallen = || {
        let reported: Vec<PodName> = input.previous.pods.primaries.iter().cloned().map(PodName).collect();
        reported.iter().find(|name| !is_primary_now(name)).cloned()
    };
    let deleted = || {
        let is_deletion =
            |result: &&StepResult| matches!(&result.step.action, Action::Delete { role: Role::Primary, .. });
        done().find(is_deletion).and_then(|result| result.step.action.pod_name().cloned())
    };
    let leaving = || {
        let mut pods = input.snapshot.pods.iter();
        pods.find(|view| view.role == Role::Primary && !tally::is_counted(view))
            .map(|view| view.pod.name.clone())
    };
    demoted().or_else(fallen).or_else(deleted).or_else(leaving)
}

/// From the moment at which the cluster recorded that the Pod is not ready.
fn detected_after(input: &StatusInput<'_>, lost: &PodName, time: Timestamp) -> Option<i32> {
    let view = input.snapshot.pods.iter().find(|view| view.pod.name == *lost)?;
    match view.lifecycle {
        Lifecycle::Unready { since } => milliseconds(view.stopped.unwrap_or(since), time),
        Lifecycle::Unscheduled
        | Lifecycle::Starting
        | Lifecycle::Ready { .. }
        | Lifecycle::Finished
        | Lifecycle::Terminating => None,
    }
}

/// When a write that leads clients to this Pod was acknowledged.
fn exposed_at(input: &StatusInput<'_>, successor: &PodName) -> Option<Timestamp> {
    let exposes = |result: &&StepResult| {
        let Action::Expose { family: _, endpoints } = &result.step.action else { return false };
        let is_there = endpoints.iter().any(|endpoint| endpoint.is_ready && endpoint.pod == *successor);
        is_there && is_done(result)
    };
    let acknowledged = |result: &StepResult| result.started.saturating_add(result.elapsed).ok();
    input.results.iter().filter(exposes).filter_map(acknowledged).min()
}

fn is_ready_primary(input: &StatusInput<'_>, name: &PodName) -> bool {
    let mut pods = input.snapshot.pods.iter();
    pods.any(|view| {
        view.pod.name == *name && view.role == Role::Primary && view.is_ready() && tally::is_counted(view)
    })
}

fn is_done(result: &StepResult) -> bool {
    result.outcome == Outcome::Done
}

/// `None` if the end lies before the start: a clock was set back, and no figure is better than a wrong one.
fn milliseconds(start: Timestamp, end: Timestamp) -> Option<i32> {
    let elapsed = end.duration_since(start).as_millis();
    (elapsed >= 0).then(|| i32::try_from(elapsed).unwrap_or(i32::MAX))
}

/// The wire has microseconds: what is compared with a status that was read back must have them too.
pub(super) fn whole_microseconds(at: Timestamp) -> Timestamp {
    Timestamp::from_microsecond(at.as_microsecond()).expect("the whole microseconds of a timestamp are one")
}
