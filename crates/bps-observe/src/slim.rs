//! Pods and nodes with only the fields that decisions need, so that thousands of them stay small in memory.

use std::borrow::Cow;

use bps_api::keys;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube_core::Resource;
use kube_core::{ClusterResourceScope, NamespaceResourceScope, ObjectMeta};
use serde::{Deserialize, Deserializer, Serialize};

/// A Pod.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SlimPod {
    /// Name, identity, labels, annotations of the operator, owner.
    #[serde(deserialize_with = "slim_metadata")]
    pub metadata: ObjectMeta,
    /// Where it runs and what it starts.
    #[serde(default)]
    pub spec: SlimPodSpec,
    /// How far it has come.
    #[serde(default)]
    pub status: SlimPodStatus,
}

/// Metadata without what no decision reads: annotations of others, some of which hold whole manifests, and who wrote which field.
fn slim_metadata<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ObjectMeta, D::Error> {
    let mut metadata = ObjectMeta::deserialize(deserializer)?;
    metadata.managed_fields = None;
    if let Some(annotations) = &mut metadata.annotations {
        annotations.retain(|key, _| key.starts_with(keys::PREFIX));
    }
    Ok(metadata)
}

/// Specification of a Pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SlimPodSpec {
    /// Node it is bound to.
    pub node_name: Option<String>,
    /// How long its processes have to end once they are asked to. Unit: seconds.
    pub termination_grace_period_seconds: Option<i64>,
    /// Whose permissions its processes have.
    pub service_account_name: Option<String>,
    /// Init containers.
    pub init_containers: Vec<SlimContainer>,
    /// Application containers.
    pub containers: Vec<SlimContainer>,
}

/// A container; everything else of it is of no interest.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SlimContainer {
    /// Name of the container.
    pub name: String,
    /// `Always` for an init container that runs beside the application.
    pub restart_policy: Option<String>,
}

/// Status of a Pod.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SlimPodStatus {
    /// Pending, Running, Succeeded, Failed or Unknown.
    pub phase: Option<String>,
    /// Why the Pod is in its phase, in a word, if the kubelet says so.
    pub reason: Option<String>,
    /// The same in words for people.
    pub message: Option<String>,
    /// Address of the sandbox.
    #[serde(rename = "podIP")]
    pub pod_ip: Option<String>,
    /// Its addresses of all families, that one first.
    #[serde(rename = "podIPs")]
    pub pod_ips: Vec<SlimPodIp>,
    /// Conditions such as Ready.
    pub conditions: Vec<SlimCondition>,
    /// Application containers.
    pub container_statuses: Vec<SlimContainerStatus>,
    /// Init containers.
    pub init_container_statuses: Vec<SlimContainerStatus>,
}

/// One of the addresses of a Pod.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SlimPodIp {
    /// The address.
    pub ip: String,
}

/// A condition of a Pod or a node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SlimCondition {
    /// Name of the condition.
    #[serde(rename = "type")]
    pub kind: String,
    /// True, False or Unknown.
    pub status: String,
    /// When the status last changed.
    pub last_transition_time: Option<Time>,
}

/// Status of a container.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SlimContainerStatus {
    /// Name of the container.
    pub name: String,
    /// Whether it passes its readiness probe.
    pub ready: bool,
    /// Whether it has passed its startup probe, if that is known.
    pub started: Option<bool>,
    /// Times it was started again.
    pub restart_count: i32,
    /// What it does now.
    pub state: SlimContainerState,
    /// What it did before it was started again.
    pub last_state: SlimContainerState,
}

/// What a container does; at most one field is set.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SlimContainerState {
    /// Set while it runs.
    pub running: Option<SlimRunning>,
    /// Set after it ended.
    pub terminated: Option<SlimTerminated>,
    /// Set before it runs.
    pub waiting: Option<SlimWaiting>,
}

/// A container that does not run yet.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SlimWaiting {
    /// Why, in a word.
    pub reason: Option<String>,
    /// The same in words for people.
    pub message: Option<String>,
}

/// A running container.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SlimRunning {
    /// When it was started.
    pub started_at: Option<Time>,
}

/// An ended container.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SlimTerminated {
    /// When it ended.
    pub finished_at: Option<Time>,
    /// Its exit code.
    pub exit_code: i32,
}

/// A node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SlimNode {
    /// Name and labels.
    pub metadata: ObjectMeta,
    /// Whether Pods are scheduled to it.
    #[serde(default)]
    pub spec: SlimNodeSpec,
    /// Whether it is heard of.
    #[serde(default)]
    pub status: SlimNodeStatus,
}

/// Specification of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SlimNodeSpec {
    /// Set by `kubectl cordon`.
    pub unschedulable: bool,
    /// Taints.
    pub taints: Vec<SlimTaint>,
}

/// A taint of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SlimTaint {
    /// Name of the taint.
    pub key: String,
}

/// Status of a node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SlimNodeStatus {
    /// Conditions such as Ready.
    pub conditions: Vec<SlimCondition>,
}

impl SlimCondition {
    /// Whether it holds.
    pub fn is_true(&self) -> bool {
        self.status == "True"
    }

    /// The condition that says whether a Pod or a node can be used.
    pub fn ready(all: &[Self]) -> Option<&Self> {
        all.iter().find(|condition| condition.kind == "Ready")
    }

    /// When the condition last changed.
    pub fn since(&self) -> Option<Timestamp> {
        self.last_transition_time.as_ref().map(|time| time.0)
    }
}

impl Resource for SlimPod {
    type DynamicType = ();
    type Scope = NamespaceResourceScope;

    fn kind((): &()) -> Cow<'_, str> {
        "Pod".into()
    }

    fn group((): &()) -> Cow<'_, str> {
        "".into()
    }

    fn version((): &()) -> Cow<'_, str> {
        "v1".into()
    }

    fn plural((): &()) -> Cow<'_, str> {
        "pods".into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

impl Resource for SlimNode {
    type DynamicType = ();
    type Scope = ClusterResourceScope;

    fn kind((): &()) -> Cow<'_, str> {
        "Node".into()
    }

    fn group((): &()) -> Cow<'_, str> {
        "".into()
    }

    fn version((): &()) -> Cow<'_, str> {
        "v1".into()
    }

    fn plural((): &()) -> Cow<'_, str> {
        "nodes".into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn of_a_pod_only_what_decisions_read_is_kept() {
        let pod: SlimPod = serde_json::from_value(json!({
            "metadata": {
                "name": "web-0", "labels": {"app": "web"},
                "annotations": {(keys::ANNOTATION_SLOT): "7", (keys::ANNOTATION_LAST_APPLIED): "{}", "a": "b"},
                "managedFields": [{"manager": "kubelet"}],
            },
            "spec": {"containers": [{"name": "web", "image": "web:1", "env": [{"name": "A", "value": "b"}]}]},
        }))
        .expect("a Pod");
        assert_eq!(
            serde_json::to_value(&pod.metadata).expect("JSON"),
            json!({"name": "web-0", "labels": {"app": "web"}, "annotations": {(keys::ANNOTATION_SLOT): "7"}})
        );
        let text = serde_json::to_string(&pod).expect("JSON");
        assert!(!text.contains("web:1") && !text.contains("env"), "{text}");
    }
}
