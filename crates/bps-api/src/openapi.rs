//! Turns the OpenAPI document of a real API server into the Pod template schema that the CRD embeds.
//!
//! A CRD needs a structural schema: no references, a type everywhere, defaults only where they cannot surprise.
//! Descriptions are dropped, because they alone are larger than what client-side `kubectl apply` can store.

use serde_json::{Map, Value, json};

/// Schema of the Pod specification in an OpenAPI v3 document of `/openapi/v3/api/v1`.
const POD_SPEC: &str = "io.k8s.api.core.v1.PodSpec";
/// Deepest nesting followed; Pods reach about 15, so more means a reference that leads back to itself.
const DEPTH_MAX: usize = 40;
/// Keywords kept as they are.
const KEPT: [&str; 7] = [
    "type",
    "format",
    "enum",
    "required",
    "x-kubernetes-list-type",
    "x-kubernetes-list-map-keys",
    "x-kubernetes-map-type",
];
/// Fields of the Pod specification left out: the API server refuses them in a new Pod.
const OMITTED: [&str; 1] = ["ephemeralContainers"];
/// Lists that rules of ours look into, with the most items allowed: the API server only accepts rules whose
/// worst cost it can bound. Far above what a Pod can use.
const BOUNDED: [(&str, u32); 3] = [("containers", 64), ("initContainers", 64), ("volumes", 256)];
/// Longest name of a container or volume: a DNS label.
const NAME_MAX_CHARS: u32 = 63;

/// Why an OpenAPI document cannot be used.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum Error {
    /// A schema that is referred to is missing.
    #[error("find schema {name}")]
    FindSchema {
        /// Its name.
        name: String,
    },
    /// A schema refers to itself, which a structural schema cannot express.
    #[error("resolve schema {name} within {DEPTH_MAX} levels")]
    ResolveSchema {
        /// Its name.
        name: String,
    },
}

/// Builds the structural schema of a Pod specification from an OpenAPI v3 document of group `v1`.
///
/// # Errors
/// When the document lacks a schema that Pods need, or a schema refers to itself.
pub fn pod_spec_schema(document: &Value) -> Result<Value, Error> {
    let mut schema = Resolver { schemas: &document["components"]["schemas"] }.named(POD_SPEC, 0)?;
    let properties = schema["properties"].as_object_mut().expect("a Pod specification has properties");
    for field in OMITTED {
        properties.remove(field);
    }
    for (field, max_items) in BOUNDED {
        properties[field]["maxItems"] = json!(max_items);
        properties[field]["items"]["properties"]["name"]["maxLength"] = json!(NAME_MAX_CHARS);
    }
    Ok(schema)
}

struct Resolver<'a> {
    schemas: &'a Value,
}

impl Resolver<'_> {
    fn named(&self, name: &str, depth: usize) -> Result<Value, Error> {
        if let Some(schema) = well_known(name) {
            return Ok(schema);
        }
        if depth > DEPTH_MAX {
            return Err(Error::ResolveSchema { name: name.to_owned() });
        }
        match self.schemas.get(name) {
            Some(schema) => self.inlined(schema, depth),
            None => Err(Error::FindSchema { name: name.to_owned() }),
        }
    }

    fn inlined(&self, schema: &Value, depth: usize) -> Result<Value, Error> {
        let reference = schema.get("$ref").or_else(|| schema.pointer("/allOf/0/$ref"));
        if let Some(reference) = reference.and_then(Value::as_str) {
            return self.named(reference.rsplit('/').next().unwrap_or(reference), depth + 1);
        }
        let mut out = Map::new();
        for keyword in KEPT {
            if let Some(value) = schema.get(keyword) {
                out.insert(keyword.to_owned(), value.clone());
            }
        }
        for keyword in ["items", "additionalProperties"] {
            if let Some(value) = schema.get(keyword) {
                out.insert(keyword.to_owned(), self.inlined(value, depth + 1)?);
            }
        }
        if let Some(properties) = schema.get("properties").and_then(Value::as_object) {
            let mut inlined = Map::new();
            for (name, property) in properties {
                inlined.insert(name.clone(), self.inlined(property, depth + 1)?);
            }
            out.insert("properties".to_owned(), Value::Object(inlined));
        }
        self.default_map_keys(schema, &mut out);
        Ok(Value::Object(out))
    }

    /// Gives keys of list maps that are not required the default of Kubernetes: without one, server-side apply
    /// cannot tell two items apart. No other default is kept, so that Pods get those of their own cluster.
    fn default_map_keys(&self, list: &Value, out: &mut Map<String, Value>) {
        let Some(keys) = list.get("x-kubernetes-list-map-keys").and_then(Value::as_array) else { return };
        let reference = list.pointer("/items/allOf/0/$ref").or_else(|| list.pointer("/items/$ref"));
        let name = reference.and_then(Value::as_str).and_then(|path| path.rsplit('/').next());
        let Some(item) = name.and_then(|name| self.schemas.get(name)) else { return };
        let required = item["required"].as_array().cloned().unwrap_or_default();
        for key in keys.iter().filter(|key| !required.contains(key)).filter_map(Value::as_str) {
            let default = item["properties"][key].get("default").cloned().unwrap_or_else(|| json!(""));
            out["items"]["properties"][key]["default"] = default;
        }
    }
}

/// Schemas that a CRD writes differently from Kubernetes' own document.
fn well_known(name: &str) -> Option<Value> {
    let int_or_string = |pattern: Option<&str>| {
        let mut schema = json!({"x-kubernetes-int-or-string": true});
        if let Some(pattern) = pattern {
            schema["pattern"] = json!(pattern);
        }
        schema
    };
    let strings = || json!({"type": "object", "additionalProperties": {"type": "string"}});
    match name.rsplit('.').next() {
        Some("Quantity") => Some(int_or_string(Some(QUANTITY_PATTERN))),
        Some("IntOrString") => Some(int_or_string(None)),
        Some("ObjectMeta") => Some(json!({
            "type": "object",
            "properties": {
                "name": {"type": "string"},
                "generateName": {"type": "string"},
                "namespace": {"type": "string"},
                "creationTimestamp": {"type": "string", "format": "date-time", "nullable": true},
                "labels": strings(),
                "annotations": strings(),
                "finalizers": {"type": "array", "items": {"type": "string"}},
            },
        })),
        _ => None,
    }
}

/// What Kubernetes accepts as a quantity: a decimal number and a decimal or binary suffix or an exponent.
const QUANTITY_PATTERN: &str =
    "^[+-]?([0-9]+|[0-9]+\\.[0-9]*|\\.[0-9]+)(([KMGTPE]i)|[numkMGTPE]|([eE][+-]?[0-9]+))?$";

#[cfg(test)]
mod tests {
    use super::*;

    fn document(port: &Value) -> Value {
        let list = |item: &str| {
            json!({"type": "array", "items": {"default": {}, "allOf": [{"$ref": format!("#/x/{item}")}]},
                   "description": "long", "x-kubernetes-patch-strategy": "merge"})
        };
        let mut ports = list("Port");
        ports["x-kubernetes-list-map-keys"] = json!(["containerPort", "protocol"]);
        json!({"components": {"schemas": {
            "io.k8s.api.core.v1.PodSpec": {"type": "object", "required": ["containers"], "properties": {
                "containers": list("Container"), "initContainers": list("Container"),
                "volumes": list("Container"), "ephemeralContainers": list("Container"),
            }},
            "Container": {"type": "object", "properties": {"name": {"type": "string", "default": ""}, "ports": ports}},
            "Port": port,
        }}})
    }

    #[test]
    fn references_are_inlined_and_only_list_map_keys_keep_a_default() {
        let port = json!({"type": "object", "required": ["containerPort"], "properties": {
            "containerPort": {"type": "integer", "default": 0}, "protocol": {"type": "string", "default": "TCP"}}});
        let container = json!({"type": "object", "properties": {
            "name": {"type": "string", "maxLength": 63},
            "ports": {"type": "array", "x-kubernetes-list-map-keys": ["containerPort", "protocol"], "items": {
                "type": "object", "required": ["containerPort"], "properties": {
                    "containerPort": {"type": "integer"}, "protocol": {"type": "string", "default": "TCP"}}}},
        }});
        let list = |max: u32| json!({"type": "array", "maxItems": max, "items": container});
        let expected = json!({"type": "object", "required": ["containers"], "properties": {
            "containers": list(64), "initContainers": list(64), "volumes": list(256)}});
        assert_eq!(pod_spec_schema(&document(&port)), Ok(expected));
    }

    #[test]
    fn a_schema_that_contains_itself_is_refused() {
        let port = json!({"type": "object", "properties": {"again": {"$ref": "#/x/Port"}}});
        assert_eq!(pod_spec_schema(&document(&port)), Err(Error::ResolveSchema { name: "Port".into() }));
    }

    #[test]
    fn a_missing_schema_is_named() {
        let port = json!({"$ref": "#/x/Gone"});
        assert_eq!(pod_spec_schema(&document(&port)), Err(Error::FindSchema { name: "Gone".into() }));
    }
}
