//! The objects that belong to a group of pairs.
//!
//! Leases are not among them: `agent::lease` writes those, because agents and operator must agree about every byte.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bps_api::service::TargetPort;
use bps_api::{HAGroup, ServicePort, keys};
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};

use super::service::{SlicePort, endpoint_value, port_value, service_body, service_ports};
use crate::model::Endpoint;

/// The controller reference that makes an object end with its group.
fn group_owner_reference(group: &HAGroup) -> Value {
    json!({
        "apiVersion": format!("{}/{}", keys::GROUP, keys::VERSION),
        "kind": keys::GROUP_KIND,
        "name": group.metadata.name,
        "uid": group.metadata.uid,
        "controller": true,
        "blockOwnerDeletion": true,
    })
}

/// Name, label and owner of an object of a group.
pub fn group_metadata(group: &HAGroup, name: &str) -> Value {
    json!({
        "name": name,
        "namespace": group.metadata.namespace,
        "labels": {
            (keys::LABEL_GROUP): group.metadata.name,
            (keys::LABEL_MANAGED_BY): keys::MANAGED_BY,
        },
        "ownerReferences": [group_owner_reference(group)],
    })
}

/// Name of the Lease of a pair, and of its EndpointSlice.
pub fn pair_name(group: &str, number: u32) -> String {
    format!("{group}-{number}")
}

/// Name of the Secret with the keys of a group.
pub fn group_keys_name(group: &str) -> String {
    format!("{group}-ha-keys")
}

/// Longest name of a Service. Unit: characters. Source: Kubernetes, RFC 1035.
const SERVICE_NAME_MAX: usize = 63;
/// Beginning of the names of Services that lead to standbys.
pub const REPLICATION_SERVICE_PREFIX: &str = "replicate-";

/// Name of the Service that leads to the standby of an active Pod: `replicate-<Pod>`, or if that is too long or has dots, its
/// beginning without them and a hash of it.
pub fn replication_service_name(active: &str) -> String {
    let name = format!("{REPLICATION_SERVICE_PREFIX}{active}");
    if name.len() <= SERVICE_NAME_MAX && !name.contains('.') {
        return name;
    }
    let [one, two, three, four, ..] = <[u8; 32]>::from(Sha256::digest(&name));
    let hash = format!("-{:08x}", u32::from_be_bytes([one, two, three, four]));
    let beginning: String = name.replace('.', "-").chars().take(SERVICE_NAME_MAX - hash.len()).collect();
    format!("{beginning}{hash}")
}

/// Key of the label of a Pod that stands by for the active of this pair, in a group whose standbys do for several.
pub fn standby_of_label(pair: u32) -> String {
    format!("{}{pair}", keys::LABEL_STANDBY_OF)
}

/// The Service that leads to all actives; `None` if the group wants none.
pub fn group_service(group: &HAGroup) -> Option<Value> {
    let wanted = group.spec.service.as_ref()?;
    let metadata = group_metadata(group, &wanted.name);
    Some(service_body(metadata, wanted.r#type, &wanted.ports, &wanted.options))
}

/// The Service that leads from an active to its standby, as in the thesis that the idea is from.
pub fn replication_service(group: &HAGroup, active: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": group_metadata(group, &replication_service_name(active)),
        "spec": {
            "type": "ClusterIP",
            "selector": {
                (keys::LABEL_GROUP): group.metadata.name,
                (keys::LABEL_HA_STATE): "standby",
                (keys::LABEL_PEER): active,
            },
            // A standby takes in state long before it could pass a probe for serving it.
            "publishNotReadyAddresses": true,
            "ports": service_ports(&group.spec.replication_ports),
        },
    })
}

/// The EndpointSlice of a pair; its active writes the addresses.
pub fn pair_slice(group: &HAGroup, name: &str, endpoints: &[Endpoint], is_v6: bool) -> Option<Value> {
    let service = group.spec.service.as_ref()?;
    let mut metadata = group_metadata(group, name);
    metadata["labels"][keys::LABEL_SERVICE_NAME] = json!(service.name);
    metadata["labels"][keys::LABEL_SLICE_MANAGED_BY] = json!(keys::MANAGED_BY);
    let namespace = group.metadata.namespace.as_deref().unwrap_or_default();
    let endpoints: Vec<Value> =
        endpoints.iter().map(|endpoint| endpoint_value(namespace, endpoint)).collect();
    Some(json!({
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": metadata,
        "addressType": if is_v6 { "IPv6" } else { "IPv4" },
        "endpoints": endpoints,
        "ports": service.ports.iter().map(|port| port_value(&slice_port(port))).collect::<Vec<_>>(),
    }))
}

fn slice_port(port: &ServicePort) -> SlicePort {
    let number = match port.target_port {
        Some(TargetPort::Number(number)) => number,
        // The API server refuses names; without its check the port of the Service is the best guess.
        Some(TargetPort::Name(_)) | None => port.port,
    };
    SlicePort {
        name: port.name.clone().unwrap_or_default(),
        port: number,
        protocol: port.protocol.as_str(),
        app_protocol: port.app_protocol.clone(),
    }
}

/// The Secret with the keys that the agents of a group sign with, given as one hexadecimal text in each line, and
/// with what readers of their metrics must send.
pub fn group_keys(group: &HAGroup, keys_text: &str, metrics_token: &str) -> Value {
    let name = group_keys_name(group.metadata.name.as_deref().unwrap_or_default());
    let mut data = Map::new();
    data.insert(keys::SECRET_GROUP_KEYS_ENTRY.to_owned(), json!(STANDARD.encode(keys_text)));
    data.insert(keys::SECRET_METRICS_TOKEN_ENTRY.to_owned(), json!(STANDARD.encode(metrics_token)));
    json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": group_metadata(group, &name),
        "type": keys::SECRET_TYPE_GROUP_KEYS,
        "data": data,
    })
}

/// Name of the Role and the RoleBinding for the agents of a group.
fn agent_role_name(group: &str) -> String {
    format!("{group}-ha-agent")
}

/// What the agents of a group may do: read the Leases of the namespace, among which they find their own, and change those
/// of the group's pairs, and the slices of the same names.
pub fn agent_role(group: &HAGroup, pairs: u32) -> Value {
    let name = group.metadata.name.as_deref().unwrap_or_default();
    let names: Vec<String> = (0..pairs).map(|number| pair_name(name, number)).collect();
    let (leases, slices) = ("coordination.k8s.io", "discovery.k8s.io");
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "Role",
        "metadata": group_metadata(group, &agent_role_name(name)),
        "rules": [
            // An agent finds its Lease among those with its group's label, and a watch by label cannot be limited to names.
            {"apiGroups": [leases], "resources": ["leases"], "verbs": ["get", "watch"]},
            {"apiGroups": [leases], "resources": ["leases"], "resourceNames": names, "verbs": ["patch"]},
            {"apiGroups": [slices], "resources": ["endpointslices"], "resourceNames": names, "verbs": ["get", "patch"]},
            // OpenShift asks for this before it lets anybody write addresses of the Pod network into a slice.
            {"apiGroups": [slices], "resources": ["endpointslices/restricted"], "verbs": ["create"]},
        ],
    })
}

/// Gives the Role to the ServiceAccounts of a group's Pods.
pub fn agent_binding(group: &HAGroup, service_accounts: &[&str]) -> Value {
    let namespace = group.metadata.namespace.as_deref().unwrap_or_default();
    let subject = |name: &&str| json!({"kind": "ServiceAccount", "name": name, "namespace": namespace});
    let name = agent_role_name(group.metadata.name.as_deref().unwrap_or_default());
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": group_metadata(group, &name),
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name},
        "subjects": service_accounts.iter().map(subject).collect::<Vec<_>>(),
    })
}
