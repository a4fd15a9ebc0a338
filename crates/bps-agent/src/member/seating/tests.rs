//! The usher with an API server that tells of some Leases, and which seats get them.

use std::convert::Infallible;
use std::path::Path;
use std::sync::Mutex;

use bps_api::keys;
use bps_protocol::{Agent, Incarnation, Role};
use bps_wire::level::{DirectoryId, Level};
use bps_wire::uid::format_uid;
use futures::stream::{self, StreamExt as _};
use http::{Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::{Bytes, Frame};
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use tokio::time::timeout;
use tower::service_fn;

use super::*;
use crate::identity::Identity;
use crate::search::Membership;
use crate::seats::choice::SeatPast;
use crate::seats::folders;

const OWN: u128 = 1;
/// How long a watch lasts.
const WATCHED_FOR: Duration = Duration::from_secs(3);
/// Longer than each pause of the usher and of the search.
const A_WHILE: Duration = Duration::from_secs(30);

/// Uids of Leases, the members of each, and what it calls in sync.
type Leases = Arc<Mutex<Vec<(u128, [u128; 2], Level)>>>;

type Answer = UnsyncBoxBody<Bytes, Infallible>;

/// An usher at work.
struct Work {
    leases: Leases,
    table: Table,
    turnstile: SharedTurnstile,
    /// Those of each seat.
    assigned: Vec<mpsc::Receiver<Start>>,
    spare: watch::Receiver<bool>,
    task: tokio::task::JoinHandle<Result<Infallible, Error>>,
}

fn lease(uid: u128, members: [u128; 2], level: &Level) -> Value {
    let member = |number: u128| {
        let (uid, address) = (format_uid(number), format!("10.0.0.{number}:20001"));
        json!({"uid": uid, "pod": format!("web-{number}"), "address": address})
    };
    let mut annotations = json!({
        (keys::ANNOTATION_HA_PAIR): "0", (keys::ANNOTATION_HA_SEQUENCE): "0",
        (keys::ANNOTATION_HA_HOLD): "Peer", (keys::ANNOTATION_HA_WRITES): "3",
        (keys::ANNOTATION_HA_MEMBERS): json!(members.map(member)).to_string(),
    });
    if let Level::Only(directories) = level {
        annotations[keys::ANNOTATION_HA_IN_SYNC] = json!(Level::write(directories));
    }
    json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {
            "name": format!("web-{uid}"), "uid": format_uid(uid), "resourceVersion": "5",
            "annotations": annotations,
        },
        "spec": {"leaseTransitions": 1},
    })
}

/// Tells of all Leases by a watch, or answers with one of them.
fn server(leases: Leases) -> Client {
    let service = service_fn(move |request: Request<Body>| {
        let all: Vec<_> =
            leases.lock().unwrap().iter().map(|(uid, members, level)| lease(*uid, *members, level)).collect();
        let is_watch = request.uri().query().unwrap_or_default().contains("watch=");
        let name = request.uri().path().rsplit('/').next().unwrap_or_default().to_owned();
        let (status, body) = if is_watch {
            let events =
                all.into_iter().map(|lease| json!({"type": "ADDED", "object": lease}).to_string() + "\n");
            (200, watched(events.collect()))
        } else {
            let found = all.into_iter().find(|lease| lease["metadata"]["name"] == *name);
            let missing = json!({"kind": "Status", "status": "Failure", "code": 404, "reason": "NotFound"});
            let status = if found.is_some() { 200 } else { 404 };
            (status, Full::new(Bytes::from(found.unwrap_or(missing).to_string())).boxed_unsync())
        };
        async move { Ok::<_, Infallible>(Response::builder().status(status).body(body).unwrap()) }
    });
    Client::new(service, "shop")
}

/// These events, and then nothing until the watch ends.
fn watched(events: String) -> Answer {
    let told = stream::once(async { Ok::<_, Infallible>(Frame::data(Bytes::from(events))) });
    let end = stream::once(async {
        sleep(WATCHED_FOR).await;
        Ok(Frame::data(Bytes::new()))
    });
    StreamBody::new(told.chain(end)).boxed_unsync()
}

/// With two seats in this directory, in which earlier agents may have been.
fn work(folder: &Path, leases: &[(u128, [u128; 2], Level)]) -> Work {
    let leases: Leases = Arc::new(Mutex::new(leases.to_vec()));
    let ip = "10.0.0.1".parse().unwrap();
    let own = Identity { id: AgentId(OWN), pod: "web-1".to_owned(), namespace: "shop".to_owned(), ip };
    let search = Search::new(server(leases.clone()), Membership::Group("web".to_owned()), own);
    let (table, turnstile) = (Table::new(folders::open(folder, 2).unwrap()), SharedTurnstile::default());
    let (assign, assigned) = [(); 2].map(|()| mpsc::channel(1)).into_iter().unzip();
    let (spare, is_spare) = watch::channel(false);
    let usher = Usher {
        search,
        id: AgentId(OWN),
        state_dir: None,
        table: table.clone(),
        turnstile: turnstile.clone(),
        assign,
        spare,
    };
    Work { leases, table, turnstile, assigned, spare: is_spare, task: tokio::spawn(usher.run()) }
}

impl Work {
    /// The Lease that a seat gets; `None`: it gets none for long.
    async fn gets(&mut self, seat: usize) -> Option<u128> {
        let start = timeout(A_WHILE, self.assigned[seat].recv()).await.ok()?;
        start.map(|start| start.found.record.group)
    }

    fn set(&self, leases: &[(u128, [u128; 2], Level)]) {
        *self.leases.lock().unwrap() = leases.to_vec();
    }

    /// Lets this seat act, or end.
    fn go(&self, seat: u8, role: Role) {
        let agent = Agent { role, ..Agent::new(AgentId(OWN), Incarnation(1)) };
        self.turnstile.passage(SeatNumber(seat)).follow(&agent, true);
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Leases that this Pod is in, and say nothing of directories.
fn named(leases: &[u128]) -> Vec<(u128, [u128; 2], Level)> {
    leases.iter().map(|lease| (*lease, [2, OWN], Level::Unsaid)).collect()
}

/// Has each seat hold this Lease until its agent ends.
fn take(folder: &Path, leases: [u128; 2]) -> [DirectoryId; 2] {
    let seats = folders::open(folder, 2).unwrap();
    for (seat, lease) in seats.iter().zip(leases) {
        seat.take(lease, &Level::Unsaid).unwrap();
    }
    [0, 1].map(|seat| seats[seat].directory.id())
}

#[tokio::test(start_paused = true)]
async fn each_lease_gets_one_seat_and_none_gets_two() {
    let folder = tempfile::tempdir().unwrap();
    let mut work = work(folder.path(), &named(&[50, 51, 52]));
    assert_eq!(work.gets(0).await, Some(50));
    assert_eq!(work.gets(1).await, Some(51));
    assert_eq!((work.gets(0).await, work.gets(1).await), (None, None), "no seat is free");

    work.set(&named(&[50, 51]));
    work.table.free_up(SeatNumber(0), false).await;
    assert_eq!(work.gets(0).await, Some(50), "it is free again");
    assert_eq!(work.gets(1).await, None, "it has its Lease still");
}

#[tokio::test(start_paused = true)]
async fn no_lease_is_sought_while_a_seat_is_inside() {
    let folder = tempfile::tempdir().unwrap();
    let mut work = work(folder.path(), &[]);
    work.go(1, Role::Active);
    assert_eq!(work.gets(0).await, None);
    work.set(&named(&[50]));
    assert_eq!(work.gets(0).await, None);
    work.go(1, Role::Standby);
    assert_eq!(work.gets(0).await, Some(50));
}

#[tokio::test(start_paused = true)]
async fn a_copy_that_a_lease_calls_in_sync_waits_for_it_and_stops_no_other_lease() {
    let folder = tempfile::tempdir().unwrap();
    let [kept, unnamed] = take(folder.path(), [50, 51]);
    let in_sync = |directory| Level::Only([directory].into());
    // The Lease of the first copy does not name the Pod now. A stranger comes first.
    let other = (50, [2, 3], in_sync(kept));
    let mut work = work(
        folder.path(),
        &[(52, [OWN, 4], Level::Unsaid), other.clone(), (51, [OWN, 5], in_sync(unnamed))],
    );
    assert_eq!(work.gets(1).await, Some(51));
    assert_eq!(work.gets(0).await, None);
    assert_eq!(work.table.folders[0].past().unwrap(), SeatPast::Lease { lease: 50, given_up: None });
    assert_eq!(work.table.folders[0].directory.id(), kept);

    // The active of the first pair has left the copy out since.
    work.set(&[
        (52, [OWN, 4], Level::Unsaid),
        (50, [2, 3], in_sync(DirectoryId(9))),
        (51, [OWN, 5], in_sync(unnamed)),
    ]);
    assert_eq!(work.gets(0).await, Some(52));
    assert_ne!(work.table.folders[0].directory.id(), kept);
}

#[tokio::test(start_paused = true)]
async fn a_seat_of_which_nothing_can_be_read_is_passed_over() {
    let folder = tempfile::tempdir().unwrap();
    let mut work = work(folder.path(), &[]);
    // A folder in the place of a note cannot be read.
    std::fs::create_dir(folder.path().join("seats/0/.bps-ha/lease")).unwrap();
    work.set(&named(&[50]));
    assert_eq!(work.gets(1).await, Some(50));
    assert_eq!(work.gets(0).await, None);
}

#[tokio::test(start_paused = true)]
async fn what_is_known_of_a_spare_stays_until_the_next_verdict() {
    let folder = tempfile::tempdir().unwrap();
    let whole = vec![(50, [2, 3], Level::Unsaid)];
    let mut work = work(folder.path(), &whole);
    work.spare.wait_for(|is_spare| *is_spare).await.unwrap();
    // The usher begins another search.
    work.go(1, Role::Active);
    work.go(1, Role::Standby);
    assert_eq!(work.gets(0).await, None);
    assert!(*work.spare.borrow() && !work.spare.has_changed().unwrap());
    work.set(&named(&[50]));
    assert_eq!(work.gets(0).await, Some(50));
    assert!(!*work.spare.borrow_and_update());
}
