//! Tests of what is written: whole objects against files, restricted Pod security, ports and names.

mod agent_source;
mod apart;
mod environment;
mod golden;
mod inject;
mod paired;
mod placement;
mod ports;
mod probes;
mod reach;
mod security;
mod services;
mod warnings;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::*;
use crate::model::{PodName, Role};

/// Moment of every decision here: 2026-01-01T00:00:00.250Z.
fn now() -> Timestamp {
    Timestamp::constant(1_767_225_600, 250_000_000)
}

/// A set named `web` with this spec.
fn set(spec: Value) -> BackupPodSet {
    let uid = "5c8a4a1e-8d0b-4d7c-9a53-0a4e8f6b3c21";
    let metadata = json!({"name": "web", "namespace": "shop", "uid": uid, "generation": 3});
    let api_version = format!("{}/{}", keys::GROUP, keys::VERSION);
    let body = json!({"apiVersion": api_version, "kind": keys::KIND, "metadata": metadata, "spec": spec});
    serde_json::from_value(body).expect("a set")
}

/// Two public keys; their bytes are invented.
fn gate_settings() -> GateSettings {
    let key = |id: &str, digits: &str| (id.to_owned(), digits.repeat(8));
    GateSettings {
        image: "wakeup:1".into(),
        public_keys: vec![
            key("a1a1a1a1a1a1a1a1", "a1a1a1a1"), //
            key("b2b2b2b2b2b2b2b2", "b2b2b2b2"),
        ],
    }
}

fn pod_of(set: &BackupPodSet, role: Role) -> Value {
    let name = PodName("web-0123456789ab".into());
    let injection = set_injection(set, Some("agent:1"));
    let request = PodRequest {
        set,
        name: &name,
        role,
        slot: 4,
        subset: None,
        now: now(),
        injection: injection.as_ref(),
    };
    pod(&request, &gate_settings()).expect("a Pod")
}

/// A template that restricted Pod security admits, with two images, an init container and a volume.
fn restricted_template() -> Value {
    let container_security = json!({"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}});
    let container = |name: &str, image: &str| json!({"name": name, "image": image, "securityContext": container_security});
    json!({"metadata": {"labels": {"app": "web"}}, "spec": {
        "securityContext": {"runAsNonRoot": true, "runAsUser": 1000, "seccompProfile": {"type": "RuntimeDefault"}},
        "initContainers": [container("migrate", "tools:2")],
        "containers": [container("web", "web:1"), container("log", "log:3")],
        "volumes": [{"name": "data", "emptyDir": {}}],
    }})
}
