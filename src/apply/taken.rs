//! Finds out whose object bears a name that a create found taken.

use bps_core::model::{Outcome, Refusal};
use bps_observe::Written;
use kube::core::ObjectMeta;
use kube::{Api, Resource};
use serde::de::DeserializeOwned;

use super::Answer;
use super::outcome::refused;

/// What a create came to whose name exists: our own earlier one is no failure, an object of somebody else is.
pub(super) async fn taken<K>(
    api: &Api<K>,
    name: &str,
    (is_ours, keep): (impl FnOnce(&ObjectMeta) -> bool, impl FnOnce(K) -> Written),
) -> Answer
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + std::fmt::Debug,
{
    match api.get_opt(name).await {
        Ok(Some(found)) if is_ours(found.meta()) => {
            Answer { outcome: Outcome::Stale, message: None, written: Some(keep(found)) }
        }
        Ok(Some(_)) => {
            let kind = K::kind(&());
            Answer::failed(Refusal::NameTaken, format!("{kind} {name} does not belong to this set"))
        }
        Ok(None) => Answer { outcome: Outcome::Stale, message: None, written: None },
        Err(error) => refused(&error),
    }
}
