//! Reads a node: its zone and whether it can carry a primary.

use bps_core::model::{NodeHealth, NodeName, NodeView};

use super::slim::{SlimCondition, SlimNode};

const ZONE_LABEL: &str = "topology.kubernetes.io/zone";

/// Set by an administrator who vouches that the node is off (Kubernetes, non-graceful node shutdown).
const OUT_OF_SERVICE_TAINT: &str = "node.kubernetes.io/out-of-service";

pub(super) fn node_view(node: &SlimNode) -> NodeView {
    NodeView {
        name: NodeName(node.metadata.name.clone().unwrap_or_default()),
        zone: node.metadata.labels.as_ref().and_then(|labels| labels.get(ZONE_LABEL)).cloned(),
        health: health(node),
    }
}

/// Whether an administrator vouches that the node is off.
pub fn is_out_of_service(node: &SlimNode) -> bool {
    node.spec.taints.iter().any(|taint| taint.key == OUT_OF_SERVICE_TAINT)
}

fn health(node: &SlimNode) -> NodeHealth {
    if is_out_of_service(node) {
        return NodeHealth::Gone;
    }
    let is_ready = SlimCondition::ready(&node.status.conditions).is_some_and(SlimCondition::is_true);
    match (is_ready, node.spec.unschedulable) {
        (false, _) => NodeHealth::NotReady,
        (true, true) => NodeHealth::Cordoned,
        (true, false) => NodeHealth::Healthy,
    }
}
