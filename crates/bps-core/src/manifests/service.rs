//! The exposed Service and the EndpointSlice behind it.
//!
//! The Service has no selector: Kubernetes' own controller needs two writes and a second for a switch, ours needs one
//! write.

use std::collections::BTreeMap;

use bps_api::service::{IpFamily, ServiceOptions, SessionAffinity, TargetPort, TrafficDistribution};
use bps_api::{BackupPodSet, ExposedService, ServicePort, ServiceType, keys};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::owner_reference;
use crate::model::Endpoint;

/// A port of the EndpointSlice: what a port of the Service leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlicePort {
    /// Name of the Service's port; empty if it has none.
    pub name: String,
    /// Port of the Pods.
    pub port: i32,
    /// Transport protocol as Kubernetes spells it.
    pub protocol: &'static str,
    /// Application protocol, if given.
    pub app_protocol: Option<String>,
}

/// Why a port of the Service leads nowhere.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PortError {
    /// No container of the template has a port of that name.
    #[error(
        "service.ports: targetPort {wanted:?} is not the name of a container port; write a number or one of {known:?}"
    )]
    UnknownName {
        /// Name that was asked for.
        wanted: String,
        /// Names that exist.
        known: Vec<String>,
    },
}

/// Name of the slice of a family that belongs to a Service. The family of a slice cannot be changed, so each has a name of its own.
pub fn slice_name(service: &str, family: IpFamily) -> String {
    match family {
        IpFamily::IPv4 => format!("{service}-bps"),
        IpFamily::IPv6 => format!("{service}-bps-ipv6"),
    }
}

/// Whether a slice has one of the names of a Service's slices.
pub fn is_slice_name(service: &str, name: &str) -> bool {
    [IpFamily::IPv4, IpFamily::IPv6].iter().any(|family| slice_name(service, *family) == name)
}

/// Ports of the slice, with names looked up in the template.
///
/// # Errors
/// `PortError::UnknownName` if a target port is named and no container has it.
pub fn slice_ports(set: &BackupPodSet, service: &ExposedService) -> Result<Vec<SlicePort>, PortError> {
    let resolve = |wanted: &Option<TargetPort>, port: i32| match wanted {
        None => Ok(port),
        Some(TargetPort::Number(number)) => Ok(*number),
        Some(TargetPort::Name(name)) => named_port(set, name),
    };
    let slice_port = |port: &ServicePort| {
        Ok(SlicePort {
            name: port.name.clone().unwrap_or_default(),
            port: resolve(&port.target_port, port.port)?,
            protocol: port.protocol.as_str(),
            app_protocol: port.app_protocol.clone(),
        })
    };
    service.ports.iter().map(slice_port).collect()
}

/// The Service as it is sent to the API server.
pub fn service(set: &BackupPodSet, wanted: &ExposedService) -> Value {
    let metadata = child_metadata(set, &wanted.name, &Map::new());
    let mut body = service_body(metadata, wanted.r#type, &wanted.ports, &wanted.options);
    body["spec"]["trafficDistribution"] = json!(wanted.traffic_distribution);
    // What is not named stays as it is.
    if let Some(policy) = wanted.ip_family_policy {
        body["spec"]["ipFamilyPolicy"] = json!(policy);
    }
    if let Some(families) = &wanted.ip_families {
        body["spec"]["ipFamilies"] = json!(families);
    }
    body
}

/// A Service without a selector. What it must not have is null.
pub(super) fn service_body(
    mut metadata: Value,
    r#type: ServiceType,
    ports: &[ServicePort],
    options: &ServiceOptions,
) -> Value {
    metadata["annotations"] = json!(options.annotations);
    for (key, value) in &options.labels {
        metadata["labels"][key] = json!(value);
    }
    let keys = |map: &BTreeMap<String, String>| map.keys().cloned().collect::<Vec<_>>();
    let written = WrittenKeys { annotations: keys(&options.annotations), labels: keys(&options.labels) };
    if !options.annotations.is_empty() || !options.labels.is_empty() {
        metadata["annotations"][keys::ANNOTATION_WRITTEN_KEYS] = json!(json!(written).to_string());
    }
    let mut spec = json!({
        "type": r#type.as_str(),
        "ports": service_ports(ports),
        "selector": null,
        "internalTrafficPolicy": options.internal_traffic_policy.unwrap_or_default(),
        "sessionAffinity": options.session_affinity,
    });
    // Otherwise the API server takes it away, unless a user gave the Service addresses that are reached from outside.
    if r#type != ServiceType::ClusterIp {
        spec["externalTrafficPolicy"] = json!(options.external_traffic_policy.unwrap_or_default());
    }
    // What is not named, and has a default of the cluster, stays as it is.
    match &options.session_affinity_config {
        Some(config) => spec["sessionAffinityConfig"] = json!(config),
        None if options.session_affinity == SessionAffinity::None => {
            spec["sessionAffinityConfig"] = Value::Null;
        }
        None => {}
    }
    // Without a load balancer the API server refuses both, and takes away only the class by itself.
    let is_balanced = r#type == ServiceType::LoadBalancer;
    if !is_balanced || options.load_balancer_class.is_some() {
        spec["loadBalancerClass"] = json!(options.load_balancer_class);
    }
    if !is_balanced || options.load_balancer_source_ranges.is_some() {
        spec["loadBalancerSourceRanges"] = json!(options.load_balancer_source_ranges);
    }
    json!({"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec})
}

/// The annotations of a Service that the operator wrote, by its own record, and that record.
pub fn written_annotations(annotations: Option<&BTreeMap<String, String>>) -> BTreeMap<&str, &str> {
    let Some(annotations) = annotations else { return BTreeMap::new() };
    let named = WrittenKeys::of(annotations);
    let written = named.annotations.iter().filter_map(|key| annotations.get_key_value(key));
    let record = annotations.get_key_value(keys::ANNOTATION_WRITTEN_KEYS);
    written.chain(record).map(|(key, value)| (key.as_str(), value.as_str())).collect()
}

/// Keys that the operator wrote into a Service because a specification names them.
#[derive(Default, Deserialize, Serialize)]
#[serde(default)]
struct WrittenKeys {
    annotations: Vec<String>,
    labels: Vec<String>,
}

impl WrittenKeys {
    /// The record in the annotations of a Service; empty if there is none that can be read.
    fn of(annotations: &BTreeMap<String, String>) -> Self {
        let record = annotations.get(keys::ANNOTATION_WRITTEN_KEYS);
        record.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default()
    }
}

/// The merge patch that makes a Service with these annotations as this body has it.
///
/// Annotations and labels that the operator wrote once, and that are not wanted any more, go; those of others stay.
pub fn service_patch(body: &Value, annotations: Option<&BTreeMap<String, String>>) -> Value {
    let written = annotations.map(WrittenKeys::of).unwrap_or_default();
    let mut patch = json!({"metadata": {}, "spec": body["spec"]});
    for (field, former) in [("annotations", written.annotations), ("labels", written.labels)] {
        let mut wanted = body["metadata"][field].as_object().cloned().unwrap_or_default();
        for key in former {
            wanted.entry(key).or_insert(Value::Null);
        }
        patch["metadata"][field] = Value::Object(wanted);
    }
    if annotations.is_some_and(|annotations| annotations.contains_key(keys::ANNOTATION_WRITTEN_KEYS)) {
        let written = patch["metadata"]["annotations"].as_object_mut();
        written.map(|written| written.entry(keys::ANNOTATION_WRITTEN_KEYS).or_insert(Value::Null));
    }
    // So does what a port has no more: slices are found by the names of their ports.
    let ports = patch["spec"]["ports"].as_array_mut().into_iter().flatten();
    for port in ports.filter_map(Value::as_object_mut) {
        for optional in ["name", "appProtocol"] {
            port.entry(optional).or_insert(Value::Null);
        }
    }
    patch
}

/// Takes the families out of the patch for a Service that has them, and maybe one more, which the API server derives from the
/// policy. What it cannot change stays in, and its refusal names it.
pub fn keep_families(patch: &mut Value, present: &[IpFamily]) {
    let is_there = |wanted: &Value| {
        let wanted: Option<Vec<IpFamily>> = serde_json::from_value(wanted.clone()).ok();
        wanted.is_some_and(|wanted| present.starts_with(&wanted))
    };
    if let Some(spec) = patch["spec"].as_object_mut()
        && spec.get("ipFamilies").is_some_and(is_there)
    {
        spec.remove("ipFamilies");
    }
}

/// Ports of the Service as they are sent.
pub fn service_ports(wanted: &[ServicePort]) -> Vec<Value> {
    let port = |port: &ServicePort| {
        let mut value = json!({"port": port.port, "protocol": port.protocol.as_str()});
        let target = port.target_port.clone().unwrap_or(TargetPort::Number(port.port));
        value["targetPort"] = json!(target);
        if let Some(name) = &port.name {
            value["name"] = json!(name);
        }
        if let Some(node_port) = port.node_port {
            value["nodePort"] = json!(node_port);
        }
        if let Some(app_protocol) = &port.app_protocol {
            value["appProtocol"] = json!(app_protocol);
        }
        value
    };
    wanted.iter().map(port).collect()
}

/// Whether an object already is as a merge patch would make it, but for what the API server adds to lists' items.
pub fn covers(seen: &Value, wanted: &Value) -> bool {
    match (seen, wanted) {
        (_, Value::Object(wanted)) => wanted.iter().all(|(key, value)| covers(&seen[key], value)),
        (Value::Array(seen), Value::Array(wanted)) => {
            seen.len() == wanted.len() && seen.iter().zip(wanted).all(|(seen, wanted)| covers(seen, wanted))
        }
        (Value::Null, Value::String(wanted)) => wanted.is_empty(),
        (Value::Null, Value::Array(wanted)) => wanted.is_empty(),
        (Value::Object(seen), Value::Null) => seen.is_empty(),
        _ => seen == wanted,
    }
}

/// The addresses of one family that a slice shows.
#[derive(Clone, Copy, Debug)]
pub struct ShownAddresses<'a> {
    /// The family.
    pub family: IpFamily,
    /// The addresses.
    pub endpoints: &'a [Endpoint],
}

/// The EndpointSlice as it is sent to the API server.
pub fn endpoint_slice(
    set: &BackupPodSet,
    service: &ExposedService,
    ports: &[SlicePort],
    shown: ShownAddresses<'_>,
) -> Value {
    let mut labels = Map::new();
    labels.insert(keys::LABEL_SERVICE_NAME.to_owned(), json!(service.name));
    labels.insert(keys::LABEL_SLICE_MANAGED_BY.to_owned(), json!(keys::MANAGED_BY));
    let namespace = set.metadata.namespace.as_deref().unwrap_or_default();
    let hinted = |endpoint: &Endpoint| {
        let mut value = endpoint_value(namespace, endpoint);
        if let Some(hints) = hints(service.traffic_distribution, endpoint) {
            value["hints"] = hints;
        }
        value
    };
    json!({
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": child_metadata(set, &slice_name(&service.name, shown.family), &labels),
        "addressType": shown.family.as_str(),
        "endpoints": shown.endpoints.iter().map(hinted).collect::<Vec<_>>(),
        "ports": ports.iter().map(port_value).collect::<Vec<_>>(),
    })
}

/// Which clients an address is for, as proxies read it; `None` if it is for all.
///
/// Kubernetes writes these hints into its own slices only (`k8s.io/endpointslice/trafficdist` 0.36.4), so the field of the Service
/// alone would have no effect. As there, an unready address, or one in no zone, has none.
pub fn hints(distribution: Option<TrafficDistribution>, endpoint: &Endpoint) -> Option<Value> {
    let distribution = distribution.filter(|_| endpoint.is_ready)?;
    let mut hints = Map::new();
    if let Some(zone) = &endpoint.zone {
        hints.insert("forZones".to_owned(), json!([{"name": zone}]));
    }
    if let (TrafficDistribution::PreferSameNode, Some(node)) = (distribution, &endpoint.node) {
        hints.insert("forNodes".to_owned(), json!([{"name": node.0}]));
    }
    (!hints.is_empty()).then_some(Value::Object(hints))
}

pub(super) fn endpoint_value(namespace: &str, endpoint: &Endpoint) -> Value {
    let mut value = json!({
        "addresses": [endpoint.address.to_string()],
        "conditions": {
            "ready": endpoint.is_ready,
            "serving": true,
            "terminating": endpoint.is_terminating,
        },
        "targetRef": {
            "kind": "Pod",
            "name": endpoint.pod.0,
            "namespace": namespace,
            "uid": endpoint.uid.0,
        },
    });
    if let Some(node) = &endpoint.node {
        value["nodeName"] = json!(node.0);
    }
    if let Some(zone) = &endpoint.zone {
        value["zone"] = json!(zone);
    }
    value
}

pub(super) fn port_value(port: &SlicePort) -> Value {
    let mut value = json!({"name": port.name, "port": port.port, "protocol": port.protocol});
    if let Some(app_protocol) = &port.app_protocol {
        value["appProtocol"] = json!(app_protocol);
    }
    value
}

/// Metadata of an object that a set keeps: these labels, the operator's own, and the set as owner.
pub(super) fn child_metadata(set: &BackupPodSet, name: &str, labels: &Map<String, Value>) -> Value {
    let mut labels = labels.clone();
    labels.insert(keys::LABEL_SET.to_owned(), json!(set.metadata.name));
    labels.insert(keys::LABEL_MANAGED_BY.to_owned(), json!(keys::MANAGED_BY));
    json!({
        "name": name,
        "namespace": set.metadata.namespace,
        "labels": labels,
        "ownerReferences": [owner_reference(set)],
    })
}

fn named_port(set: &BackupPodSet, wanted: &str) -> Result<i32, PortError> {
    let mut known = Vec::new();
    let list =
        |field: &str| set.spec.template.spec.get(field).and_then(Value::as_array).into_iter().flatten();
    // Kubernetes finds those of native sidecars, too.
    let sidecars = list("initContainers").filter(|container| container["restartPolicy"] == "Always");
    let containers = list("containers").chain(sidecars);
    let ports = containers.filter_map(|container| container["ports"].as_array()).flatten();
    for port in ports {
        let Some(name) = port["name"].as_str() else { continue };
        let number = port["containerPort"].as_i64().and_then(|number| i32::try_from(number).ok());
        match number {
            Some(number) if name == wanted => return Ok(number),
            Some(_) | None => known.push(name.to_owned()),
        }
    }
    Err(PortError::UnknownName { wanted: wanted.to_owned(), known })
}
