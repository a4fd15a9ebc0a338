//! Reads the exposed Service and its slice, and compares them with the wish.

use std::net::IpAddr;

use bps_api::service::{IpFamily, Protocol, TrafficDistribution};
use bps_api::{BackupPodSet, ExposedService, keys};
use bps_core::manifests::{self, SlicePort, covers, hints, keep_families, service_patch};
use bps_core::model::{Endpoint, ExposedSlice, NodeName, ObjectState, PodName, Uid};
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::{Endpoint as RawEndpoint, EndpointPort, EndpointSlice};
use kube_core::ObjectMeta;
use serde_json::Value;

use super::owner::{is_controlled_by, is_for};

/// How the Service compares with the wish.
pub(super) fn service_state(
    service: Option<&Service>,
    set: &BackupPodSet,
    wanted: &ExposedService,
) -> ObjectState {
    let Some(service) = service else { return ObjectState::Absent };
    if !is_for(&service.metadata, set) {
        return ObjectState::Foreign;
    }
    let mut patch = service_patch(&manifests::service(set, wanted), service.metadata.annotations.as_ref());
    keep_families(&mut patch, &families(Some(service)));
    // An object that was read from JSON can always be written as JSON.
    let seen = serde_json::to_value(service).unwrap_or_default();
    let is_current = is_controlled_by(&service.metadata, set) && covers(&seen, &patch);
    if is_current { ObjectState::Current } else { ObjectState::Outdated }
}

/// Families of addresses of a Service; IPv4 if there is none, or the API server knows of one family only.
pub(super) fn families(service: Option<&Service>) -> Vec<IpFamily> {
    let words = service.and_then(|service| service.spec.as_ref()?.ip_families.as_ref());
    let known = |word: &String| serde_json::from_value(Value::String(word.clone())).ok();
    let families: Vec<IpFamily> = words.into_iter().flatten().filter_map(known).collect();
    if families.is_empty() { vec![IpFamily::IPv4] } else { families }
}

/// How the slice of a family compares with the wish, and the addresses in it.
pub(super) fn exposed_slice(
    slice: Option<&EndpointSlice>,
    set: &BackupPodSet,
    SliceWish { family, service: wanted, ports }: SliceWish<'_>,
) -> ExposedSlice {
    let Some(slice) = slice else {
        return ExposedSlice { family, state: ObjectState::Absent, endpoints: Vec::new() };
    };
    if !is_for(&slice.metadata, set) {
        return ExposedSlice { family, state: ObjectState::Foreign, endpoints: Vec::new() };
    }
    let mut endpoints: Vec<Endpoint> = slice.endpoints.iter().filter_map(endpoint).collect();
    endpoints.sort();
    let has_ports = slice.ports.as_ref().is_some_and(|raw| {
        raw.len() == ports.len()
            && ports.iter().all(|wanted| raw.iter().any(|port| is_slice_port(port, wanted)))
    });
    // One that cannot be read was added by somebody: it would stay beside the addresses that are compared.
    let is_readable = endpoints.len() == slice.endpoints.len();
    let is_owned = is_controlled_by(&slice.metadata, set);
    let is_visible = is_watched(&slice.metadata, set) && is_found(&slice.metadata, wanted);
    let is_hinted = |raw: &RawEndpoint| {
        let wanted = endpoint(raw).and_then(|endpoint| hints(wanted.traffic_distribution, &endpoint));
        raw.hints.as_ref().and_then(|hints| serde_json::to_value(hints).ok()) == wanted
    };
    let is_current = is_owned
        && !is_misplaced(slice, family)
        && has_ports
        && is_readable
        && is_visible
        && slice.endpoints.iter().all(is_hinted);
    let state = if is_current { ObjectState::Current } else { ObjectState::Outdated };
    ExposedSlice { family, state, endpoints }
}

/// Whether a slice has addresses of another family than its name says, which no write changes: it has to be made anew. Versions
/// up to 0.1 had one slice, of any family.
pub(super) fn is_misplaced(slice: &EndpointSlice, family: IpFamily) -> bool {
    slice.address_type != family.as_str()
}

/// The slice that a set should have.
#[derive(Clone, Copy)]
pub(super) struct SliceWish<'a> {
    pub(super) family: IpFamily,
    pub(super) service: &'a ExposedService,
    pub(super) ports: &'a [SlicePort],
}

/// Which Pods a Service prefers. An API server that does not know what the set wants keeps none of it.
pub(super) fn traffic_distribution(service: &Service) -> Option<TrafficDistribution> {
    let word = service.spec.as_ref()?.traffic_distribution.clone()?;
    serde_json::from_value(Value::String(word)).ok()
}

/// Ports that a slice has.
pub(super) fn present_ports(slice: &EndpointSlice) -> Vec<SlicePort> {
    let port = |port: &EndpointPort| {
        Some(SlicePort {
            name: port.name.clone().unwrap_or_default(),
            port: port.port?,
            protocol: protocol(port.protocol.as_deref()),
            app_protocol: port.app_protocol.clone(),
        })
    };
    slice.ports.iter().flatten().filter_map(port).collect()
}

/// The same word, for as long as the program runs; TCP is the default of the API.
fn protocol(word: Option<&str>) -> &'static str {
    let known = [Protocol::Tcp, Protocol::Udp, Protocol::Sctp];
    known
        .map(Protocol::as_str)
        .into_iter()
        .find(|known| word == Some(known))
        .unwrap_or(Protocol::default().as_str())
}

/// Whether our watches show the object: by the label that somebody may have taken from it.
pub(super) fn is_watched(metadata: &ObjectMeta, set: &BackupPodSet) -> bool {
    let label = metadata.labels.as_ref().and_then(|labels| labels.get(keys::LABEL_SET));
    label == set.metadata.name.as_ref()
}

/// Whether kube-proxy leads clients of the Service to the addresses of this slice although it is none that the set writes.
pub(super) fn is_of_others(slice: &ObjectMeta, set: &BackupPodSet, service: &str, own: &[String]) -> bool {
    let label = slice.labels.as_ref().and_then(|labels| labels.get(keys::LABEL_SERVICE_NAME));
    label.is_some_and(|name| name == service)
        && !slice.name.as_ref().is_some_and(|name| own.contains(name))
        && slice.deletion_timestamp.is_none()
        && !is_controlled_by(slice, set)
}

/// Whether kube-proxy takes the slice for the Service's, and Kubernetes' own controllers leave it alone.
fn is_found(metadata: &ObjectMeta, wanted: &ExposedService) -> bool {
    let label = |key: &str| metadata.labels.as_ref().and_then(|labels| labels.get(key)).map(String::as_str);
    label(keys::LABEL_SERVICE_NAME) == Some(wanted.name.as_str())
        && label(keys::LABEL_SLICE_MANAGED_BY) == Some(keys::MANAGED_BY)
}

fn is_slice_port(port: &EndpointPort, wanted: &SlicePort) -> bool {
    port.port == Some(wanted.port)
        && port.name.as_deref().unwrap_or_default() == wanted.name
        && port.protocol.as_deref() == Some(wanted.protocol)
        && port.app_protocol == wanted.app_protocol
}

fn endpoint(raw: &RawEndpoint) -> Option<Endpoint> {
    let target = raw.target_ref.as_ref()?;
    let [address] = raw.addresses.as_slice() else { return None };
    let conditions = raw.conditions.as_ref();
    Some(Endpoint {
        pod: PodName(target.name.clone()?),
        uid: Uid(target.uid.clone()?),
        address: address.parse::<IpAddr>().ok()?,
        node: raw.node_name.clone().map(NodeName),
        zone: raw.zone.clone(),
        is_ready: conditions.and_then(|conditions| conditions.ready).unwrap_or(true),
        is_terminating: conditions.and_then(|conditions| conditions.terminating).unwrap_or(false),
    })
}

/// Images of the template's containers, for the wide columns.
pub(super) fn images(set: &BackupPodSet) -> Vec<String> {
    let containers = set.spec.template.spec.get("containers").and_then(Value::as_array);
    containers
        .into_iter()
        .flatten()
        .filter_map(|container| container["image"].as_str().map(str::to_owned))
        .collect()
}
