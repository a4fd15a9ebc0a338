//! Writes the exposed Service and its EndpointSlice.

use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::Answer;
use super::outcome::refused;
use crate::api::keys;
use crate::manifests::{endpoint_slice, service, slice_name};
use crate::model::{Endpoint, Outcome, Refusal};
use crate::observe::{Observation, Version, Written};

/// Creates the Service, or puts its ports and type right.
pub(super) async fn publish_service(client: &Client, observation: &Observation) -> Answer {
    let set = observation.set.as_ref();
    let Some(wanted) = &set.spec.service else { return nothing_to_do() };
    let body = service(set, wanted);
    let patch =
        json!({"spec": {"type": body["spec"]["type"], "ports": body["spec"]["ports"], "selector": null}});
    let target = Target { observation, name: &wanted.name, version: observation.service.as_ref() };
    answer(write::<Service>(client, &target, (&body, patch)).await, |service| {
        Written::Service(Box::new(service))
    })
}

/// Writes all addresses of the slice at once.
pub(super) async fn expose(client: &Client, observation: &Observation, endpoints: &[Endpoint]) -> Answer {
    let set = observation.set.as_ref();
    let Some(wanted) = &set.spec.service else { return nothing_to_do() };
    let body = endpoint_slice(set, wanted, &observation.ports, endpoints);
    let labels = &body["metadata"]["labels"];
    let patch =
        json!({"metadata": {"labels": labels}, "endpoints": body["endpoints"], "ports": body["ports"]});
    let name = slice_name(&wanted.name);
    let target = Target { observation, name: &name, version: observation.slice.as_ref() };
    answer(write::<EndpointSlice>(client, &target, (&body, patch)).await, |slice| {
        Written::Slice(Box::new(slice))
    })
}

/// The object that a write is about.
struct Target<'a> {
    observation: &'a Observation,
    name: &'a str,
    version: Option<&'a Version>,
}

/// Creates the object, or patches the version that was seen.
async fn write<K>(
    client: &Client,
    target: &Target<'_>,
    (body, mut patch): (&Value, Value),
) -> Result<K, kube::Error>
where
    K: kube::Resource<Scope = kube::core::NamespaceResourceScope, DynamicType = ()>,
    K: Clone + DeserializeOwned + std::fmt::Debug + serde::Serialize,
{
    let namespace = target.observation.set.metadata.namespace.as_deref().unwrap_or_default();
    let api: Api<K> = Api::namespaced(client.clone(), namespace);
    let field_manager = Some(keys::FIELD_MANAGER.to_owned());
    let Some(version) = target.version else {
        let object = serde_json::from_value(body.clone()).map_err(kube::Error::SerdeError)?;
        return api.create(&PostParams { field_manager, ..PostParams::default() }, &object).await;
    };
    patch["metadata"]["uid"] = json!(version.uid);
    patch["metadata"]["resourceVersion"] = json!(version.resource_version);
    let parameters = PatchParams { field_manager, ..PatchParams::default() };
    api.patch(target.name, &parameters, &Patch::Merge(patch)).await
}

fn answer<K>(written: Result<K, kube::Error>, keep: impl Fn(K) -> Written) -> Answer {
    match written {
        Ok(object) => Answer::done(keep(object)),
        // Only a create meets a name that exists while none of ours does: a patch names the version it saw.
        Err(kube::Error::Api(status)) if status.reason == "AlreadyExists" => {
            Answer::failed(Refusal::NameTaken, status.message.clone())
        }
        Err(error) => refused(&error),
    }
}

/// The spec lost its Service between decision and write.
const fn nothing_to_do() -> Answer {
    Answer { outcome: Outcome::Stale, message: None, written: None }
}
