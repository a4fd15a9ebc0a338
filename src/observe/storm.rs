//! Tells a mass loss from single failures.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::slim::SlimPod;
use crate::model::{NodeHealth, NodeName, NodeView, Storm};

/// Share of nodes, in percent, above which losses are more likely a fault of what we see.
///
/// 55 as in Kubernetes' node lifecycle controller (`--unhealthy-zone-threshold`), which then stops evicting.
const LOST_NODES_PERCENT_MAX: usize = 55;

/// Fewest lost nodes that make a storm: one node alone is an ordinary failure.
const LOST_NODES_MIN: usize = 2;

pub(super) fn assess<'p>(
    nodes: &BTreeMap<NodeName, NodeView>,
    pods: impl Iterator<Item = &'p Arc<SlimPod>>,
) -> Option<Storm> {
    let is_lost = |node: &NodeView| node.health == NodeHealth::NotReady;
    let lost_nodes = nodes.values().filter(|node| is_lost(node)).count();
    if lost_nodes < LOST_NODES_MIN || lost_nodes * 100 <= nodes.len() * LOST_NODES_PERCENT_MAX {
        return None;
    }
    let (mut lost, mut total) = (0, 0);
    for pod in pods {
        total += 1;
        let node = pod.spec.node_name.as_ref().and_then(|name| nodes.get(&NodeName(name.clone())));
        lost += usize::from(node.is_some_and(is_lost));
    }
    Some(Storm { lost, total })
}
