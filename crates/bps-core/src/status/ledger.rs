//! Keeps the list of conversions: one entry for each that was written or refused, the latest last.

use bps_api::status::{CONVERSIONS_MAX, Conversion, ConversionOutcome, Tier};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;

use super::StatusInput;
use super::failover::whole_microseconds;
use crate::model::{Action, Lifecycle, Outcome, PodView, Reason, Role, StepResult};

/// The ledger after this pass, at most [`CONVERSIONS_MAX`] entries.
pub(super) fn conversions(input: &StatusInput<'_>) -> Vec<Conversion> {
    let mut ledger = input.previous.conversions.clone();
    let mut added: Vec<Conversion> = input.results.iter().filter_map(entry).collect();
    added.sort_by(|a, b| (&a.started.0, &a.pod).cmp(&(&b.started.0, &b.pod)));
    for conversion in added {
        // A refused conversion is repeated with growing delay; the list tells it once.
        if !ledger.iter().any(|told| is_repeated(told, &conversion)) {
            ledger.push(conversion);
        }
    }
    for conversion in ledger.iter_mut().filter(|conversion| conversion.finished.is_none()) {
        let outcome = outcome(input, conversion);
        if outcome != ConversionOutcome::InProgress {
            conversion.outcome = outcome;
            conversion.finished = Some(micro_time(input.snapshot.now));
        }
    }
    while ledger.len() > CONVERSIONS_MAX {
        let oldest_finished = ledger.iter().position(|conversion| conversion.finished.is_some());
        ledger.remove(oldest_finished.unwrap_or(0));
    }
    ledger
}

fn entry(result: &StepResult) -> Option<Conversion> {
    let Action::Convert { pod, from, to } = &result.step.action else { return None };
    let (outcome, finished) = match result.outcome {
        Outcome::Done => (ConversionOutcome::InProgress, None),
        Outcome::Failed(_) => {
            let ended = result.started.saturating_add(result.elapsed).unwrap_or(result.started);
            (ConversionOutcome::Failed, Some(micro_time(ended)))
        }
        Outcome::Stale => return None,
    };
    Some(Conversion {
        pod: pod.name.0.clone(),
        from: tier(*from),
        to: tier(*to),
        reason: result.step.reason.as_str().to_owned(),
        started: micro_time(result.started),
        finished,
        outcome,
    })
}

fn is_repeated(told: &Conversion, again: &Conversion) -> bool {
    again.outcome == ConversionOutcome::Failed
        && told.outcome == ConversionOutcome::Failed
        && (&told.pod, told.from, told.to, &told.reason) == (&again.pod, again.from, again.to, &again.reason)
}

fn outcome(input: &StatusInput<'_>, conversion: &Conversion) -> ConversionOutcome {
    if input.results.iter().any(|result| gave_up(result, &conversion.pod)) {
        return ConversionOutcome::Failed;
    }
    let view = input.snapshot.pods.iter().find(|view| view.pod.name.0 == conversion.pod);
    match view {
        None => ConversionOutcome::Superseded,
        Some(view) if is_leaving(view) || tier(view.role) != conversion.to => ConversionOutcome::Superseded,
        Some(view) if view.is_available() => ConversionOutcome::Succeeded,
        Some(_) => ConversionOutcome::InProgress,
    }
}

/// Whether a deadline ended the Pod's way into its role.
fn gave_up(result: &StepResult, pod: &str) -> bool {
    let is_deadline = matches!(result.step.reason, Reason::WakeTimedOut | Reason::UnreadyTooLong);
    matches!(&result.step.action, Action::Delete { pod: deleted, .. } if deleted.name.0 == pod)
        && is_deadline
        && result.outcome == Outcome::Done
}

const fn is_leaving(view: &PodView) -> bool {
    match view.lifecycle {
        Lifecycle::Finished | Lifecycle::Terminating => true,
        Lifecycle::Unscheduled
        | Lifecycle::Starting
        | Lifecycle::Ready { .. }
        | Lifecycle::Unready { .. } => false,
    }
}

const fn tier(role: Role) -> Tier {
    match role {
        Role::Primary => Tier::Primary,
        Role::Hot => Tier::HotBackup,
        Role::Cold => Tier::ColdBackup,
    }
}

fn micro_time(at: Timestamp) -> MicroTime {
    MicroTime(whole_microseconds(at))
}
