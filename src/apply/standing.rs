//! Asks whether the set stands before it takes an object that nobody owns.
//!
//! The watch of sets may lag behind that of their objects: a set that is deleted without them loses them one by one, and
//! with its reference back on them the garbage collector would delete what was to be kept.

use bps_api::BackupPodSet;
use bps_core::model::Outcome;
use kube::{Api, Client};

use super::Answer;
use super::outcome::refused;

/// What a step comes to that must not be taken, because the set goes away, is gone, or does not answer; `None` if it
/// stands.
pub(super) async fn objection(client: &Client, set: &BackupPodSet) -> Option<Answer> {
    let namespace = set.metadata.namespace.as_deref().unwrap_or_default();
    let api: Api<BackupPodSet> = Api::namespaced(client.clone(), namespace);
    match api.get_metadata(set.metadata.name.as_deref().unwrap_or_default()).await {
        Ok(found)
            if found.metadata.uid == set.metadata.uid && found.metadata.deletion_timestamp.is_none() =>
        {
            None
        }
        Ok(_) => Some(Answer { outcome: Outcome::Stale, message: None, written: None }),
        Err(error) => Some(refused(&error)),
    }
}
