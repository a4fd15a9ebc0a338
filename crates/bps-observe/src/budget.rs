//! Compares the set's PodDisruptionBudget with the spec, and finds budgets of other writers that select its Pods.

use std::collections::BTreeMap;

use bps_api::{BackupPodSet, keys};
use bps_core::model::{ObjectState, Role};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube_core::{Selector, SelectorExt as _};
use serde_json::Value;

use super::exposure::is_watched;
use super::owner::{is_controlled_by, is_for};
use super::store::{Index, ObjectKey, SelectedLabel, Store};

/// How the budget compares with the one that is `wanted`. `found` bears the name of the set's.
pub(super) fn budget_state(
    found: Option<&PodDisruptionBudget>,
    set: &BackupPodSet,
    wanted: &Value,
) -> ObjectState {
    let Some(found) = found else { return ObjectState::Absent };
    if !is_for(&found.metadata, set) {
        return ObjectState::Foreign;
    }
    let spec = serde_json::to_value(&found.spec).unwrap_or_default();
    let is_owned = is_controlled_by(&found.metadata, set) && is_watched(&found.metadata, set);
    if is_owned && spec == wanted["spec"] { ObjectState::Current } else { ObjectState::Outdated }
}

/// What is wrong with a budget of somebody else that selects Pods of the set, and what to write instead; `None` if it counts what
/// its author expects, or is the set's own.
pub fn misleading_budget(budget: &PodDisruptionBudget, set: &BackupPodSet) -> Option<String> {
    let spec = budget.spec.as_ref()?;
    let is_number = matches!(spec.min_available, Some(IntOrString::Int(_)));
    let selects = |role: Role| selects(budget, &labels(set, role));
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

/// Labels that the budget selects by and should not: a merge patch removes only what it names.
pub(super) fn surplus_labels(found: &PodDisruptionBudget, wanted: &Value) -> Vec<String> {
    let selected = found.spec.as_ref().and_then(|spec| spec.selector.as_ref()?.match_labels.as_ref());
    let labels = selected.into_iter().flatten().map(|(label, _)| label);
    labels
        .filter(|label| wanted["spec"]["selector"]["matchLabels"][label.as_str()].is_null())
        .cloned()
        .collect()
}

/// What a budget is found by: each Pod that it selects has the first label that it names, if it names one.
pub(super) fn selected_by(budget: &PodDisruptionBudget) -> Index {
    let namespace = budget.metadata.namespace.clone().unwrap_or_default();
    let selector = budget.spec.as_ref().and_then(|spec| spec.selector.as_ref());
    let named = selector.and_then(|selector| selector.match_labels.as_ref()?.first_key_value());
    match named {
        Some((key, value)) => {
            Index::Selected(SelectedLabel { namespace, key: key.clone(), value: value.clone() })
        }
        None => Index::SelectsIn(namespace),
    }
}

/// Whether one of these budgets, which may be looked up by labels, selects Pods of a namespace with these labels. That one is left
/// out.
pub(super) fn is_selected(
    budgets: &Store<PodDisruptionBudget>,
    except: Option<&ObjectKey>,
    namespace: &str,
    labels: &BTreeMap<String, String>,
) -> bool {
    let by_label = labels.iter().map(|(key, value)| {
        Index::Selected(SelectedLabel {
            namespace: namespace.to_owned(),
            key: key.clone(),
            value: value.clone(),
        })
    });
    let mut indices = by_label.chain([Index::SelectsIn(namespace.to_owned())]);
    indices.any(|index| {
        let mut found = budgets.found_by(&index);
        found.any(|budget| except != Some(&ObjectKey::of(budget.as_ref())) && selects(budget, labels))
    })
}

/// Whether a budget selects Pods with these labels: an empty selector selects every Pod, and none at all selects nothing.
pub(super) fn selects(budget: &PodDisruptionBudget, labels: &BTreeMap<String, String>) -> bool {
    let selector = budget.spec.as_ref().and_then(|spec| spec.selector.clone());
    // One that cannot be read selects nothing: the API server checks selectors.
    let selector = selector.and_then(|selector| Selector::try_from(selector).ok());
    selector.is_some_and(|selector| selector.matches(labels))
}

/// Labels of a Pod of the set that never change while it has this role; its revision does.
pub(super) fn labels(set: &BackupPodSet, role: Role) -> BTreeMap<String, String> {
    let mut labels = set.spec.template.metadata.clone().unwrap_or_default().labels;
    labels.insert(keys::LABEL_SET.to_owned(), set.metadata.name.clone().unwrap_or_default());
    labels.insert(keys::LABEL_ROLE.to_owned(), role.as_str().to_owned());
    labels.insert(keys::LABEL_TYPE.to_owned(), role.type_label().to_owned());
    labels
}
