//! Where the Pods that are made find a node: a small model of what the scheduler does.

use std::collections::BTreeMap;

use crate::model::{Lifecycle, NodeHealth, NodeName, NodeView, PodView};

/// A node, and what it has room for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeRoom {
    /// The node.
    pub node: NodeView,
    /// How many more Pods of the set it has room for.
    pub room: usize,
    /// Whether Pods that are made for no subset may run there.
    pub admits: bool,
    /// Whether those of each subset of the wish may, in its order.
    pub admits_subsets: Vec<bool>,
}

impl NodeRoom {
    fn takes(&self, view: &PodView) -> bool {
        let is_admitted = match view.subset {
            Some(subset) => self.admits_subsets.get(subset).copied().unwrap_or_default(),
            None => self.admits,
        };
        self.node.health == NodeHealth::Healthy && self.room > 0 && is_admitted
    }
}

/// The node for a Pod: that of the failure domain and then of the node with the fewest Pods of the set, as the
/// constraints want it that the operator gives Pods by default; `None` if it fits nowhere.
pub(super) fn chosen<'p>(
    view: &PodView,
    pods: &[PodView],
    places: &'p mut [NodeRoom],
) -> Option<&'p mut NodeRoom> {
    let mut on_node: BTreeMap<&NodeName, usize> = BTreeMap::new();
    let mut in_domain: BTreeMap<Option<&str>, usize> = BTreeMap::new();
    let stays = |other: &&PodView| !matches!(other.lifecycle, Lifecycle::Terminating | Lifecycle::Finished);
    for node in pods.iter().filter(stays).filter_map(|other| other.node.as_ref()) {
        *on_node.entry(&node.name).or_default() += 1;
        *in_domain.entry(node.domain.as_deref()).or_default() += 1;
    }
    let crowd = |place: &NodeRoom| {
        let domain = in_domain.get(&place.node.domain.as_deref()).copied().unwrap_or_default();
        (domain, on_node.get(&place.node.name).copied().unwrap_or_default())
    };
    let open = places.iter_mut().filter(|place| place.takes(view));
    open.min_by(|one, other| crowd(one).cmp(&crowd(other)).then_with(|| one.node.name.cmp(&other.node.name)))
}
