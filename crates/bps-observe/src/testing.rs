//! A group with one pair and a spare, and a set, as the API server would show them.

use std::sync::Arc;

use bps_api::{BackupPodSet, HAGroup, keys};
use bps_core::model::Role;
use bps_wire::uid::format_uid;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use serde_json::{Value, json};

use crate::group::GroupObjects;
use crate::slim::SlimPod;

const SET_UID: &str = "00000000-0000-4000-8000-0000000000aa";

fn parsed<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).expect("an object of its kind")
}

/// A group that is ready, after one takeover.
pub fn group() -> HAGroup {
    let condition = json!({"type": "Ready", "status": "True", "reason": "Paired", "observedGeneration": 1,
        "message": "1 of 1 pairs have an active and a standby", "lastTransitionTime": "2026-01-02T03:04:05Z"});
    let takeover = json!({"pair": "web-0", "from": "web-1", "to": "web-0", "epoch": "12884901889", "reason": "ApplicationEnded",
        "phases": {"detected": 0, "fenced": 1, "lease": 3, "promoted": 5, "published": 24, "repaired": 61},
        "by": "Handover", "time": "2026-01-02T03:04:05.678901Z"});
    parsed(json!({
        "apiVersion": "backup.example.com/v1alpha1", "kind": "HAGroup",
        "metadata": {"name": "web", "namespace": "one", "uid": format_uid(99)}, "spec": {},
        "status": {"state": "Ready", "highestTerm": 3, "conditions": [condition], "takeovers": [takeover]},
    }))
}

/// A running Pod; the number is its uid, its age and its node.
pub fn pod(number: u32, labels: Value) -> SlimPod {
    parsed(json!({
        "metadata": {"name": format!("web-{number}"), "namespace": "one", "uid": format_uid(number.into()),
            "labels": labels, "resourceVersion": "7", "creationTimestamp": format!("2026-01-01T00:00:{number:02}Z")},
        "spec": {"nodeName": format!("node-{number}"), "containers": [{"name": "web"}]},
        "status": {"phase": "Running", "podIP": format!("10.0.0.{number}"),
            "conditions": [{"type": "Ready", "status": if number == 1 { "False" } else { "True" }}]},
    }))
}

/// Held by the first of Pods 1 and 2, in epoch 3.0.
pub fn lease(annotations: &[(&str, &str)]) -> Lease {
    let member = |number: u128| json!({"uid": format_uid(number), "pod": format!("web-{number}"), "address": format!("10.0.0.{number}:20001")});
    let mut lease = json!({
        "metadata": {"name": "web-0", "namespace": "one", "uid": format_uid(50), "resourceVersion": "5",
            "labels": {(keys::LABEL_GROUP): "web"}, "annotations": {
            (keys::ANNOTATION_HA_PAIR): "0", (keys::ANNOTATION_HA_SEQUENCE): "0", (keys::ANNOTATION_HA_HOLD): "Peer",
            (keys::ANNOTATION_HA_WRITES): "4",
            (keys::ANNOTATION_HA_MEMBERS): json!([member(1), member(2)]).to_string(),
        }},
        "spec": {"holderIdentity": format!("web-1_{}", format_uid(1)), "leaseTransitions": 3},
    });
    for (key, value) in annotations {
        lease["metadata"]["annotations"][*key] = json!(value);
    }
    parsed(lease)
}

/// Shows a Pod as the active of an epoch.
pub fn slice(epoch: u64, number: u128) -> EndpointSlice {
    let target = json!({"kind": "Pod", "uid": format_uid(number)});
    parsed(json!({
        "metadata": {"name": "web-0", "annotations": {(keys::ANNOTATION_HA_EPOCH): epoch.to_string()}},
        "addressType": "IPv4", "endpoints": [{"addresses": ["10.0.0.9"], "targetRef": target}],
    }))
}

/// Pods with these numbers, and the pair.
pub fn objects(pods: &[u32], lease: Lease, slice: Option<EndpointSlice>) -> GroupObjects {
    let labels = json!({(keys::LABEL_GROUP): "web"});
    GroupObjects {
        pods: pods.iter().map(|number| Arc::new(pod(*number, labels.clone()))).collect(),
        leases: vec![Arc::new(lease)],
        slices: slice.into_iter().map(Arc::new).collect(),
        ..GroupObjects::default()
    }
}

/// One primary, one hot backup.
pub fn set() -> BackupPodSet {
    parsed(json!({
        "apiVersion": "backup.example.com/v1alpha1", "kind": "BackupPodSet",
        "metadata": {"name": "web", "namespace": "one", "uid": SET_UID, "generation": 1},
        "spec": {"replicas": 1, "hotBackups": 1, "template": {"spec": {"containers": [{"name": "web", "image": "web:1"}]}}},
        "status": {"state": "Ready"},
    }))
}

/// A ready Pod of the set.
pub fn set_pod(number: u32, role: &str) -> SlimPod {
    let type_label = Role::parse(role).map_or("unknown", Role::type_label);
    let labels = json!({(keys::LABEL_SET): "web", (keys::LABEL_ROLE): role, (keys::LABEL_TYPE): type_label});
    let mut pod = pod(number, labels);
    let owner = json!([{"apiVersion": "backup.example.com/v1alpha1", "kind": "BackupPodSet", "name": "web",
        "uid": SET_UID, "controller": true}]);
    pod.metadata.owner_references = parsed(owner);
    pod.status.container_statuses = parsed(
        json!([{"name": "web", "ready": true, "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}}}]),
    );
    pod
}
