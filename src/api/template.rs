//! The Pod template: typed where the operator reads it, raw JSON elsewhere.
//!
//! Raw, because a field of a newer Kubernetes must reach the Pod although this program does not know it.

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
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
        schemars::json_schema!({"type": "object", "x-kubernetes-preserve-unknown-fields": true})
    }
}
