//! Writes what a group needs besides the steps of its plan: Services, EndpointSlices, keys and permissions.

use std::fmt::Debug;

use bps_api::{HAGroup, keys};
use bps_core::pairing::{ObjectChange, is_owned};
use bps_observe::group::WrittenVersion;
use bps_observe::version;
use kube::api::{Patch, PatchParams, PostParams};
use kube::core::NamespaceResourceScope;
use kube::{Api, Client, Resource, ResourceExt as _};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::{Failure, GroupAnswer};
use crate::apply::outcome::is_name_taken;
use crate::apply::removal::at_version;

/// Writes one change.
pub(crate) async fn carry_out<K>(client: &Client, group: &HAGroup, change: &ObjectChange) -> GroupAnswer
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + k8s_openapi::Resource,
    K: Clone + DeserializeOwned + Serialize + Debug,
{
    GroupAnswer::of(K::KIND, change.name(), write::<K>(client, group, change).await)
}

async fn write<K>(
    client: &Client,
    group: &HAGroup,
    change: &ObjectChange,
) -> Result<Option<WrittenVersion>, Failure>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + k8s_openapi::Resource,
    K: Clone + DeserializeOwned + Serialize + Debug,
{
    let api = api::<K>(client, group);
    let field_manager = Some(keys::FIELD_MANAGER.to_owned());
    let object = match change {
        ObjectChange::Create(body) => {
            let object = serde_json::from_value(body.clone()).map_err(Failure::Build)?;
            match api.create(&PostParams { field_manager, ..PostParams::default() }, &object).await {
                Err(error) if is_name_taken(&error) => label_again(&api, group, body).await?,
                made => made?,
            }
        }
        ObjectChange::Put { name, patch } => {
            let parameters = PatchParams { field_manager, ..PatchParams::default() };
            api.patch(name, &parameters, &Patch::Merge(patch)).await?
        }
        ObjectChange::Remove(metadata) => {
            let parameters = at_version(metadata.uid.clone(), metadata.resource_version.clone());
            let name = metadata.name.as_deref().unwrap_or_default();
            api.delete(name, &parameters).await?;
            return Ok(None);
        }
        ObjectChange::Leave(_) => return Err(Failure::Taken),
    };
    Ok(Some(written(&object)))
}

/// Gives an object of the group its labels back, without which no watch shows it.
async fn label_again<K>(api: &Api<K>, group: &HAGroup, body: &Value) -> Result<K, Failure>
where
    K: Resource<DynamicType = ()> + k8s_openapi::Resource + Clone + DeserializeOwned + Debug,
{
    let name = body["metadata"]["name"].as_str().unwrap_or_default();
    let found = api.get(name).await?;
    if !is_owned(found.meta(), group) {
        return Err(Failure::Taken);
    }
    let patch = json!({"metadata": {
        "labels": body["metadata"]["labels"],
        "uid": found.meta().uid,
        "resourceVersion": found.meta().resource_version,
    }});
    let parameters =
        PatchParams { field_manager: Some(keys::FIELD_MANAGER.to_owned()), ..PatchParams::default() };
    Ok(api.patch(name, &parameters, &Patch::Merge(patch)).await?)
}

/// Writes an object as it is to be, whoever wrote it last.
pub(crate) async fn apply<K>(client: &Client, group: &HAGroup, body: &Value) -> GroupAnswer
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + k8s_openapi::Resource,
    K: Clone + DeserializeOwned + Debug,
{
    let name = body["metadata"]["name"].as_str().unwrap_or_default();
    let parameters = PatchParams::apply(keys::FIELD_MANAGER).force();
    let applied = api::<K>(client, group).patch(name, &parameters, &Patch::Apply(body)).await;
    GroupAnswer::of(K::KIND, name, applied.map(|object| Some(written(&object))).map_err(Failure::from))
}

fn api<K>(client: &Client, group: &HAGroup) -> Api<K>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
{
    Api::namespaced(client.clone(), group.metadata.namespace.as_deref().unwrap_or_default())
}

fn written<K>(object: &K) -> WrittenVersion
where
    K: Resource<DynamicType = ()> + k8s_openapi::Resource,
{
    WrittenVersion { kind: K::KIND, name: object.name_any(), version: version(object.meta()) }
}
