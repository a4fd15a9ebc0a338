//! Nodes: each change of one affects the sets with Pods on it, or all sets when a storm begins or ends.

use std::collections::BTreeSet;
use std::sync::Arc;

use bps_core::model::NodeName;

use super::{Affected, Cache, Kind, SetKey, set_of};
use crate::change::Change;
use crate::node::node_view;
use crate::slim::{SlimNode, SlimPod};
use crate::store::Scope;
use crate::storm;

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
    /// A node was seen; sets with Pods on it are affected if something of it changed that matters.
    pub(crate) fn see_node(&mut self, node: &SlimNode) -> Vec<Affected> {
        let view = node_view(node);
        if let Some(list) = &mut self.node_list {
            list.missing.remove(&view.name);
            list.is_empty = false;
        }
        if self.nodes.get(&view.name) == Some(&view) {
            return Vec::new();
        }
        let name = view.name.clone();
        self.nodes.insert(name.clone(), view);
        self.node_changed(&name)
    }

    /// A node's object is gone.
    pub(crate) fn lose_node(&mut self, node: &SlimNode) -> Vec<Affected> {
        let name = NodeName(node.metadata.name.clone().unwrap_or_default());
        self.nodes.remove(&name);
        self.node_changed(&name)
    }

    fn node_changed(&mut self, name: &NodeName) -> Vec<Affected> {
        let was_storm = self.storm.is_some();
        self.storm = storm::assess(&self.nodes, self.pods.values());
        let is_turn = was_storm != self.storm.is_some();
        let is_affected = |pod: &Arc<SlimPod>| is_turn || pod.spec.node_name.as_ref() == Some(&name.0);
        let with_pods = self.pods.values().filter(|pod| is_affected(pod));
        // The brake also holds back the first Pods of a set, and nothing else would tell that it was released.
        let every_set = if is_turn { self.set_keys() } else { Vec::new() };
        let sets: BTreeSet<SetKey> =
            with_pods.filter_map(|pod| set_of(pod.as_ref())).chain(every_set).collect();
        sets.into_iter().map(|set| (set, Change::Urgent)).collect()
    }

    pub(super) fn begin_node_list(&mut self) {
        let missing: BTreeSet<NodeName> = self.nodes.keys().cloned().collect();
        self.node_list = Some(NodeList { known: missing.len(), missing, is_empty: true });
    }

    /// Nodes that a complete list did not show are gone, unless so many are missing that the list is doubted: without
    /// their nodes all Pods on them would be given up at once.
    pub(super) fn end_node_list(&mut self, scope: &Scope) -> Vec<Affected> {
        let Some(NodeList { known, missing, is_empty }) = self.node_list.take() else { return Vec::new() };
        // Also if there was only one: a cluster without any node runs nothing.
        let shows_nothing = is_empty && known > 0;
        if self.doubts((Kind::Nodes, scope), shows_nothing || storm::is_mass_loss(missing.len(), known)) {
            return Vec::new();
        }
        for name in &missing {
            self.nodes.remove(name);
        }
        missing.iter().flat_map(|name| self.node_changed(name)).collect()
    }
}
