//! Nodes: each change of one affects the sets with Pods on it, or all of them when a storm begins or ends.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::{Affected, Cache, SetKey, set_of};
use crate::model::NodeName;
use crate::observe::change::Change;
use crate::observe::node::node_view;
use crate::observe::slim::{SlimNode, SlimPod};
use crate::observe::storm;

impl Cache {
    /// A node was seen; sets with Pods on it are affected if something of it changed that matters.
    pub(in crate::observe) fn see_node(&mut self, node: &SlimNode) -> Vec<Affected> {
        let view = node_view(node);
        if let Some(listed) = &mut self.listed_nodes {
            listed.insert(view.name.clone());
        }
        if self.nodes.get(&view.name) == Some(&view) {
            return Vec::new();
        }
        let name = view.name.clone();
        self.nodes.insert(name.clone(), view);
        self.node_changed(&name)
    }

    /// A node's object is gone.
    pub(in crate::observe) fn lose_node(&mut self, node: &SlimNode) -> Vec<Affected> {
        let name = NodeName(node.metadata.name.clone().unwrap_or_default());
        self.nodes.remove(&name);
        self.node_changed(&name)
    }

    fn node_changed(&mut self, name: &NodeName) -> Vec<Affected> {
        let was_storm = self.storm.is_some();
        self.storm = storm::assess(&self.nodes, self.pods.values());
        let is_affected = |pod: &Arc<SlimPod>| {
            was_storm != self.storm.is_some() || pod.spec.node_name.as_ref() == Some(&name.0)
        };
        let sets: BTreeSet<SetKey> = self
            .pods
            .values()
            .filter(|pod| is_affected(pod))
            .filter_map(|pod| set_of(pod.as_ref()))
            .collect();
        sets.into_iter().map(|set| (set, Change::Urgent)).collect()
    }

    pub(super) fn end_node_list(&mut self) -> Vec<Affected> {
        let Some(listed) = self.listed_nodes.take() else { return Vec::new() };
        let gone: Vec<NodeName> = self.nodes.keys().filter(|name| !listed.contains(*name)).cloned().collect();
        for name in &gone {
            self.nodes.remove(name);
        }
        gone.iter().flat_map(|name| self.node_changed(name)).collect()
    }
}
