//! A Pod of the set: the user's template with our labels, owner and, if cold, the gate.

use bps_api::{BackupPodSet, keys};
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::active_standby::with_agent;
use super::{GateSettings, InjectError, Injection, gate, owner_reference, placement, revision};
use crate::model::{PodName, PodRef, Role, SubsetName};

/// Grace period of a Pod that names none. Unit: seconds. Source: `terminationGracePeriodSeconds` of Kubernetes.
const DEFAULT_GRACE_SECONDS: i64 = 30;

/// One Pod to be made.
#[derive(Clone, Debug)]
pub struct PodRequest<'a> {
    /// Its set.
    pub set: &'a BackupPodSet,
    /// Its name.
    pub name: &'a PodName,
    /// Role it starts with.
    pub role: Role,
    /// Place in the set.
    pub slot: u32,
    /// Name of the subset of the nodes that it is made for, if the set has some.
    pub subset: Option<&'a SubsetName>,
    /// Moment of the decision.
    pub now: Timestamp,
    /// The agent that starts its application, if Pods of the set are paired.
    pub injection: Option<&'a Injection>,
}

/// The Pod as it is sent to the API server.
///
/// # Errors
/// The template cannot run the agent that was asked for.
pub fn pod(request: &PodRequest<'_>, gate_settings: &GateSettings) -> Result<Value, InjectError> {
    let set = request.set;
    let mut template = json!({"metadata": metadata(request, gate_settings), "spec": set.spec.template.spec});
    // First: the agent's own wish is for templates that spread no Pods.
    if let Some(spec) = template["spec"].as_object_mut() {
        placement::spread(spec, request);
        placement::confine(spec, request);
    }
    if let Some(injection) = request.injection {
        template = with_agent(&template, injection)?;
    }
    let (mut metadata, spec) = (template["metadata"].take(), template["spec"].take());
    let Value::Object(mut spec) = spec else { return Ok(Value::Null) };
    if let Some(scheduler) = &set.spec.scheduler_name {
        spec.insert("schedulerName".to_owned(), json!(scheduler));
    }
    let class = set.spec.backup_priority_class_name.as_ref();
    if let Some(class) = class.filter(|_| request.role != Role::Primary) {
        spec.insert("priorityClassName".to_owned(), json!(class));
        // Those of the template's class, if somebody wrote them out: the API server takes none that contradict the class.
        spec.remove("priority");
        spec.remove("preemptionPolicy");
    }
    // An agent that handed over relays what still comes to it.
    let drained = set.spec.service.as_ref().filter(|_| request.injection.is_none());
    if let Some(seconds) = drained.map(|service| service.drain_seconds) {
        drain(&mut spec, seconds);
    }
    if request.role == Role::Cold {
        gate::add_gate(&mut spec, set, gate_settings);
    }
    allow_eviction(&mut metadata, &spec);
    Ok(json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}))
}

/// Annotates the Pod so that the operator's own emptyDirs do not prevent the cluster autoscaler from removing the node.
fn allow_eviction(metadata: &mut Value, spec: &Map<String, Value>) {
    let volumes = spec.get("volumes").and_then(Value::as_array).into_iter().flatten();
    let own = volumes
        .filter(|volume| volume.get("emptyDir").is_some())
        .filter_map(|volume| volume["name"].as_str());
    let own = own.filter(|name| [keys::VOLUME_GATE, keys::VOLUME_AGENT].contains(name));
    let named = metadata["annotations"][keys::ANNOTATION_EVICTABLE_VOLUMES].as_str().map(str::to_owned);
    let all: Vec<&str> = named.iter().flat_map(|text| text.split(',')).chain(own).collect();
    if !all.is_empty() {
        metadata["annotations"][keys::ANNOTATION_EVICTABLE_VOLUMES] = json!(all.join(","));
    }
}

/// The merge patch that changes a Pod's role, refused by the server unless the Pod is as it was seen; with the text of the ticket
/// that opens its gate if it has one.
pub fn role_patch(pod: &PodRef, role: Role, ticket: Option<&str>, now: Timestamp) -> Value {
    let mut patch = label_patch(pod, role);
    patch["metadata"]["annotations"] = json!({(keys::ANNOTATION_ROLE_SINCE): milliseconds(now)});
    if let Some(ticket) = ticket {
        patch["metadata"]["annotations"][keys::ANNOTATION_TICKET] = json!(ticket);
    }
    patch
}

/// The merge patch that puts the labels of a Pod's role right, refused by the server unless the Pod is as it was seen.
pub fn label_patch(pod: &PodRef, role: Role) -> Value {
    json!({"metadata": {
        "uid": pod.uid.0,
        "resourceVersion": pod.resource_version,
        "labels": {(keys::LABEL_ROLE): role.as_str(), (keys::LABEL_TYPE): role.type_label()},
    }})
}

fn metadata(request: &PodRequest<'_>, gate_settings: &GateSettings) -> Value {
    let set = request.set;
    let template = set.spec.template.metadata.clone().unwrap_or_default();
    let mut labels = template.labels;
    labels.insert(keys::LABEL_SET.to_owned(), set.metadata.name.clone().unwrap_or_default());
    labels.insert(keys::LABEL_ROLE.to_owned(), request.role.as_str().to_owned());
    labels.insert(keys::LABEL_TYPE.to_owned(), request.role.type_label().to_owned());
    labels.insert(keys::LABEL_REVISION.to_owned(), revision(&set.spec).0);
    let mut annotations = template.annotations;
    annotations.insert(keys::ANNOTATION_SLOT.to_owned(), request.slot.to_string());
    annotations.insert(keys::ANNOTATION_ROLE_SINCE.to_owned(), milliseconds(request.now));
    if request.role == Role::Cold {
        annotations.insert(keys::ANNOTATION_WAKE_KEYS.to_owned(), gate_settings.key_ids());
        annotations.insert(keys::ANNOTATION_GATE_OF.to_owned(), set.metadata.uid.clone().unwrap_or_default());
        labels.insert(keys::LABEL_GATE.to_owned(), "true".to_owned());
    }
    if let Some(subset) = request.subset {
        labels.insert(keys::LABEL_SUBSET.to_owned(), subset.0.clone());
    }
    json!({
        "name": request.name.0,
        "namespace": set.metadata.namespace,
        "labels": labels,
        "annotations": annotations,
        "ownerReferences": [owner_reference(set)],
    })
}

/// RFC 3339 with milliseconds.
fn milliseconds(moment: Timestamp) -> String {
    format!("{moment:.3}")
}

/// Lets a Pod that goes away answer until every node has learned that it is not exposed any more.
///
/// The API server refuses a sleep that is longer than the grace period, which the sleep is a part of: a template that
/// names its own period keeps it and drains for less, any other gets the default period on top of the sleep.
fn drain(spec: &mut Map<String, Value>, seconds: i32) {
    let seconds = i64::from(seconds);
    let own_grace = spec.get("terminationGracePeriodSeconds").and_then(Value::as_i64);
    let seconds = own_grace.map_or(seconds, |grace| seconds.min(grace));
    if seconds <= 0 {
        return;
    }
    if own_grace.is_none() && seconds > DEFAULT_GRACE_SECONDS {
        spec.insert("terminationGracePeriodSeconds".to_owned(), json!(seconds + DEFAULT_GRACE_SECONDS));
    }
    let Some(containers) = spec.get_mut("containers").and_then(Value::as_array_mut) else { return };
    for container in containers {
        let Some(container) = container.as_object_mut() else { continue };
        let lifecycle = container.entry("lifecycle").or_insert_with(|| json!({}));
        if let Some(lifecycle) = lifecycle.as_object_mut()
            && !lifecycle.contains_key("preStop")
        {
            lifecycle.insert("preStop".to_owned(), json!({"sleep": {"seconds": seconds}}));
        }
    }
}
