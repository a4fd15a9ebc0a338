//! Writes the group of a set's pairs.

use kube::Client;
use serde_json::json;

use super::Answer;
use super::exposure::{Target, nothing_to_do, write};
use crate::api::HAGroup;
use crate::manifests::set_group;
use crate::observe::{Observation, Written};

/// Creates the group, or puts its spec right.
pub(super) async fn publish_group(client: &Client, observation: &Observation) -> Answer {
    let set = observation.set.as_ref();
    let Some(spec) = &observation.group_spec else { return nothing_to_do() };
    let body = set_group(set, spec);
    let mut patch = json!({"metadata": {"labels": body["metadata"]["labels"]}, "spec": body["spec"]});
    // What the body leaves out is taken away.
    for field in ["service", "replicationPorts", "handover", "timing"] {
        patch["spec"][field] = body["spec"][field].clone();
    }
    let name = set.metadata.name.clone().unwrap_or_default();
    let target = Target { observation, name: &name, version: observation.group.as_ref() };
    write(client, &target, ((&body, patch), |group: HAGroup| Written::Group(Box::new(group)))).await
}
