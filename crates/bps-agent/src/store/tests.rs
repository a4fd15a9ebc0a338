//! Tests of the watch, by a server that answers as it was told to.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use bps_protocol::{AgentId, Epoch, Hold, Lease as Content};
use bps_wire::lease::Member;
use bps_wire::uid::format_uid;
use http::{Request, Response, StatusCode};
use kube::client::Body;
use tower::service_fn;

use super::*;

/// What the server answers in turn, and what it was asked.
struct Server {
    answers: Mutex<VecDeque<(StatusCode, String)>>,
    asked: Mutex<Vec<String>>,
}

impl Server {
    fn answering(answers: impl IntoIterator<Item = (StatusCode, String)>) -> Arc<Self> {
        Arc::new(Self { answers: Mutex::new(answers.into_iter().collect()), asked: Mutex::default() })
    }

    async fn serve(self: Arc<Self>, request: Request<Body>) -> Result<Response<Body>, Infallible> {
        let query = request.uri().query().unwrap_or_default();
        let value = |key: &str| query.split('&').find_map(|pair| pair.strip_prefix(key)?.strip_prefix('='));
        let asked = match value("watch") {
            Some(_) => format!("watch from {}", value("resourceVersion").unwrap_or("anywhere")),
            None => format!("{} {}", request.method(), request.uri().path().rsplit('/').next().unwrap()),
        };
        self.asked.lock().unwrap().push(asked);
        let answer = self.answers.lock().unwrap().pop_front();
        let Some((status, body)) = answer else { return std::future::pending().await };
        Ok(Response::builder().status(status).body(Body::from(body.into_bytes())).unwrap())
    }
}

/// The Lease of a pair in this version.
fn lease(version: u64) -> Value {
    let members = [AgentId(1), AgentId(2)];
    let member = |id| (id, Member { pod: "web".into(), address: ([198, 18, 0, 1], 7).into() });
    let content =
        Content { epoch: Epoch::default(), holder: None, members, pending: None, hold: Hold::Api, writes: 0 };
    let write = Write { number: 0, base: Version(version), lease: content };
    let directory = members.map(member).into();
    let mut lease = patch(&write, &directory, &Timing::default(), Timestamp::UNIX_EPOCH).unwrap();
    lease["metadata"]["annotations"].as_object_mut().unwrap().retain(|_, value| !value.is_null());
    lease["metadata"]["uid"] = json!(format_uid(9));
    lease
}

fn event(kind: &str, object: &Value) -> String {
    json!({"type": kind, "object": object}).to_string() + "\n"
}

fn bookmark(version: &str) -> Value {
    json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"resourceVersion": version}})
}

fn failure(code: u16, reason: &str) -> Value {
    json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason})
}

/// What the watch reports until nothing is left to answer, and what it asked for.
async fn watched(answers: impl IntoIterator<Item = (StatusCode, String)>) -> (Vec<Report>, Vec<String>) {
    let server = Server::answering(answers);
    let serving = server.clone();
    let client =
        Client::new(service_fn(move |request: Request<Body>| serving.clone().serve(request)), "shop");
    let (reporter, mut reports) = mpsc::channel(REPORTS_WAITING_MAX);
    let access = Access {
        api: Api::namespaced(client, "shop"),
        name: "web-0".into(),
        timing: Timing::default(),
        reports: reporter,
        shutdown: Shutdown::new(),
    };
    // Time passes at once here, as long as everybody waits.
    drop(timeout(Duration::from_secs(60), access.watch(Version(5))).await);
    drop(access);
    let mut seen = Vec::new();
    while let Some(report) = reports.recv().await {
        seen.push(report);
    }
    (seen, server.asked.lock().unwrap().clone())
}

fn read(version: u64) -> Report {
    seen(&serde_json::from_value(lease(version)).unwrap()).unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_watch_begins_at_what_was_found_and_lists_nothing() {
    let changes = event("MODIFIED", &lease(6)) + &event("BOOKMARK", &bookmark("9"));
    let (reports, asked) = watched([(StatusCode::OK, changes)]).await;
    assert_eq!(reports, [read(6)]);
    // It ended too early to be asked for again at once, so that the Lease is read first; nobody answers any more.
    assert_eq!(asked, ["watch from 5", "GET web-0", "watch from 9"]);
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_ended_goes_on_after_what_was_read_or_marked() {
    let forgotten = event("ERROR", &failure(410, "Expired"));
    let (reports, asked) = watched([
        (StatusCode::OK, event("BOOKMARK", &bookmark("9"))),
        (StatusCode::INTERNAL_SERVER_ERROR, failure(500, "InternalError").to_string()),
        (StatusCode::OK, forgotten),
        (StatusCode::OK, lease(20).to_string()),
        (StatusCode::OK, event("DELETED", &lease(21))),
        (StatusCode::NOT_FOUND, failure(404, "NotFound").to_string()),
        (StatusCode::OK, event("ADDED", &lease(30))),
    ])
    .await;
    assert_eq!(reports, [read(20), Report::Gone, Report::Gone, read(30)]);
    let expected = [
        "watch from 5",
        "GET web-0",
        "watch from 9",
        "GET web-0",
        "watch from 20",
        "GET web-0",
        "watch from 21",
        "GET web-0",
        "watch from 30",
    ];
    assert_eq!(asked, expected);
}
