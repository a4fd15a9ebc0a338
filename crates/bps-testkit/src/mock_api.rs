//! An API server that a test answers for, request by request.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::{Request, Response};
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tower_test::mock;

/// Time without a request, on the paused clock, after which none comes any more.
const QUIET: Duration = Duration::from_secs(1);

/// The API server's end of a client.
pub struct Server(mock::Handle<Request<Body>, Response<Body>>);

/// What a request said.
#[derive(Clone, Debug, PartialEq)]
pub struct Seen {
    pub method: String,
    pub path: String,
    pub query: String,
    pub content_type: String,
    pub body: Value,
}

/// A request that waits for its answer.
pub struct Call {
    pub seen: Seen,
    answer: mock::SendResponse<Response<Body>>,
}

/// A client and its server.
pub fn pair() -> (Client, Server) {
    let (service, handle) = mock::pair();
    (Client::new(service, "default"), Server(handle))
}

impl Server {
    /// The next request.
    pub async fn call(&mut self) -> Call {
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
    pub async fn calls(&mut self) -> Vec<Call> {
        let mut calls = Vec::new();
        while let Ok(call) = tokio::time::timeout(QUIET, self.call()).await {
            calls.push(call);
        }
        calls
    }

    /// Answers every request with a status and a body until the returned task is dropped; returns what was asked.
    pub fn serve(
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
    pub fn reply(self, code: u16, body: &Value) {
        let body = Body::from(serde_json::to_vec(body).expect("JSON"));
        self.answer.send_response(Response::builder().status(code).body(body).expect("an answer"));
    }

    pub fn reset(self) {
        self.answer.send_error(std::io::Error::from(std::io::ErrorKind::ConnectionReset));
    }
}

/// What the API server sends with an error.
pub fn status(code: u16, reason: &str, message: &str) -> Value {
    json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": code,
        "reason": reason, "message": message,
    })
}
