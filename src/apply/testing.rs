//! The set that tests write about, and what writes it.

use std::sync::Arc;

use bps_api::{BackupPodSet, keys};
use bps_core::manifests::GateSettings;
use bps_core::model::Role;
use bps_observe::slim::SlimPod;
use bps_runtime::clock::Clock;
use bps_wakeup::client as gate_client;
use bps_wakeup::protocol::Answer as GateAnswer;
use bps_wakeup::signing::SigningKey;
use futures::FutureExt as _;
use jiff::Timestamp;
use kube::Client;
use serde_json::{Value, json};

use super::{Applier, GateKit, TicketSender};
use crate::tickets::keys::KeyRing;

pub(crate) const SET_UID: &str = "set-uid";

/// The moment at which everything happens: 2026-01-01T00:00:00Z.
pub(crate) const NOW: Timestamp = Timestamp::constant(1_767_225_600, 0);

/// The set `web` with a template and these further fields of its spec.
pub(crate) fn set(fields: &Value) -> BackupPodSet {
    let container = json!({"name": "web", "image": "web:1"});
    let mut spec = json!({"template": {"spec": {"containers": [container]}}});
    spec.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    let metadata = json!({
        "name": "web", "namespace": "shop", "uid": SET_UID, "generation": 1, "resourceVersion": "5",
    });
    let body = json!({
        "apiVersion": "backup.example.com/v1alpha1", "kind": keys::KIND, "metadata": metadata, "spec": spec,
    });
    serde_json::from_value(body).expect("a set")
}

/// A Pod of the set, ready for long, as the API server sends it.
pub(crate) fn pod(name: &str, (role, version): (&str, u64)) -> Value {
    let owner = json!({
        "apiVersion": "backup.example.com/v1alpha1", "kind": keys::KIND, "name": "web", "uid": SET_UID,
        "controller": true, "blockOwnerDeletion": true,
    });
    let set = set(&json!({}));
    let labels = json!({
        (keys::LABEL_SET): "web", (keys::LABEL_ROLE): role,
        (keys::LABEL_TYPE): Role::parse(role).map_or("unknown", Role::type_label),
        (keys::LABEL_REVISION): bps_core::manifests::revision(&set.spec).0,
    });
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": name, "namespace": "shop", "uid": format!("uid-{name}"), "labels": labels,
            "resourceVersion": version.to_string(), "creationTimestamp": "2025-12-31T00:00:00Z",
            "annotations": {(keys::ANNOTATION_SLOT): "0"}, "ownerReferences": [owner],
        },
        "spec": {"nodeName": "n1", "containers": [{"name": "web"}]},
        "status": {
            "phase": "Running", "podIP": "198.18.0.1",
            "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "2025-12-31T00:00:09Z"}],
            "containerStatuses": [{"name": "web", "ready": true, "restartCount": 0,
                "state": {"running": {"startedAt": "2025-12-31T00:00:05Z"}}}],
        },
    })
}

pub(crate) fn slim(pod: &Value) -> SlimPod {
    serde_json::from_value(pod.clone()).expect("a Pod")
}

/// Keys whose private bytes are all 0xa7 and all 0xb8.
pub(crate) fn ring() -> KeyRing {
    let [current, next] = [0xa7, 0xb8].map(|byte| SigningKey::from_seed(&[byte; 32]));
    KeyRing { current, next, previous: Vec::new(), rotated_at: NOW }
}

pub(crate) fn gate_kit() -> GateKit {
    let ring = ring();
    let public_keys = ring.public_keys().map(|key| (key.id().to_string(), "00".to_owned()));
    GateKit { ring, settings: GateSettings { image: "wakeup:1".into(), public_keys: public_keys.into() } }
}

/// A sender whose gates take every ticket.
pub(crate) fn willing_gates() -> TicketSender {
    Arc::new(|_, _| async { Ok::<_, gate_client::Error>(GateAnswer::Accepted) }.boxed())
}

pub(crate) fn clock() -> Clock {
    Clock::new(|| NOW)
}

pub(crate) fn applier(client: &Client) -> Applier {
    Applier::new(client.clone(), (clock(), willing_gates()), gate_kit())
}
