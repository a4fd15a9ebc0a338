//! Stops and resumes what the operator does for a group or a set.

use std::fmt::Debug;

use kube::api::{Patch, PatchParams};
use kube::core::NamespaceResourceScope;
use kube::{Resource, ResourceExt as _};
use serde::de::DeserializeOwned;
use serde_json::json;

use super::Error;
use super::cluster::{Cluster, Subject};
use crate::api::{BackupPodSet, HAGroup, keys};
use crate::observe::controller_of;

/// Writes `spec.paused`.
///
/// # Errors
/// `Usage` or `Refused` if the name means two objects or none; `Usage` if it means the group of a set.
pub async fn run(cluster: &Cluster, name: &str, is_paused: bool) -> Result<String, Error> {
    match cluster.subject(name).await? {
        Subject::Group(group) => {
            if let Some(set) = controller_of(&group.metadata).filter(|owner| owner.kind == keys::KIND) {
                let (group, set) = (group.name_any(), &set.name);
                return Err(Error::Usage(format!(
                    "HAGroup {group} is as its BackupPodSet wants it: write bps/{set}, which stops failovers of Pods, too"
                )));
            }
            let is_change = group.spec.paused != is_paused;
            let then = "pairs stay as they are, and failovers go on";
            write::<HAGroup>(cluster, &group.name_any(), (is_paused, is_change, then)).await
        }
        Subject::Set(set) => {
            let is_change = set.spec.paused != is_paused;
            let then = "nothing is created, converted or deleted, and there is no failover";
            write::<BackupPodSet>(cluster, &set.name_any(), (is_paused, is_change, then)).await
        }
    }
}

async fn write<K>(
    cluster: &Cluster,
    name: &str,
    (is_paused, is_change, then): (bool, bool, &str),
) -> Result<String, Error>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + DeserializeOwned,
{
    let kind = K::kind(&());
    let state = match (is_paused, is_change) {
        (true, true) => format!("paused: {then}; `kubectl bps resume` ends it"),
        (true, false) => "already paused".to_owned(),
        (false, true) => "resumed".to_owned(),
        (false, false) => "not paused".to_owned(),
    };
    if is_change {
        let patch = Patch::Merge(json!({"spec": {"paused": is_paused}}));
        let parameters =
            PatchParams { field_manager: Some(keys::FIELD_MANAGER_PLUGIN.into()), ..PatchParams::default() };
        let patched = cluster.api::<K>().patch(name, &parameters, &patch).await;
        patched.map_err(Error::request(format!("write {kind} {name}")))?;
    }
    Ok(format!("{kind} {name}: {state}\n"))
}
