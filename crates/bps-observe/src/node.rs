//! Reads a node: its zone, what it fails together with, and whether it can carry a primary.

use bps_api::ZONE_LABEL;
use bps_core::model::{NodeHealth, NodeName, NodeView};

use jiff::Timestamp;

use super::slim::{SlimCondition, SlimNode, SlimTaint};

/// Set by an administrator who vouches that the node is off (Kubernetes, non-graceful node shutdown).
const OUT_OF_SERVICE_TAINT: &str = "node.kubernetes.io/out-of-service";

/// Set by who is about to remove a node, before its Pods are evicted: Karpenter 1 (`DisruptedTaintKey`) and the cluster
/// autoscaler (`ToBeDeletedTaint`).
const LEAVING_TAINTS: [&str; 2] = ["karpenter.sh/disrupted", "ToBeDeletedByClusterAutoscaler"];

/// Conditions that announce the same (Kubernetes 1.37, `k8s.io/api/core/v1`, constants of type `NodeConditionType`); anybody may
/// set them, also in older versions.
const LEAVING_CONDITIONS: [&str; 4] =
    ["MaintenancePlanned", "DrainInProgress", "MaintenanceInProgress", "GracefulNodeShutdownInProgress"];

/// A node as decisions about a set see it whose failure domains are the values of this label.
pub fn node_view(node: &SlimNode, domain_key: &str) -> NodeView {
    let label = |key: &str| node.metadata.labels.as_ref().and_then(|labels| labels.get(key)).cloned();
    NodeView {
        name: NodeName(node.metadata.name.clone().unwrap_or_default()),
        zone: label(ZONE_LABEL),
        domain: label(domain_key),
        health: health(node),
    }
}

/// Whether an administrator vouches that the node is off, and nothing says otherwise: what Kubernetes' garbage collector of Pods
/// asks for, too, before it takes Pods away there (`gcTerminating`, 1.36.4).
pub fn is_out_of_service(node: &SlimNode) -> bool {
    is_vouched_for(node) && !is_ready(node)
}

fn is_vouched_for(node: &SlimNode) -> bool {
    node.spec.taints.iter().any(|taint| taint.key == OUT_OF_SERVICE_TAINT)
}

fn is_ready(node: &SlimNode) -> bool {
    SlimCondition::ready(&node.status.conditions).is_some_and(SlimCondition::is_true)
}

/// Since when a node does not answer by its record; one that never did, since it was made.
pub(super) fn silent_since(node: &SlimNode) -> Option<Timestamp> {
    let told = SlimCondition::ready(&node.status.conditions).and_then(SlimCondition::since);
    told.or_else(|| node.metadata.creation_timestamp.as_ref().map(|time| time.0))
}

/// Whether somebody is about to take the node away. One that is called off while it answers is about to be, or was not looked at.
fn is_leaving(node: &SlimNode) -> bool {
    let is_tainted = |taint: &SlimTaint| LEAVING_TAINTS.contains(&taint.key.as_str());
    let is_announced = |condition: &SlimCondition| {
        LEAVING_CONDITIONS.contains(&condition.kind.as_str()) && condition.is_true()
    };
    node.spec.unschedulable
        || is_vouched_for(node)
        || node.spec.taints.iter().any(is_tainted)
        || node.status.conditions.iter().any(is_announced)
}

fn health(node: &SlimNode) -> NodeHealth {
    match (is_ready(node), is_leaving(node)) {
        (false, _) if is_vouched_for(node) => NodeHealth::Gone,
        (false, _) => NodeHealth::NotReady,
        (true, true) => NodeHealth::Cordoned,
        (true, false) => NodeHealth::Healthy,
    }
}
