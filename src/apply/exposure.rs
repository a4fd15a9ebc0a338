//! Writes the exposed Service and its EndpointSlice.

use bps_api::{ExposedService, keys};
use bps_core::manifests::{
    ShownAddresses, endpoint_slice, keep_families, service, service_patch, slice_name,
};
use bps_core::model::{ExposedKind, Leftover, Outcome, Refusal, Uid};
use bps_observe::{Observation, TakenName, Version, Written, is_controlled_by};
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::{Patch, PatchParams, PostParams};
use kube::core::ObjectMeta;
use kube::{Api, Client};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::Answer;
use super::outcome::{is_name_taken, refused};
use super::removal::delete;
use super::standing::objection;
use super::taken::taken;

/// Creates the Service, or puts its ports and type right.
pub(super) async fn publish_service(client: &Client, observation: &Observation) -> Answer {
    let set = observation.set.as_ref();
    let Some(wanted) = &set.spec.service else { return nothing_to_do() };
    let body = service(set, wanted);
    let mut patch = service_patch(&body, observation.service_annotations.as_ref());
    keep_families(&mut patch, &observation.families);
    let version = observation.service.as_ref();
    let target = Target { observation, name: &wanted.name, version, guard: Guard::Version };
    let keep = |service: Service| Written::Service(Box::new(service));
    let answer = write(client, &target, ((&body, patch), keep)).await;
    with_taken_name(answer, ExposedKind::Service, &target)
}

/// Writes all addresses of a family at once.
pub(super) async fn expose(client: &Client, observation: &Observation, shown: ShownAddresses<'_>) -> Answer {
    let set = observation.set.as_ref();
    let Some(wanted) = &set.spec.service else { return nothing_to_do() };
    let kept = ExposedService { traffic_distribution: observation.traffic_distribution, ..wanted.clone() };
    let body = endpoint_slice(set, &kept, &observation.ports, shown);
    let labels = &body["metadata"]["labels"];
    let patch =
        json!({"metadata": {"labels": labels}, "endpoints": body["endpoints"], "ports": body["ports"]});
    let name = slice_name(&wanted.name, shown.family);
    let seen = observation.slices.get(&shown.family);
    if let Some(misplaced) = seen.filter(|seen| seen.is_misplaced) {
        let Version { uid, resource_version, .. } = misplaced.version.clone();
        let object = Leftover { kind: ExposedKind::Slice, name, uid: Uid(uid), resource_version };
        if misplaced.version.is_orphan
            && let Some(answer) = objection(client, set).await
        {
            return answer;
        }
        let removed = retire(client, observation, &object).await;
        // The next look makes it anew.
        let is_gone = matches!(removed.written, Some(Written::SliceGone(_)));
        return Answer { outcome: if is_gone { Outcome::Stale } else { removed.outcome }, ..removed };
    }
    let version = seen.map(|seen| &seen.version);
    let target = Target { observation, name: &name, version, guard: Guard::Version };
    let keep = |slice: EndpointSlice| Written::Slice(Box::new(slice));
    let answer = write(client, &target, ((&body, patch), keep)).await;
    with_taken_name(answer, ExposedKind::Slice, &target)
}

/// Tells the cache that somebody else has the name, which none of our watches shows.
fn with_taken_name(answer: Answer, kind: ExposedKind, target: &Target<'_>) -> Answer {
    if answer.outcome != Outcome::Failed(Refusal::NameTaken) {
        return answer;
    }
    let namespace = target.observation.set.metadata.namespace.clone().unwrap_or_default();
    let taken = TakenName { kind, namespace, name: target.name.to_owned() };
    Answer { written: Some(Written::NameTaken(taken)), ..answer }
}

/// Deletes what an earlier spec wanted.
pub(super) async fn retire(client: &Client, observation: &Observation, object: &Leftover) -> Answer {
    let namespace = observation.set.metadata.namespace.as_deref().unwrap_or_default();
    let seen = ObjectMeta {
        namespace: Some(namespace.to_owned()),
        name: Some(object.name.clone()),
        uid: Some(object.uid.0.clone()),
        resource_version: Some(object.resource_version.clone()),
        ..ObjectMeta::default()
    };
    match object.kind {
        ExposedKind::Service => {
            let kept = |service: Service| Written::Service(Box::new(service));
            let gone = |service: Service| Written::ServiceGone(Box::new(service));
            delete(&Api::namespaced(client.clone(), namespace), seen, (kept, gone)).await
        }
        ExposedKind::Slice => {
            let kept = |slice: EndpointSlice| Written::Slice(Box::new(slice));
            let gone = |slice: EndpointSlice| Written::SliceGone(Box::new(slice));
            delete(&Api::namespaced(client.clone(), namespace), seen, (kept, gone)).await
        }
        ExposedKind::Budget => {
            let kept = |budget: PodDisruptionBudget| Written::Budget(Box::new(budget));
            let gone = |budget: PodDisruptionBudget| Written::BudgetGone(Box::new(budget));
            delete(&Api::namespaced(client.clone(), namespace), seen, (kept, gone)).await
        }
    }
}

/// The object that a write is about.
pub(super) struct Target<'a> {
    pub(super) observation: &'a Observation,
    pub(super) name: &'a str,
    pub(super) version: Option<&'a Version>,
    pub(super) guard: Guard,
}

/// What has to be as it was seen for a write to be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Guard {
    /// The version: what is written depends on what was seen of the object.
    Version,
    /// The incarnation alone: all that is written follows from the set. The status of such an object changes with each Pod of the
    /// set, so that a guard by version would refuse a write again and again while Pods come and go.
    Incarnation,
}

/// Creates the object, or patches the one that was seen; one that nobody owns only for a set that stands.
pub(super) async fn write<K>(
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
        // Another controller may adopt an object without an owner meanwhile.
        if target.guard == Guard::Version || version.is_orphan {
            patch["metadata"]["resourceVersion"] = json!(version.resource_version);
        }
        if version.is_orphan {
            if let Some(answer) = objection(client, set).await {
                return answer;
            }
            patch["metadata"]["ownerReferences"] = body["metadata"]["ownerReferences"].clone();
        }
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
        Err(error) if is_name_taken(&error) => {
            let is_ours = |found: &ObjectMeta| is_controlled_by(found, set);
            taken(&api, target.name, (is_ours, keep)).await
        }
        Err(error) => refused(&error),
    }
}

/// The spec lost its Service, or its pairs, between decision and write.
pub(super) const fn nothing_to_do() -> Answer {
    Answer { outcome: Outcome::Stale, message: None, written: None }
}
