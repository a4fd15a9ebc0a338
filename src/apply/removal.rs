//! Deletes one incarnation of an object, at the version that was seen.

use std::fmt::Debug;

use bps_observe::Written;
use either::Either;
use kube::api::{DeleteParams, Preconditions};
use kube::core::ObjectMeta;
use kube::{Api, Resource};
use serde::de::DeserializeOwned;

use super::Answer;
use super::outcome::refused;

/// Deletes the object with this name, uid and resource version, given with its namespace as `seen`.
///
/// `kept` takes an object that goes later, because a grace period or a finalizer holds it, and `gone` one that is gone
/// at once; if the server does not show it, just enough of it to say which one.
pub(super) async fn delete<K>(
    api: &Api<K>,
    seen: ObjectMeta,
    (kept, gone): (impl FnOnce(K) -> Written, impl FnOnce(K) -> Written),
) -> Answer
where
    K: Resource<DynamicType = ()> + Clone + Default + DeserializeOwned + Debug,
{
    let ObjectMeta { namespace, name, uid, resource_version, .. } = seen;
    let parameters = at_version(uid.clone(), resource_version);
    match api.delete(name.as_deref().unwrap_or_default(), &parameters).await {
        Ok(Either::Left(held)) if is_kept(held.meta()) => Answer::done(kept(held)),
        Ok(Either::Left(ended)) => Answer::done(gone(ended)),
        Ok(Either::Right(_status)) => {
            let mut ended = K::default();
            *ended.meta_mut() = ObjectMeta { namespace, name, uid, ..ObjectMeta::default() };
            Answer::done(gone(ended))
        }
        Err(error) => refused(&error),
    }
}

/// Parameters of a deletion that the server refuses unless the object has this uid and resource version.
pub(crate) fn at_version(uid: Option<String>, resource_version: Option<String>) -> DeleteParams {
    let preconditions = Some(Preconditions { uid, resource_version });
    DeleteParams { preconditions, ..DeleteParams::default() }
}

/// Whether the object of an answer is still there: a Pod that is gone at once bears a deletion time too, with a grace of
/// 0 s and nothing that holds it.
fn is_kept(metadata: &ObjectMeta) -> bool {
    let is_over = metadata.deletion_grace_period_seconds == Some(0);
    let is_held = metadata.finalizers.as_ref().is_some_and(|finalizers| !finalizers.is_empty());
    metadata.deletion_timestamp.is_some() && (is_held || !is_over)
}
