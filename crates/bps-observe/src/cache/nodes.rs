//! Nodes: each change of one affects the sets with Pods on it, or all sets when a storm begins or ends.

use std::collections::BTreeSet;

use bps_core::model::{NodeHealth, NodeName};
use jiff::Timestamp;

use super::{Affected, Cache, Kind, SetKey, set_of};
use crate::change::Change;
use crate::node::{node_view, silent_since};
use crate::slim::SlimNode;
use crate::store::{ObjectKey, Scope};
use crate::storm::{self, Nodes, StormThreshold};

/// A list of all nodes that is under way.
#[derive(Debug)]
pub(super) struct NodeList {
    /// How many nodes were known when it began.
    known: usize,
    /// Those of them that it has not shown.
    missing: BTreeSet<NodeName>,
    /// Whether it has shown no node at all.
    is_empty: bool,
}

impl Cache {
    /// From which share of lost nodes on they are doubted.
    pub const fn doubt_losses_above(&mut self, threshold: StormThreshold) {
        self.storm_threshold = threshold;
    }

    /// A node was seen; sets with Pods on it are affected if something of it changed that matters.
    pub(crate) fn see_node(&mut self, node: &SlimNode, now: Timestamp) -> Vec<Affected> {
        let view = node_view(node);
        if let Some(list) = &mut self.node_list {
            list.missing.remove(&view.name);
            list.is_empty = false;
        }
        if self.nodes.get(&view.name) == Some(&view) {
            return Vec::new();
        }
        let name = view.name.clone();
        if view.health == NodeHealth::NotReady {
            let is_new = !self.nodes.contains_key(&name);
            // Of one that was silent before it was first seen its record tells more; but it cannot be to come.
            let recorded = silent_since(node).filter(|_| is_new).map_or(now, |since| since.min(now));
            self.silent_since.entry(name.clone()).or_insert(recorded);
        } else {
            self.silent_since.remove(&name);
        }
        self.nodes.insert(name.clone(), view);
        self.node_changed(&name, now)
    }

    /// A node's object is gone.
    pub(crate) fn lose_node(&mut self, node: &SlimNode, now: Timestamp) -> Vec<Affected> {
        let name = NodeName(node.metadata.name.clone().unwrap_or_default());
        self.forget_node(&name, now)
    }

    fn forget_node(&mut self, name: &NodeName, now: Timestamp) -> Vec<Affected> {
        self.nodes.remove(name);
        self.silent_since.remove(name);
        self.node_changed(name, now)
    }

    fn node_changed(&mut self, name: &NodeName, now: Timestamp) -> Vec<Affected> {
        let on_it = self.pods_on_node.get(name).into_iter().flatten();
        let with_pods: BTreeSet<SetKey> =
            on_it.filter_map(|pod| self.pods.get(pod)).filter_map(|pod| set_of(pod.as_ref())).collect();
        // The brake also holds back the first Pods of a set, and nothing else would tell that it was released.
        let every_set = if self.assess_storm(now) { self.set_keys() } else { Vec::new() };
        let sets: BTreeSet<SetKey> = with_pods.into_iter().chain(every_set).collect();
        sets.into_iter().map(|set| (set, Change::Urgent)).collect()
    }

    /// Looks whether a storm is on; returns whether that has changed.
    fn assess_storm(&mut self, now: Timestamp) -> bool {
        let was_storm = self.storm.is_some();
        let nodes = Nodes { views: &self.nodes, silent_since: &self.silent_since };
        let pods_on = |node: &NodeName| self.count_pods_on(node);
        self.storm = storm::assess(&nodes, pods_on, self.pods.len(), self.storm_threshold, now);
        was_storm != self.storm.is_some()
    }

    fn count_pods_on(&self, node: &NodeName) -> usize {
        self.pods_on_node.get(node).map_or(0, BTreeSet::len)
    }

    /// A Pod came to a node, or is there no more: both may matter to a storm if the node is silent.
    pub(super) fn pod_moved(
        &mut self,
        pod: &ObjectKey,
        [from, to]: [Option<NodeName>; 2],
        now: Timestamp,
    ) -> Vec<Affected> {
        if from == to {
            return Vec::new();
        }
        if let Some(node) = &from
            && let Some(on_it) = self.pods_on_node.get_mut(node)
        {
            on_it.remove(pod);
            if on_it.is_empty() {
                self.pods_on_node.remove(node);
            }
        }
        if let Some(node) = &to {
            self.pods_on_node.entry(node.clone()).or_default().insert(pod.clone());
        }
        let is_silent = |node: &&NodeName| self.silent_since.contains_key(*node);
        // Only the first Pod of a node makes it count, and only the last one takes that away.
        let is_left = from.as_ref().filter(is_silent).is_some_and(|node| self.count_pods_on(node) == 0);
        let is_begun = to.as_ref().filter(is_silent).is_some_and(|node| self.count_pods_on(node) == 1);
        let is_turn = (is_left || is_begun) && self.assess_storm(now);
        let every_set = if is_turn { self.set_keys() } else { Vec::new() };
        every_set.into_iter().map(|set| (set, Change::Urgent)).collect()
    }

    pub(super) fn begin_node_list(&mut self) {
        let missing: BTreeSet<NodeName> = self.nodes.keys().cloned().collect();
        self.node_list = Some(NodeList { known: missing.len(), missing, is_empty: true });
    }

    /// Nodes that a complete list did not show are gone, unless so many are missing that the list is doubted: without
    /// their nodes all Pods on them would be given up at once.
    pub(super) fn end_node_list(&mut self, scope: &Scope, now: Timestamp) -> Vec<Affected> {
        let Some(NodeList { known, missing, is_empty }) = self.node_list.take() else { return Vec::new() };
        // Also if there was only one: a cluster without any node runs nothing.
        let shows_nothing = is_empty && known > 0;
        let is_doubtful =
            shows_nothing || storm::is_mass_loss(missing.len(), known, StormThreshold::default());
        if self.doubts((Kind::Nodes, scope), is_doubtful) {
            return Vec::new();
        }
        missing.iter().flat_map(|name| self.forget_node(name, now)).collect()
    }
}
