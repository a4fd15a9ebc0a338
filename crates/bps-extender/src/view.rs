//! Keeps what Pods request on each node, from the watches of Pods and nodes.
//!
//! Reads no clock and asks no server. kube-scheduler tells an extender the names of nodes only, never what is on them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;
use std::time::{Duration, Instant};

use bps_observe::requests::{Amounts, amounts, is_over, requests};
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt as _;

/// The resource that is counted in thousandths; all others are counted in whole units, rounded up. Source: `NodeInfo` of
/// kube-scheduler.
const CPU: &str = "cpu";

/// Longest time without an API server after which the sums still count.
///
/// 10 s: as long as kube-scheduler goes on by default without renewing its Lease (`renewDeadline`). Until then the API
/// server may be away for both, and no Pod is bound that the sums would lack. A scheduler that asks later has an API
/// server, and the sums lack the Pods that it binds: each further Pod would go to the node that was best before.
pub const STALE_AFTER: Duration = Duration::from_secs(10);

/// Amounts in the order of the resources that count. Unit: as kube-scheduler counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Needs(Vec<u64>);

/// A resource that can be used evenly: kube-scheduler keeps its sum on each node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BalancedResource(String);

/// A name of a resource whose sum kube-scheduler does not keep.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error(
    "kube-scheduler keeps no sum of {0}: write cpu, memory, ephemeral-storage, hugepages-<size>, or a name with a domain such as \
         example.com/device"
)]
pub struct UnsummedResource(String);

impl FromStr for BalancedResource {
    type Err = UnsummedResource;

    fn from_str(name: &str) -> Result<Self, UnsummedResource> {
        let is_summed = matches!(name, CPU | "memory" | "ephemeral-storage")
            || name.starts_with("hugepages-")
            || name.contains('/');
        if is_summed { Ok(Self(name.to_owned())) } else { Err(UnsummedResource(name.to_owned())) }
    }
}

impl fmt::Display for BalancedResource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A Pod with a node.
#[derive(Debug, PartialEq, Eq)]
struct Placed {
    node: String,
    needs: Needs,
}

/// The Pod that was scored last, until a watch has shown its binding or its refusal.
#[derive(Debug, PartialEq, Eq)]
struct Scored {
    uid: String,
    /// Refusal that the scheduler had written before, which says nothing of this attempt.
    former_refusal: Option<Refused>,
    is_settled: bool,
}

/// A condition `PodScheduled` that is false.
#[derive(Debug, PartialEq, Eq)]
struct Refused {
    message: Option<String>,
    since: Option<Time>,
}

/// Nodes and the Pods on them.
#[derive(Debug)]
pub struct NodeSums {
    resources: Vec<BalancedResource>,
    /// Allocatable amounts of each node, 0 for what it does not have.
    allocatable: BTreeMap<String, Needs>,
    /// By uid.
    placed: BTreeMap<String, Placed>,
    /// Sums over the Pods of a node.
    requested: BTreeMap<String, Needs>,
    scored: Option<Scored>,
    nodes: Listing,
    pods: Listing,
}

/// Whether the sums say what is on the nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ViewState {
    /// Not yet: nodes or Pods were not listed.
    Unlisted,
    /// Not any more: a watch has had no API server for longer than [`STALE_AFTER`].
    Stale,
    /// They do.
    Current,
}

/// Lists of a kind, and the watch that follows each.
#[derive(Debug, Default)]
struct Listing {
    /// Whether one has ended.
    is_listed: bool,
    /// Objects that the list under way has shown; `None` between lists, so that a watch that lasts for weeks collects nothing.
    seen: Option<BTreeSet<String>>,
    /// Since when requests fail; `None` once a watch has shown something, or a list has ended.
    failing_since: Option<Instant>,
}

impl Listing {
    fn begin(&mut self) {
        self.seen = Some(BTreeSet::new());
    }

    fn show(&mut self, key: &str) {
        match &mut self.seen {
            // A list may fail at its next page, again and again.
            Some(seen) => drop(seen.insert(key.to_owned())),
            None => self.failing_since = None,
        }
    }

    fn fail(&mut self, now: Instant) {
        self.failing_since.get_or_insert(now);
    }

    /// Whether a watch has failed, and has not been seen to work since.
    const fn is_doubted(&self) -> bool {
        self.seen.is_none() && self.failing_since.is_some()
    }

    fn is_stale(&self, now: Instant) -> bool {
        self.failing_since.is_some_and(|since| now.saturating_duration_since(since) > STALE_AFTER)
    }

    /// Ends the list under way, and returns what it has shown.
    fn end(&mut self) -> BTreeSet<String> {
        self.is_listed = true;
        self.failing_since = None;
        self.seen.take().unwrap_or_default()
    }
}

impl NodeSums {
    /// Makes sums of these resources, without nodes and Pods.
    pub fn new(resources: Vec<BalancedResource>) -> Self {
        Self {
            resources,
            allocatable: BTreeMap::new(),
            placed: BTreeMap::new(),
            requested: BTreeMap::new(),
            scored: None,
            nodes: Listing::default(),
            pods: Listing::default(),
        }
    }

    /// Whether Pods and nodes were listed once.
    pub fn is_ready(&self) -> bool {
        self.nodes.is_listed && self.pods.is_listed
    }

    /// Whether the sums say what is on the nodes.
    pub fn state(&self, now: Instant) -> ViewState {
        if !self.is_ready() {
            ViewState::Unlisted
        } else if self.nodes.is_stale(now) || self.pods.is_stale(now) {
            ViewState::Stale
        } else {
            ViewState::Current
        }
    }

    /// Number of nodes.
    pub fn nodes(&self) -> usize {
        self.allocatable.len()
    }

    /// Whether no Pod is on any node.
    pub fn is_empty(&self) -> bool {
        self.placed.is_empty()
    }

    /// Returns the amounts that a Pod requests.
    pub fn needs(&self, pod: &Pod) -> Needs {
        self.of_interest(&requests(pod))
    }

    /// Returns the fractions of each of its resources that would be requested of a node with a further Pod, from 0 to 1; `None` for an
    /// unknown node. A resource that the node does not have is left out.
    pub fn fractions(&self, node: &str, Needs(needs): &Needs) -> Option<Vec<f64>> {
        let Needs(allocatable) = self.allocatable.get(node)?;
        let requested = self.requested.get(node);
        let of_resource = |(index, all): (usize, &u64)| {
            let of_pods = requested.map_or(0, |Needs(requested)| requested[index]);
            Fraction { part: of_pods.saturating_add(needs[index]), whole: *all }.value()
        };
        Some(allocatable.iter().enumerate().filter_map(of_resource).collect())
    }

    /// Notes that a Pod was scored: [`NodeSums::is_settled`] then reports when its binding or refusal is seen.
    pub fn note_scored(&mut self, pod: &Pod) {
        let uid = pod.uid().unwrap_or_default();
        let is_settled = self.placed.contains_key(&uid);
        self.scored = Some(Scored { uid, former_refusal: refusal(pod), is_settled });
    }

    /// Whether the binding or refusal of the Pod that was scored last is seen. A Pod that is scored again was not placed.
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
        self.nodes.show(&name);
        self.allocatable.insert(name, allocatable);
    }

    /// Forgets a node that was deleted.
    pub fn forget_node(&mut self, node: &Node) {
        let name = node.name_any();
        self.nodes.show(&name);
        self.allocatable.remove(&name);
    }

    /// Takes in a Pod as it is now. It counts while it has a node and has not ended.
    pub fn see_pod(&mut self, pod: &Pod) {
        let Some(uid) = pod.uid() else { return };
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.clone()).filter(|_| !is_over(pod));
        if node.is_some() || is_over(pod) || self.is_refused_anew(&uid, pod) {
            self.settle(&uid);
        }

        let placed = node.map(|node| Placed { node, needs: self.needs(pod) });
        self.pods.show(&uid);
        self.place(uid, placed);
    }

    /// Forgets a Pod that was deleted.
    pub fn forget_pod(&mut self, pod: &Pod) {
        let Some(uid) = pod.uid() else { return };
        self.pods.show(&uid);
        self.settle(&uid);
        self.place(uid, None);
    }

    /// Notes that a request for nodes has failed.
    pub fn fail_nodes(&mut self, now: Instant) {
        self.nodes.fail(now);
    }

    /// Notes that a request for Pods has failed.
    pub fn fail_pods(&mut self, now: Instant) {
        self.pods.fail(now);
    }

    /// Whether a watch of nodes has failed, and has not been seen to work since.
    pub const fn doubts_nodes(&self) -> bool {
        self.nodes.is_doubted()
    }

    /// Whether a watch of Pods has failed, and has not been seen to work since.
    pub const fn doubts_pods(&self) -> bool {
        self.pods.is_doubted()
    }

    /// Begins a list of all nodes; what is known stays until it ends.
    pub fn begin_nodes(&mut self) {
        self.nodes.begin();
    }

    /// Ends a list of all nodes, and forgets those that it did not show.
    pub fn end_nodes(&mut self) {
        let seen = self.nodes.end();
        self.allocatable.retain(|name, _| seen.contains(name));
    }

    /// Begins a list of all Pods; what is known stays until it ends.
    pub fn begin_pods(&mut self) {
        self.pods.begin();
    }

    /// Ends a list of all Pods, and forgets those that it did not show.
    pub fn end_pods(&mut self) {
        let seen = self.pods.end();
        let scored = self.scored.as_ref().map(|scored| scored.uid.clone());
        let gone: BTreeSet<String> =
            self.placed.keys().cloned().chain(scored).filter(|uid| !seen.contains(uid)).collect();
        for uid in gone {
            self.settle(&uid);
            self.place(uid, None);
        }
    }

    /// Whether the scheduler has refused the Pod that was scored last, after that.
    fn is_refused_anew(&self, uid: &str, pod: &Pod) -> bool {
        let Some(scored) = self.scored.as_ref().filter(|scored| scored.uid == uid) else { return false };
        let refusal = refusal(pod);
        refusal.is_some() && refusal != scored.former_refusal
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
            let Needs(sums) =
                self.requested.entry(now.node.clone()).or_insert_with(|| Needs(vec![0; now.needs.0.len()]));
            for (sum, need) in sums.iter_mut().zip(&now.needs.0) {
                *sum = sum.saturating_add(*need);
            }
            self.placed.insert(uid, now);
        }
    }

    fn take_off(&mut self, before: &Placed) {
        let Some(Needs(sums)) = self.requested.get_mut(&before.node) else { return };
        for (sum, need) in sums.iter_mut().zip(&before.needs.0) {
            *sum = sum.saturating_sub(*need);
        }
        if sums.iter().all(|sum| *sum == 0) {
            self.requested.remove(&before.node);
        }
    }

    fn of_interest(&self, amounts: &Amounts) -> Needs {
        let of = |BalancedResource(resource): &BalancedResource| {
            let thousandths = amounts.get(resource).copied().unwrap_or_default();
            if resource == CPU { thousandths } else { thousandths.div_ceil(1_000) }
        };
        Needs(self.resources.iter().map(of).collect())
    }
}

/// A part of a whole.
struct Fraction {
    part: u64,
    whole: u64,
}

impl Fraction {
    /// From 0 to 1, also of more than the whole; `None` of nothing.
    #[allow(clippy::cast_precision_loss, reason = "kube-scheduler divides the same way")]
    fn value(&self) -> Option<f64> {
        (self.whole > 0).then(|| (self.part as f64 / self.whole as f64).min(1.0))
    }
}

/// The refusal of the scheduler, if it has written that it found no node.
fn refusal(pod: &Pod) -> Option<Refused> {
    let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let mut refusals =
        conditions.filter(|condition| condition.type_ == "PodScheduled" && condition.status == "False");
    let refusal = refusals.next()?;
    Some(Refused { message: refusal.message.clone(), since: refusal.last_transition_time.clone() })
}

#[cfg(test)]
mod tests;
