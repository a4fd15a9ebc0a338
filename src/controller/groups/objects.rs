//! Services of a group, and how any object is put right: what is missing or other than wanted is written.

use std::collections::BTreeSet;
use std::sync::Arc;

use bps_api::{HAGroup, keys};
use bps_core::manifests::{
    REPLICATION_SERVICE_PREFIX, group_service, replication_service, replication_service_name,
};
use bps_core::pairing::{LABEL_MAX, Pair};
use bps_observe::group::{GroupObjects, SeenGroup};
use bps_observe::version;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::core::{NamespaceResourceScope, ObjectMeta};
use kube::{Api, Client, Resource, ResourceExt as _};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::leases::{Error, Written};
use crate::apply::is_name_taken;

/// What to do with one object.
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
    /// Leaves it alone: an object of this name belongs to somebody else.
    Leave(String),
}

impl Change {
    /// The name of what is there as it is wanted once this is done.
    pub(super) fn wanted(&self) -> Option<&str> {
        match self {
            Self::Create(body) => body["metadata"]["name"].as_str(),
            Self::Put { name, .. } => Some(name),
            Self::Remove(_) | Self::Leave(_) => None,
        }
    }
}

/// Whose the Service is that leads to the actives: addresses must not get behind that of somebody else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lead {
    /// It is there, and of this very group.
    Own,
    /// It is somebody else's.
    Foreign,
    /// It is not to be seen: it may not be there, or lack the label that shows it. Or nobody's yet, or not any more.
    Unknown,
}

/// Whose it is as far as the watches show.
pub(super) fn lead(group: &HAGroup, objects: &GroupObjects) -> Lead {
    let wanted = group.spec.service.as_ref().map(|service| service.name.as_str());
    let mut services = objects.services.iter().map(|service| service.meta());
    match services.find(|metadata| wanted.is_some() && metadata.name.as_deref() == wanted) {
        Some(metadata) if is_owned(metadata, group) => Lead::Own,
        Some(metadata) if !is_left_behind(metadata) && !is_ending(metadata, group) => Lead::Foreign,
        Some(_) | None => Lead::Unknown,
    }
}

/// What Services need.
pub(super) fn service_changes(group: &HAGroup, seen: &SeenGroup, objects: &GroupObjects) -> Vec<Change> {
    let mut wanted: Vec<Value> = group_service(group).into_iter().collect();
    if !group.spec.replication_ports.is_empty() {
        // A longer name is no label, so no selector could find its standby.
        let actives = seen.group.pairs.iter().filter_map(active).filter(|active| active.len() <= LABEL_MAX);
        wanted.extend(actives.map(|active| replication_service(group, active)));
    }
    for body in &mut wanted {
        // Indexing puts a null where there is none: a selector that somebody added is taken away.
        body["spec"]["selector"].as_object_mut();
        // So is what a port has no more: slices are found by the names of their ports.
        let ports = body["spec"]["ports"].as_array_mut().into_iter().flatten();
        for port in ports.filter_map(Value::as_object_mut) {
            for optional in ["name", "appProtocol"] {
                port.entry(optional).or_insert(Value::Null);
            }
        }
    }
    let mut changes: Vec<Change> = wanted
        .iter()
        .filter_map(|body| change(group, body, (&objects.services, json!({"spec": body["spec"]}))))
        .collect();
    // Whoever acted there may still act.
    let left_alone = seen.group.left_alone().flat_map(|lost| &lost.pods);
    wanted.extend(left_alone.map(|pod| json!({"metadata": {"name": replication_service_name(pod)}})));
    let is_led = group.spec.service.is_none() || lead(group, objects) == Lead::Own;
    // Clients may use the former one until there is another.
    let former = objects.services.iter().map(|service| service.name_any());
    let former = former.filter(|name| !is_led && !name.starts_with(REPLICATION_SERVICE_PREFIX));
    wanted.extend(former.map(|name| json!({"metadata": {"name": name}})));
    changes.extend(removals(group, &objects.services, &wanted));
    changes
}

fn active(pair: &Pair) -> Option<&str> {
    pair.names.get(&pair.lease.holder?).map(String::as_str)
}

/// What makes an object as it is wanted; `None` if it is. `patch` puts right what is there.
pub(super) fn change<K>(
    group: &HAGroup,
    body: &Value,
    (existing, mut patch): (&[Arc<K>], Value),
) -> Option<Change>
where
    K: Resource<DynamicType = ()> + Serialize,
{
    let name = body["metadata"]["name"].as_str()?;
    let Some(found) = existing.iter().find(|object| object.meta().name.as_deref() == Some(name)) else {
        return Some(Change::Create(body.clone()));
    };
    if !is_owned(found.meta(), group) {
        if is_ending(found.meta(), group) {
            return None;
        }
        if !is_left_behind(found.meta()) {
            return Some(Change::Leave(name.to_owned()));
        }
        patch["metadata"]["ownerReferences"] = body["metadata"]["ownerReferences"].clone();
    }
    let seen = serde_json::to_value(found.as_ref()).ok()?;
    if covers(&seen, &patch) {
        return None;
    }
    patch["metadata"]["uid"] = json!(found.meta().uid);
    patch["metadata"]["resourceVersion"] = json!(found.meta().resource_version);
    Some(Change::Put { name: name.to_owned(), patch })
}

/// Whether an object already is as a merge patch would make it, but for what the API server adds to lists' items.
pub(super) fn covers(seen: &Value, wanted: &Value) -> bool {
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
pub(super) fn removals<K>(group: &HAGroup, existing: &[Arc<K>], wanted: &[Value]) -> Vec<Change>
where
    K: Resource<DynamicType = ()>,
{
    let names: BTreeSet<_> = wanted.iter().filter_map(|body| body["metadata"]["name"].as_str()).collect();
    let is_left = |metadata: &&ObjectMeta| {
        let is_wanted = metadata.name.as_deref().is_some_and(|name| names.contains(name));
        !is_wanted && is_owned(metadata, group) && metadata.deletion_timestamp.is_none()
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

/// Whether an object ends with this very group.
pub(super) fn is_owned(metadata: &ObjectMeta, group: &HAGroup) -> bool {
    let mut owners = metadata.owner_references.iter().flatten();
    owners.any(|owner| Some(&owner.uid) == group.metadata.uid.as_ref())
}

/// Whether an object was made for a group of this name that went without it, as `kubectl delete --cascade=orphan` leaves it.
fn is_left_behind(metadata: &ObjectMeta) -> bool {
    let managed_by = metadata.labels.as_ref().and_then(|labels| labels.get(keys::LABEL_MANAGED_BY));
    let is_ours = managed_by.is_some_and(|tool| tool == keys::MANAGED_BY);
    is_ours && metadata.owner_references.as_ref().is_none_or(Vec::is_empty)
}

/// Whether an object ends with an earlier group of this name: it is about to be collected, and then made anew.
fn is_ending(metadata: &ObjectMeta, group: &HAGroup) -> bool {
    let mut owners = metadata.owner_references.iter().flatten();
    owners.any(|owner| owner.kind == keys::GROUP_KIND && Some(&owner.name) == group.metadata.name.as_ref())
        && !is_owned(metadata, group)
}

/// Writes one change.
pub(super) async fn carry_out<K>(
    client: &Client,
    group: &HAGroup,
    change: &Change,
) -> Result<Option<Written>, Error>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + k8s_openapi::Resource,
    K: Clone + DeserializeOwned + Serialize + std::fmt::Debug,
{
    let namespace = group.metadata.namespace.as_deref().unwrap_or_default();
    let api: Api<K> = Api::namespaced(client.clone(), namespace);
    let field_manager = Some(keys::FIELD_MANAGER.to_owned());
    let written = match change {
        Change::Create(body) => {
            let object = serde_json::from_value(body.clone()).map_err(Error::Build)?;
            match api.create(&PostParams { field_manager, ..PostParams::default() }, &object).await {
                Err(error) if is_name_taken(&error) => label_again(&api, group, body).await?,
                made => made?,
            }
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
        Change::Leave(name) => return Err(taken::<K>(name)),
    };
    Ok(Some((K::KIND, written.name_any(), version(written.meta()))))
}

/// Gives an object of the group its labels back, without which no watch shows it.
async fn label_again<K>(api: &Api<K>, group: &HAGroup, body: &Value) -> Result<K, Error>
where
    K: Resource<DynamicType = ()> + k8s_openapi::Resource + Clone + DeserializeOwned + std::fmt::Debug,
{
    let name = body["metadata"]["name"].as_str().unwrap_or_default();
    let found = api.get(name).await?;
    if !is_owned(found.meta(), group) {
        return Err(taken::<K>(name));
    }
    let patch = json!({"metadata": {
        "labels": body["metadata"]["labels"],
        "uid": found.meta().uid,
        "resourceVersion": found.meta().resource_version,
    }});
    let parameters =
        PatchParams { field_manager: Some(keys::FIELD_MANAGER.to_owned()), ..PatchParams::default() };
    Ok(api.patch(name, &parameters, &Patch::Merge(patch)).await?)
}

fn taken<K: k8s_openapi::Resource>(name: &str) -> Error {
    Error::Taken { kind: K::KIND, name: name.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A group that is led to by this Service, with one port.
    fn group(service: &str, port: Value) -> HAGroup {
        let spec = json!({"service": {"name": service, "ports": [port]}});
        let metadata = json!({"name": "web", "namespace": "one", "uid": "u"});
        let group = json!({"apiVersion": "backup.example.com/v1alpha1", "kind": "HAGroup", "metadata": metadata, "spec": spec});
        serde_json::from_value(group).expect("a group")
    }

    #[test]
    fn a_service_loses_the_name_of_a_port_that_has_none_any_more() {
        let group = |port: Value| group("shop", port);
        let changes = |wish: &HAGroup, services: Vec<Arc<k8s_openapi::api::core::v1::Service>>| {
            let objects = GroupObjects { services, ..GroupObjects::default() };
            service_changes(wish, &SeenGroup::default(), &objects)
        };
        let named = group(json!({"name": "http", "port": 80, "appProtocol": "http"}));
        let [Change::Create(made)] = &changes(&named, Vec::new())[..] else { panic!("it is made") };
        let made: k8s_openapi::api::core::v1::Service =
            serde_json::from_value(made.clone()).expect("a Service");
        assert_eq!(changes(&named, vec![Arc::new(made.clone())]), []);
        let plain = group(json!({"port": 80}));
        let [Change::Put { patch, .. }] = &changes(&plain, vec![Arc::new(made)])[..] else {
            panic!("it is put right")
        };
        let port = &patch["spec"]["ports"][0];
        assert_eq!(
            (&port["name"], &port["appProtocol"], &port["port"]),
            (&Value::Null, &Value::Null, &json!(80))
        );
    }

    #[test]
    fn the_former_service_goes_when_the_next_one_is_there() {
        let group = |name: &str| group(name, json!({"port": 80}));
        let made = |name: &str| {
            let [Change::Create(made)] =
                &service_changes(&group(name), &SeenGroup::default(), &GroupObjects::default())[..]
            else {
                panic!("it is made")
            };
            let mut service: k8s_openapi::api::core::v1::Service =
                serde_json::from_value(made.clone()).expect("a Service");
            service.metadata.uid = Some(name.to_owned());
            Arc::new(service)
        };
        let removed = |services: Vec<Arc<k8s_openapi::api::core::v1::Service>>| -> Vec<String> {
            let objects = GroupObjects { services, ..GroupObjects::default() };
            let changes = service_changes(&group("next"), &SeenGroup::default(), &objects);
            let removed = changes.into_iter().filter_map(|change| match change {
                Change::Remove(metadata) => metadata.name,
                Change::Create(_) | Change::Put { .. } | Change::Leave(_) => None,
            });
            removed.collect()
        };
        let former = [made("former"), made("replicate-web-9")];
        assert_eq!(removed(former.to_vec()), ["replicate-web-9"]);
        let mut foreign = (*made("next")).clone();
        foreign.metadata.owner_references = None;
        let [one, two] = former.clone();
        assert_eq!(removed(vec![one, two, Arc::new(foreign)]), ["replicate-web-9"]);
        let [one, two] = former;
        assert_eq!(removed(vec![one, two, made("next")]), ["former", "replicate-web-9"]);
    }

    #[test]
    fn an_object_covers_what_it_has_more_of() {
        let seen = json!({"spec": {"ports": [{"port": 80, "nodePort": 0}], "clusterIP": "10.0.0.1"}});
        assert!(covers(&seen, &json!({"spec": {"ports": [{"port": 80}], "selector": null}})));
        assert!(!covers(&seen, &json!({"spec": {"ports": [{"port": 81}]}})));
        assert!(!covers(&seen, &json!({"spec": {"ports": []}})));
        assert!(!covers(&json!({"spec": {"selector": {"a": "b"}}}), &json!({"spec": {"selector": null}})));
    }
}
