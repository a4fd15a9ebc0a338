//! Clears a Service of the operator of the addresses of other writers: kube-proxy routes clients to the addresses of all slices of a
//! Service.
//!
//! Slices of Kubernetes' own controllers have no use once the Service has no selector, and these controllers do not delete them. The
//! operator reports objects of users with the command that deletes them.

use bps_api::keys;
use bps_core::manifests::slice_name;
use bps_core::model::{Outcome, foreign_slice};
use bps_observe::{Cleared, Observation, Version, Written, is_controlled_by, is_orphan};
use k8s_openapi::api::core::v1::Endpoints;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::ListParams;
use kube::{Api, Client, Resource, ResourceExt};
use serde::de::DeserializeOwned;

use super::Answer;
use super::exposure::nothing_to_do;
use super::groups::at_most;
use super::outcome::{is_stale, refused};
use super::removal::at_version;

/// Value of `endpointslice.kubernetes.io/managed-by` on slices for Services with a selector.
const SLICE_CONTROLLER: &str = "endpointslice-controller.k8s.io";
/// The same on copies of the Endpoints object of a Service without one.
const MIRROR: &str = "endpointslicemirroring-controller.k8s.io";
/// Label of Endpoints objects that a controller of Kubernetes keeps.
const ENDPOINTS_MANAGED_BY: &str = "endpoints.kubernetes.io/managed-by";
/// Field manager of all of them in most clusters.
const CONTROLLER_MANAGER: &str = "kube-controller-manager";

/// Objects of other writers behind a Service.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Found {
    /// Objects that the operator deleted, as `kubectl` names them; sorted.
    pub(crate) taken: Vec<String>,
    /// Objects that remain because their author may need them, as `kubectl` names them; sorted.
    pub(crate) left: Vec<String>,
    /// Names of all slices that remain, sorted; copies of an object of `left` included.
    pub(crate) standing: Vec<String>,
    /// Slices that the operator deleted.
    pub(crate) deleted: Vec<EndpointSlice>,
    /// Whether an object changed meanwhile and therefore remains.
    pub(crate) is_overtaken: bool,
}

/// Clears the Service of a set.
pub(super) async fn clear_service(client: &Client, observation: &Observation) -> Answer {
    let set = observation.set.as_ref();
    let (Some(wanted), Some(Version { uid, .. })) = (&set.spec.service, &observation.service) else {
        return nothing_to_do();
    };
    let namespace = set.metadata.namespace.clone().unwrap_or_default();
    let own: Vec<String> =
        observation.families.iter().map(|family| slice_name(&wanted.name, *family)).collect();
    let is_own = |slice: &ObjectMeta| {
        let has_name = slice.name.as_ref().is_some_and(|name| own.contains(name));
        is_controlled_by(slice, set) || (has_name && is_orphan(slice))
    };
    match clear(client, &namespace, &wanted.name, is_own).await {
        Ok(Found { is_overtaken: true, .. }) => nothing_to_do(),
        Ok(Found { taken, left, standing, deleted, is_overtaken: false }) => {
            let (service, uid) = (wanted.name.clone(), uid.clone());
            let cleared = Cleared { namespace, service, uid, left, standing, deleted };
            let message = (!taken.is_empty()).then(|| taken.join(", "));
            Answer { outcome: Outcome::Done, message, written: Some(Written::Cleared(Box::new(cleared))) }
        }
        Err(error) => refused(&error),
    }
}

/// Deletes the objects of Kubernetes' own controllers behind a Service that has no selector.
///
/// # Errors
/// The first refused request. A later reconcile deletes what remains.
pub(crate) async fn clear(
    client: &Client,
    namespace: &str,
    service: &str,
    is_own: impl Fn(&ObjectMeta) -> bool,
) -> Result<Found, kube::Error> {
    let slices: Api<EndpointSlice> = Api::namespaced(client.clone(), namespace);
    let of_service = format!("{}={service}", keys::LABEL_SERVICE_NAME);
    let listed = slices.list(&ListParams::default().labels(&of_service)).await?.items;
    let of_others = listed.into_iter().filter(|slice| !is_own(slice.meta()));
    let (of_controllers, of_people): (Vec<_>, Vec<_>) =
        of_others.partition(|slice| [Some(SLICE_CONTROLLER), Some(MIRROR)].contains(&writer(slice)));

    let mut found = Found::default();
    // Kubernetes recreates a copy as long as its original exists. It may also be about to create the first one.
    let has_original = !clear_endpoints(client, namespace, service, &mut found).await?;
    let (copies, obsolete): (Vec<_>, Vec<_>) =
        of_controllers.into_iter().partition(|slice| has_original && writer(slice) == Some(MIRROR));
    let deletions = at_most(obsolete.iter().map(|slice| delete(&slices, slice.meta())).collect()).await;
    for (slice, deletion) in obsolete.into_iter().zip(deletions) {
        match deletion? {
            Deletion::Done => {
                found.taken.push(foreign_slice(&slice.name_any()));
                found.deleted.push(slice);
            }
            Deletion::Overtaken => found.is_overtaken = true,
        }
    }

    found.left.extend(of_people.iter().map(|slice| foreign_slice(&slice.name_any())));
    found.standing = of_people.iter().chain(&copies).map(ResourceExt::name_any).collect();
    for names in [&mut found.taken, &mut found.left, &mut found.standing] {
        names.sort();
    }
    Ok(found)
}

fn writer(slice: &EndpointSlice) -> Option<&str> {
    slice.labels().get(keys::LABEL_SLICE_MANAGED_BY).map(String::as_str)
}

/// Deletes the Endpoints object of a Service if a controller wrote it; returns whether none remains.
async fn clear_endpoints(
    client: &Client,
    namespace: &str,
    service: &str,
    found: &mut Found,
) -> Result<bool, kube::Error> {
    let api: Api<Endpoints> = Api::namespaced(client.clone(), namespace);
    let Some(endpoints) = api.get_opt(service).await? else { return Ok(true) };
    let object = format!("endpoints/{service}");
    if !is_by_controllers(endpoints.meta()) {
        found.left.push(object);
        return Ok(false);
    }
    match delete(&api, endpoints.meta()).await? {
        Deletion::Done => found.taken.push(object),
        Deletion::Overtaken => found.is_overtaken = true,
    }
    Ok(true)
}

/// Whether Kubernetes' own controllers wrote an Endpoints object. They label it since Kubernetes 1.33, in all distributions.
fn is_by_controllers(metadata: &ObjectMeta) -> bool {
    if metadata.labels.as_ref().and_then(|labels| labels.get(ENDPOINTS_MANAGED_BY)).is_some() {
        return true;
    }
    let mut managers = metadata.managed_fields.iter().flatten().map(|entry| entry.manager.as_deref());
    let is_known = metadata.managed_fields.as_ref().is_some_and(|entries| !entries.is_empty());
    is_known && managers.all(|manager| manager == Some(CONTROLLER_MANAGER))
}

/// Result of a deletion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Deletion {
    /// The object does not exist any more.
    Done,
    /// The object has another version than the one observed.
    Overtaken,
}

/// Deletes this version of an object.
async fn delete<K>(api: &Api<K>, seen: &ObjectMeta) -> Result<Deletion, kube::Error>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + std::fmt::Debug,
{
    let parameters = at_version(seen.uid.clone(), seen.resource_version.clone());
    match api.delete(seen.name.as_deref().unwrap_or_default(), &parameters).await {
        Ok(_) => Ok(Deletion::Done),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(Deletion::Done),
        Err(error) if is_stale(&error) => Ok(Deletion::Overtaken),
        Err(error) => Err(error),
    }
}
