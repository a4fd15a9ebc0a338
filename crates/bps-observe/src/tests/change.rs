//! Which events wake a set, and which of them at once.

use bps_api::keys;
use serde_json::{Value, json};

use super::{condition, ended, merge, ready_pod, running, text};
use crate::Change;
use crate::change::{between, facts};
use crate::slim::SlimPod;

/// The ready primary, changed like this.
fn changed(changes: &Value) -> SlimPod {
    let mut body = serde_json::to_value(ready_pod(5)).unwrap();
    merge(&mut body, changes);
    serde_json::from_value(body).unwrap()
}

fn role(role: &str) -> Value {
    json!({"metadata": {"labels": {(keys::LABEL_ROLE): role}}})
}

/// Not ready for the first time.
fn starting(role_of: &str) -> SlimPod {
    let mut changes = role(role_of);
    changes["status"] =
        json!({"conditions": [condition("Ready", "False", 1)], "containerStatuses": [running(3, false)]});
    changed(&changes)
}

fn ready(role_of: &str) -> SlimPod {
    changed(&role(role_of))
}

fn terminating(role_of: &str, statuses: Value) -> SlimPod {
    let mut changes = role(role_of);
    changes["metadata"]["deletionTimestamp"] = json!(text(9));
    changes["status"] = json!({"containerStatuses": statuses});
    changed(&changes)
}

/// A Pod whose gate listens since a moment.
fn at_gate(role_of: &str, address: &Value) -> SlimPod {
    let gate = json!({"name": "bps-gate", "state": {"running": {"startedAt": text(4)}}});
    let mut changes = role(role_of);
    changes["spec"] = json!({"initContainers": [{"name": "bps-gate"}]});
    changes["status"] = json!({
        "phase": "Pending", "podIP": address, "conditions": [condition("Ready", "False", 1)],
        "containerStatuses": null, "initContainerStatuses": [gate],
    });
    changed(&changes)
}

fn change(old: &SlimPod, new: &SlimPod) -> Option<Change> {
    between(Some(facts(old)), Some(facts(new)))
}

#[test]
fn what_service_depends_on_is_urgent() {
    let address = json!("198.18.0.1");
    let serving = json!([running(3, true)]);
    let cases = [
        ("stopped being ready", ready("hot"), starting("hot")),
        ("primary got ready", starting("primary"), ready("primary")),
        ("deletion", ready("cold"), terminating("cold", serving.clone())),
        ("evicted", ready("primary"), changed(&json!({"status": {"phase": "Failed"}}))),
        ("crashed", ready("hot"), changed(&json!({"status": {"containerStatuses": [ended(9, 1)]}}))),
        ("relabelled", ready("hot"), ready("primary")),
        (
            "lost its role",
            ready("hot"),
            changed(&json!({"metadata": {"labels": {(keys::LABEL_ROLE): null}}})),
        ),
        ("lost its owner", ready("hot"), {
            let mut orphan = ready("hot");
            orphan.metadata.owner_references = None;
            orphan
        }),
        ("made anew", ready("hot"), {
            let mut other = ready("hot");
            other.metadata.uid = Some("u1".into());
            other
        }),
        ("gate of an awake Pod listens", starting("hot"), at_gate("hot", &address)),
        ("gate got its address", at_gate("hot", &Value::Null), at_gate("hot", &address)),
    ];
    for (case, old, new) in cases {
        assert_eq!(change(&old, &new), Some(Change::Urgent), "{case}");
    }
}

#[test]
fn what_can_wait_for_its_neighbours_is_ordinary() {
    let address = json!("198.18.0.1");
    let serving = json!([running(3, true)]);
    let unready = json!([running(3, false)]);
    let unbound = changed(&json!({"spec": {"nodeName": null}, "status": null}));
    let bound = changed(&json!({"status": null}));
    let cases = [
        ("bound", unbound, bound.clone()),
        (
            "got its address",
            bound,
            changed(&json!({"status": {"phase": "Pending", "conditions": null,
            "containerStatuses": null}})),
        ),
        ("a backup got ready", starting("hot"), ready("hot")),
        ("a cold gate listens", starting("cold"), at_gate("cold", &address)),
        (
            "other template",
            ready("hot"),
            changed(&json!({"metadata": {"labels": {
            (keys::LABEL_ROLE): "hot", (keys::LABEL_REVISION): "0123456789"}}})),
        ),
        (
            "stopped answering while it goes",
            terminating("primary", serving.clone()),
            terminating("primary", unready),
        ),
        (
            "ended while it goes",
            terminating("primary", serving),
            terminating("primary", json!([ended(9, 0)])),
        ),
    ];
    for (case, old, new) in cases {
        assert_eq!(change(&old, &new), Some(Change::Ordinary), "{case}");
    }
}

#[test]
fn what_no_decision_depends_on_is_nothing() {
    let cases = [
        ready("hot"),
        changed(
            &json!({"metadata": {"resourceVersion": "11", "labels": {(keys::LABEL_ROLE): "hot", "a": "b"}}}),
        ),
        changed(&json!({"metadata": {"annotations": {"a": "b"}, "labels": {(keys::LABEL_ROLE): "hot"}},
            "status": {"conditions": [condition("Ready", "True", 5), condition("PodScheduled", "True", 9)]}})),
    ];
    for new in cases {
        assert_eq!(change(&ready("hot"), &new), None, "{new:?}");
    }
    assert_eq!(between(None, None), None);
}

#[test]
fn a_pod_that_appears_is_urgent_unless_no_node_has_it_yet() {
    let unbound = changed(&json!({"spec": {"nodeName": null}, "status": null}));
    assert_eq!(between(None, Some(facts(&unbound))), Some(Change::Ordinary));
    assert_eq!(between(None, Some(facts(&starting("cold")))), Some(Change::Urgent));
}

#[test]
fn a_pod_that_disappears_is_urgent_unless_it_was_cold_and_going_anyway() {
    let gone = |pod: &SlimPod| between(Some(facts(pod)), None);
    let serving = json!([running(3, true)]);
    assert_eq!(gone(&terminating("cold", serving.clone())), Some(Change::Ordinary));
    assert_eq!(gone(&terminating("hot", serving)), Some(Change::Urgent));
    assert_eq!(gone(&ready("cold")), Some(Change::Urgent));
}
