//! Writes the exposed Service and its EndpointSlice.

use either::Either;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::core::ObjectMeta;
use kube::{Api, Client};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::Answer;
use super::outcome::refused;
use super::taken::taken;
use crate::api::keys;
use crate::manifests::{endpoint_slice, service, slice_name};
use crate::model::{Endpoint, ExposedKind, Leftover, Outcome};
use crate::observe::{Observation, Version, Written};

/// Creates the Service, or puts its ports and type right.
pub(super) async fn publish_service(client: &Client, observation: &Observation) -> Answer {
    let set = observation.set.as_ref();
    let Some(wanted) = &set.spec.service else { return nothing_to_do() };
    let body = service(set, wanted);
    let patch =
        json!({"spec": {"type": body["spec"]["type"], "ports": body["spec"]["ports"], "selector": null}});
    let target = Target { observation, name: &wanted.name, version: observation.service.as_ref() };
    let keep = |service: Service| Written::Service(Box::new(service));
    write(client, &target, ((&body, patch), keep)).await
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
    let keep = |slice: EndpointSlice| Written::Slice(Box::new(slice));
    write(client, &target, ((&body, patch), keep)).await
}

/// Deletes what an earlier spec exposed.
pub(super) async fn retire(client: &Client, observation: &Observation, object: &Leftover) -> Answer {
    match object.kind {
        ExposedKind::Service => {
            let gone = |service: Service| Written::ServiceGone(Box::new(service));
            let kept = |service: Service| Written::Service(Box::new(service));
            delete(client, (observation, object), (gone, kept)).await
        }
        ExposedKind::Slice => {
            let gone = |slice: EndpointSlice| Written::SliceGone(Box::new(slice));
            let kept = |slice: EndpointSlice| Written::Slice(Box::new(slice));
            delete(client, (observation, object), (gone, kept)).await
        }
    }
}

async fn delete<K>(
    client: &Client,
    (observation, object): (&Observation, &Leftover),
    (gone, kept): (impl FnOnce(K) -> Written, impl FnOnce(K) -> Written),
) -> Answer
where
    K: kube::Resource<Scope = kube::core::NamespaceResourceScope, DynamicType = ()>,
    K: Clone + Default + DeserializeOwned + std::fmt::Debug,
{
    let namespace = observation.set.metadata.namespace.clone();
    let api: Api<K> = Api::namespaced(client.clone(), namespace.as_deref().unwrap_or_default());
    let preconditions = Preconditions {
        uid: Some(object.uid.0.clone()),
        resource_version: Some(object.resource_version.clone()),
    };
    let parameters = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
    match api.delete(&object.name, &parameters).await {
        // A finalizer, such as that of a load balancer, holds it.
        Ok(Either::Left(held)) if held.meta().deletion_timestamp.is_some() => Answer::done(kept(held)),
        Ok(Either::Left(ended)) => Answer::done(gone(ended)),
        Ok(Either::Right(_status)) => {
            let mut ended = K::default();
            let name = Some(object.name.clone());
            *ended.meta_mut() =
                ObjectMeta { namespace, name, uid: Some(object.uid.0.clone()), ..ObjectMeta::default() };
            Answer::done(gone(ended))
        }
        Err(error) => refused(&error),
    }
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
    ((body, mut patch), keep): ((&Value, Value), impl FnOnce(K) -> Written),
) -> Answer
where
    K: kube::Resource<Scope = kube::core::NamespaceResourceScope, DynamicType = ()>,
    K: Clone + DeserializeOwned + std::fmt::Debug + serde::Serialize,
{
    let set = target.observation.set.as_ref();
    let api: Api<K> = Api::namespaced(client.clone(), set.metadata.namespace.as_deref().unwrap_or_default());
    let field_manager = Some(keys::FIELD_MANAGER.to_owned());
    let written = if let Some(version) = target.version {
        patch["metadata"]["uid"] = json!(version.uid);
        patch["metadata"]["resourceVersion"] = json!(version.resource_version);
        let parameters = PatchParams { field_manager, ..PatchParams::default() };
        api.patch(target.name, &parameters, &Patch::Merge(patch)).await
    } else {
        match serde_json::from_value(body.clone()) {
            Ok(object) => api.create(&PostParams { field_manager, ..PostParams::default() }, &object).await,
            Err(error) => Err(kube::Error::SerdeError(error)),
        }
    };
    match written {
        Ok(object) => Answer::done(keep(object)),
        Err(kube::Error::Api(status)) if status.reason == "AlreadyExists" => {
            taken(&api, (set, target.name), keep).await
        }
        Err(error) => refused(&error),
    }
}

/// The spec lost its Service between decision and write.
const fn nothing_to_do() -> Answer {
    Answer { outcome: Outcome::Stale, message: None, written: None }
}
