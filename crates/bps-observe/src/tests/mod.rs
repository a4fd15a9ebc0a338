//! Tests of the cache and of what is read from it, from objects as the API server writes them.

mod budget;
mod change;
mod exposure;
mod forsaken;
mod growth;
mod index;
mod lifecycle;
mod node;
mod noted;
mod order;
mod others;
mod paired;
mod store;
mod view;
mod wish;

use bps_api::{BackupPodSet, keys};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::slim::SlimPod;

const SET_UID: &str = "set-uid";

/// A moment, in seconds after 2026-01-01T00:00:00Z.
fn at(seconds: i64) -> Timestamp {
    Timestamp::constant(1_767_225_600, 0) + jiff::SignedDuration::from_secs(seconds)
}

/// The same as the API server writes it.
fn text(seconds: i64) -> String {
    at(seconds).to_string()
}

/// Puts the fields of `changes` over those of `base`, as a merge patch does.
fn merge(base: &mut Value, changes: &Value) {
    let Value::Object(changes) = changes else {
        *base = changes.clone();
        return;
    };
    if !base.is_object() {
        *base = json!({});
    }
    let fields = base.as_object_mut().expect("it was made one");
    for (name, change) in changes {
        if change.is_null() {
            fields.remove(name);
        } else {
            merge(fields.entry(name.clone()).or_insert(Value::Null), change);
        }
    }
}

/// A bound primary of the set `web` with one container and no status, changed like this.
fn pod(changes: &Value) -> SlimPod {
    let owner = json!({
        "apiVersion": "backup.example.com/v1alpha1", "kind": "BackupPodSet", "name": "web", "uid": SET_UID,
        "controller": true,
    });
    let mut body = json!({
        "metadata": {
            "name": "web-0", "namespace": "shop", "uid": "u0", "resourceVersion": "10",
            "creationTimestamp": text(0),
            "labels": {(keys::LABEL_SET): "web", (keys::LABEL_ROLE): "primary"},
            "ownerReferences": [owner],
        },
        "spec": {"nodeName": "n1", "containers": [{"name": "web"}]},
    });
    merge(&mut body, changes);
    serde_json::from_value(body).expect("a Pod")
}

fn condition(kind: &str, status: &str, since: i64) -> Value {
    json!({"type": kind, "status": status, "lastTransitionTime": text(since)})
}

/// Status of a container that runs.
fn running(since: i64, is_ready: bool) -> Value {
    json!({"name": "web", "ready": is_ready, "restartCount": 0, "state": {"running": {"startedAt": text(since)}}})
}

/// Status of a container that ended.
fn ended(finished: i64, exit_code: i32) -> Value {
    let end = json!({"startedAt": text(3), "finishedAt": text(finished), "exitCode": exit_code});
    json!({"name": "web", "ready": false, "restartCount": 0, "state": {"terminated": end}})
}

/// A Pod that is ready since a moment.
fn ready_pod(since: i64) -> SlimPod {
    pod(&json!({"status": {
        "phase": "Running", "podIP": "198.18.0.1", "conditions": [condition("Ready", "True", since)],
        "containerStatuses": [running(3, true)],
    }}))
}

/// The set `web` with this spec.
fn set(spec: Value) -> BackupPodSet {
    let metadata = json!({
        "name": "web", "namespace": "shop", "uid": SET_UID, "generation": 1, "resourceVersion": "5",
    });
    let body = json!({
        "apiVersion": "backup.example.com/v1alpha1", "kind": "BackupPodSet", "metadata": metadata, "spec": spec,
    });
    serde_json::from_value(body).expect("a set")
}

fn template() -> Value {
    json!({"spec": {"containers": [{"name": "web", "image": "web:1"}]}})
}
