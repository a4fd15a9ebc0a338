//! Writes the group of a set's pairs.

use std::sync::LazyLock;

use bps_api::HAGroup;
use bps_api::crd::group_crd;
use bps_core::manifests::set_group;
use bps_observe::{Observation, Written};
use kube::Client;
use serde_json::{Value, json};

use super::Answer;
use super::exposure::{Guard, Target, nothing_to_do, write};

/// Every field that a group's spec may have, by its schema.
static FIELDS: LazyLock<Vec<String>> = LazyLock::new(|| {
    let versions = group_crd().spec.versions.into_iter();
    let schemas =
        versions.filter_map(|version| version.schema?.open_api_v3_schema?.properties?.remove("spec"));
    schemas.filter_map(|spec| spec.properties).flatten().map(|(field, _)| field).collect()
});

/// Creates the group, or puts its spec right.
pub(super) async fn publish_group(client: &Client, observation: &Observation) -> Answer {
    let set = observation.set.as_ref();
    let Some(spec) = &observation.group_spec else { return nothing_to_do() };
    let body = set_group(set, spec);
    // What the body leaves out is taken away.
    let fields = FIELDS.iter().map(|field| (field.clone(), body["spec"][field].clone()));
    let spec: Value = fields.collect();
    let patch = json!({"metadata": {"labels": body["metadata"]["labels"]}, "spec": spec});
    let name = set.metadata.name.clone().unwrap_or_default();
    let version = observation.group.as_ref();
    let target = Target { observation, name: &name, version, guard: Guard::Incarnation };
    write(client, &target, ((&body, patch), |group: HAGroup| Written::Group(Box::new(group)))).await
}
