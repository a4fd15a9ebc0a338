//! Tests of the watch and of writes, by a server that answers as it was told to.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use bps_protocol::{AgentId, Epoch, Hold, Lease as Content};
use bps_runtime::client::OwnConnection;
use bps_wire::lease::Member;
use bps_wire::uid::format_uid;
use http::{Request, Response, StatusCode};
use kube::client::Body;
use tower::service_fn;

use super::*;

/// What the server answers in turn and when, and what it was asked.
struct Server {
    answers: Mutex<VecDeque<Answer>>,
    asked: Mutex<Vec<String>>,
}

/// An answer, and how long after the question it comes.
struct Answer {
    status: StatusCode,
    body: String,
    after: Duration,
}

impl Server {
    fn answering(answers: impl IntoIterator<Item = (StatusCode, String)>) -> Arc<Self> {
        let at_once = |(status, body)| Answer { status, body, after: Duration::ZERO };
        Self::taking_time(answers.into_iter().map(at_once))
    }

    fn taking_time(answers: impl IntoIterator<Item = Answer>) -> Arc<Self> {
        Arc::new(Self { answers: Mutex::new(answers.into_iter().collect()), asked: Mutex::default() })
    }

    fn access(self: &Arc<Self>, reports: Sender<Report>) -> Access {
        let serving = self.clone();
        let client =
            Client::new(service_fn(move |request: Request<Body>| serving.clone().serve(request)), "shop");
        Access {
            anew: Api::namespaced(connecting_anew(&client), "shop"),
            api: Api::namespaced(client, "shop"),
            name: "web-0".into(),
            timing: Timing::default(),
            reports,
            shutdown: Shutdown::new(),
        }
    }

    async fn serve(self: Arc<Self>, request: Request<Body>) -> Result<Response<Body>, Infallible> {
        let query = request.uri().query().unwrap_or_default();
        let value = |key: &str| query.split('&').find_map(|pair| pair.strip_prefix(key)?.strip_prefix('='));
        let asked = match value("watch") {
            Some(_) => format!("watch from {}", value("resourceVersion").unwrap_or("anywhere")),
            None => format!("{} {}", request.method(), request.uri().path().rsplit('/').next().unwrap()),
        };
        let is_anew = request.extensions().get::<OwnConnection>().is_some();
        let asked = if is_anew { asked + " anew" } else { asked };
        self.asked.lock().unwrap().push(asked);
        let answer = self.answers.lock().unwrap().pop_front();
        let Some(Answer { status, body, after }) = answer else { return std::future::pending().await };
        sleep(after).await;
        Ok(Response::builder().status(status).body(Body::from(body.into_bytes())).unwrap())
    }
}

const MEMBERS: [AgentId; 2] = [AgentId(1), AgentId(2)];

/// The write of this number to the Lease in this version.
fn write(number: u64, version: u64) -> Write {
    let (epoch, members) = (Epoch::default(), MEMBERS);
    let lease = Content { epoch, holder: None, members, pending: None, hold: Hold::Api, writes: 0 };
    Write { number, base: Version(version), lease }
}

fn directory() -> Directory {
    let member = |id| (id, Member { pod: "web".into(), address: ([198, 18, 0, 1], 7).into() });
    MEMBERS.map(member).into()
}

/// The Lease of a pair in this version.
fn lease(version: u64) -> Value {
    let write = write(0, version);
    let mut lease = patch(&write, &directory(), &Timing::default(), Timestamp::UNIX_EPOCH).unwrap();
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
    let (reporter, mut reports) = mpsc::channel(REPORTS_WAITING_MAX);
    let access = server.access(reporter);
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

/// What is reported of copies that are sent one after the other, and after how long; what was asked.
async fn written(
    numbers: &[u64],
    pause: Duration,
    answers: impl IntoIterator<Item = Answer>,
) -> (Vec<(Report, Duration)>, Vec<String>) {
    let server = Server::taking_time(answers);
    let (reporter, mut reports) = mpsc::channel(REPORTS_WAITING_MAX);
    let access = server.access(reporter);
    let (writes, wanted) = mpsc::channel(WRITES_WAITING_MAX);
    let began = Instant::now();
    let send = async move {
        for number in numbers {
            let wanted =
                Wanted { write: write(*number, 5), directory: directory(), annotations: BTreeMap::new() };
            writes.try_send(wanted).expect("nothing waits long");
            sleep(pause).await;
        }
        // Until all answers are there that are waited for.
        sleep(COPY_MAX).await;
    };
    let collect = async {
        let mut seen = Vec::new();
        while let Some(report) = reports.recv().await {
            seen.push((report, began.elapsed()));
        }
        seen
    };
    let work = async {
        access.write_all(wanted).await;
        drop(access);
    };
    let (seen, (), ()) = tokio::join!(collect, send, work);
    (seen, server.asked.lock().unwrap().clone())
}

/// As often as the protocol asks for a copy.
const PAUSE: Duration = Duration::from_millis(500);

fn after(milliseconds: u64, status: StatusCode, body: &Value) -> Answer {
    Answer { status, body: body.to_string(), after: Duration::from_millis(milliseconds) }
}

fn applied(number: u64, version: u64) -> Report {
    let Report::Read(record) = read(version) else { panic!("it is there") };
    Report::Applied { number, record }
}

#[tokio::test(start_paused = true)]
async fn a_slow_answer_counts_although_a_copy_was_sent_meanwhile() {
    let conflict = failure(409, "Conflict");
    let answers = [after(900, StatusCode::OK, &lease(6)), after(900, StatusCode::CONFLICT, &conflict)];
    let (reports, asked) = written(&[1, 1, 1], PAUSE, answers).await;
    // The second copy, and the third one that was to follow, have nothing to do any more.
    assert_eq!(reports, [(applied(1, 6), Duration::from_millis(900))]);
    assert_eq!(asked, ["PATCH web-0", "PATCH web-0 anew"]);
}

#[tokio::test(start_paused = true)]
async fn the_second_copy_goes_another_way_and_a_later_write_waits_for_none_of_them() {
    let lost = || after(3_600_000, StatusCode::OK, &lease(0));
    let answers = [lost(), after(1, StatusCode::OK, &lease(6)), after(1, StatusCode::OK, &lease(7))];
    let (reports, asked) = written(&[1, 1, 2], PAUSE, answers).await;
    let expected =
        [(applied(1, 6), Duration::from_millis(501)), (applied(2, 7), Duration::from_millis(1_001))];
    assert_eq!(reports, expected);
    assert_eq!(asked, ["PATCH web-0", "PATCH web-0 anew", "PATCH web-0"]);
}

#[tokio::test(start_paused = true)]
async fn so_many_copies_are_on_their_way_at_most_and_each_ends() {
    let copies = [1; 2 * COPIES_MAX];
    let (reports, asked) = written(&copies, Duration::from_millis(10), []).await;
    assert_eq!((reports, asked.len()), (vec![], COPIES_MAX));

    // As the protocol asks for them, none has to wait until another one has ended.
    let (reports, asked) = written(&[1; 20], PAUSE, []).await;
    assert_eq!((reports, asked.len()), (vec![], 20));
}
