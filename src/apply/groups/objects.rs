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

use super::{Error, request};
use crate::apply::outcome::is_name_taken;
use crate::apply::removal::at_version;

/// Writes one change.
pub(crate) async fn carry_out<K>(
    client: &Client,
    group: &HAGroup,
    change: &ObjectChange,
) -> Result<Option<WrittenVersion>, Error>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + k8s_openapi::Resource,
    K: Clone + DeserializeOwned + Serialize + Debug,
{
    let api = api::<K>(client, group);
    let field_manager = Some(keys::FIELD_MANAGER.to_owned());
    let object = match change {
        ObjectChange::Create(body) => {
            let object = serde_json::from_value(body.clone()).map_err(Error::Build)?;
            match api.create(&PostParams { field_manager, ..PostParams::default() }, &object).await {
                Err(error) if is_name_taken(&error) => label_again(&api, group, body).await?,
                made => made.map_err(request)?,
            }
        }
        ObjectChange::Put { name, patch } => {
            let parameters = PatchParams { field_manager, ..PatchParams::default() };
            api.patch(name, &parameters, &Patch::Merge(patch)).await.map_err(request)?
        }
        ObjectChange::Remove(metadata) => {
            let parameters = at_version(metadata.uid.clone(), metadata.resource_version.clone());
            let name = metadata.name.as_deref().unwrap_or_default();
            api.delete(name, &parameters).await.map_err(request)?;
            return Ok(None);
        }
        ObjectChange::Leave(name) => return Err(taken::<K>(name)),
    };
    Ok(Some(written(&object)))
}

/// Gives an object of the group its labels back, without which no watch shows it.
async fn label_again<K>(api: &Api<K>, group: &HAGroup, body: &Value) -> Result<K, Error>
where
    K: Resource<DynamicType = ()> + k8s_openapi::Resource + Clone + DeserializeOwned + Debug,
{
    let name = body["metadata"]["name"].as_str().unwrap_or_default();
    let found = api.get(name).await.map_err(request)?;
    if !is_owned(found.meta(), group) {
        return Err(taken::<K>(name));
    }
    let patch = json!({"metadata": {
        "labels": body["metadata"]["labels"],
        "uid": found.meta().uid,
        "resourceVersion": found.meta().resource_version,
    }});
    let parameters =
        PatchParams { field_manager: Some(keys::FIELD_MANAGER.to_owned()), ..PatchParams::default() };
    api.patch(name, &parameters, &Patch::Merge(patch)).await.map_err(request)
}

fn taken<K: k8s_openapi::Resource>(name: &str) -> Error {
    Error::Taken { kind: K::KIND, name: name.to_owned() }
}

/// Writes an object as it is to be, whoever wrote it last.
pub(crate) async fn apply<K>(
    client: &Client,
    group: &HAGroup,
    body: Option<Value>,
) -> Result<Option<WrittenVersion>, Error>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + k8s_openapi::Resource,
    K: Clone + DeserializeOwned + Debug,
{
    let Some(body) = body else { return Ok(None) };
    let name = body["metadata"]["name"].as_str().unwrap_or_default();
    let parameters = PatchParams::apply(keys::FIELD_MANAGER).force();
    let object =
        api::<K>(client, group).patch(name, &parameters, &Patch::Apply(&body)).await.map_err(request)?;
    Ok(Some(written(&object)))
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
