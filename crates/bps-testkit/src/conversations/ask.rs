//! Sends the request of an exchange, and takes the answer as it comes.

use std::fmt::Display;
use std::time::Duration;

use futures::StreamExt as _;
use http::{Method, Request};
use kube::Client;
use kube::client::Body;
use kube::core::WatchEvent;
use serde_json::{Value, json};

use super::{Answer, Exchange, Memory, facts};

/// Longest wait for an answer, or for all events that a watch is to show.
const ANSWERED_WITHIN: Duration = Duration::from_secs(20);

/// Kind, version and the name in URLs.
const KINDS: &[(&str, &str, &str)] = &[
    ("Pod", "v1", "pods"),
    ("Service", "v1", "services"),
    ("Secret", "v1", "secrets"),
    ("BackupPodSet", "backup.example.com/v1alpha1", "backuppodsets"),
    ("EndpointSlice", "discovery.k8s.io/v1", "endpointslices"),
    ("Event", "events.k8s.io/v1", "events"),
    ("Lease", "coordination.k8s.io/v1", "leases"),
    ("ControllerRevision", "apps/v1", "controllerrevisions"),
];

const JSON: &str = "application/json";
const MERGE_PATCH: &str = "application/merge-patch+json";

/// What an exchange asks, taken apart.
struct Words<'a> {
    verb: &'a str,
    kind: &'a str,
    version: &'a str,
    plural: &'a str,
    name: &'a str,
}

impl<'a> Words<'a> {
    fn of(ask: &'a str) -> Result<Self, String> {
        let (verb, kind, name) = match ask.split(' ').collect::<Vec<_>>()[..] {
            [verb, kind, name] => (verb, kind, name),
            [verb @ ("list" | "watch"), kind] => (verb, kind, ""),
            _ => return Err(format!("`{ask}` is not understood; see tests/conversations/README.md")),
        };
        let row = KINDS.iter().find(|(known, ..)| *known == kind);
        let (_, version, plural) = row.ok_or_else(|| format!("`{kind}` is not in the table of kinds"))?;
        Ok(Self { verb, kind, version, plural, name })
    }

    fn url(&self, namespace: &str, query: &[String]) -> String {
        let Self { verb, version, plural, name, .. } = self;
        let root = if version.contains('/') { "apis" } else { "api" };
        let mut url = format!("/{root}/{version}/namespaces/{namespace}/{plural}");
        if !matches!(*verb, "create" | "list" | "watch") {
            url = format!("{url}/{name}");
        }
        if *verb == "patch-status" {
            url.push_str("/status");
        }
        if query.is_empty() { url } else { format!("{url}?{}", query.join("&")) }
    }

    /// The body with what every object says of itself, so that a file need not repeat it.
    fn body(&self, body: Value) -> Value {
        if !matches!(self.verb, "create" | "update") {
            return body;
        }
        let mut object = json!({"apiVersion": self.version, "kind": self.kind});
        for (field, value) in body.as_object().cloned().unwrap_or_default() {
            object[field] = value;
        }
        object["metadata"]["name"] = json!(self.name);
        object
    }
}

/// Sends the request of an exchange.
///
/// # Errors
/// What is not understood of the exchange, and a request that got no answer.
pub(super) async fn ask(
    exchange: &Exchange,
    memory: &Memory,
    (client, namespace): (&Client, &str),
) -> Result<Answer, String> {
    let words = Words::of(&exchange.ask)?;
    let url = words.url(namespace, &query(exchange, memory)?);
    let body = exchange.body.as_ref().map(|body| facts::filled(body, memory)).transpose()?;
    let body = body.map(|body| words.body(body));
    let (method, content_type) = match words.verb {
        "create" => (Method::POST, JSON),
        "update" => (Method::PUT, JSON),
        "patch" | "patch-status" => (Method::PATCH, MERGE_PATCH),
        "delete" => (Method::DELETE, JSON),
        "get" | "list" | "watch" => (Method::GET, JSON),
        other => return Err(format!("`{other}` is no verb; see tests/conversations/README.md")),
    };
    let bytes = body.map_or_else(Vec::new, |body| body.to_string().into_bytes());
    let request = Request::builder().method(method).uri(url).header("content-type", content_type);
    let request = request.body(bytes).map_err(|error| error.to_string())?;
    let answered = async {
        match exchange.events {
            Some(count) => watched(client, request, count).await,
            None => answered(client, request).await,
        }
    };
    tokio::time::timeout(ANSWERED_WITHIN, answered).await.map_err(|elapsed| elapsed.to_string())?
}

/// The files use no character that a URL would have to hide.
fn query(exchange: &Exchange, memory: &Memory) -> Result<Vec<String>, String> {
    let watch = exchange.ask.starts_with("watch ").then(|| Ok("watch=true".to_owned()));
    let pairs = exchange.query.iter().map(|(name, value)| {
        let value = facts::filled(&json!(value), memory)?;
        Ok(format!("{name}={}", value.as_str().unwrap_or_default()))
    });
    watch.into_iter().chain(pairs).collect()
}

fn text(error: impl Display) -> String {
    error.to_string()
}

async fn answered(client: &Client, request: Request<Vec<u8>>) -> Result<Answer, String> {
    let response = client.send(request.map(Body::from)).await.map_err(text)?;
    let code = response.status().as_u16();
    let bytes = response.into_body().collect_bytes().await.map_err(text)?;
    let body = serde_json::from_slice(&bytes).map_err(text)?;
    Ok(Answer { code, body })
}

async fn watched(client: &Client, request: Request<Vec<u8>>, count: usize) -> Result<Answer, String> {
    let events = client.request_events::<Value>(request).await.map_err(text)?;
    let events: Vec<kube::Result<WatchEvent<Value>>> = events.take(count).collect().await;
    let events = events.into_iter().collect::<kube::Result<Vec<_>>>().map_err(text)?;
    Ok(Answer { code: 200, body: json!({"events": serde_json::to_value(events).map_err(text)?}) })
}
