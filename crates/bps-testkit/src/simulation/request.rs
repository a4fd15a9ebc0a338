//! An HTTP request of the client as the server understands it: verb, object, options, guards.

use std::collections::BTreeMap;

use http::{Method, request::Parts};
use serde_json::Value;

use crate::simulation::kinds::Kind;
use crate::simulation::kinds::Trait;
use crate::simulation::refusal::Refusal;
use crate::simulation::store::DeleteOptions;
use crate::simulation::store::Part;
use crate::simulation::world::Key;

/// What is asked for, in RBAC's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verb {
    Get,
    List,
    Watch,
    Create,
    Update,
    Patch,
    Delete,
}

impl Verb {
    /// The RBAC verb.
    pub fn name(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::List => "list",
            Self::Watch => "watch",
            Self::Create => "create",
            Self::Update => "update",
            Self::Patch => "patch",
            Self::Delete => "delete",
        }
    }

    /// Whether the verb changes the world.
    pub fn is_write(self) -> bool {
        matches!(self, Self::Create | Self::Update | Self::Patch | Self::Delete)
    }
}

/// How the body of a PATCH is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PatchType {
    Merge,
    Json,
    Strategic,
    Apply,
}

/// A request, understood.
#[derive(Clone, Debug)]
pub struct Request {
    pub verb: Verb,
    /// The name is empty for collections.
    pub key: Key,
    pub part: Part,
    pub query: BTreeMap<String, String>,
    pub patch_type: Option<PatchType>,
    pub body: Option<Value>,
    /// The client accepts metadata only.
    pub metadata_only: bool,
}

impl Request {
    /// Understands a request.
    ///
    /// # Errors
    /// 404 for a route that is not served, 405, 415, and 400 for a body that is no JSON.
    pub fn parse(parts: &Parts, body: &[u8]) -> Result<Self, Refusal> {
        let (mut key, subresource) = route(parts.uri.path())?;
        let part = match subresource {
            "" => Part::Main,
            "status" if key.kind.has(Trait::StatusSubresource) => Part::Status,
            _ => return Err(Refusal::no_route()),
        };
        let query = parse_query(parts.uri.query().unwrap_or_default());
        if query.contains_key("dryRun") {
            return Err(Refusal::bad_request("dryRun is not simulated"));
        }
        let header = |name: &str| parts.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or("");
        let verb =
            verb(&parts.method, key.name.is_empty(), query.get("watch").is_some_and(|on| on == "true"))?;
        let patch_type =
            if verb == Verb::Patch { Some(patch_type(&key, header("content-type"))?) } else { None };
        let body = if body.is_empty() {
            None
        } else {
            Some(
                serde_json::from_slice::<Value>(body)
                    .map_err(|error| Refusal::bad_request(&error.to_string()))?,
            )
        };
        if verb == Verb::Create {
            key.name = created_name(body.as_ref())?;
        }
        let metadata_only = header("accept").contains("as=PartialObjectMetadata");
        Ok(Self { verb, key, part, query, patch_type, body, metadata_only })
    }

    /// A query parameter; empty when absent.
    pub fn parameter(&self, name: &str) -> &str {
        self.query.get(name).map_or("", String::as_str)
    }

    /// Name of the subresource, as RBAC has it.
    pub fn subresource(&self) -> &'static str {
        match self.part {
            Part::Main => "",
            Part::Status => "status",
        }
    }

    /// The uid and the resourceVersion that this write insists on.
    pub fn guards(&self) -> (Option<String>, Option<String>) {
        let Some(body) = &self.body else { return (None, None) };
        if self.verb == Verb::Delete {
            let options = DeleteOptions::parse(Some(body));
            return (options.uid, options.resource_version);
        }
        let field = |name: &str| {
            let tested = |step: &&Value| step["op"] == "test" && step["path"] == format!("/metadata/{name}");
            let value = match body.as_array() {
                Some(steps) => &steps.iter().find(tested)?["value"],
                None => &body["metadata"][name],
            };
            value.as_str().map(str::to_owned)
        };
        (field("uid"), field("resourceVersion"))
    }
}

impl std::fmt::Display for Request {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.verb.name(), self.key)?;
        if self.part == Part::Status {
            f.write_str("/status")?;
        }
        Ok(())
    }
}

fn route(path: &str) -> Result<(Key, &str), Refusal> {
    let segments: Vec<&str> = path.split('/').filter(|segment| !segment.is_empty()).collect();
    let (group, version, rest) = match segments[..] {
        ["api", version, ref rest @ ..] => ("", version, rest),
        ["apis", group, version, ref rest @ ..] => (group, version, rest),
        _ => return Err(Refusal::no_route()),
    };
    let (namespace, plural, rest) = match *rest {
        ["namespaces", namespace, plural, ref rest @ ..] => (namespace, plural, rest),
        [plural, ref rest @ ..] => ("", plural, rest),
        [] => return Err(Refusal::no_route()),
    };
    let (name, subresource) = match *rest {
        [] => ("", ""),
        [name] => (name, ""),
        [name, subresource] => (name, subresource),
        _ => return Err(Refusal::no_route()),
    };
    let kind: &'static Kind = Kind::find(group, version, plural).ok_or_else(Refusal::no_route)?;
    if kind.has(Trait::Namespaced) && namespace.is_empty() && !name.is_empty() {
        return Err(Refusal::no_route());
    }
    Ok((Key::new(kind, namespace, name), subresource))
}

fn verb(method: &Method, is_collection: bool, is_watch: bool) -> Result<Verb, Refusal> {
    match (method.as_str(), is_collection) {
        ("GET", true) if is_watch => Ok(Verb::Watch),
        ("GET", true) => Ok(Verb::List),
        ("GET", false) => Ok(Verb::Get),
        ("POST", true) => Ok(Verb::Create),
        ("PUT", false) => Ok(Verb::Update),
        ("PATCH", false) => Ok(Verb::Patch),
        ("DELETE", false) => Ok(Verb::Delete),
        _ => Err(Refusal::method_not_allowed()),
    }
}

fn patch_type(key: &Key, content_type: &str) -> Result<PatchType, Refusal> {
    match content_type {
        "application/merge-patch+json" => Ok(PatchType::Merge),
        "application/json-patch+json" => Ok(PatchType::Json),
        "application/apply-patch+yaml" => Ok(PatchType::Apply),
        "application/strategic-merge-patch+json" if !key.kind.has(Trait::Custom) => Ok(PatchType::Strategic),
        other => Err(Refusal::unsupported_media_type(other)),
    }
}

fn created_name(body: Option<&Value>) -> Result<String, Refusal> {
    let name = body.and_then(|body| body["metadata"]["name"].as_str()).unwrap_or_default();
    if name.is_empty() {
        // The operator must never use generateName (a repeated create would be a duplicate), so it is not served.
        return Err(Refusal::bad_request("metadata.name is required; generateName is not simulated"));
    }
    Ok(name.to_owned())
}

fn parse_query(query: &str) -> BTreeMap<String, String> {
    let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    pairs.map(|(name, value)| (decode(name), decode(value))).collect()
}

/// Form decoding: `+` is a blank, `%41` is `A`.
fn decode(text: &str) -> String {
    let mut bytes = text.bytes();
    let mut decoded = Vec::with_capacity(text.len());
    while let Some(byte) = bytes.next() {
        decoded.push(match byte {
            b'+' => b' ',
            b'%' => {
                let digits = [bytes.next().unwrap_or(b'0'), bytes.next().unwrap_or(b'0')];
                u8::from_str_radix(&String::from_utf8_lossy(&digits), 16).unwrap_or(b'?')
            }
            other => other,
        });
    }
    String::from_utf8_lossy(&decoded).into_owned()
}
