//! The cold gate's part of a Pod: init containers, their volume and their settings.

use std::collections::BTreeSet;

use bps_api::{BackupPodSet, keys};
use serde_json::{Map, Value, json};

/// User and group of the gate's containers: "nonroot", as in the distroless images.
const GATE_USER: u32 = 65532;

/// What every gate of this operator is made with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GateSettings {
    /// Image that holds the `bps-wakeup` program.
    pub image: String,
    /// Public keys that the gate accepts, as identifier and hexadecimal text.
    pub public_keys: Vec<(String, String)>,
}

impl GateSettings {
    /// Identifiers of the keys: the text of the Pod's annotation.
    pub fn key_ids(&self) -> String {
        self.public_keys.iter().map(|(id, _)| id.as_str()).collect::<Vec<_>>().join(",")
    }

    fn keys(&self) -> String {
        self.public_keys.iter().map(|(id, key)| format!("{id}:{key}")).collect::<Vec<_>>().join(",")
    }
}

/// Puts the gate before everything else that the Pod starts.
pub(super) fn add_gate(spec: &mut Map<String, Value>, set: &BackupPodSet, settings: &GateSettings) {
    let mut containers = if set.spec.cold_start.image_gate {
        image_gate(spec, set, settings)
    } else {
        vec![single_gate(spec, set, settings)]
    };
    containers.extend(list(spec, "initContainers"));
    spec.insert("initContainers".to_owned(), Value::Array(containers));
    let mut volumes = list(spec, "volumes");
    volumes.push(json!({"name": keys::VOLUME_GATE, "emptyDir": {}}));
    spec.insert("volumes".to_owned(), Value::Array(volumes));
}

/// The gate runs from the wake-up image and is the only container that is added, as in the BPS paper.
fn single_gate(spec: &Map<String, Value>, set: &BackupPodSet, settings: &GateSettings) -> Value {
    let resources = spec.get("containers").map_or(&Value::Null, |containers| &containers[0]["resources"]);
    let like = json!({"image": settings.image, "resources": resources});
    gate(set, settings, &like, keys::WAKEUP_IMAGE_PROGRAM_PATH)
}

/// The gate runs from the application's image, and every other image is pulled before it: a woken Pod pulls nothing.
fn image_gate(spec: &Map<String, Value>, set: &BackupPodSet, settings: &GateSettings) -> Vec<Value> {
    let applications = list(spec, "containers");
    let Some(first) = applications.first() else { return Vec::new() };
    let install = base(
        keys::CONTAINER_INSTALL,
        &json!({"image": settings.image, "resources": first["resources"]}),
        &[keys::WAKEUP_IMAGE_PROGRAM_PATH, "install", keys::GATE_MOUNT_PATH],
    );
    let mut containers = vec![install];
    let mut pulled = BTreeSet::from([first["image"].as_str().unwrap_or_default().to_owned()]);
    let others = applications.iter().skip(1).cloned().chain(list(spec, "initContainers"));
    for container in others {
        if pulled.insert(container["image"].as_str().unwrap_or_default().to_owned()) {
            let name = format!("{}{}", keys::CONTAINER_PULL_PREFIX, containers.len());
            containers.push(base(&name, &container, &[keys::GATE_PROGRAM_PATH, "pass"]));
        }
    }
    containers.push(gate(set, settings, first, keys::GATE_PROGRAM_PATH));
    containers
}

fn gate(set: &BackupPodSet, settings: &GateSettings, like: &Value, program: &str) -> Value {
    let mut container = base(keys::CONTAINER_GATE, like, &[program, "gate"]);
    container["ports"] =
        json!([{"name": keys::GATE_PORT_NAME, "containerPort": keys::GATE_PORT, "protocol": "TCP"}]);
    container["env"] = json!([
        {"name": keys::ENV_POD_UID, "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.uid"}}},
        {"name": keys::ENV_SET_UID, "value": set.metadata.uid},
        {"name": keys::ENV_WAKE_KEYS, "value": settings.keys()},
    ]);
    container
}

fn base(name: &str, like: &Value, command: &[&str]) -> Value {
    let mount = json!({"name": keys::VOLUME_GATE, "mountPath": keys::GATE_MOUNT_PATH});
    restricted_container((name, like), command, &mount)
}

/// A restricted container with the image, pull policy and compute resources of another one.
///
/// Taking over the resources keeps the Pod's quality-of-service class, and costs nothing: init containers and
/// applications never run at the same time.
pub(super) fn restricted_container((name, like): (&str, &Value), command: &[&str], mount: &Value) -> Value {
    let mut container = json!({
        "name": name,
        "image": like["image"],
        "command": command,
        "volumeMounts": [mount],
        "securityContext": {
            "allowPrivilegeEscalation": false,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": true,
            "runAsGroup": GATE_USER,
            "runAsNonRoot": true,
            "runAsUser": GATE_USER,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
    });
    if let Some(policy) = like.get("imagePullPolicy") {
        container["imagePullPolicy"] = policy.clone();
    }
    let resources = compute_resources(&like["resources"]);
    if !resources.is_empty() {
        container["resources"] = Value::Object(resources);
    }
    container
}

fn compute_resources(resources: &Value) -> Map<String, Value> {
    let mut kept = Map::new();
    for kind in ["limits", "requests"] {
        let Some(amounts) = resources[kind].as_object() else { continue };
        let is_compute = |name: &String| matches!(name.as_str(), "cpu" | "memory");
        let compute: Map<String, Value> = amounts
            .iter()
            .filter(|(name, _)| is_compute(name))
            .map(|(k, v)| (k.clone(), v.clone()))
            .collect();
        if !compute.is_empty() {
            kept.insert(kind.to_owned(), Value::Object(compute));
        }
    }
    kept
}

fn list(spec: &Map<String, Value>, field: &str) -> Vec<Value> {
    spec.get(field).and_then(Value::as_array).cloned().unwrap_or_default()
}
