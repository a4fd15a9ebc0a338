//! Keeps what Pods request on each node, from the watches of Pods and nodes.
//!
//! Reads no clock and asks no server. kube-scheduler tells an extender the names of nodes only, never what is on them.

use std::collections::{BTreeMap, BTreeSet};

use bps_observe::requests::{Amounts, amounts, is_over, requests};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::ResourceExt as _;

/// The resource that is counted in thousandths; all others are counted in whole units, rounded up. Source: `NodeInfo` of
/// kube-scheduler.
const CPU: &str = "cpu";

/// What is said of a Pod, in the order of the resources that count.
type Needs = Vec<u64>;

/// A Pod with a node.
#[derive(Debug, PartialEq, Eq)]
struct Placed {
    node: String,
    needs: Needs,
}

/// The Pod that was scored last, until it is known what became of it.
#[derive(Debug, PartialEq, Eq)]
struct Scored {
    uid: String,
    is_settled: bool,
}

/// Nodes and the Pods on them.
#[derive(Debug)]
pub struct View {
    resources: Vec<String>,
    /// What can be allocated of each node, 0 for what it does not have.
    allocatable: BTreeMap<String, Needs>,
    /// By uid.
    placed: BTreeMap<String, Placed>,
    /// Sums over the Pods of a node.
    requested: BTreeMap<String, Needs>,
    scored: Option<Scored>,
    nodes: List,
    pods: List,
}

/// Whether a kind was listed, and what the list under way has shown.
#[derive(Debug, Default)]
struct List {
    is_listed: bool,
    seen: BTreeSet<String>,
}

impl View {
    /// Knows nothing yet; scores will be about these resources, by their names in `requests`.
    pub fn new(resources: Vec<String>) -> Self {
        Self {
            resources,
            allocatable: BTreeMap::new(),
            placed: BTreeMap::new(),
            requested: BTreeMap::new(),
            scored: None,
            nodes: List::default(),
            pods: List::default(),
        }
    }

    /// Whether Pods and nodes were listed once.
    pub fn is_ready(&self) -> bool {
        self.nodes.is_listed && self.pods.is_listed
    }

    /// Returns the fractions of each of its resources that would be requested of a node with a further Pod, from 0 to 1; `None` for an
    /// unknown node. A resource that the node does not have is left out.
    pub fn fractions(&self, node: &str, pod: &Pod) -> Option<Vec<f64>> {
        let allocatable = self.allocatable.get(node)?;
        let none = vec![0; self.resources.len()];
        let requested = self.requested.get(node).unwrap_or(&none);
        let with_pod =
            requested.iter().zip(self.needs(pod)).map(|(of_node, of_pod)| of_node.saturating_add(of_pod));
        let has = |(requested, all): (u64, &u64)| (*all > 0).then(|| fraction(requested, *all));
        Some(with_pod.zip(allocatable).filter_map(has).collect())
    }

    /// Notes that a Pod was scored: [`View::is_settled`] then tells when it is known what became of it.
    pub fn note_scored(&mut self, pod: &Pod) {
        let uid = pod.uid().unwrap_or_default();
        let is_settled = self.placed.contains_key(&uid);
        self.scored = Some(Scored { uid, is_settled });
    }

    /// Whether what became of the Pod that was scored last is in this view. A Pod that is scored again was not placed.
    pub fn is_settled(&self, next: &Pod) -> bool {
        self.scored
            .as_ref()
            .is_none_or(|last| last.is_settled || next.metadata.uid.as_ref() == Some(&last.uid))
    }

    /// Takes in a node as it is now.
    pub fn see_node(&mut self, node: &Node) {
        let name = node.name_any();
        let all = node.status.as_ref().and_then(|status| status.allocatable.as_ref());
        let allocatable = self.of_interest(&amounts(all));
        self.nodes.seen.insert(name.clone());
        self.allocatable.insert(name, allocatable);
    }

    /// Forgets a node that was deleted.
    pub fn forget_node(&mut self, node: &Node) {
        self.allocatable.remove(&node.name_any());
    }

    /// Takes in a Pod as it is now. It counts while it has a node and has not ended.
    pub fn see_pod(&mut self, pod: &Pod) {
        let Some(uid) = pod.uid() else { return };
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.clone()).filter(|_| !is_over(pod));
        if node.is_some() || is_over(pod) || is_refused(pod) {
            self.settle(&uid);
        }

        let placed = node.map(|node| Placed { node, needs: self.needs(pod) });
        self.pods.seen.insert(uid.clone());
        self.place(uid, placed);
    }

    /// Forgets a Pod that was deleted.
    pub fn forget_pod(&mut self, pod: &Pod) {
        let Some(uid) = pod.uid() else { return };
        self.settle(&uid);
        self.place(uid, None);
    }

    /// A list of all nodes begins; what is known stays until it ends.
    pub fn begin_nodes(&mut self) {
        self.nodes.seen.clear();
    }

    /// A list of all nodes has ended: what it did not show is gone.
    pub fn end_nodes(&mut self) {
        self.nodes.is_listed = true;
        let seen = std::mem::take(&mut self.nodes.seen);
        self.allocatable.retain(|name, _| seen.contains(name));
    }

    /// A list of all Pods begins; what is known stays until it ends.
    pub fn begin_pods(&mut self) {
        self.pods.seen.clear();
    }

    /// A list of all Pods has ended: what it did not show is gone.
    pub fn end_pods(&mut self) {
        self.pods.is_listed = true;
        let seen = std::mem::take(&mut self.pods.seen);
        let gone: Vec<String> = self.placed.keys().filter(|uid| !seen.contains(*uid)).cloned().collect();
        for uid in gone {
            self.settle(&uid);
            self.place(uid, None);
        }
    }

    fn settle(&mut self, uid: &str) {
        if let Some(scored) = self.scored.as_mut().filter(|scored| scored.uid == uid) {
            scored.is_settled = true;
        }
    }

    /// Replaces where a Pod is, and corrects the sums of its nodes.
    fn place(&mut self, uid: String, now: Option<Placed>) {
        if self.placed.get(&uid) == now.as_ref() {
            return;
        }
        if let Some(before) = self.placed.remove(&uid) {
            self.take_off(&before);
        }
        if let Some(now) = now {
            let sums = self.requested.entry(now.node.clone()).or_insert_with(|| vec![0; now.needs.len()]);
            for (sum, need) in sums.iter_mut().zip(&now.needs) {
                *sum = sum.saturating_add(*need);
            }
            self.placed.insert(uid, now);
        }
    }

    fn take_off(&mut self, before: &Placed) {
        let Some(sums) = self.requested.get_mut(&before.node) else { return };
        for (sum, need) in sums.iter_mut().zip(&before.needs) {
            *sum = sum.saturating_sub(*need);
        }
        if sums.iter().all(|sum| *sum == 0) {
            self.requested.remove(&before.node);
        }
    }

    fn needs(&self, pod: &Pod) -> Needs {
        self.of_interest(&requests(pod))
    }

    fn of_interest(&self, amounts: &Amounts) -> Needs {
        let of = |resource: &String| {
            let thousandths = amounts.get(resource).copied().unwrap_or_default();
            if resource == CPU { thousandths } else { thousandths.div_ceil(1_000) }
        };
        self.resources.iter().map(of).collect()
    }
}

#[allow(clippy::cast_precision_loss, reason = "kube-scheduler divides the same way")]
fn fraction(requested: u64, allocatable: u64) -> f64 {
    (requested as f64 / allocatable as f64).min(1.0)
}

/// Whether the scheduler has written that it found no node.
fn is_refused(pod: &Pod) -> bool {
    let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.into_iter().any(|condition| condition.type_ == "PodScheduled" && condition.status == "False")
}

#[cfg(test)]
mod tests;
