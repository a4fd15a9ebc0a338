//! A Lease on an API server in memory, with a link to each candidate that can be slow or cut.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::{Method, Request, Response, StatusCode};
use k8s_openapi::api::coordination::v1::Lease;
use kube::Client;
use kube::client::Body;
use serde_json::json;
use tokio::time::sleep;
use tower::service_fn;

/// The API server; clones share the object.
#[derive(Clone, Default)]
pub(super) struct Server {
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    object: Option<Lease>,
    version: u64,
    /// Method and status of each request that arrived, in order.
    log: Vec<(Method, u16)>,
}

/// The network between one candidate and the server.
#[derive(Clone)]
pub(super) struct Link {
    state: Arc<Mutex<LinkState>>,
}

struct LinkState {
    is_cut: bool,
    delay_max: Duration,
    /// Added to every answer.
    answer_delay: Duration,
    random: u64,
}

impl Link {
    /// Delays each request and each answer by up to `delay_max`.
    pub(super) fn new(delay_max: Duration, seed: u64) -> Self {
        let random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        Self {
            state: Arc::new(Mutex::new(LinkState {
                is_cut: false,
                delay_max,
                answer_delay: Duration::ZERO,
                random,
            })),
        }
    }

    /// No delays.
    pub(super) fn fast() -> Self {
        Self::new(Duration::ZERO, 1)
    }

    /// Requests arrive at once, each answer takes `delay`.
    pub(super) fn slow_answers(delay: Duration) -> Self {
        let link = Self::fast();
        link.state.lock().unwrap().answer_delay = delay;
        link
    }

    async fn cross_back(&self) {
        let delay = self.state.lock().unwrap().answer_delay;
        sleep(delay).await;
        self.cross().await;
    }

    pub(super) fn cut(&self, is_cut: bool) {
        self.state.lock().unwrap().is_cut = is_cut;
    }

    /// A number below `bound`.
    pub(super) fn draw(&self, bound: u64) -> u64 {
        let mut state = self.state.lock().unwrap();
        state.random ^= state.random << 13;
        state.random ^= state.random >> 7;
        state.random ^= state.random << 17;
        (state.random >> 16) % bound
    }

    /// One way; never ends while the link is cut.
    async fn cross(&self) {
        let limit = u64::try_from(self.state.lock().unwrap().delay_max.as_millis()).unwrap();
        sleep(Duration::from_millis(self.draw(limit + 1))).await;
        if self.state.lock().unwrap().is_cut {
            std::future::pending::<()>().await;
        }
    }
}

impl Server {
    /// A client whose requests take `link`; they arrive even if their sender has given up waiting.
    pub(super) fn client(&self, link: &Link) -> Client {
        let (server, link) = (self.clone(), link.clone());
        let service = service_fn(move |request: Request<Body>| {
            let (server, link) = (server.clone(), link.clone());
            let answer = tokio::spawn(async move {
                link.cross().await;
                let answer = server.answer(request).await;
                link.cross_back().await;
                answer
            });
            async move { Ok::<_, Infallible>(answer.await.unwrap()) }
        });
        Client::new(service, "default")
    }

    pub(super) fn object(&self) -> Option<Lease> {
        self.state.lock().unwrap().object.clone()
    }

    /// The requests that arrived since the last call.
    pub(super) fn take_log(&self) -> Vec<(Method, u16)> {
        std::mem::take(&mut self.state.lock().unwrap().log)
    }

    /// What somebody with kubectl does.
    pub(super) fn edit(&self, change: impl FnOnce(&mut Option<Lease>)) {
        let mut state = self.state.lock().unwrap();
        change(&mut state.object);
        state.store();
    }

    async fn answer(&self, request: Request<Body>) -> Response<Body> {
        let (head, body) = request.into_parts();
        let body = body.collect_bytes().await.unwrap();
        let mut state = self.state.lock().unwrap();
        let answer = match head.method {
            Method::GET => state.object.clone().ok_or(StatusCode::NOT_FOUND),
            Method::POST => state.create(serde_json::from_slice(&body).unwrap()),
            Method::PUT => state.replace(serde_json::from_slice(&body).unwrap()),
            ref other => panic!("a candidate sent {other} {}", head.uri),
        };
        let code = answer.as_ref().map_or_else(|status| *status, |_| StatusCode::OK);
        state.log.push((head.method, code.as_u16()));
        let body = match answer {
            Ok(object) => serde_json::to_vec(&object),
            Err(code) => serde_json::to_vec(&json!({
                "kind": "Status", "apiVersion": "v1", "status": "Failure",
                "code": code.as_u16(), "reason": reason(code), "message": "refused",
            })),
        };
        Response::builder().status(code).body(Body::from(body.unwrap())).unwrap()
    }
}

fn reason(code: StatusCode) -> &'static str {
    match code {
        StatusCode::NOT_FOUND => "NotFound",
        _ => "Conflict",
    }
}

impl State {
    fn create(&mut self, object: Lease) -> Result<Lease, StatusCode> {
        if self.object.is_some() {
            return Err(StatusCode::CONFLICT);
        }
        self.object = Some(object);
        Ok(self.store())
    }

    fn replace(&mut self, object: Lease) -> Result<Lease, StatusCode> {
        let Some(before) = &self.object else { return Err(StatusCode::NOT_FOUND) };
        assert!(
            object.metadata.resource_version.is_some(),
            "a PUT without resourceVersion would win any race"
        );
        if object.metadata.resource_version != before.metadata.resource_version {
            return Err(StatusCode::CONFLICT);
        }
        self.object = Some(object);
        Ok(self.store())
    }

    fn store(&mut self) -> Lease {
        self.version += 1;
        let version = self.version.to_string();
        if let Some(object) = &mut self.object {
            object.metadata.resource_version = Some(version);
        }
        self.object.clone().unwrap_or_default()
    }
}
