//! Services, EndpointSlices, keys and permissions of a group: what is missing or other than wanted is written.

use std::collections::BTreeSet;
use std::net::IpAddr;

use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::core::{NamespaceResourceScope, ObjectMeta};
use kube::{Api, Client, Resource, ResourceExt as _};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::leases::{Error, Written};
use crate::agent::identity::{format_uid, parse_uid};
use crate::api::{HAGroup, keys};
use crate::ha::{AgentId, Epoch};
use crate::manifests::{
    agent_binding, agent_role, group_keys, group_service, pair_name, pair_slice, replication_service,
};
use crate::model::{Endpoint, PodName, Uid};
use crate::observe::group::{GroupObjects, SeenGroup};
use crate::observe::version;
use crate::pairing::{Pair, Pod};

/// What to do with one Service or EndpointSlice.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Change {
    /// Makes it.
    Create(Value),
    /// Puts it right, at the version that was seen.
    Put {
        /// Its name.
        name: String,
        /// What is to change.
        patch: Value,
    },
    /// Takes it away, at the version that was seen.
    Remove(Box<ObjectMeta>),
}

/// What Services need.
pub(super) fn service_changes(group: &HAGroup, seen: &SeenGroup, objects: &GroupObjects) -> Vec<Change> {
    let mut wanted: Vec<Value> = group_service(group).into_iter().collect();
    if !group.spec.replication_ports.is_empty() {
        let actives = seen.group.pairs.iter().filter_map(active);
        wanted.extend(actives.map(|active| replication_service(group, active)));
    }
    for body in &mut wanted {
        // Indexing puts a null where there is none: a selector that somebody added is taken away.
        body["spec"]["selector"].as_object_mut();
    }
    let mut changes: Vec<Change> = wanted
        .iter()
        .filter_map(|body| change(body, &objects.services, json!({"spec": body["spec"]})))
        .collect();
    changes.extend(removals(group, &objects.services, &wanted));
    changes
}

/// What EndpointSlices need. Their addresses are the actives' own affair, but for those that show what cannot be.
pub(super) fn slice_changes(group: &HAGroup, seen: &SeenGroup, objects: &GroupObjects) -> Vec<Change> {
    let name = group.name_any();
    let mut wanted = Vec::new();
    let mut changes = Vec::new();
    for pair in &seen.group.pairs {
        let slice_name = pair_name(&name, pair.number);
        let slice = objects.slices.iter().find(|slice| slice.name_any() == slice_name);
        let is_v6 = slice.map_or_else(|| is_v6(seen, pair), |slice| slice.address_type == "IPv6");
        let Some(body) = pair_slice(group, &slice_name, &[], is_v6) else { continue };
        let mut patch = json!({"metadata": {"labels": body["metadata"]["labels"]}, "ports": body["ports"]});
        if let Some((endpoints, epoch)) = slice.and_then(|slice| correction(seen, pair, slice)) {
            let corrected = pair_slice(group, &slice_name, &endpoints, is_v6).unwrap_or_default();
            patch["endpoints"] = corrected["endpoints"].clone();
            patch["metadata"]["annotations"] =
                json!({(keys::ANNOTATION_HA_EPOCH): u64::from(epoch).to_string()});
        }
        changes.extend(change(&body, &objects.slices, patch));
        wanted.push(body);
    }
    changes.extend(removals(group, &objects.slices, &wanted));
    changes
}

/// The addresses that a slice should show instead of those that it does, and with which epoch.
///
/// A slice may be ahead of the Lease, because a handover is written down later; then it is believed as long as its Pod
/// exists.
fn correction(seen: &SeenGroup, pair: &Pair, slice: &EndpointSlice) -> Option<(Vec<Endpoint>, Epoch)> {
    let shown_epoch = slice.annotations().get(keys::ANNOTATION_HA_EPOCH).map(|epoch| epoch.parse::<u64>());
    let shown_epoch = match shown_epoch {
        Some(Ok(epoch)) => Epoch::from(epoch),
        // Nobody showed anything yet, or somebody wrote what no agent writes.
        None | Some(Err(_)) => Epoch::default(),
    };
    let shown = slice.endpoints.iter().map(|endpoint| {
        let uid = endpoint.target_ref.as_ref().and_then(|target| target.uid.as_deref());
        (uid.and_then(|uid| parse_uid(uid).ok()).map(AgentId), endpoint.addresses.clone())
    });
    let shown: Vec<_> = shown.collect();
    let pod = |id: AgentId| seen.group.pods.iter().find(|pod| pod.id == id);
    let exists = |id: Option<AgentId>| id.is_some_and(|id| pod(id).is_some());
    if shown_epoch > pair.lease.epoch {
        let is_stray = shown.iter().any(|(id, _)| !exists(*id));
        return is_stray.then(|| (Vec::new(), shown_epoch));
    }
    let holder = pair.lease.holder.and_then(pod);
    let wanted: Vec<Endpoint> = holder.and_then(endpoint).into_iter().collect();
    let expected =
        wanted.iter().zip(holder).map(|(wanted, pod)| (Some(pod.id), vec![wanted.address.to_string()]));
    let is_right = shown == expected.collect::<Vec<_>>();
    (!is_right).then_some((wanted, pair.lease.epoch))
}

fn endpoint(pod: &Pod) -> Option<Endpoint> {
    Some(Endpoint {
        pod: PodName(pod.name.clone()),
        uid: Uid(format_uid(pod.id.0)),
        address: pod.address?.ip(),
        node: pod.node.clone(),
        zone: None,
        is_ready: true,
        is_terminating: false,
    })
}

fn active(pair: &Pair) -> Option<&str> {
    pair.names.get(&pair.lease.holder?).map(String::as_str)
}

fn is_v6(seen: &SeenGroup, pair: &Pair) -> bool {
    let members = seen.group.pods.iter().filter(|pod| pair.lease.members.contains(&pod.id));
    let mut addresses = members.filter_map(|pod| pod.address);
    addresses.next().is_some_and(|address| matches!(address.ip(), IpAddr::V6(_)))
}

/// What makes an object as it is wanted; `None` if it is.
fn change<K>(body: &Value, existing: &[std::sync::Arc<K>], mut patch: Value) -> Option<Change>
where
    K: Resource<DynamicType = ()> + Serialize,
{
    let name = body["metadata"]["name"].as_str()?;
    let Some(found) = existing.iter().find(|object| object.meta().name.as_deref() == Some(name)) else {
        return Some(Change::Create(body.clone()));
    };
    let seen = serde_json::to_value(found.as_ref()).ok()?;
    if covers(&seen, &patch) {
        return None;
    }
    patch["metadata"]["uid"] = json!(found.meta().uid);
    patch["metadata"]["resourceVersion"] = json!(found.meta().resource_version);
    Some(Change::Put { name: name.to_owned(), patch })
}

/// Whether an object already is as a merge patch would make it, but for what the API server adds to lists' items.
fn covers(seen: &Value, wanted: &Value) -> bool {
    match (seen, wanted) {
        (_, Value::Object(wanted)) => wanted.iter().all(|(key, value)| covers(&seen[key], value)),
        (Value::Array(seen), Value::Array(wanted)) => {
            seen.len() == wanted.len() && seen.iter().zip(wanted).all(|(seen, wanted)| covers(seen, wanted))
        }
        (Value::Null, Value::String(wanted)) => wanted.is_empty(),
        (Value::Null, Value::Array(wanted)) => wanted.is_empty(),
        _ => seen == wanted,
    }
}

/// What a former wish left; only objects of this very group.
fn removals<K>(group: &HAGroup, existing: &[std::sync::Arc<K>], wanted: &[Value]) -> Vec<Change>
where
    K: Resource<DynamicType = ()>,
{
    let names: BTreeSet<_> = wanted.iter().filter_map(|body| body["metadata"]["name"].as_str()).collect();
    let is_ours = |metadata: &ObjectMeta| {
        let owners = metadata.owner_references.iter().flatten();
        owners.into_iter().any(|owner| Some(&owner.uid) == group.metadata.uid.as_ref())
    };
    let is_left = |metadata: &&ObjectMeta| {
        let is_wanted = metadata.name.as_deref().is_some_and(|name| names.contains(name));
        !is_wanted && is_ours(metadata) && metadata.deletion_timestamp.is_none()
    };
    existing
        .iter()
        .map(|object| object.meta())
        .filter(is_left)
        .cloned()
        .map(Box::new)
        .map(Change::Remove)
        .collect()
}

/// Writes one change.
pub(super) async fn carry_out<K>(
    client: &Client,
    (kind, namespace): (&'static str, &str),
    change: &Change,
) -> Result<Option<Written>, Error>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    K: Clone + DeserializeOwned + Serialize + std::fmt::Debug,
{
    let api: Api<K> = Api::namespaced(client.clone(), namespace);
    let field_manager = Some(keys::FIELD_MANAGER.to_owned());
    let written = match change {
        Change::Create(body) => {
            let object = serde_json::from_value(body.clone()).map_err(Error::Build)?;
            api.create(&PostParams { field_manager, ..PostParams::default() }, &object).await?
        }
        Change::Put { name, patch } => {
            let parameters = PatchParams { field_manager, ..PatchParams::default() };
            api.patch(name, &parameters, &Patch::Merge(patch)).await?
        }
        Change::Remove(metadata) => {
            let preconditions = Preconditions {
                uid: metadata.uid.clone(),
                resource_version: metadata.resource_version.clone(),
            };
            let parameters = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
            api.delete(metadata.name.as_deref().unwrap_or_default(), &parameters).await?;
            return Ok(None);
        }
    };
    Ok(Some((kind, written.name_any(), version(written.meta()))))
}

/// What agents need before they can do anything.
pub(super) struct Means<'a> {
    /// The keys of the group, as agents read them.
    pub(super) keys_text: &'a str,
    /// What readers of their metrics must send.
    pub(super) metrics_token: &'a str,
    /// ServiceAccounts of the Pods.
    pub(super) accounts: &'a [&'a str],
    /// How many pairs there may be.
    pub(super) pairs: u32,
}

/// Writes the keys of a group and what permits its agents to do their work, whatever there is.
///
/// None of it is ever read: the operator may not read Secrets but its own.
pub(super) async fn prepare(client: &Client, group: &HAGroup, means: &Means<'_>) -> Result<(), Error> {
    apply::<Secret>(client, group, group_keys(group, means.keys_text, means.metrics_token)).await?;
    if means.accounts.is_empty() {
        return Ok(());
    }
    apply::<Role>(client, group, agent_role(group, means.pairs)).await?;
    apply::<RoleBinding>(client, group, agent_binding(group, means.accounts)).await
}

async fn apply<K>(client: &Client, group: &HAGroup, body: Value) -> Result<(), Error>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + DeserializeOwned
        + std::fmt::Debug,
{
    let api: Api<K> =
        Api::namespaced(client.clone(), group.metadata.namespace.as_deref().unwrap_or_default());
    let name = body["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    let parameters = PatchParams::apply(keys::FIELD_MANAGER).force();
    api.patch(&name, &parameters, &Patch::Apply(body)).await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_covers_what_it_has_more_of() {
        let seen = json!({"spec": {"ports": [{"port": 80, "nodePort": 0}], "clusterIP": "10.0.0.1"}});
        assert!(covers(&seen, &json!({"spec": {"ports": [{"port": 80}], "selector": null}})));
        assert!(!covers(&seen, &json!({"spec": {"ports": [{"port": 81}]}})));
        assert!(!covers(&seen, &json!({"spec": {"ports": []}})));
        assert!(!covers(&json!({"spec": {"selector": {"a": "b"}}}), &json!({"spec": {"selector": null}})));
    }
}
