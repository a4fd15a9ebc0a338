//! Tells what was done: status, events, logs and metrics, all with the same words.

use std::collections::BTreeSet;
use std::time::Duration;

use bps_api::{BackupPodSet, BackupPodSetStatus, keys};
use bps_core::model::{Action, Outcome, Plan, PodRef, Reason, Refusal, Role, Snapshot, StepResult};
use bps_core::status::{self, EventText, StatusInput, event_note};
use bps_observe::readable::Readable;
use bps_observe::{Observation, SetKey, Written};
use bps_runtime::metrics::sets::{Conversion, SetMetrics, Spare, StepLabels};
use bps_runtime::sync::Instant;
use jiff::{SignedDuration, Timestamp};
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use serde_json::{Map, Value, json};
use tracing::{debug, info, warn};

use super::events::EventSender;
use super::timing::{Timing, is_promotion_after_loss};
use super::transitions::Transitions;
use super::unreported::Unreported;
use super::watch::Sink;

/// One look at a set, with everything that was done.
pub(super) struct Round<'a> {
    pub(super) key: &'a SetKey,
    pub(super) observation: &'a Observation,
    pub(super) plan: &'a Plan,
    pub(super) results: &'a [StepResult],
    /// When the event that caused the look arrived.
    pub(super) since: Instant,
    /// Whether the history is as the template wants it; else the status must not name its revision yet.
    pub(super) is_history_kept: bool,
}

/// What became of the report of a look.
#[derive(Clone, Copy)]
pub(super) struct Reported {
    pub(super) outcome: Outcome,
    /// When the status will say that the set is stalled if nothing happens before.
    pub(super) stalls_at: Option<Timestamp>,
}

/// Reports about all sets.
pub(super) struct Reporter {
    client: Client,
    events: EventSender,
    metrics: SetMetrics,
    transitions: Transitions,
    unreported: Unreported,
}

/// The events that a look is worth. What is refused again and again is told once: all creations of a look for the same reason,
/// and all tickets to a gate, which are sent five times a second.
pub(super) fn notes(snapshot: &Snapshot, results: &[StepResult]) -> Vec<EventText> {
    let mut told = BTreeSet::new();
    let was_asked_before = |result: &StepResult, pod: &PodRef| {
        let view = snapshot.pods.iter().find(|view| view.pod.uid == pod.uid);
        view.and_then(|view| view.first_ticket).is_some_and(|first| first < result.started)
    };
    let mut is_news = |result: &&StepResult| match (&result.step.action, result.outcome) {
        (Action::Create { .. }, Outcome::Failed(refusal)) => told.insert(refusal),
        (Action::Wake { pod, .. }, Outcome::Failed(_)) => !was_asked_before(result, pod),
        _ => true,
    };
    results.iter().filter(|result| is_news(result)).filter_map(event_note).collect()
}

impl Reporter {
    pub(super) fn new(client: Client, events: EventSender, metrics: SetMetrics) -> Self {
        Self {
            client,
            events,
            metrics,
            transitions: Transitions::default(),
            unreported: Unreported::default(),
        }
    }

    /// Forgets a set that is gone.
    pub(super) fn forget(&self, set: &SetKey) {
        self.transitions.forget(set);
        self.unreported.forget(set);
    }

    /// Writes the status if it changed, and passes on events, logs and metrics.
    pub(super) async fn report(&self, sink: &Sink, round: &Round<'_>) -> Reported {
        let steps_elapsed = round.since.elapsed();
        let timing = self.time(sink, round, steps_elapsed);
        let reported = self.tell(sink, round).await;
        for result in round.results {
            self.count(result);
            log(round.observation, result);
        }
        for note in notes(&round.observation.snapshot, round.results) {
            self.events.send(round.observation.set.as_ref(), note);
        }
        self.transitions.follow((round.key, &round.observation.snapshot.pods), round.results, &self.metrics);
        for hold in &round.plan.holds {
            self.metrics.held(hold.reason.as_str());
        }
        if !round.results.is_empty() {
            let operation = operation(round.results);
            self.metrics.handled(operation, round.since.elapsed());
            log_handled(round, operation, (steps_elapsed, timing));
        }
        reported
    }

    /// Times the look, and counts the phases of a failover.
    fn time(&self, sink: &Sink, round: &Round<'_>, elapsed: Duration) -> Timing {
        let now = sink.clock.now();
        let arrived = now.checked_sub(elapsed).unwrap_or(now);
        let timing = Timing::of(round.results, arrived);
        for (phase, time) in [("promoted", timing.promoted), ("exposed", timing.exposed)] {
            if let Some(time) = time {
                self.metrics.failed_over(phase, time);
            }
        }
        timing
    }

    /// Writes the status of this look, with the last failover if its status was not taken.
    async fn tell(&self, sink: &Sink, round: &Round<'_>) -> Reported {
        let set = (round.key, round.observation.set.metadata.uid.as_deref());
        let seen = round.observation.set.status.clone().unwrap_or_default();
        let status = status_of(round, &self.unreported.onto(set, &seen));
        let outcome = self.write_status(sink, round, &status).await;
        let now = round.observation.snapshot.now;
        let stalls_at = status::stalls_at(&round.observation.snapshot, &status).filter(|at| *at > now);
        match outcome {
            Outcome::Done => self.unreported.forget(round.key),
            Outcome::Stale | Outcome::Failed(_) => self.unreported.keep(set, &seen, status),
        }
        Reported { outcome, stalls_at }
    }

    async fn write_status(&self, sink: &Sink, round: &Round<'_>, status: &BackupPodSetStatus) -> Outcome {
        let observation = round.observation;
        let set = observation.set.as_ref();
        let Some(patch) = status_patch(set, status) else { return Outcome::Done };
        match self.patch_status(set, &patch).await {
            Ok(written) => {
                sink.cache().wrote(Written::Set(Box::new(written)), sink.clock.now());
                Outcome::Done
            }
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Outcome::Stale,
            Err(error) => {
                let (namespace, name) = names(observation);
                warn!(
                    namespace,
                    set = name,
                    error = &error as &dyn std::error::Error,
                    "Could not write status"
                );
                Outcome::Failed(Refusal::ServerFailed)
            }
        }
    }

    async fn patch_status(
        &self,
        set: &BackupPodSet,
        patch: &Value,
    ) -> Result<Readable<BackupPodSet>, kube::Error> {
        let namespace = set.metadata.namespace.as_deref().unwrap_or_default();
        let name = set.metadata.name.as_deref().unwrap_or_default();
        let api: Api<Readable<BackupPodSet>> = Api::namespaced(self.client.clone(), namespace);
        let field_manager = Some(keys::FIELD_MANAGER_STATUS.to_owned());
        let parameters = PatchParams { field_manager, ..PatchParams::default() };
        api.patch_status(name, &parameters, &Patch::Merge(patch)).await
    }

    fn count(&self, result: &StepResult) {
        self.metrics.stepped(&StepLabels {
            action: result.step.action.as_str(),
            reason: result.step.reason.as_str(),
            outcome: result.outcome.as_str(),
        });
        match (&result.step.action, result.outcome) {
            (Action::Convert { pod: _, from, to }, Outcome::Done) => {
                let reason = result.step.reason.as_str();
                self.metrics.converted(&Conversion { from: from.as_str(), to: to.as_str(), reason });
                if is_promotion_after_loss(result) {
                    let is_at_hand = *from == Role::Hot;
                    self.metrics.asked_for_spare(if is_at_hand { Spare::Hit } else { Spare::Miss });
                }
            }
            (Action::Create { role: Role::Primary, .. }, Outcome::Done) if result.step.reason.is_loss() => {
                self.metrics.asked_for_spare(Spare::Miss);
            }
            _ => {}
        }
    }
}

fn status_of(round: &Round<'_>, previous: &BackupPodSetStatus) -> BackupPodSetStatus {
    let observation = round.observation;
    let invalid = observation.invalid.as_ref().map(ToString::to_string);
    let mut status = status::compute(&StatusInput {
        previous,
        snapshot: &observation.snapshot,
        plan: round.plan,
        results: round.results,
        generation: observation.set.metadata.generation.unwrap_or_default(),
        images: &observation.images,
        foreign_pods: &observation.foreign_pods,
        invalid: invalid.as_deref(),
        withheld: observation.withheld.as_deref(),
    });
    if !round.is_history_kept {
        status.update_revision.clone_from(&previous.update_revision);
        status.current_revision.clone_from(&previous.current_revision);
    }
    status
}

/// The merge patch that makes the status what it should be; `None` if it is.
fn status_patch(set: &BackupPodSet, status: &BackupPodSetStatus) -> Option<Value> {
    let old = serde_json::to_value(&set.status).ok()?;
    let new = serde_json::to_value(status).ok()?;
    let changes = merge_difference(&old, &new)?;
    Some(json!({
        "metadata": {"uid": set.metadata.uid, "resourceVersion": set.metadata.resource_version},
        "status": changes,
    }))
}

/// The merge patch (RFC 7396) from one value to another; `None` if they are equal.
pub(super) fn merge_difference(old: &Value, new: &Value) -> Option<Value> {
    let (Value::Object(before), Value::Object(after)) = (old, new) else {
        return (old != new).then(|| new.clone());
    };
    let mut changes = Map::new();
    for (key, value) in after {
        if let Some(change) = merge_difference(before.get(key).unwrap_or(&Value::Null), value) {
            changes.insert(key.clone(), change);
        }
    }
    for key in before.keys().filter(|key| !after.contains_key(*key)) {
        changes.insert(key.clone(), Value::Null);
    }
    (!changes.is_empty()).then_some(Value::Object(changes))
}

/// The word for what a look was about, for the handling time.
fn operation(results: &[StepResult]) -> &'static str {
    let has = |is: &dyn Fn(&StepResult) -> bool| results.iter().any(is);
    let has_reason = |reason: Reason| has(&|result: &StepResult| result.step.reason == reason);
    if has(&|result| result.step.reason.is_loss()) {
        "failover"
    } else if has_reason(Reason::TemplateChanged) {
        "rollout"
    } else if has_reason(Reason::ScaledIn) {
        "scale-in"
    } else if has_reason(Reason::ScaledOut) {
        "scale-out"
    } else {
        "upkeep"
    }
}

fn names(observation: &Observation) -> (&str, &str) {
    let metadata = &observation.set.metadata;
    (metadata.namespace.as_deref().unwrap_or_default(), metadata.name.as_deref().unwrap_or_default())
}

fn log(observation: &Observation, result: &StepResult) {
    let (namespace, set) = names(observation);
    let pod = result.step.action.pod_name().map_or("", |name| name.0.as_str());
    let action = result.step.action.as_str();
    let reason = result.step.reason.as_str();
    let outcome = result.outcome.as_str();
    let elapsed_ms = milliseconds(result.elapsed);
    match (&result.outcome, &result.message) {
        (Outcome::Failed(Refusal::NamespaceTerminating), _) => {
            info!(namespace, set, pod, action, reason, outcome, elapsed_ms, "Step was not taken");
        }
        (Outcome::Failed(_), message) => {
            let error = message.as_deref().unwrap_or_default();
            warn!(namespace, set, pod, action, reason, outcome, elapsed_ms, error, "Step was refused");
        }
        (Outcome::Done | Outcome::Stale, _) => match &result.step.action {
            Action::Convert { pod: _, from, to } => {
                info!(namespace, set, pod, action, %from, role = %to, reason, outcome, elapsed_ms, "Took step");
            }
            Action::Create { role, .. } | Action::Delete { role, .. } => {
                info!(namespace, set, pod, action, %role, reason, outcome, elapsed_ms, "Took step");
            }
            // Mostly there is nothing, and every set with a Service is asked when the operator starts.
            Action::ClearAddresses if result.message.is_none() => {
                debug!(namespace, set, action, reason, outcome, elapsed_ms, "Took step");
            }
            Action::Wake { .. }
            | Action::Adopt { .. }
            | Action::Relabel { .. }
            | Action::PublishService
            | Action::PublishGroup
            | Action::PublishBudget
            | Action::Expose { .. }
            | Action::ClearAddresses
            | Action::Retire { .. } => {
                info!(namespace, set, pod, action, reason, outcome, elapsed_ms, "Took step");
            }
        },
    }
}

fn log_handled(round: &Round<'_>, operation: &'static str, (steps_elapsed, timing): (Duration, Timing)) {
    let (namespace, set) = names(round.observation);
    let generation = round.observation.set.metadata.generation.unwrap_or_default();
    let to_ms = |elapsed: Duration| milliseconds(SignedDuration::try_from(elapsed).unwrap_or_default());
    let (elapsed_ms, steps_ms) = (to_ms(round.since.elapsed()), to_ms(steps_elapsed));
    let (promoted_ms, exposed_ms) = (timing.promoted.map(to_ms), timing.exposed.map(to_ms));
    info!(
        namespace,
        set,
        generation,
        action = operation,
        steps = round.results.len(),
        promoted_ms,
        exposed_ms,
        steps_ms,
        elapsed_ms,
        "Handled change"
    );
}

/// Milliseconds with a resolution of 10 microseconds.
fn milliseconds(duration: SignedDuration) -> f64 {
    (duration.as_secs_f64() * 100_000.0).round() / 100.0
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::merge_difference;

    #[test]
    fn a_difference_names_what_changed_and_nulls_what_is_gone() {
        let old = json!({"same": 1, "changed": {"a": 1, "b": 2}, "gone": [1], "list": [1, 2]});
        let new = json!({"same": 1, "changed": {"a": 1, "b": 3}, "list": [2], "fresh": "x"});
        assert_eq!(
            merge_difference(&old, &new),
            Some(json!({"changed": {"b": 3}, "gone": null, "list": [2], "fresh": "x"}))
        );
    }

    #[test]
    fn equal_values_have_no_difference() {
        let value = json!({"a": {"b": [1, {"c": null}]}});
        assert_eq!(merge_difference(&value, &value.clone()), None);
    }
}
