//! Nodes: each change of one affects the sets with Pods on it, or all sets when a storm begins or ends.

use std::collections::{BTreeMap, BTreeSet};

use bps_api::ZONE_LABEL;
use bps_core::model::{NodeHealth, NodeName, NodeView};
use jiff::{SignedDuration, Timestamp};

use super::{Affected, Cache, Kind, SetKey, set_of};
use crate::change::Change;
use crate::node::{node_view, silent_since};
use crate::slim::SlimNode;
use crate::store::{ObjectKey, Scope};
use crate::storm::{self, Nodes, StormThreshold};

/// How long a node without an object is taken for one that does not answer, before it is taken for gone.
///
/// 40 s: as long as Kubernetes' garbage collector of Pods waits for the object to come back (`quarantineTime` in
/// `pkg/controller/podgc`, 1.36.4). It then deletes the Pods as well, so nothing is won by being sooner.
const QUARANTINE: SignedDuration = SignedDuration::from_secs(40);

/// Nodes as Pods of one set on them see them at one moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hosts<'c> {
    pub(crate) nodes: &'c BTreeMap<NodeName, NodeView>,
    pub(crate) labels: &'c BTreeMap<NodeName, BTreeMap<String, String>>,
    /// Label whose values are the failure domains of the set.
    pub(crate) domain_key: &'c str,
    /// Since when each node that carries Pods has no object.
    pub(crate) missing_since: &'c BTreeMap<NodeName, Timestamp>,
    pub(crate) now: Timestamp,
}

impl Hosts<'_> {
    /// A node by its name. Before a Pod is deleted because its node is gone, that node is asked for.
    pub(crate) fn view(&self, name: NodeName) -> NodeView {
        if let Some(view) = self.nodes.get(&name) {
            let domain = self.labels.get(&name).and_then(|labels| labels.get(self.domain_key)).cloned();
            return NodeView { name, zone: view.zone.clone(), domain, health: view.health };
        }
        let is_doubted = self.believed_gone_at(&name).is_some_and(|at| at > self.now);
        let health = if is_doubted { NodeHealth::NotReady } else { NodeHealth::Gone };
        NodeView { name, zone: None, domain: None, health }
    }

    /// When a node without an object is taken for gone; `None` if it has one.
    fn believed_gone_at(&self, name: &NodeName) -> Option<Timestamp> {
        let since = self.missing_since.get(name)?;
        Some(since.saturating_add(QUARANTINE).unwrap_or(Timestamp::MAX))
    }

    /// When one of these nodes will be taken for gone; no event tells of that moment.
    pub(crate) fn next_gone<'n>(&self, names: impl IntoIterator<Item = &'n NodeName>) -> Option<Timestamp> {
        names.into_iter().filter_map(|name| self.believed_gone_at(name)).filter(|at| *at > self.now).min()
    }
}

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

/// Nodes of which something is known that concerns more than the Pods of sets.
#[derive(Clone, Debug, Default)]
pub struct NotedNodes {
    /// Another one after each change.
    pub version: u64,
    /// They work, and somebody is about to take them away.
    pub leaving: BTreeSet<NodeName>,
    /// Somebody vouches that they are off.
    pub off: BTreeSet<NodeName>,
}

impl NotedNodes {
    fn note(&mut self, name: &NodeName, health: Option<NodeHealth>) {
        let is_leaving = health == Some(NodeHealth::Cordoned);
        let is_off = health == Some(NodeHealth::Gone);
        if is_leaving == self.leaving.contains(name) && is_off == self.off.contains(name) {
            return;
        }
        self.version += 1;
        for (set, is_in) in [(&mut self.leaving, is_leaving), (&mut self.off, is_off)] {
            if is_in {
                set.insert(name.clone());
            } else {
                set.remove(name);
            }
        }
    }

    /// Those whose Pods are about to move or have ended.
    pub fn aside(&self) -> BTreeSet<NodeName> {
        self.leaving.union(&self.off).cloned().collect()
    }
}

impl Cache {
    /// From which share of lost nodes on they are doubted.
    pub const fn doubt_losses_above(&mut self, threshold: StormThreshold) {
        self.storm_threshold = threshold;
    }

    /// The value of a label of a node, if it has one.
    pub fn node_label(&self, node: &NodeName, key: &str) -> Option<&str> {
        self.node_labels.get(node)?.get(key).map(String::as_str)
    }

    /// Nodes that not only the Pods of sets are concerned with.
    pub const fn nodes_noted(&self) -> &NotedNodes {
        &self.nodes_noted
    }

    /// A node was seen; sets with Pods on it are affected if something of it changed that matters.
    pub(crate) fn see_node(&mut self, node: &SlimNode, now: Timestamp) -> Vec<Affected> {
        // Each set has domains of its own: `Hosts` reads them from the labels.
        let view = node_view(node, ZONE_LABEL);
        let labels = node.metadata.labels.clone().unwrap_or_default();
        let former = self.node_labels.insert(view.name.clone(), labels).unwrap_or_default();
        if let Some(list) = &mut self.node_list {
            list.missing.remove(&view.name);
            list.is_empty = false;
        }
        if self.nodes.get(&view.name) == Some(&view) {
            return self.moved_sets(&view.name, &former);
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
        self.missing_since.remove(&name);
        self.nodes_noted.note(&name, Some(view.health));
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
        self.node_labels.remove(name);
        self.nodes_noted.note(name, None);
        self.silent_since.remove(name);
        self.note_missing(name, now);
        self.node_changed(name, now)
    }

    /// The one place where a node is found missing, whatever showed it: an event, a list, or a Pod on a node that no watch knows.
    fn note_missing(&mut self, name: &NodeName, now: Timestamp) {
        if !self.nodes.contains_key(name) && self.count_pods_on(name) > 0 {
            self.missing_since.entry(name.clone()).or_insert(now);
        }
    }

    pub(crate) const fn hosts<'c>(&'c self, domain_key: &'c str, now: Timestamp) -> Hosts<'c> {
        Hosts {
            nodes: &self.nodes,
            labels: &self.node_labels,
            domain_key,
            missing_since: &self.missing_since,
            now,
        }
    }

    /// Sets with Pods on a node that is in another one of their failure domains than before: each names a label of its own.
    fn moved_sets(&self, name: &NodeName, former: &BTreeMap<String, String>) -> Vec<Affected> {
        let Some(labels) = self.node_labels.get(name).filter(|labels| *labels != former) else {
            return Vec::new();
        };
        let is_moved = |set: &SetKey| {
            self.set(set).is_some_and(|set| {
                let key = set.spec.domain_key();
                labels.get(key) != former.get(key)
            })
        };
        self.sets_on(name).into_iter().filter(is_moved).map(|set| (set, Change::Ordinary)).collect()
    }

    /// Sets with Pods on a node.
    fn sets_on(&self, name: &NodeName) -> BTreeSet<SetKey> {
        let on_it = self.pods_on_node.get(name).into_iter().flatten();
        on_it.filter_map(|pod| self.pods.get(pod)).filter_map(|pod| set_of(pod.as_ref())).collect()
    }

    fn node_changed(&mut self, name: &NodeName, now: Timestamp) -> Vec<Affected> {
        let with_pods = self.sets_on(name);
        // The brake also holds back the first Pods of a set, and nothing else would tell that it was released.
        let every_set = if self.assess_storm(now) { self.set_keys() } else { Vec::new() };
        let sets: BTreeSet<SetKey> = with_pods.into_iter().chain(every_set).collect();
        sets.into_iter().map(|set| (set, Change::Urgent)).collect()
    }

    /// Looks whether a storm is on; returns whether that has changed.
    fn assess_storm(&mut self, now: Timestamp) -> bool {
        let was_storm = self.storm.is_some();
        let nodes = Nodes {
            views: &self.nodes,
            silent_since: &self.silent_since,
            missing_since: &self.missing_since,
        };
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
            self.note_missing(node, now);
        }
        let is_silent = |node: &&NodeName| {
            self.silent_since.contains_key(*node) || self.missing_since.contains_key(*node)
        };
        // Only the first Pod of a node makes it count, and only the last one takes that away.
        let is_left = from.as_ref().filter(is_silent).is_some_and(|node| self.count_pods_on(node) == 0);
        let is_begun = to.as_ref().filter(is_silent).is_some_and(|node| self.count_pods_on(node) == 1);
        if let Some(from) = from.as_ref().filter(|_| is_left) {
            self.missing_since.remove(from);
        }
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
