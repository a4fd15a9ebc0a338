//! The definitions of the kinds as they are shipped in `crds/`.

use super::group::HAGroup;
use super::spec::BackupPodSet;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSON, JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};
use kube_core::CustomResourceExt;
use serde_json::json;

/// The definition of the BackupPodSet kind, ready to be applied.
pub fn crd() -> CustomResourceDefinition {
    tidied(BackupPodSet::crd())
}

/// The definition of the HAGroup kind, ready to be applied.
pub fn group_crd() -> CustomResourceDefinition {
    tidied(HAGroup::crd())
}

fn tidied(mut crd: CustomResourceDefinition) -> CustomResourceDefinition {
    for version in &mut crd.spec.versions {
        let schema = version.schema.as_mut().and_then(|validation| validation.open_api_v3_schema.as_mut());
        if let Some(root) = schema {
            visit(root, &join_lines);
            let properties = root.properties.get_or_insert_default();
            properties.get_mut("spec").into_iter().for_each(|spec| visit(spec, &drop_nullable));
            properties.get_mut("status").into_iter().for_each(|status| {
                visit(status, &drop_default);
                status.default = Some(unobserved());
            });
        }
    }
    crd
}

/// Line breaks of the source are not paragraphs of the text that `kubectl explain` prints.
fn join_lines(schema: &mut JSONSchemaProps) {
    if let Some(description) = &mut schema.description {
        *description =
            description.split("\n\n").map(|text| text.replace('\n', " ")).collect::<Vec<_>>().join("\n\n");
    }
}

/// Without `nullable` the API server drops an explicit null and sets the default, as it does for its own kinds.
fn drop_nullable(schema: &mut JSONSchemaProps) {
    if schema.format.as_deref() != Some("date-time") {
        schema.nullable = None;
    }
}

/// The status of an object that no operator has looked at yet.
///
/// -1, which no generation is: tools that wait for an object, such as kstatus, take one without a status for one that is as it
/// should be.
fn unobserved() -> JSON {
    JSON(json!({"observedGeneration": -1}))
}

/// A status says what was seen: a value that nobody wrote must not appear in it.
fn drop_default(schema: &mut JSONSchemaProps) {
    schema.nullable = None;
    schema.default = None;
}

fn visit(schema: &mut JSONSchemaProps, change: &dyn Fn(&mut JSONSchemaProps)) {
    change(schema);
    for property in schema.properties.iter_mut().flat_map(|properties| properties.values_mut()) {
        visit(property, change);
    }
    match &mut schema.items {
        Some(JSONSchemaPropsOrArray::Schema(items)) => visit(items, change),
        Some(JSONSchemaPropsOrArray::Schemas(_)) | None => {}
    }
    match &mut schema.additional_properties {
        Some(JSONSchemaPropsOrBool::Schema(value)) => visit(value, change),
        Some(JSONSchemaPropsOrBool::Bool(_)) | None => {}
    }
}
