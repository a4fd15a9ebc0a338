//! A consistent list before anything that serves is deleted.
//!
//! A cache may lag; a deletion cannot be taken back. What the list shows is put into the cache, what it does not show is
//! taken out, the plan is made again, and only deletions that both plans want are carried out.

use kube::api::ListParams;
use kube::{Api, Client};

use super::watch::Sink;
use crate::api::keys;
use crate::model::{Action, Plan, PodRef, Step};
use crate::observe::slim::SlimPod;
use crate::observe::{Observation, SetKey, observe};
use crate::plan::{check, plan};

/// Whether a step must be confirmed by a list first.
pub(super) const fn needs_confirmation(step: &Step) -> bool {
    matches!(step.action, Action::Delete { is_ready: true, .. })
}

/// The steps that a plan from a consistent list still wants, at the versions it showed; `None` if there is no such plan.
///
/// # Errors
/// The list's error; then nothing is confirmed.
pub(super) async fn confirmed(
    client: &Client,
    sink: &Sink,
    (key, steps): (&SetKey, &[Step]),
) -> Result<Option<(Observation, Vec<Step>)>, kube::Error> {
    let api: Api<SlimPod> = Api::namespaced(client.clone(), &key.namespace);
    // No resourceVersion: the API server answers from etcd, or from a cache that has caught up with it.
    let listed =
        api.list(&ListParams::default().labels(&format!("{}={}", keys::LABEL_SET, key.name))).await?;
    let now = sink.clock.now();
    let observation = {
        let mut cache = sink.cache();
        if !cache.listed_pods(key, (listed.items, &listed.metadata), now) {
            return Ok(None);
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
    Ok(Some((observation, still.collect())))
}

const fn deleted(step: &Step) -> Option<&PodRef> {
    match &step.action {
        Action::Delete { pod, .. } => Some(pod),
        Action::Create { .. }
        | Action::Convert { .. }
        | Action::Wake { .. }
        | Action::Adopt { .. }
        | Action::PublishService
        | Action::PublishGroup
        | Action::Expose { .. }
        | Action::Retire { .. } => None,
    }
}
