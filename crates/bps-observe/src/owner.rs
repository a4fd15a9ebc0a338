//! Who controls an object: the one place that decides whether something is ours to write.

use bps_api::{BackupPodSet, keys};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube_core::ObjectMeta;

/// The controller of an object; Kubernetes allows at most one.
pub fn controller_of(metadata: &ObjectMeta) -> Option<&OwnerReference> {
    metadata.owner_references.iter().flatten().find(|owner| owner.controller == Some(true))
}

/// Whether an object is controlled by this incarnation of the set.
pub fn is_controlled_by(metadata: &ObjectMeta, set: &BackupPodSet) -> bool {
    controller_of(metadata).is_some_and(|owner| Some(&owner.uid) == set.metadata.uid.as_ref())
}

/// Whether nobody owns an object.
pub fn is_orphan(metadata: &ObjectMeta) -> bool {
    metadata.owner_references.as_ref().is_none_or(Vec::is_empty)
}

/// Whether an object was left behind by an earlier set of this name, as `kubectl delete --cascade=orphan` does: nobody owns it.
fn is_left_behind(metadata: &ObjectMeta, set: &BackupPodSet) -> bool {
    let label = |key: &str| metadata.labels.as_ref().and_then(|labels| labels.get(key));
    let is_ours = label(keys::LABEL_MANAGED_BY).map(String::as_str) == Some(keys::MANAGED_BY);
    is_orphan(metadata) && is_ours && label(keys::LABEL_SET) == set.metadata.name.as_ref()
}

/// Whether an object of a name that the set needs is for the set to write.
pub(super) fn is_for(metadata: &ObjectMeta, set: &BackupPodSet) -> bool {
    is_controlled_by(metadata, set) || is_left_behind(metadata, set)
}
