//! The PodDisruptionBudget that a set keeps.
//!
//! It counts primaries and hot backups together, as a number: a share, and `maxUnavailable`, are counted from `spec.replicas` of the
//! set, which is the number of its primaries alone, so that they allow too many evictions over Pods of more than one role
//! (`getExpectedScale` of the disruption controller of Kubernetes 1.36.4).

use bps_api::{BackupPodSet, BackupPodSetSpec, BudgetPolicy, keys};
use serde_json::{Map, Value, json};

use super::service::child_metadata;
use crate::model::Role;

/// Name of the budget of a set.
pub fn budget_name(set: &str) -> String {
    format!("{set}-bps")
}

/// Returns how many primaries and hot backups the budget leaves. `None` means that the set has no budget: one for a single Pod would
/// block the drain of its node for ever.
pub fn least_available(spec: &BackupPodSetSpec) -> Option<i32> {
    let running = spec.replicas.saturating_add(spec.hot_backups);
    let is_kept = spec.disruption.budget == BudgetPolicy::Keep && running >= 2;
    is_kept.then(|| running - 1)
}

/// The budget as it is sent to the API server; `None` if the set is to have none.
pub fn budget(set: &BackupPodSet) -> Option<Value> {
    let name = set.metadata.name.as_deref().unwrap_or_default();
    let roles = [Role::Primary, Role::Hot].map(Role::as_str);
    let selector = json!({
        "matchLabels": {(keys::LABEL_SET): name},
        "matchExpressions": [{"key": keys::LABEL_ROLE, "operator": "In", "values": roles}],
    });
    let least = least_available(&set.spec)?;
    Some(json!({
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": child_metadata(set, &budget_name(name), &Map::new()),
        // An unready Pod must not block the drain of its node.
        "spec": {"minAvailable": least, "selector": selector, "unhealthyPodEvictionPolicy": "AlwaysAllow"},
    }))
}
