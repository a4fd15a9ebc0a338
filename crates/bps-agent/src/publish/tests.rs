//! Tests of what is published, and with which requests, by a server that keeps one slice.

use std::convert::Infallible;
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex};

use bps_protocol::AgentId;
use bps_runtime::client::OwnConnection;
use http::{Request, Response, StatusCode};
use http_body_util::BodyExt as _;
use kube::client::Body;
use tokio::sync::{Semaphore, watch};
use tower::service_fn;

use super::*;
use crate::world::Kernel;

fn slice(epoch: &str) -> EndpointSlice {
    let mut slice = EndpointSlice::default();
    slice.annotations_mut().insert(keys::ANNOTATION_HA_EPOCH.into(), epoch.into());
    slice
}

fn own(has_begun: bool) -> Showing {
    let follows = (!has_begun).then_some(Epoch { term: 0, sequence: 9 });
    Showing { epoch: Epoch { term: 1, sequence: 1 }, follows }
}

#[test]
fn a_lower_epoch_never_overwrites_a_higher_one() {
    let shown =
        |term: u64, sequence: u64| is_overtaken(&slice(&(term << 32 | sequence).to_string()), own(true));
    assert!(!is_overtaken(&EndpointSlice::default(), own(true)).unwrap());
    assert!(!shown(1, 1).unwrap());
    assert!(!shown(0, 9).unwrap());
    assert!(shown(1, 2).unwrap());
    assert!(shown(2, 0).unwrap());
}

#[test]
fn who_still_claims_never_overwrites_who_acts_with_the_same_epoch() {
    let shown = |epoch: Epoch| is_overtaken(&slice(&u64::from(epoch).to_string()), own(false));
    assert!(!shown(Epoch { term: 1, sequence: 0 }).unwrap());
    assert!(shown(own(false).epoch).unwrap());
}

#[test]
fn an_epoch_that_cannot_be_read_is_not_overwritten() {
    let error = is_overtaken(&slice("new"), own(true)).expect_err("it is no number").to_string();
    assert_eq!(error, "backup.example.com/ha-epoch: expected a decimal number, found \"new\"");
}

/// Longest wait for what is done within milliseconds.
const SHOWN_MAX: Duration = Duration::from_secs(10);
const LAST: Epoch = Epoch { term: 0, sequence: 9 };

/// A server of one slice.
struct Server {
    slice: Mutex<Value>,
    requests: Mutex<Vec<&'static str>>,
    /// One permit for each answer.
    answers: Semaphore,
    /// How many merge patches meet another version.
    conflicts: Mutex<u32>,
    /// How many requests are carried out and never answered.
    lost: Mutex<u32>,
}

impl Server {
    fn showing(epoch: Epoch) -> Arc<Self> {
        let mut slice = serde_json::to_value(slice(&u64::from(epoch).to_string())).unwrap();
        slice["endpoints"] = json!([]);
        let answers = Semaphore::new(Semaphore::MAX_PERMITS);
        let (requests, conflicts, lost) = (Mutex::default(), Mutex::default(), Mutex::default());
        Arc::new(Self { slice: Mutex::new(slice), requests, answers, conflicts, lost })
    }

    async fn serve(self: Arc<Self>, request: Request<Body>) -> Result<Response<Body>, Infallible> {
        let (head, body) = request.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        let kind = head.headers.get(http::header::CONTENT_TYPE).map_or("GET", |kind| match kind.as_bytes() {
            b"application/json-patch+json" => "succeed",
            _ => "PATCH",
        });
        let status = self.apply(kind, &body);
        let is_anew = head.extensions.get::<OwnConnection>().is_some();
        self.requests.lock().unwrap().push(match kind {
            "succeed" if is_anew => "succeed anew",
            "PATCH" if is_anew => "PATCH anew",
            "GET" if is_anew => "GET anew",
            _ => kind,
        });
        if self.is_lost() {
            return std::future::pending().await;
        }
        self.answers.acquire().await.unwrap().forget();
        let answer = match status {
            StatusCode::OK => self.slice.lock().unwrap().clone(),
            code => json!({"kind": "Status", "status": "Failure", "code": code.as_u16()}),
        };
        Ok(Response::builder().status(status).body(answer.to_string().into_bytes().into()).unwrap())
    }

    fn apply(&self, kind: &str, body: &[u8]) -> StatusCode {
        let mut slice = self.slice.lock().unwrap();
        match kind {
            "succeed" => match json_patch::patch(
                &mut slice,
                &serde_json::from_slice::<json_patch::Patch>(body).unwrap(),
            ) {
                Ok(()) => StatusCode::OK,
                Err(_) => StatusCode::UNPROCESSABLE_ENTITY,
            },
            "PATCH" if *self.conflicts.lock().unwrap() > 0 => {
                *self.conflicts.lock().unwrap() -= 1;
                StatusCode::CONFLICT
            }
            "PATCH" => {
                json_patch::merge(&mut slice, &serde_json::from_slice(body).unwrap());
                StatusCode::OK
            }
            _ => StatusCode::OK,
        }
    }

    fn is_lost(&self) -> bool {
        let mut lost = self.lost.lock().unwrap();
        let is_lost = *lost > 0;
        *lost = lost.saturating_sub(1);
        is_lost
    }

    /// The epoch that is shown, and where.
    fn shows(&self) -> (String, Value) {
        let slice = self.slice.lock().unwrap();
        let epoch = slice["metadata"]["annotations"][keys::ANNOTATION_HA_EPOCH].as_str().unwrap().to_owned();
        (epoch, slice["endpoints"][0]["addresses"][0].clone())
    }
}

/// A publisher that runs, what it is to show, and what it has shown.
struct Scene {
    server: Arc<Server>,
    wanted: watch::Sender<Option<Showing>>,
    names: watch::Sender<Option<String>>,
    shown: Receiver<Option<Shown>>,
}

impl Scene {
    fn start(server: Arc<Server>) -> Self {
        let serving = Arc::clone(&server);
        let client = Client::new(service_fn(move |request| Arc::clone(&serving).serve(request)), "default");
        let own = Identity {
            id: AgentId(1),
            pod: "web-0".into(),
            ip: Ipv4Addr::new(198, 18, 0, 1).into(),
            namespace: "default".into(),
        };
        let (names, to_read) = watch::channel(Some("web".to_owned()));
        let publisher = Publisher::new(Kernel, (client, to_read), own, Counter::default());
        let (wanted, to_show) = watch::channel(None);
        let shown = publisher.shown();
        tokio::spawn(publisher.run(to_show, Shutdown::new()));
        Self { server, wanted, names, shown }
    }

    /// Waits until the own address is shown; returns with which requests it came to that.
    async fn requests(&mut self) -> Vec<&'static str> {
        let is_shown = |shown: &Option<Shown>| shown.is_some_and(|(epoch, _)| epoch == own(true).epoch);
        let shown = timeout(SHOWN_MAX, self.shown.wait_for(is_shown)).await;
        drop(shown.expect("it is shown in time").unwrap());
        let epoch = u64::from(own(true).epoch).to_string();
        assert_eq!(self.server.shows(), (epoch, json!("198.18.0.1")));
        self.server.requests.lock().unwrap().clone()
    }
}

#[tokio::test]
async fn who_inherits_from_the_epoch_that_is_shown_is_shown_by_one_request() {
    let mut scene = Scene::start(Server::showing(LAST));
    scene.wanted.send_replace(Some(own(false)));
    assert_eq!(scene.requests().await, ["succeed"]);
}

#[tokio::test]
async fn who_inherits_while_another_epoch_is_shown_reads_it_first() {
    let mut scene = Scene::start(Server::showing(Epoch { term: 0, sequence: 8 }));
    scene.wanted.send_replace(Some(own(false)));
    assert_eq!(scene.requests().await, ["succeed", "GET", "PATCH"]);
}

#[tokio::test]
async fn what_is_on_its_way_is_not_begun_anew_when_the_tenure_begins() {
    let server = Server::showing(LAST);
    server.answers.forget_permits(Semaphore::MAX_PERMITS);
    let mut scene = Scene::start(Arc::clone(&server));
    scene.wanted.send_replace(Some(own(false)));
    while server.requests.lock().unwrap().is_empty() {
        tokio::task::yield_now().await;
    }
    scene.wanted.send_replace(Some(own(true)));
    // Whatever is done because of the change is done before anything is answered.
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    server.answers.add_permits(1);
    assert_eq!(scene.requests().await, ["succeed"]);
}

#[tokio::test]
async fn who_is_overtaken_while_it_claims_is_shown_when_its_tenure_begins_after_all() {
    let mut scene = Scene::start(Server::showing(own(true).epoch));
    scene.wanted.send_replace(Some(own(false)));
    while scene.server.requests.lock().unwrap().len() < 2 {
        tokio::task::yield_now().await;
    }
    assert_eq!(scene.server.shows().1, Value::Null);
    scene.wanted.send_replace(Some(own(true)));
    assert_eq!(scene.requests().await, ["succeed", "GET", "GET", "PATCH"]);
}

#[tokio::test]
async fn an_address_is_shown_as_soon_as_there_is_a_slice() {
    let mut scene = Scene::start(Server::showing(LAST));
    scene.names.send_replace(None);
    scene.wanted.send_replace(Some(own(true)));
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert!(scene.server.requests.lock().unwrap().is_empty());
    scene.names.send_replace(Some("web".into()));
    assert_eq!(scene.requests().await, ["GET", "PATCH"]);
}

/// The operator writes the slice when somebody joins the pair, which is when another one has just gone.
#[tokio::test(start_paused = true)]
async fn what_met_a_write_of_the_operator_is_repeated_at_once() {
    let server = Server::showing(LAST);
    *server.conflicts.lock().unwrap() = 1;
    let began = tokio::time::Instant::now();
    let mut scene = Scene::start(server);
    scene.wanted.send_replace(Some(own(true)));
    assert_eq!(scene.requests().await, ["GET", "PATCH", "GET", "PATCH"]);
    assert_eq!(began.elapsed(), Duration::ZERO);
}

/// The first answer never comes, as from an API server that was lost together with the former active.
#[tokio::test(start_paused = true)]
async fn a_second_way_is_tried_when_the_first_one_takes_long() {
    let table = [
        (true, ["GET", "GET anew", "PATCH anew"]),
        // The first one took effect all the same.
        (false, ["succeed", "succeed anew", "GET anew"]),
    ];
    for (has_begun, expected) in table {
        let server = Server::showing(LAST);
        *server.lost.lock().unwrap() = 1;
        let began = tokio::time::Instant::now();
        let mut scene = Scene::start(server);
        scene.wanted.send_replace(Some(own(has_begun)));
        assert_eq!(scene.requests().await, expected);
        assert_eq!(began.elapsed(), SECOND_WAY_AFTER);
    }
}
