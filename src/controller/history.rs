//! Keeps former templates as `ControllerRevision` objects, so that a person can see and restore them.
//!
//! Only called when the template changed and when its rollout is complete; nothing in the operator depends on the
//! result.

use bps_api::keys;
use bps_core::manifests::controller_revision;
use bps_observe::{Observation, is_controlled_by};
use k8s_openapi::api::apps::v1::ControllerRevision;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt as _};
use serde_json::json;

use crate::apply::{at_version, is_name_taken};

/// Whether the template is another than the one in the status, or the last Pod of a former one has gone since.
pub(super) fn is_due(observation: &Observation) -> bool {
    let Some(status) = &observation.set.status else { return true };
    let snapshot = &observation.snapshot;
    let wanted = &snapshot.desired.revision.0;
    status.update_revision != *wanted || (status.current_revision != *wanted && snapshot.is_rolled_out())
}

/// Records the template as the latest one and forgets the oldest beyond the limit.
///
/// # Errors
/// What the API server refused.
pub(super) async fn keep(client: &Client, observation: &Observation) -> Result<(), kube::Error> {
    let set = observation.set.as_ref();
    let api: Api<ControllerRevision> =
        Api::namespaced(client.clone(), set.metadata.namespace.as_deref().unwrap_or_default());
    let selector = format!("{}={}", keys::LABEL_SET, set.metadata.name.as_deref().unwrap_or_default());
    let mut known = api.list(&ListParams::default().labels(&selector)).await?.items;
    known.retain(|revision| is_controlled_by(&revision.metadata, set));
    known.sort_by_key(|revision| revision.revision);
    record(&api, observation, &known).await?;
    prune(&api, observation, &known).await
}

async fn record(
    api: &Api<ControllerRevision>,
    observation: &Observation,
    known: &[ControllerRevision],
) -> Result<(), kube::Error> {
    let number = known.last().map_or(0, |latest| latest.revision) + 1;
    let body = controller_revision(&observation.set, number);
    let field_manager = Some(keys::FIELD_MANAGER.to_owned());
    let is_current =
        |revision: &&ControllerRevision| is_of(revision, &observation.snapshot.desired.revision.0);
    match known.iter().find(is_current) {
        // Going back to a former template makes it the latest again.
        Some(current) if current.revision + 1 < number => {
            let patch = json!({
                "metadata": {"uid": current.metadata.uid, "resourceVersion": current.metadata.resource_version},
                "revision": number,
            });
            let parameters = PatchParams { field_manager, ..PatchParams::default() };
            api.patch(&current.name_any(), &parameters, &Patch::Merge(patch)).await.map(drop)
        }
        Some(_) => Ok(()),
        None => {
            let body: ControllerRevision = serde_json::from_value(body).map_err(kube::Error::SerdeError)?;
            match api.create(&PostParams { field_manager, ..PostParams::default() }, &body).await {
                Err(error) if is_name_taken(&error) => {
                    // Made by another, or by a request whose answer was lost. If it is gone by now, try again later.
                    let named = ListParams::default().fields(&format!("metadata.name={}", body.name_any()));
                    let is_there = !api.list(&named).await?.items.is_empty();
                    if is_there { Ok(()) } else { Err(error) }
                }
                created => created.map(drop),
            }
        }
    }
}

/// Deletes the oldest templates beyond the limit, except those that a Pod was made from.
///
/// One that somebody else changed or deleted meanwhile is an error too: the list is read again.
async fn prune(
    api: &Api<ControllerRevision>,
    observation: &Observation,
    known: &[ControllerRevision],
) -> Result<(), kube::Error> {
    let snapshot = &observation.snapshot;
    let is_used = |revision: &ControllerRevision| {
        is_of(revision, &snapshot.desired.revision.0)
            || snapshot.pods.iter().any(|pod| is_of(revision, &pod.revision.0))
    };
    let unused: Vec<&ControllerRevision> = known.iter().filter(|revision| !is_used(revision)).collect();
    let limit = usize::try_from(observation.set.spec.revision_history_limit).unwrap_or(0);
    for revision in unused.iter().take(unused.len().saturating_sub(limit)) {
        let parameters = at_version(revision.uid(), revision.resource_version());
        api.delete(&revision.name_any(), &parameters).await?;
    }
    Ok(())
}

fn is_of(revision: &ControllerRevision, hash: &str) -> bool {
    revision
        .metadata
        .labels
        .as_ref()
        .and_then(|labels| labels.get(keys::LABEL_REVISION))
        .is_some_and(|text| text == hash)
}
