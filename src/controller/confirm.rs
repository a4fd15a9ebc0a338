//! A consistent list before anything that serves is deleted, and a question about the node that a Pod is deleted for.
//!
//! A cache may lag; a deletion cannot be taken back. What the list shows is put into the cache, what it does not show is
//! taken out, the plan is made again, and only deletions that both plans want are carried out. The watch of nodes may lag
//! behind that of Pods: a node that no watch has shown may have been added a moment ago.

use std::collections::BTreeMap;

use bps_core::model::{Action, NodeName, Plan, PodRef, Reason, Snapshot, Step};
use bps_core::plan::{check, plan};
use bps_observe::slim::{SlimNode, SlimPod};
use bps_observe::{Observation, SetKey, is_out_of_service, observe};
use kube::{Api, Client};

use super::refresh::list;
use super::watch::Sink;

/// What became of deletions that had to be confirmed.
pub(super) struct Confirmed {
    /// The set by the consistent list.
    pub(super) observation: Observation,
    /// Those that the plan from it still wants, at the versions it showed.
    pub(super) still: Vec<Step>,
    /// Those of Pods whose node is there although the cache does not know it: the cache is stale.
    pub(super) doubted: Vec<Step>,
}

/// Whether a step must be confirmed first.
pub(super) const fn needs_confirmation(step: &Step) -> bool {
    matches!(step.action, Action::Delete { is_ready: true, .. }) || is_for_node(step)
}

/// Whether a Pod is deleted because its node is gone.
const fn is_for_node(step: &Step) -> bool {
    matches!((&step.action, step.reason), (Action::Delete { .. }, Reason::NodeGone))
}

/// What a plan from a consistent list says of these steps; `None` if there is no such plan.
///
/// # Errors
/// The error of the list or of the question about a node; then nothing is confirmed.
pub(super) async fn confirmed(
    client: &Client,
    sink: &Sink,
    (key, steps): (&SetKey, &[Step]),
) -> Result<Option<Confirmed>, kube::Error> {
    let listed = list::<SlimPod>(client, key).await?;
    let now = sink.clock.now();
    let observation = {
        let mut cache = sink.cache();
        let Some(others) = cache.listed(key, listed, now) else {
            return Ok(None);
        };
        for (other, urgency) in others {
            sink.queue.note(other, urgency);
        }
        observe(&cache, key, now)
    };
    let Some(observation) = observation else { return Ok(None) };
    let again: Plan = plan(&observation.snapshot);
    if !check(&observation.snapshot, &again).is_empty() {
        return Ok(None);
    }
    let deleted = |step: &Step| deleted(step).map(|pod| pod.uid.clone());
    let wanted: Vec<_> = steps.iter().filter_map(deleted).collect();
    let still = again.steps.into_iter().filter(|step| deleted(step).is_some_and(|uid| wanted.contains(&uid)));
    let (doubted, still) = split_by_node(client, &observation.snapshot, still.collect()).await?;
    Ok(Some(Confirmed { observation, still, doubted }))
}

/// Deletions for a node that can still run Pods, and all others; each node is asked for once.
async fn split_by_node(
    client: &Client,
    snapshot: &Snapshot,
    steps: Vec<Step>,
) -> Result<(Vec<Step>, Vec<Step>), kube::Error> {
    let api: Api<SlimNode> = Api::all(client.clone());
    let mut answered: BTreeMap<NodeName, bool> = BTreeMap::new();
    let (mut doubted, mut still) = (Vec::new(), Vec::new());
    for step in steps {
        let Some(node) = node_given_up(snapshot, &step) else {
            still.push(step);
            continue;
        };
        let is_there = if let Some(is_there) = answered.get(node) {
            *is_there
        } else {
            let is_there = api.get_opt(&node.0).await?.is_some_and(|node| !is_out_of_service(&node));
            answered.insert(node.clone(), is_there);
            is_there
        };
        if is_there { doubted.push(step) } else { still.push(step) }
    }
    Ok((doubted, still))
}

/// The node that a Pod is deleted for.
fn node_given_up<'s>(snapshot: &'s Snapshot, step: &Step) -> Option<&'s NodeName> {
    let pod = deleted(step).filter(|_| is_for_node(step))?;
    let view = snapshot.pods.iter().find(|view| view.pod.uid == pod.uid)?;
    view.node.as_ref().map(|node| &node.name)
}

const fn deleted(step: &Step) -> Option<&PodRef> {
    if let Action::Delete { pod, .. } = &step.action { Some(pod) } else { None }
}
