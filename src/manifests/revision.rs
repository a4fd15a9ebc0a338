//! Names one state of the template and keeps it for a rollback.

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::owner_reference;
use crate::api::{BackupPodSet, PodTemplate, keys};
use crate::model::Revision;

/// Short hash of everything in the template that reaches a Pod; the order of keys does not matter.
pub fn revision(template: &PodTemplate) -> Revision {
    // The template's own name has no effect on Pods, so changing it must not replace them.
    let metadata = template.metadata.as_ref().map(|metadata| json!([metadata.labels, metadata.annotations]));
    let text = json!([metadata, template.spec]).to_string();
    let digest = Sha256::digest(text.as_bytes());
    let digits = digest.iter().flat_map(|byte| [byte >> 4, byte & 0xf]);
    Revision(
        digits
            .take(keys::REVISION_HEX_DIGITS)
            .map(|digit| char::from_digit(u32::from(digit), 16).expect("four bits are one digit"))
            .collect(),
    )
}

/// The `ControllerRevision` that keeps the template under its revision.
///
/// `number` is the position in the history, higher for later templates.
pub fn controller_revision(set: &BackupPodSet, number: i64) -> Value {
    let revision = revision(&set.spec.template);
    let name = set.metadata.name.as_deref().unwrap_or_default();
    json!({
        "apiVersion": "apps/v1",
        "kind": "ControllerRevision",
        "metadata": {
            "name": format!("{name}-{revision}"),
            "namespace": set.metadata.namespace,
            "labels": {
                (keys::LABEL_SET): name,
                (keys::LABEL_REVISION): revision.0,
                (keys::LABEL_MANAGED_BY): keys::MANAGED_BY,
            },
            "ownerReferences": [owner_reference(set)],
        },
        "data": {"spec": {"template": set.spec.template}},
        "revision": number,
    })
}
