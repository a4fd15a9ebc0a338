//! An API server that tests answer for, and the set that they write about.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::FutureExt as _;
use http::{Request, Response};
use jiff::Timestamp;
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tower_test::mock;

use super::{Applier, GateKit, TicketSender};
use crate::api::{BackupPodSet, keys};
use crate::manifests::GateSettings;
use crate::observe::slim::SlimPod;
use crate::runtime::clock::Clock;
use crate::wakeup::client as gate_client;
use crate::wakeup::keys::KeyRing;
use crate::wakeup::protocol::Answer as GateAnswer;
use crate::wakeup::signing::SigningKey;

pub(crate) const SET_UID: &str = "set-uid";

/// The moment at which everything happens: 2026-01-01T00:00:00Z.
pub(crate) const NOW: Timestamp = Timestamp::constant(1_767_225_600, 0);

/// Time without a request, on the paused clock, after which none comes any more.
const QUIET: Duration = Duration::from_secs(1);

/// The API server's end of a client.
pub(crate) struct Server(mock::Handle<Request<Body>, Response<Body>>);

/// What a request said.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Seen {
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) query: String,
    pub(crate) content_type: String,
    pub(crate) body: Value,
}

/// A request that waits for its answer.
pub(crate) struct Call {
    pub(crate) seen: Seen,
    answer: mock::SendResponse<Response<Body>>,
}

/// A client and its server.
pub(crate) fn pair() -> (Client, Server) {
    let (service, handle) = mock::pair();
    (Client::new(service, "default"), Server(handle))
}

impl Server {
    /// The next request.
    pub(crate) async fn call(&mut self) -> Call {
        let (request, answer) = self.0.next_request().await.expect("the client lives");
        let (head, body) = request.into_parts();
        let bytes = body.collect_bytes().await.expect("the body is whole");
        let content_type = head.headers.get("content-type").and_then(|value| value.to_str().ok());
        let seen = Seen {
            method: head.method.to_string(),
            path: head.uri.path().to_owned(),
            query: head.uri.query().unwrap_or_default().to_owned(),
            content_type: content_type.unwrap_or_default().to_owned(),
            body: if bytes.is_empty() { Value::Null } else { serde_json::from_slice(&bytes).expect("JSON") },
        };
        Call { seen, answer }
    }

    /// Every request that comes before the client waits for answers; needs a paused clock.
    pub(crate) async fn calls(&mut self) -> Vec<Call> {
        let mut calls = Vec::new();
        while let Ok(call) = tokio::time::timeout(QUIET, self.call()).await {
            calls.push(call);
        }
        calls
    }

    /// Answers every request with a status and a body until the returned task is dropped; returns what was asked.
    pub(crate) fn serve(
        mut self,
        mut answer: impl FnMut(&Seen) -> (u16, Value) + Send + 'static,
    ) -> (Arc<Mutex<Vec<Seen>>>, JoinHandle<Infallible>) {
        let log = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&log);
        let serving = tokio::spawn(async move {
            loop {
                let call = self.call().await;
                seen.lock().unwrap().push(call.seen.clone());
                let (code, body) = answer(&call.seen);
                call.reply(code, &body);
            }
        });
        (log, serving)
    }
}

impl Call {
    pub(crate) fn reply(self, code: u16, body: &Value) {
        let body = Body::from(serde_json::to_vec(body).expect("JSON"));
        self.answer.send_response(Response::builder().status(code).body(body).expect("an answer"));
    }

    pub(crate) fn reset(self) {
        self.answer.send_error(std::io::Error::from(std::io::ErrorKind::ConnectionReset));
    }
}

/// What the API server sends with an error.
pub(crate) fn status(code: u16, reason: &str, message: &str) -> Value {
    json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": code,
        "reason": reason, "message": message,
    })
}

/// The set `web` with a template and these further fields of its spec.
pub(crate) fn set(fields: &Value) -> BackupPodSet {
    let container = json!({"name": "web", "image": "web:1"});
    let mut spec = json!({"template": {"spec": {"containers": [container]}}});
    spec.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    let metadata = json!({
        "name": "web", "namespace": "shop", "uid": SET_UID, "generation": 1, "resourceVersion": "5",
    });
    let body = json!({
        "apiVersion": "backup.example.com/v1alpha1", "kind": keys::KIND, "metadata": metadata, "spec": spec,
    });
    serde_json::from_value(body).expect("a set")
}

/// A Pod of the set, ready for long, as the API server sends it.
pub(crate) fn pod(name: &str, (role, version): (&str, u64)) -> Value {
    let owner = json!({
        "apiVersion": "backup.example.com/v1alpha1", "kind": keys::KIND, "name": "web", "uid": SET_UID,
        "controller": true, "blockOwnerDeletion": true,
    });
    let set = set(&json!({}));
    let labels = json!({
        (keys::LABEL_SET): "web", (keys::LABEL_ROLE): role,
        (keys::LABEL_REVISION): crate::manifests::revision(&set.spec).0,
    });
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": name, "namespace": "shop", "uid": format!("uid-{name}"), "labels": labels,
            "resourceVersion": version.to_string(), "creationTimestamp": "2025-12-31T00:00:00Z",
            "annotations": {(keys::ANNOTATION_SLOT): "0"}, "ownerReferences": [owner],
        },
        "spec": {"nodeName": "n1", "containers": [{"name": "web"}]},
        "status": {
            "phase": "Running", "podIP": "198.18.0.1",
            "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "2025-12-31T00:00:09Z"}],
            "containerStatuses": [{"name": "web", "ready": true, "restartCount": 0,
                "state": {"running": {"startedAt": "2025-12-31T00:00:05Z"}}}],
        },
    })
}

pub(crate) fn slim(pod: &Value) -> SlimPod {
    serde_json::from_value(pod.clone()).expect("a Pod")
}

/// Keys whose private bytes are all 0xa7 and all 0xb8.
pub(crate) fn ring() -> KeyRing {
    let [current, next] = [0xa7, 0xb8].map(|byte| SigningKey::from_seed(&[byte; 32]));
    KeyRing { current, next, previous: Vec::new(), rotated_at: NOW }
}

pub(crate) fn gate_kit() -> GateKit {
    let ring = ring();
    let public_keys = ring.public_keys().map(|key| (key.id().to_string(), "00".to_owned()));
    GateKit { ring, settings: GateSettings { image: "wakeup:1".into(), public_keys: public_keys.into() } }
}

/// A sender whose gates take every ticket.
pub(crate) fn willing_gates() -> TicketSender {
    Arc::new(|_, _| async { Ok::<_, gate_client::Error>(GateAnswer::Accepted) }.boxed())
}

pub(crate) fn clock() -> Clock {
    Clock::new(|| NOW)
}

pub(crate) fn applier(client: &Client) -> Applier {
    Applier::new(client.clone(), (clock(), willing_gates()), gate_kit())
}
