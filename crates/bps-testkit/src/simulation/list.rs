//! GET and LIST: selectors, paging with expiring tokens, and how fresh the answer must be.

use std::sync::Arc;

use base64::{Engine, prelude::BASE64_URL_SAFE_NO_PAD};
use serde_json::{Value, json};

use crate::simulation::refusal::Refusal;
use crate::simulation::request::Request;
use crate::simulation::selector::Selector;
use crate::simulation::world::Key;
use crate::simulation::world::Object;
use crate::simulation::world::World;

/// The part of an object that a client asked for.
pub fn shape(object: &Value, metadata_only: bool) -> Value {
    if !metadata_only {
        return object.clone();
    }
    json!({
        "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": object["metadata"],
    })
}

/// Answers a GET of one object; `stale` serves it from that many events ago.
///
/// # Errors
/// 404.
pub fn get(world: &World, request: &Request, stale: u64) -> Result<Value, Refusal> {
    let key = &request.key;
    let object: Option<Object> = if stale == 0 {
        world.object(key).map(Arc::clone)
    } else {
        world.objects_at(world.revision().saturating_sub(stale), key.kind, &key.namespace).remove(key)
    };
    object.map(|object| shape(&object, request.metadata_only)).ok_or_else(|| Refusal::not_found(key))
}

/// Which state a LIST is served from, and where in it the page begins.
struct Page {
    revision: u64,
    after: Option<Key>,
}

/// Answers a LIST; `stale` serves it from that many events ago (what `resourceVersion=0` permits).
///
/// # Errors
/// 400 for bad parameters, 410 for a revision or token from before the last compaction, 504 for the future.
pub fn list(world: &World, request: &Request, stale: u64) -> Result<Value, Refusal> {
    let kind = request.key.kind;
    let selector =
        Selector::parse(kind, request.parameter("labelSelector"), request.parameter("fieldSelector"))?;
    let limit: usize = number(request, "limit")?.unwrap_or(0);
    let mut page = page(world, request, limit > 0)?;
    if page.after.is_none() {
        page.revision = page.revision.saturating_sub(stale);
    }
    let objects = world.objects_at(page.revision, kind, &request.key.namespace);
    let mut left = objects
        .iter()
        .filter(|(key, object)| {
            page.after.as_ref().is_none_or(|after| *key > after) && selector.matches(object)
        })
        .peekable();
    let mut items = Vec::new();
    let mut last = None;
    while let Some((key, object)) = left.next_if(|_| limit == 0 || items.len() < limit) {
        items.push(shape(object, request.metadata_only));
        last = Some(key);
    }
    let mut metadata = json!({"resourceVersion": page.revision.to_string()});
    if left.peek().is_some() {
        metadata["continue"] = json!(token(page.revision, last.expect("a limited page is not empty")));
        if selector.is_everything() {
            metadata["remainingItemCount"] = json!(left.count());
        }
    }
    let (kind, version) = if request.metadata_only {
        ("PartialObjectMetadataList".to_owned(), "meta.k8s.io/v1".to_owned())
    } else {
        (format!("{}List", kind.kind), kind.api_version())
    };
    Ok(json!({"kind": kind, "apiVersion": version, "metadata": metadata, "items": items}))
}

fn number<T: std::str::FromStr>(request: &Request, name: &str) -> Result<Option<T>, Refusal> {
    match request.parameter(name) {
        "" => Ok(None),
        text => {
            text.parse().map(Some).map_err(|_| Refusal::bad_request(&format!("{name}: not a number: {text}")))
        }
    }
}

fn page(world: &World, request: &Request, is_limited: bool) -> Result<Page, Refusal> {
    let newest = world.revision();
    let matching = request.parameter("resourceVersionMatch");
    let wanted: Option<u64> = number(request, "resourceVersion")?;
    if !request.parameter("continue").is_empty() {
        if wanted.is_some_and(|revision| revision != 0) || !matching.is_empty() {
            return Err(Refusal::bad_request(
                "specifying resource version is not allowed when using continue",
            ));
        }
        return continued(world, request);
    }
    match (wanted, matching) {
        (None, "") | (Some(0), "" | "NotOlderThan") => Ok(Page { revision: newest, after: None }),
        (None, _) => {
            Err(Refusal::bad_request("resourceVersionMatch is forbidden unless resourceVersion is provided"))
        }
        (Some(0), _) => Err(Refusal::bad_request("resourceVersionMatch Exact is forbidden for 0")),
        (Some(revision), _) if revision > newest => {
            Err(Refusal::timeout(&format!("Too large resource version: {revision}, current: {newest}")))
        }
        // Without a match rule, a limit means exactly this revision: the server's legacy behaviour.
        (Some(revision), matching) if matching == "Exact" || (matching.is_empty() && is_limited) => {
            if revision < world.compacted() {
                return Err(too_old(revision, world));
            }
            Ok(Page { revision, after: None })
        }
        (Some(_), _) => Ok(Page { revision: newest, after: None }),
    }
}

fn continued(world: &World, request: &Request) -> Result<Page, Refusal> {
    let bad = || Refusal::bad_request("continue key is not valid");
    let bytes = BASE64_URL_SAFE_NO_PAD.decode(request.parameter("continue")).map_err(|_| bad())?;
    let token: Value = serde_json::from_slice(&bytes).map_err(|_| bad())?;
    let text = |field: &str| token[field].as_str().ok_or_else(bad);
    let revision = token["rv"].as_u64().ok_or_else(bad)?;
    if revision < world.compacted() {
        return Err(Refusal::expired(
            "The provided continue parameter is too old to display a consistent list result.",
        ));
    }
    let after = Key::new(request.key.kind, text("namespace")?, text("name")?);
    Ok(Page { revision, after: Some(after) })
}

fn token(revision: u64, last: &Key) -> String {
    let token =
        json!({"v": "meta.k8s.io/v1", "rv": revision, "namespace": last.namespace, "name": last.name});
    BASE64_URL_SAFE_NO_PAD.encode(token.to_string())
}

/// 410 for a revision that was compacted away.
pub fn too_old(revision: u64, world: &World) -> Refusal {
    Refusal::expired(&format!("too old resource version: {revision} ({})", world.compacted()))
}
