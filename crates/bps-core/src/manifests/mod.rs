//! Builds the Kubernetes objects the operator writes, as pure functions of their inputs.
//!
//! Objects are built as JSON, so that every field a user wrote in the template is kept, also one that is newer than
//! this program.

mod active_standby;
mod agent_source;
mod budget;
mod gate;
mod group;
mod inject;
mod placement;
mod pod;
mod revision;
mod service;
#[cfg(test)]
mod tests;

use bps_api::{BackupPodSet, keys};
use serde_json::{Value, json};

pub use active_standby::{check_agent, set_group, set_group_spec, set_injection};
pub use agent_source::AgentSource;
pub use budget::{budget, budget_name, least_available};
pub use gate::GateSettings;
pub use group::{
    REPLICATION_SERVICE_PREFIX, agent_binding, agent_role, group_keys, group_keys_name, group_metadata,
    group_service, pair_name, pair_slice, replication_service, replication_service_name, standby_of_label,
};
pub use inject::{InjectError, InjectWarning, Injection, STOP_SIGNALS, inject, uninject};
pub use pod::{PodRequest, label_patch, pod, role_patch};
pub use revision::{NEW_PODS_ONLY, controller_revision, revision};
pub use service::{
    PortError, ShownAddresses, SlicePort, covers, endpoint_slice, hints, is_slice_name, keep_families,
    service, service_patch, service_ports, slice_name, slice_ports, written_annotations,
};

/// The controller reference that makes a child belong to this incarnation of the set.
pub fn owner_reference(set: &BackupPodSet) -> Value {
    json!({
        "apiVersion": format!("{}/{}", keys::GROUP, keys::VERSION),
        "kind": keys::KIND,
        "name": set.metadata.name,
        "uid": set.metadata.uid,
        "controller": true,
        "blockOwnerDeletion": true,
    })
}
