//! The Pod template: typed where the operator reads it, raw JSON elsewhere.
//!
//! Raw, because a field of a newer Kubernetes must reach the Pod although this program does not know it.

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use std::borrow::Cow;
use std::collections::BTreeMap;

/// Pods of a set are made from this template; the operator adds its labels, owner reference and, for cold
/// backups, the gate.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
pub struct PodTemplate {
    /// Labels and annotations of the Pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<TemplateMetadata>,
    /// Specification of the Pods as written by the user, every field of Kubernetes kept.
    pub spec: Map<String, Value>,
}

/// Metadata of a Pod template. Further fields of Kubernetes' object metadata are accepted and have no effect.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
pub struct TemplateMetadata {
    /// Accepted and without effect: Pods are named after the set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Labels of the Pods. Keys of ours are reserved.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Annotations of the Pods. Keys of ours are reserved.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
}

impl JsonSchema for PodTemplate {
    fn schema_name() -> Cow<'static, str> {
        "PodTemplate".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let mut spec: Value = serde_json::from_str(POD_SPEC_SCHEMA).expect("the checked-in schema is JSON");
        keep_unknown_fields(&mut spec);
        spec["x-kubernetes-validations"] = rules(&SPEC_RULES);
        spec["description"] = json!("Specification of the Pods, as in Kubernetes' own `pods.spec`.");
        json_schema!({
            "type": "object",
            "required": ["spec"],
            "properties": {"metadata": metadata_schema(), "spec": spec},
        })
    }
}

/// Has the API server keep fields that the schema does not know, at every level: it would take them away without a word, also
/// one of a newer Kubernetes that makes Pods safer. Whether a Pod can have them is asked when it is made.
fn keep_unknown_fields(schema: &mut Value) {
    let Some(schema) = schema.as_object_mut() else { return };
    if let Some(properties) = schema.get_mut("properties").and_then(Value::as_object_mut) {
        properties.values_mut().for_each(keep_unknown_fields);
        schema.insert("x-kubernetes-preserve-unknown-fields".to_owned(), json!(true));
    }
    for nested in ["items", "additionalProperties"] {
        schema.get_mut(nested).into_iter().for_each(keep_unknown_fields);
    }
}

/// Schema of a Pod's `spec`, printed by `bps-generate` from the document of a Kubernetes 1.36 API server.
const POD_SPEC_SCHEMA: &str = include_str!("pod_spec.schema.json");
/// Most labels, and most annotations, of a template; bounds the cost of the rules below.
const METADATA_ENTRIES_MAX: u32 = 256;

/// A CEL rule and what the user reads when it does not hold.
type Rule = (&'static str, &'static str);

const LABEL_RULES: [Rule; 2] = [
    (
        "!('type' in self) && !('HAState' in self) && !('peer' in self)",
        "the labels type, HAState and peer are written by the operator: use other keys, for example app",
    ),
    (
        "self.all(key, !key.startsWith('backup.example.com/'))",
        "labels that start with backup.example.com/ are written by the operator: use a prefix of your own",
    ),
];

const ANNOTATION_RULES: [Rule; 1] = [(
    "self.all(key, !key.startsWith('backup.example.com/'))",
    "annotations that start with backup.example.com/ are written by the operator: use a prefix of your own",
)];

const SPEC_RULES: [Rule; 5] = [
    (
        "!has(self.restartPolicy) || self.restartPolicy == 'Always'",
        "restartPolicy must be Always: write Always or leave it out",
    ),
    (
        "!has(self.activeDeadlineSeconds)",
        "activeDeadlineSeconds would end Pods that are to be kept: leave it out",
    ),
    (
        "!has(self.initContainers) || self.initContainers.all(c, !c.name.startsWith('bps-'))",
        "names of initContainers that start with bps- belong to the cold gate: choose another name",
    ),
    (
        "self.containers.all(c, !c.name.startsWith('bps-'))",
        "names of containers that start with bps- belong to the cold gate: choose another name",
    ),
    (
        "!has(self.volumes) || self.volumes.all(v, !v.name.startsWith('bps-'))",
        "names of volumes that start with bps- belong to the operator: choose another name",
    ),
];

fn rules(rules: &[Rule]) -> Value {
    rules.iter().map(|(rule, message)| json!({"rule": rule, "message": message})).collect()
}

fn metadata_schema() -> Value {
    let map = |description: &str, checks: &[Rule]| {
        json!({
            "description": description,
            "type": "object",
            "additionalProperties": {"type": "string"},
            "maxProperties": METADATA_ENTRIES_MAX,
            "x-kubernetes-validations": rules(checks),
        })
    };
    let ignored = "Accepted and without effect.";
    json!({
        "description": "Labels and annotations of the Pods.",
        "type": "object",
        "properties": {
            "labels": map("Labels of the Pods; those of the operator are added.", &LABEL_RULES),
            "annotations": map("Annotations of the Pods; those of the operator are added.", &ANNOTATION_RULES),
            "name": {"description": "Accepted and without effect: Pods are named after the set.", "type": "string"},
            "generateName": {"description": ignored, "type": "string"},
            "namespace": {"description": ignored, "type": "string"},
            "creationTimestamp": {
                "description": ignored, "type": "string", "format": "date-time", "nullable": true,
            },
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_that_this_program_does_not_know_reach_the_pod_and_other_metadata_does_not() {
        let spec =
            json!({"containers": [{"name": "web", "fieldOfTomorrow": {"deep": [1, null]}}], "alsoNew": true});
        let metadata = json!({"labels": {"app": "web"}, "creationTimestamp": null, "namespace": "other"});
        let template: PodTemplate =
            serde_json::from_value(json!({"metadata": metadata, "spec": spec})).expect("a template");
        let expected = json!({"metadata": {"labels": {"app": "web"}}, "spec": spec});
        assert_eq!(serde_json::to_value(template).expect("JSON"), expected);
    }

    #[test]
    fn fields_that_the_schema_does_not_know_are_kept_at_every_level() {
        let schema = PodTemplate::json_schema(&mut SchemaGenerator::default()).to_value();
        let spec = &schema["properties"]["spec"];
        let is_open =
            |path: &str| spec.pointer(path).map(|at| at["x-kubernetes-preserve-unknown-fields"] == true);
        for path in [
            "",
            "/properties/securityContext",
            "/properties/containers/items",
            "/properties/containers/items/properties/securityContext/properties/capabilities",
            "/properties/volumes/items/properties/image",
        ] {
            assert_eq!(is_open(path), Some(true), "{path}");
        }
        // Labels are whatever the user writes, and metadata of the template has no effect but for what is known.
        assert_eq!(is_open("/properties/nodeSelector"), Some(false));
        assert_eq!(schema["properties"]["metadata"].get("x-kubernetes-preserve-unknown-fields"), None);
    }

    #[test]
    fn lists_of_containers_merge_by_name() {
        let schema = PodTemplate::json_schema(&mut SchemaGenerator::default()).to_value();
        let list = |path: &str| schema.pointer(&format!("/properties/spec/properties/{path}")).cloned();
        let keys = |path: &str| list(path).map(|list| list["x-kubernetes-list-map-keys"].clone());
        let protocol = list("containers/items/properties/ports/items/properties/protocol/default");
        assert_eq!(
            ["containers", "initContainers", "volumes"].map(keys),
            [(); 3].map(|()| Some(json!(["name"])))
        );
        assert_eq!(protocol, Some(json!("TCP")));
    }
}
