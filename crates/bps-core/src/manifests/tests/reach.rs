//! Which Pods an edit of each field of a spec reaches.

use std::collections::BTreeSet;

use bps_api::crd::crd;
use serde_json::{Value, json};

use super::{pod_of, set};
use crate::manifests::{NEW_PODS_ONLY, revision};
use crate::model::Role;

/// An edit of one field.
struct Edit {
    /// Path of the field.
    path: &'static str,
    /// Value that it gets.
    value: Value,
}

fn edit(path: &'static str, value: impl Into<Value>) -> Edit {
    Edit { path, value: value.into() }
}

/// One for each field of the schema, but for those of the template and of pairs, which are part of the revision.
fn edits() -> Vec<Edit> {
    vec![
        edit("replicas", 3),
        edit("hotBackups", 3),
        edit("coldBackups", 3),
        edit("redundancyModel", "NWayActive"),
        edit("wakeupTimeout", 9),
        edit("minReadySeconds", 9),
        edit("progressDeadlineSeconds", 9),
        edit("failoverDelaySeconds", 9),
        edit("unreadyDeadlineSeconds", 9),
        edit("scaleInPolicy", "Demote"),
        edit("paused", true),
        edit("revisionHistoryLimit", 9),
        edit("schedulerName", "other"),
        edit("backupPriorityClassName", "patient"),
        edit("strategy.init", "oldest"),
        edit("strategy.hotbackupToReplicas", "oldest"),
        edit("strategy.coldbackupToReplicas", "oldest"),
        edit("strategy.coldbackupToHotbackup", "oldest"),
        edit("strategy.unallocatedToReplicas", "oldest"),
        edit("strategy.unallocatedToHotbackup", "oldest"),
        edit("strategy.unallocatedToColdbackup", "oldest"),
        edit("updateStrategy.type", "OnDelete"),
        edit("updateStrategy.maxUnavailable", "25%"),
        edit("updateStrategy.maxSurge", 3),
        edit("updateStrategy.partition", 3),
        edit("updateStrategy.partitions", json!({"east": 1})),
        edit("service", Value::Null),
        edit("service.name", "other"),
        edit("service.type", "NodePort"),
        edit("service.ports", json!([{"port": 81}])),
        edit("service.drainSeconds", 9),
        edit("service.annotations", json!({"a": "b"})),
        edit("service.labels", json!({"a": "b"})),
        edit("service.loadBalancerClass", "example.com/inner"),
        edit("service.loadBalancerSourceRanges", json!(["198.18.0.0/15"])),
        edit("service.externalTrafficPolicy", "Local"),
        edit("service.internalTrafficPolicy", "Local"),
        edit("service.sessionAffinity", "ClientIP"),
        edit("service.sessionAffinityConfig", json!({"clientIP": {"timeoutSeconds": 9}})),
        edit("service.trafficDistribution", "PreferSameZone"),
        edit("service.ipFamilies", json!(["IPv6"])),
        edit("service.ipFamilyPolicy", "PreferDualStack"),
        edit("service.publishNotReadyAddresses", false),
        edit("coldStart.imageGate", false),
        edit("coldStart.gateSource", "ImageVolume"),
        edit("coldStart.gateUser", "Inherit"),
        edit("disruption.budget", "None"),
        edit("topology.key", "rack"),
        edit("topology.tiers", "Required"),
        edit("topology.standby", "Required"),
        // Its nodes and tolerations cannot change; Pods of a new name are made for it, and replace those of the former one.
        edit("topology.subsets", json!([{"name": "east", "replicas": 1}])),
        edit("topology.rebalance", "Never"),
        edit("topology.scheduleStrategy", json!({"type": "Adaptive"})),
    ]
}

/// A set in which every field has an effect on some Pod, if it can have one.
fn spec() -> Value {
    let template = json!({"spec": {"containers": [{"name": "web", "image": "web:1"}]}});
    json!({
        "template": template, "replicas": 1, "service": {"name": "front", "ports": [{"port": 80}]},
        "strategy": {}, "updateStrategy": {}, "coldStart": {}, "disruption": {}, "topology": {},
    })
}

fn edited(edit: &Edit) -> Value {
    let mut spec = spec();
    let pointer = format!("/{}", edit.path.replace('.', "/"));
    let (parent, field) = pointer.rsplit_once('/').expect("a path begins with a slash");
    spec.pointer_mut(parent).expect("the parent is there")[field] = edit.value.clone();
    spec
}

#[test]
fn an_edit_replaces_pods_or_the_documents_say_that_it_reaches_new_ones_only() {
    let pods = |spec: Value| Role::ALL.map(|role| pod_of(&set(spec.clone()), role));
    let mut reaching = BTreeSet::new();
    for edit in edits() {
        let (before, after) = (spec(), edited(&edit));
        assert_eq!(
            revision(&set(before.clone()).spec),
            revision(&set(after.clone()).spec),
            "{}: not part of the template",
            edit.path
        );
        if pods(before) != pods(after) {
            reaching.insert(edit.path);
        }
    }
    assert_eq!(reaching, BTreeSet::from(NEW_PODS_ONLY));
}

#[test]
fn every_field_is_edited() {
    let crd = serde_json::to_value(crd()).expect("JSON");
    let schema = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"];
    let mut fields = BTreeSet::new();
    for (name, property) in schema["properties"].as_object().expect("fields") {
        if ["template", "activeStandby"].contains(&name.as_str()) {
            continue;
        }
        match property["properties"].as_object() {
            Some(nested) => fields.extend(nested.keys().map(|field| format!("{name}.{field}"))),
            None => drop(fields.insert(name.clone())),
        }
    }
    // That there is a Service at all is more than each of its fields.
    fields.insert("service".to_owned());
    let edited: BTreeSet<String> = edits().iter().map(|edit| edit.path.to_owned()).collect();
    assert_eq!(edited, fields);
}
