//! Compares the set's PodDisruptionBudget with the spec, and finds budgets of other writers that select its Pods.

use std::collections::BTreeMap;

use bps_api::{BackupPodSet, keys};
use bps_core::manifests::budget;
use bps_core::model::{ObjectState, Role};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube_core::{Selector, SelectorExt as _};

use super::owner::{is_controlled_by, is_for};

/// How the budget compares with the wish; `None` if none is wanted. `found` bears the name of the set's.
pub(super) fn budget_state(found: Option<&PodDisruptionBudget>, set: &BackupPodSet) -> Option<ObjectState> {
    let wanted = budget(set)?;
    let Some(found) = found else { return Some(ObjectState::Absent) };
    if !is_for(&found.metadata, set) {
        return Some(ObjectState::Foreign);
    }
    let label = found.metadata.labels.as_ref().and_then(|labels| labels.get(keys::LABEL_SET));
    let is_seen = label == set.metadata.name.as_ref();
    let spec = serde_json::to_value(&found.spec).unwrap_or_default();
    let is_current = is_controlled_by(&found.metadata, set) && is_seen && spec == wanted["spec"];
    Some(if is_current { ObjectState::Current } else { ObjectState::Outdated })
}

/// What is wrong with a budget of somebody else that selects Pods of the set, and what to write instead; `None` if it counts what
/// its author expects, or is the set's own.
pub fn misleading_budget(budget: &PodDisruptionBudget, set: &BackupPodSet) -> Option<String> {
    let spec = budget.spec.as_ref()?;
    let is_number = matches!(spec.min_available, Some(IntOrString::Int(_)));
    let selects = |role: Role| selects(budget, set, role);
    // One for primaries alone counts from the number of primaries, as it should.
    if is_for(&budget.metadata, set) || is_number || !(selects(Role::Hot) || selects(Role::Cold)) {
        return None;
    }
    let name = budget.metadata.name.as_deref().unwrap_or_default();
    let replicas = set.spec.replicas;
    Some(format!(
        "PodDisruptionBudget {name} counts from spec.replicas ({replicas}), the number of primaries, but selects other Pods of \
         the set, too: write minAvailable as a number, or select {}: {}",
        keys::LABEL_ROLE,
        Role::Primary
    ))
}

/// Labels that the budget selects by and should not: a merge patch takes away only what it names.
pub(super) fn surplus_labels(found: &PodDisruptionBudget, set: &BackupPodSet) -> Vec<String> {
    let wanted = budget(set).unwrap_or_default();
    let selected = found.spec.as_ref().and_then(|spec| spec.selector.as_ref()?.match_labels.as_ref());
    let labels = selected.into_iter().flatten().map(|(label, _)| label);
    labels
        .filter(|label| wanted["spec"]["selector"]["matchLabels"][label.as_str()].is_null())
        .cloned()
        .collect()
}

/// Whether a budget of somebody else selects primaries or hot backups of the set: with two budgets for one Pod, Kubernetes refuses
/// every eviction of it.
pub(super) fn is_selecting(budget: &PodDisruptionBudget, set: &BackupPodSet) -> bool {
    [Role::Primary, Role::Hot].into_iter().any(|role| selects(budget, set, role))
}

/// Whether a budget selects Pods of the set of this role: an empty selector selects every Pod, and none at all selects nothing.
fn selects(budget: &PodDisruptionBudget, set: &BackupPodSet, role: Role) -> bool {
    let selector = budget.spec.as_ref().and_then(|spec| spec.selector.clone());
    // One that cannot be read selects nothing: the API server checks selectors.
    let selector = selector.and_then(|selector| Selector::try_from(selector).ok());
    selector.is_some_and(|selector| selector.matches(&labels(set, role)))
}

/// Labels of a Pod of the set that never change while it has this role; its revision does.
fn labels(set: &BackupPodSet, role: Role) -> BTreeMap<String, String> {
    let mut labels = set.spec.template.metadata.clone().unwrap_or_default().labels;
    labels.insert(keys::LABEL_SET.to_owned(), set.metadata.name.clone().unwrap_or_default());
    labels.insert(keys::LABEL_ROLE.to_owned(), role.as_str().to_owned());
    labels.insert(keys::LABEL_TYPE.to_owned(), role.type_label().to_owned());
    labels
}
