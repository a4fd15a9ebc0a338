//! Asks the scheduler to put the Pods of a group on different nodes, unless the template says how its Pods are placed:
//! with one node a pair would lose both Pods.

use bps_api::keys;
use serde_json::{Value, json};

use super::remove;

/// List of the terms that the scheduler follows if it can.
const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";

/// Adds a term, and returns it for [`restore`]; `None` if the template has an anti-affinity or spreads its Pods, even
/// by an empty list.
pub(super) fn prefer(spec: &mut Value, group: &str) -> Option<Value> {
    let is_placed =
        !spec["affinity"]["podAntiAffinity"].is_null() || !spec["topologySpreadConstraints"].is_null();
    if is_placed {
        return None;
    }

    let term = json!({
        // The largest: of two nodes that are else the same, nothing speaks for that of the partner.
        "weight": 100,
        "podAffinityTerm": {
            "topologyKey": "kubernetes.io/hostname",
            "labelSelector": {"matchLabels": {(keys::LABEL_GROUP): group}},
        },
    });
    spec["affinity"]["podAntiAffinity"] = json!({(PREFERRED): [term]});
    Some(term)
}

/// Takes out the term that was added, and what is empty without it; a term that a user has edited since stays.
pub(super) fn restore(spec: &mut Value, term: &Value) {
    let Some(affinity) = spec.get_mut("affinity").filter(|_| !term.is_null()) else { return };
    if let Some(apart) = affinity.get_mut("podAntiAffinity") {
        remove(apart, PREFERRED, |item| item == term);
    }
    remove_empty(affinity, "podAntiAffinity");
    remove_empty(spec, "affinity");
}

fn remove_empty(object: &mut Value, key: &str) {
    let Some(fields) = object.as_object_mut() else { return };
    if fields.get(key).and_then(Value::as_object).is_some_and(serde_json::Map::is_empty) {
        fields.remove(key);
    }
}
