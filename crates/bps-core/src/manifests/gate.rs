//! The cold gate's part of a Pod: init containers, their volume and their settings.

use std::collections::BTreeSet;

use bps_api::{BackupPodSet, ColdStart, GateDelivery, GateUser, keys};
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

/// Where the gate's program is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Program {
    /// In its own image, which the gate runs from.
    OwnImage,
    /// In an emptyDir, beside the application's images.
    Copy,
    /// In its own image as a volume, beside the application's images.
    ImageVolume,
}

impl Program {
    fn of(set: &BackupPodSet) -> Self {
        let ColdStart { image_gate, gate_source, gate_user: _ } = &set.spec.cold_start;
        match gate_source.unwrap_or_default() {
            _ if !image_gate => Self::OwnImage,
            GateDelivery::Copy => Self::Copy,
            GateDelivery::ImageVolume => Self::ImageVolume,
        }
    }

    const fn path(self) -> &'static str {
        match self {
            Self::OwnImage => keys::WAKEUP_IMAGE_PROGRAM_PATH,
            // The image has it at its top under the same name.
            Self::Copy | Self::ImageVolume => keys::GATE_PROGRAM_PATH,
        }
    }

    fn volume(self, settings: &GateSettings) -> Option<Value> {
        match self {
            Self::OwnImage => None,
            Self::Copy => Some(json!({"name": keys::VOLUME_GATE, "emptyDir": {}})),
            Self::ImageVolume => {
                Some(json!({"name": keys::VOLUME_GATE, "image": {"reference": settings.image}}))
            }
        }
    }

    fn mount(self) -> Option<Value> {
        let mut mount = json!({"name": keys::VOLUME_GATE, "mountPath": keys::GATE_MOUNT_PATH});
        if self == Self::ImageVolume {
            mount["readOnly"] = json!(true);
        }
        (self != Self::OwnImage).then_some(mount)
    }
}

/// Puts the gate before everything else that the Pod starts.
pub(super) fn add_gate(spec: &mut Map<String, Value>, set: &BackupPodSet, settings: &GateSettings) {
    let program = Program::of(set);
    let applications = list(spec, "containers");
    let Some(first) = applications.first() else { return };
    let mut containers = if program == Program::Copy { vec![install(settings, first)] } else { Vec::new() };
    let like = if program == Program::OwnImage {
        json!({"image": settings.image, "resources": first["resources"]})
    } else {
        containers.extend(pulls(spec, program));
        first.clone()
    };
    containers.push(gate(set, settings, &like, program));
    if set.spec.cold_start.gate_user == Some(GateUser::Inherit) {
        containers.iter_mut().for_each(inherit_user);
    }
    containers.extend(list(spec, "initContainers"));
    spec.insert("initContainers".to_owned(), Value::Array(containers));
    let mut volumes = list(spec, "volumes");
    volumes.extend(program.volume(settings));
    volumes.push(ticket_volume());
    spec.insert("volumes".to_owned(), Value::Array(volumes));
}

/// Leaves it to others as whom a container runs, but for root.
fn inherit_user(container: &mut Value) {
    let context = container["securityContext"].as_object_mut().expect("each container of ours has one");
    for field in ["runAsUser", "runAsGroup"] {
        context.remove(field);
    }
}

/// Copies the program out of its image.
fn install(settings: &GateSettings, first: &Value) -> Value {
    let like = json!({"image": settings.image, "resources": first["resources"]});
    let command = [keys::WAKEUP_IMAGE_PROGRAM_PATH, "install", keys::GATE_MOUNT_PATH];
    let mounts: Vec<Value> = Program::Copy.mount().into_iter().collect();
    restricted_container((keys::CONTAINER_INSTALL, &like), &command, &mounts)
}

/// Pulls every image but that of the gate, which is the first application's: a woken Pod pulls nothing.
fn pulls(spec: &Map<String, Value>, program: Program) -> Vec<Value> {
    let applications = list(spec, "containers");
    let image = |container: &Value| container["image"].as_str().unwrap_or_default().to_owned();
    let mut pulled: BTreeSet<String> = applications.first().map(image).into_iter().collect();
    let others = applications.iter().skip(1).cloned().chain(list(spec, "initContainers"));
    let others: Vec<Value> = others.filter(|container| pulled.insert(image(container))).collect();
    let mounts: Vec<Value> = program.mount().into_iter().collect();
    let pull = |(index, container): (usize, &Value)| {
        let name = format!("{}{}", keys::CONTAINER_PULL_PREFIX, 1 + index);
        restricted_container((&name, container), &[program.path(), "pass"], &mounts)
    };
    others.iter().enumerate().map(pull).collect()
}

fn gate(set: &BackupPodSet, settings: &GateSettings, like: &Value, program: Program) -> Value {
    let ticket = json!({"name": keys::VOLUME_TICKET, "mountPath": keys::TICKET_MOUNT_PATH, "readOnly": true});
    let mounts: Vec<Value> = program.mount().into_iter().chain([ticket]).collect();
    let mut container =
        restricted_container((keys::CONTAINER_GATE, like), &[program.path(), "gate"], &mounts);
    container["ports"] =
        json!([{"name": keys::GATE_PORT_NAME, "containerPort": keys::GATE_PORT, "protocol": "TCP"}]);
    container["env"] = json!([
        {"name": keys::ENV_POD_UID, "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.uid"}}},
        {"name": keys::ENV_SET_UID, "value": set.metadata.uid},
        {"name": keys::ENV_WAKE_KEYS, "value": settings.keys()},
    ]);
    container
}

/// Volume in which the kubelet shows the gate the ticket in the Pod's annotations.
fn ticket_volume() -> Value {
    let field = json!({"apiVersion": "v1", "fieldPath": format!("metadata.annotations['{}']", keys::ANNOTATION_TICKET)});
    let items = json!([{"path": keys::TICKET_FILE, "fieldRef": field}]);
    json!({"name": keys::VOLUME_TICKET, "downwardAPI": {"items": items}})
}

/// A restricted container with the image, pull policy and compute resources of another one.
///
/// Taking over the resources keeps the Pod's quality-of-service class, and costs nothing: init containers and
/// applications never run at the same time.
pub(super) fn restricted_container(
    (name, like): (&str, &Value),
    command: &[&str],
    mounts: &[Value],
) -> Value {
    let mut container = json!({
        "name": name,
        "image": like["image"],
        "command": command,
        "volumeMounts": mounts,
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
