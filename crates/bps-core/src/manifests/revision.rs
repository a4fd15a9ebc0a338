//! Names one state of the template and keeps it for a rollback.

use bps_api::{ActiveStandby, AgentDelivery, BackupPodSet, BackupPodSetSpec, keys};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::owner_reference;
use crate::model::Revision;

/// Fields of a set's spec that reach only Pods which the operator creates after the edit.
///
/// They are not in the revision, so an edit of them replaces no Pod: the operator's own part of a Pod changes, and not the
/// application.
pub const NEW_PODS_ONLY: [&str; 13] = [
    "backupPriorityClassName",
    "coldStart.gateSource",
    "coldStart.gateUser",
    "coldStart.imageGate",
    "schedulerName",
    "service",
    "service.drainSeconds",
    "strategy.init",
    "strategy.unallocatedToColdbackup",
    "strategy.unallocatedToHotbackup",
    "strategy.unallocatedToReplicas",
    "topology.key",
    "topology.tiers",
];

/// Short hash of everything in the spec that reaches every Pod; the order of keys does not matter.
///
/// The images of gate and agent are the operator's: its upgrade must not restart every application.
pub fn revision(spec: &BackupPodSetSpec) -> Revision {
    let template = &spec.template;
    // The template's own name has no effect on Pods, so changing it must not replace them.
    let metadata = template.metadata.as_ref().map(|metadata| json!([metadata.labels, metadata.annotations]));
    let text = match &spec.active_standby {
        None => json!([metadata, template.spec]),
        Some(ActiveStandby {
            container,
            agent_source,
            agent_path,
            run_in_standby,
            hooks,
            state_dir,
            promote_when,
            handover: _,
            timing: _,
            replication_ports: _,
            standby_for,
            arguments,
        }) => {
            let mut told = json!([container, run_in_standby, hooks, state_dir, promote_when, arguments]);
            // Sets without it keep the revision that they had before there was one.
            if let (Some(places), Some(told)) = (standby_for, told.as_array_mut()) {
                told.push(json!({"standbyFor": places}));
            }
            match agent_source.unwrap_or_default() {
                // The default is not hashed, so that a set keeps its revision whether it names it or not.
                AgentDelivery::Copy => json!([metadata, template.spec, told]),
                AgentDelivery::ImageVolume | AgentDelivery::Image => {
                    json!([metadata, template.spec, told, agent_source, agent_path])
                }
            }
        }
    }
    .to_string();
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
    let revision = revision(&set.spec);
    let name = set.metadata.name.as_deref().unwrap_or_default();
    let mut spec = json!({"template": set.spec.template});
    if let Some(active_standby) = &set.spec.active_standby {
        spec["activeStandby"] = json!(active_standby);
    }
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
        "data": {"spec": spec},
        "revision": number,
    })
}
