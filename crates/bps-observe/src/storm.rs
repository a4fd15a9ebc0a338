//! Tells a mass loss of nodes from single failures.

use std::collections::BTreeMap;
use std::sync::Arc;

use bps_core::model::{NodeHealth, NodeName, NodeView, Storm};

use super::slim::SlimPod;

/// Share of nodes, in percent, above which losses are more likely a fault of what we see.
///
/// 55 as in Kubernetes' node lifecycle controller (`--unhealthy-zone-threshold`), which then stops evicting.
const LOST_NODES_PERCENT_MAX: usize = 55;

/// Fewest lost nodes that make a storm: one node alone is an ordinary failure.
const LOST_NODES_MIN: usize = 2;

/// Whether so many nodes of all are lost that what is seen of them is in doubt.
pub(super) const fn is_mass_loss(lost: usize, all: usize) -> bool {
    lost >= LOST_NODES_MIN && lost * 100 > all * LOST_NODES_PERCENT_MAX
}

pub(super) fn assess<'p>(
    nodes: &BTreeMap<NodeName, NodeView>,
    pods: impl Iterator<Item = &'p Arc<SlimPod>>,
) -> Option<Storm> {
    let is_lost = |node: &NodeView| node.health == NodeHealth::NotReady;
    let lost_nodes = nodes.values().filter(|node| is_lost(node)).count();
    if !is_mass_loss(lost_nodes, nodes.len()) {
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
