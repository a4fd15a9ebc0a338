//! Stops and resumes what the operator does for a group or a set.

use std::fmt::Debug;

use bps_api::keys;
use bps_observe::controller_of;
use kube::api::{Patch, PatchParams};
use kube::core::NamespaceResourceScope;
use kube::{Resource, ResourceExt as _};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;

use super::arguments::NamedArguments;
use super::cluster::{Cluster, Subject};
use super::{Error, document};

/// What became of an object that was to be paused or resumed.
#[derive(Serialize)]
struct Outcome {
    kind: String,
    namespace: String,
    name: String,
    paused: bool,
    /// It was not so before.
    changed: bool,
    /// What goes on, and what does not, while it is paused.
    #[serde(skip)]
    then: &'static str,
}

impl Outcome {
    fn text(&self) -> String {
        let Self { kind, namespace: _, name, paused, changed, then } = self;
        let state = match (paused, changed) {
            (true, true) => format!("paused: {then}; `kubectl bps resume` ends it"),
            (true, false) => "already paused".to_owned(),
            (false, true) => "resumed".to_owned(),
            (false, false) => "not paused".to_owned(),
        };
        format!("{kind} {name}: {state}\n")
    }
}

/// Writes `spec.paused`.
///
/// # Errors
/// `Usage` or `Refused` if the name means two objects or none; `Usage` if it means the group of a set.
pub async fn run(cluster: &Cluster, wanted: &NamedArguments, is_paused: bool) -> Result<String, Error> {
    let outcome = match cluster.subject(&wanted.name).await? {
        Subject::Group(group) => {
            if let Some(set) = controller_of(&group.metadata).filter(|owner| owner.kind == keys::KIND) {
                let (group, set) = (group.name_any(), &set.name);
                return Err(Error::Usage(format!(
                    "HAGroup {group} is as its BackupPodSet wants it: write bps/{set}"
                )));
            }
            let then = "pairs stay as they are, and failovers go on";
            write(cluster, group.as_ref(), (group.spec.paused, is_paused, then)).await?
        }
        Subject::Set(set) => {
            let then = if set.spec.active_standby.is_some() {
                "nothing is created, converted or deleted, pairs stay as they are, and failovers go on"
            } else {
                "nothing is created, converted or deleted, and there is no failover"
            };
            write(cluster, set.as_ref(), (set.spec.paused, is_paused, then)).await?
        }
    };
    document::formed(wanted.output, &outcome, || outcome.text())
}

async fn write<K>(
    cluster: &Cluster,
    object: &K,
    (was_paused, paused, then): (bool, bool, &'static str),
) -> Result<Outcome, Error>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + DeserializeOwned,
{
    let (kind, name) = (K::kind(&()).into_owned(), object.name_any());
    let changed = was_paused != paused;
    if changed {
        let patch = Patch::Merge(json!({"spec": {"paused": paused}}));
        let parameters =
            PatchParams { field_manager: Some(keys::FIELD_MANAGER_PLUGIN.into()), ..PatchParams::default() };
        let patched = cluster.api::<K>().patch(&name, &parameters, &patch).await;
        patched.map_err(Error::request(format!("write {kind} {name}")))?;
    }
    Ok(Outcome { kind, namespace: object.namespace().unwrap_or_default(), name, paused, changed, then })
}
