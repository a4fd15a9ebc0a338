//! Writes the set's PodDisruptionBudget.

use bps_core::manifests::{budget, budget_name};
use bps_observe::{Observation, Written};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::Client;
use serde_json::{Value, json};

use super::Answer;
use super::exposure::{Guard, Target, nothing_to_do, write};

/// Creates the budget, or puts its spec right.
pub(super) async fn publish_budget(client: &Client, observation: &Observation) -> Answer {
    let set = observation.set.as_ref();
    let Some(body) = budget(set) else { return nothing_to_do() };
    let mut spec = body["spec"].clone();
    // Whoever wrote it may have asked for a share instead: a budget has one of the two.
    spec["maxUnavailable"] = Value::Null;
    for label in &observation.budget_surplus {
        spec["selector"]["matchLabels"][label] = Value::Null;
    }
    let patch = json!({"metadata": {"labels": body["metadata"]["labels"]}, "spec": spec});
    let name = budget_name(set.metadata.name.as_deref().unwrap_or_default());
    let version = observation.budget.as_ref();
    // The labels that were too many are no matter of life: the next look takes those away that came meanwhile.
    let target = Target { observation, name: &name, version, guard: Guard::Incarnation };
    let keep = |budget: PodDisruptionBudget| Written::Budget(Box::new(budget));
    write(client, &target, ((&body, patch), keep)).await
}
