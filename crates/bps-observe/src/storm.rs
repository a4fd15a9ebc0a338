//! Tells a mass loss of nodes from single failures.
//!
//! A node without an object counts as one that is silent: the object may have been deleted by mistake, or be made anew.
//! Only nodes that carry Pods of sets can be lost: whoever keeps objects of nodes that sleep, or never came, would have the
//! brake on for ever. And only for a while: what has been so for long is believed.

use std::collections::BTreeMap;

use bps_core::model::{NodeHealth, NodeName, NodeView, STORM_BELIEVED_AFTER, Storm};
use jiff::Timestamp;

/// Share of nodes above which losses are more likely a fault of what we see. Unit: percent, from 0 to 100; with 100 there is
/// no storm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StormThreshold(pub u8);

/// 55 as in Kubernetes' node lifecycle controller (`--unhealthy-zone-threshold`), which then stops evicting.
impl Default for StormThreshold {
    fn default() -> Self {
        Self(55)
    }
}

/// Fewest lost nodes that make a storm: one node alone is an ordinary failure.
const LOST_NODES_MIN: usize = 2;

/// Whether so many nodes of all are lost that what is seen of them is in doubt.
pub(super) const fn is_mass_loss(lost: usize, all: usize, StormThreshold(percent): StormThreshold) -> bool {
    lost >= LOST_NODES_MIN && lost * 100 > all * percent as usize
}

/// What is known of the nodes.
pub(super) struct Nodes<'c> {
    /// Each of them.
    pub(super) views: &'c BTreeMap<NodeName, NodeView>,
    /// Since when each silent one is known to be so.
    pub(super) silent_since: &'c BTreeMap<NodeName, Timestamp>,
    /// Since when each node with Pods is known to have no object.
    pub(super) missing_since: &'c BTreeMap<NodeName, Timestamp>,
}

/// A node with Pods that is silent, or has no object.
struct Loss<'c> {
    node: &'c NodeName,
    pods: usize,
    /// When its silence is believed.
    believed: Timestamp,
}

/// The storm at this moment, if there is one. `pods_on` counts the Pods of sets on a node, `total` all of them.
pub(super) fn assess(
    nodes: &Nodes<'_>,
    pods_on: impl Fn(&NodeName) -> usize,
    total: usize,
    threshold: StormThreshold,
    now: Timestamp,
) -> Option<Storm> {
    let doubtful = |node, since: Timestamp| Loss {
        node,
        pods: pods_on(node),
        believed: since.saturating_add(STORM_BELIEVED_AFTER).unwrap_or(Timestamp::MAX),
    };
    let silent = nodes.views.values().filter(|view| view.health == NodeHealth::NotReady);
    let silent = silent
        .map(|NodeView { name, .. }| doubtful(name, nodes.silent_since.get(name).copied().unwrap_or(now)));
    let missing = nodes.missing_since.iter().map(|(name, since)| doubtful(name, *since));
    let losses = silent.chain(missing);
    let mut losses: Vec<Loss<'_>> = losses.filter(|loss| loss.pods > 0 && loss.believed > now).collect();
    losses.sort_by_key(|loss| loss.believed);
    let answering = nodes.views.values().filter(|view| view.health != NodeHealth::NotReady).count();
    // One after the other is believed and counts no more; the brake ends with the first that leaves too few.
    let is_over = |believed: &usize| {
        let doubtful = losses.len() - believed;
        !is_mass_loss(doubtful, answering + doubtful, threshold)
    };
    let believed = (0..=losses.len()).find(is_over)?.checked_sub(1)?;
    let mut names: Vec<NodeName> = losses.iter().map(|loss| loss.node.clone()).collect();
    names.sort();
    let lost = losses.iter().map(|loss| loss.pods).sum();
    Some(Storm { lost, total, nodes: names, until: losses[believed].believed })
}
