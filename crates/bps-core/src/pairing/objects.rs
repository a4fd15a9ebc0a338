//! Services of a group, and how any object is put right: what is missing or other than wanted is written.

use std::collections::{BTreeMap, BTreeSet};

use bps_api::{HAGroup, keys};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Value, json};

use super::existing::ExistingObject;
use super::labels::LABEL_MAX;
use super::view::{Group, Pair};
use crate::manifests::{
    REPLICATION_SERVICE_PREFIX, covers, group_service, replication_service, replication_service_name,
    service_patch,
};

/// What to do with one object.
#[derive(Clone, Debug, PartialEq)]
pub enum ObjectChange {
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

impl ObjectChange {
    /// The name of what is there as it is wanted once this is done.
    pub fn wanted(&self) -> Option<&str> {
        match self {
            Self::Create(body) => body["metadata"]["name"].as_str(),
            Self::Put { name, .. } => Some(name),
            Self::Remove(_) | Self::Leave(_) => None,
        }
    }

    /// The name of the object that it is about.
    pub fn name(&self) -> &str {
        match self {
            Self::Create(body) => body["metadata"]["name"].as_str().unwrap_or_default(),
            Self::Put { name, .. } | Self::Leave(name) => name,
            Self::Remove(metadata) => metadata.name.as_deref().unwrap_or_default(),
        }
    }
}

/// Whose the Service is that leads to the actives: addresses must not get behind that of somebody else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lead {
    /// It is there, and of this very group.
    Own,
    /// It is somebody else's.
    Foreign,
    /// It is not to be seen: it may not be there, or lack the label that shows it. Or nobody's yet, or not any more.
    Unknown,
}

/// An object as it is wanted.
pub(super) struct WantedObject<'a> {
    /// What makes it.
    pub(super) body: &'a Value,
    /// What puts one right that is there.
    pub(super) patch: Value,
}

/// Whose it is as far as the watches show.
pub fn lead(group: &HAGroup, services: &[ExistingObject]) -> Lead {
    let wanted = group.spec.service.as_ref().map(|service| service.name.as_str());
    let mut services = services.iter().map(|service| &service.metadata);
    match services.find(|metadata| wanted.is_some() && metadata.name.as_deref() == wanted) {
        Some(metadata) if is_owned(metadata, group) => Lead::Own,
        Some(metadata) if !is_left_behind(metadata) && !is_ending(metadata, group) => Lead::Foreign,
        Some(_) | None => Lead::Unknown,
    }
}

/// What Services need.
pub fn service_changes(group: &HAGroup, seen: &Group, services: &[ExistingObject]) -> Vec<ObjectChange> {
    let mut wanted: Vec<Value> = group_service(group).into_iter().collect();
    if !group.spec.replication_ports.is_empty() {
        // A longer name is no label, so no selector could find its standby.
        let actives = seen.pairs.iter().filter_map(active).filter(|active| active.len() <= LABEL_MAX);
        wanted.extend(actives.map(|active| replication_service(group, active)));
    }
    let by_name: BTreeMap<&str, &ExistingObject> =
        services.iter().map(|service| (service.name(), service)).collect();
    let mut changes: Vec<ObjectChange> = wanted
        .iter()
        .filter_map(|body| {
            let found = by_name.get(body["metadata"]["name"].as_str()?).copied();
            let patch = service_patch(body, found.and_then(|found| found.metadata.annotations.as_ref()));
            change(group, WantedObject { body, patch }, found)
        })
        .collect();
    // Whoever acted there may still act.
    let left_alone = seen.left_alone().flat_map(|lost| &lost.pods);
    wanted.extend(left_alone.map(|pod| json!({"metadata": {"name": replication_service_name(pod)}})));
    let is_led = group.spec.service.is_none() || lead(group, services) == Lead::Own;
    // Clients may use the former one until there is another.
    let former = services.iter().filter_map(|service| service.metadata.name.as_deref());
    let former = former.filter(|name| !is_led && !name.starts_with(REPLICATION_SERVICE_PREFIX));
    wanted.extend(former.map(|name| json!({"metadata": {"name": name}})));
    changes.extend(removals(group, services, &wanted));
    changes
}

fn active(pair: &Pair) -> Option<&str> {
    pair.names.get(&pair.lease.holder?).map(String::as_str)
}

/// What makes an object as it is wanted; `None` if it is. The one of its name was `found`, if there is one.
pub(super) fn change(
    group: &HAGroup,
    wanted: WantedObject<'_>,
    found: Option<&ExistingObject>,
) -> Option<ObjectChange> {
    let WantedObject { body, mut patch } = wanted;
    let name = body["metadata"]["name"].as_str()?;
    let Some(found) = found else {
        return Some(ObjectChange::Create(body.clone()));
    };
    if !is_owned(&found.metadata, group) {
        if is_ending(&found.metadata, group) {
            return None;
        }
        if !is_left_behind(&found.metadata) {
            return Some(ObjectChange::Leave(name.to_owned()));
        }
        patch["metadata"]["ownerReferences"] = body["metadata"]["ownerReferences"].clone();
    }
    if covers(&found.body, &patch) {
        return None;
    }
    patch["metadata"]["uid"] = json!(found.metadata.uid);
    patch["metadata"]["resourceVersion"] = json!(found.metadata.resource_version);
    Some(ObjectChange::Put { name: name.to_owned(), patch })
}

/// What a former wish left; only objects of this very group.
pub(super) fn removals<'a>(
    group: &HAGroup,
    existing: impl IntoIterator<Item = &'a ExistingObject>,
    wanted: &[Value],
) -> Vec<ObjectChange> {
    let names: BTreeSet<_> = wanted.iter().filter_map(|body| body["metadata"]["name"].as_str()).collect();
    let is_left = |metadata: &&ObjectMeta| {
        let is_wanted = metadata.name.as_deref().is_some_and(|name| names.contains(name));
        !is_wanted && is_owned(metadata, group) && metadata.deletion_timestamp.is_none()
    };
    existing
        .into_iter()
        .map(|object| &object.metadata)
        .filter(is_left)
        .cloned()
        .map(Box::new)
        .map(ObjectChange::Remove)
        .collect()
}

/// Whether an object ends with this very group.
pub fn is_owned(metadata: &ObjectMeta, group: &HAGroup) -> bool {
    let mut owners = metadata.owner_references.iter().flatten();
    owners.any(|owner| Some(&owner.uid) == group.metadata.uid.as_ref())
}

/// Whether an object ended with an earlier group of this name.
pub fn was_owned(metadata: &ObjectMeta, group: &HAGroup) -> bool {
    let mut owners = metadata.owner_references.iter().flatten();
    let name = group.metadata.name.as_deref();
    !is_owned(metadata, group)
        && owners.any(|owner| owner.kind == "HAGroup" && Some(owner.name.as_str()) == name)
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

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Service;

    use super::*;
    use crate::pairing::testing::existing;

    /// A group that is led to by this Service, with one port.
    fn group(service: &str, port: Value) -> HAGroup {
        let spec = json!({"service": {"name": service, "ports": [port]}});
        let metadata = json!({"name": "web", "namespace": "one", "uid": "u"});
        let group = json!({"apiVersion": "backup.example.com/v1alpha1", "kind": "HAGroup", "metadata": metadata, "spec": spec});
        serde_json::from_value(group).expect("a group")
    }

    /// A Service that was made like this, with the fields that the API server knows.
    fn shown(made: &Value) -> ExistingObject {
        let service: Service = serde_json::from_value(made.clone()).expect("a Service");
        existing(serde_json::to_value(service).expect("JSON"))
    }

    #[test]
    fn a_service_loses_the_name_of_a_port_that_has_none_any_more() {
        let group = |port: Value| group("shop", port);
        let changes =
            |wish: &HAGroup, services: &[ExistingObject]| service_changes(wish, &Group::default(), services);
        let named = group(json!({"name": "http", "port": 80, "appProtocol": "http"}));
        let [ObjectChange::Create(made)] = &changes(&named, &[])[..] else { panic!("it is made") };
        let made = shown(made);
        assert_eq!(changes(&named, std::slice::from_ref(&made)), []);
        let plain = group(json!({"port": 80}));
        let [ObjectChange::Put { patch, .. }] = &changes(&plain, &[made])[..] else {
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
            let [ObjectChange::Create(made)] = &service_changes(&group(name), &Group::default(), &[])[..]
            else {
                panic!("it is made")
            };
            let mut service = shown(made);
            service.metadata.uid = Some(name.to_owned());
            service
        };
        let removed = |services: Vec<ExistingObject>| -> Vec<String> {
            let changes = service_changes(&group("next"), &Group::default(), &services);
            let removed = changes.into_iter().filter_map(|change| match change {
                ObjectChange::Remove(metadata) => metadata.name,
                ObjectChange::Create(_) | ObjectChange::Put { .. } | ObjectChange::Leave(_) => None,
            });
            removed.collect()
        };
        let former = [made("former"), made("replicate-web-9")];
        assert_eq!(removed(former.to_vec()), ["replicate-web-9"]);
        let mut foreign = made("next");
        foreign.metadata.owner_references = None;
        let [one, two] = former.clone();
        assert_eq!(removed(vec![one, two, foreign]), ["replicate-web-9"]);
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
