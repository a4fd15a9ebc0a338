//! Who controls an object: the one place that decides whether something is ours to write.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::core::ObjectMeta;

use crate::api::BackupPodSet;

/// The controller of an object; Kubernetes allows at most one.
pub fn controller_of(metadata: &ObjectMeta) -> Option<&OwnerReference> {
    metadata.owner_references.iter().flatten().find(|owner| owner.controller == Some(true))
}

/// Whether an object is controlled by this incarnation of the set.
pub fn is_controlled_by(metadata: &ObjectMeta, set: &BackupPodSet) -> bool {
    controller_of(metadata).is_some_and(|owner| Some(&owner.uid) == set.metadata.uid.as_ref())
}
