//! Reads raw objects of a group into the form in which decisions compare them with what is wanted.

use std::collections::BTreeMap;
use std::sync::Arc;

use bps_core::pairing::{ExistingObject, ExistingObjects, ExistingPod, ExistingSlice, ShownEndpoint};
use bps_protocol::AgentId;
use bps_wire::uid::parse_uid;
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointSlice};
use kube_core::{Resource, ResourceExt as _};
use serde::Serialize;

use super::{GroupObjects, actives, pair_number, shown_epoch};
use crate::slim::SlimPod;

/// Reads all objects of a group.
pub(super) fn existing(objects: &GroupObjects) -> ExistingObjects {
    let account =
        |pod: &Arc<SlimPod>| pod.spec.service_account_name.clone().unwrap_or_else(|| "default".to_owned());
    ExistingObjects {
        pods: pods(objects),
        accounts: objects.pods.iter().map(account).collect(),
        numbers: objects.leases.iter().map(|lease| pair_number(lease)).collect(),
        services: objects.services.iter().map(|service| object(&**service)).collect(),
        slices: objects.slices.iter().map(|slice| existing_slice(slice)).collect(),
        roles: objects.roles.iter().map(|role| object(&**role)).collect(),
        bindings: objects.bindings.iter().map(|binding| object(&**binding)).collect(),
    }
}

fn pods(objects: &GroupObjects) -> BTreeMap<AgentId, ExistingPod> {
    let pod = |pod: &Arc<SlimPod>| {
        let uid = pod.metadata.uid.clone()?;
        let standby_of = actives(pod).into_keys().collect();
        Some((AgentId(parse_uid(&uid).ok()?), ExistingPod { name: pod.name_any(), uid, standby_of }))
    };
    objects.pods.iter().filter_map(pod).collect()
}

fn object<K: Resource + Serialize>(object: &K) -> ExistingObject {
    // An object that was read from JSON can always be written as JSON.
    ExistingObject { metadata: object.meta().clone(), body: serde_json::to_value(object).unwrap_or_default() }
}

fn existing_slice(slice: &EndpointSlice) -> ExistingSlice {
    ExistingSlice {
        object: object(slice),
        epoch: shown_epoch(slice),
        is_v6: slice.address_type == "IPv6",
        endpoints: slice.endpoints.iter().map(shown_endpoint).collect(),
    }
}

fn shown_endpoint(endpoint: &Endpoint) -> ShownEndpoint {
    let uid = endpoint.target_ref.as_ref().and_then(|target| target.uid.as_deref());
    let ready = endpoint.conditions.as_ref().and_then(|conditions| conditions.ready);
    ShownEndpoint {
        pod: uid.and_then(|uid| parse_uid(uid).ok()).map(AgentId),
        addresses: endpoint.addresses.clone(),
        // Without a condition consumers take it for ready, says the API.
        is_ready: ready.unwrap_or(true),
    }
}

#[cfg(test)]
mod tests {
    use bps_api::keys;
    use bps_protocol::Epoch;
    use bps_wire::uid::format_uid;
    use serde_json::json;

    use std::collections::BTreeSet;

    use super::*;
    use crate::testing::{lease, pod};

    #[test]
    fn a_slice_is_read_with_its_epoch_and_what_each_endpoint_says() {
        let slice = json!({
            "metadata": {"name": "web-0", "annotations": {(keys::ANNOTATION_HA_EPOCH): "4294967299"}},
            "addressType": "IPv6",
            "endpoints": [
                {"addresses": ["fd00::1"], "targetRef": {"kind": "Pod", "uid": format_uid(1)}},
                {"addresses": ["fd00::2"], "targetRef": {"kind": "Pod", "uid": "two"},
                    "conditions": {"ready": false}},
            ],
        });
        let slice: EndpointSlice = serde_json::from_value(slice).expect("a slice");
        let read = existing_slice(&slice);
        assert_eq!(read.object.metadata, slice.metadata);
        assert_eq!(read.object.body, serde_json::to_value(&slice).expect("JSON"));
        assert_eq!((read.epoch, read.is_v6), (Some(Epoch { term: 1, sequence: 3 }), true));
        let endpoint = |pod: Option<u128>, address: &str, is_ready| ShownEndpoint {
            pod: pod.map(AgentId),
            addresses: vec![address.to_owned()],
            is_ready,
        };
        assert_eq!(read.endpoints, [endpoint(Some(1), "fd00::1", true), endpoint(None, "fd00::2", false)]);
    }

    #[test]
    fn every_pod_and_every_lease_is_counted_also_one_that_nothing_can_be_read_of() {
        let mut nameless = lease(&[]);
        nameless.metadata.annotations = None;
        let mut agent = pod(2, json!({}));
        agent.spec.service_account_name = Some("agent".to_owned());
        let mut strange = pod(3, json!({}));
        strange.metadata.uid = Some("three".to_owned());
        let objects = GroupObjects {
            pods: [pod(1, json!({})), agent, strange].map(Arc::new).to_vec(),
            leases: [lease(&[]), nameless].map(Arc::new).to_vec(),
            ..GroupObjects::default()
        };
        let existing = existing(&objects);
        assert_eq!(existing.accounts, ["default", "agent", "default"]);
        assert_eq!(existing.numbers, [Some(0), None]);
        let pods = [1, 2].map(|number| {
            let (name, uid) = (format!("web-{number}"), format_uid(number));
            (AgentId(number), ExistingPod { name, uid, standby_of: BTreeSet::new() })
        });
        assert_eq!(existing.pods, BTreeMap::from(pods));
    }
}
