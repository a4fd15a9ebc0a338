//! Tests of the election against a Lease in memory, under paused time.

use std::time::Duration;

use http::Method;
use k8s_openapi::api::coordination::v1::LeaseSpec;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use super::fake::{Link, Server};
use super::*;
use crate::metrics::Metrics;
use crate::shutdown::Shutdown;

/// A running candidate.
struct Candidate {
    leadership: Leadership,
    shutdown: Shutdown,
    link: Link,
    metrics: Metrics,
    task: JoinHandle<Result<(), Error>>,
}

fn settings(pod: &str) -> Settings {
    Settings::new("backuppodset-system".to_owned(), "bps-operator", pod).unwrap()
}

fn start(server: &Server, pod: &str, link: Link) -> Candidate {
    let (metrics, shutdown) = (Metrics::new("test"), Shutdown::new());
    let elector = Elector::new(server.client(&link), settings(pod), &metrics.reconcile).unwrap();
    let leadership = elector.leadership();
    let task = tokio::spawn(elector.run(shutdown.clone()));
    Candidate { leadership, shutdown, link, metrics, task }
}

fn spec(server: &Server) -> LeaseSpec {
    server.object().unwrap().spec.unwrap()
}

fn holder(server: &Server) -> String {
    spec(server).holder_identity.unwrap()
}

/// Fails instead of letting virtual time run for ever.
async fn soon<Output>(work: impl Future<Output = Output>) -> Output {
    tokio::time::timeout(Duration::from_secs(60), work).await.expect("ends within a minute")
}

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

#[tokio::test(start_paused = true)]
async fn the_first_candidate_creates_the_lease_and_renews_it_with_one_request_each() {
    let server = Server::default();
    let first = start(&server, "a", Link::fast());

    assert_eq!(first.leadership.acquired_version(), u64::MAX, "nothing is later than that");
    soon(first.leadership.acquired()).await;
    let version = server.object().unwrap().metadata.resource_version.unwrap();
    assert_eq!(first.leadership.acquired_version().to_string(), version);
    assert!(holder(&server).starts_with("a_"));
    assert_eq!(spec(&server).lease_duration_seconds, Some(15));
    assert_eq!(spec(&server).lease_transitions, Some(0));
    assert_eq!(server.take_log(), [(Method::GET, 404), (Method::POST, 200)]);

    sleep(seconds(9)).await;
    assert!(first.leadership.is_leader());
    assert_eq!(server.take_log(), vec![(Method::PUT, 200); 4]);
    assert!(
        first.metrics.encode().unwrap().contains("leader_election_master_status{name=\"bps-operator\"} 1\n")
    );
}

#[tokio::test(start_paused = true)]
async fn a_stopped_leader_releases_and_another_takes_over_without_waiting_for_expiry() {
    let server = Server::default();
    let first = start(&server, "a", Link::fast());
    soon(first.leadership.acquired()).await;
    let second = start(&server, "b", Link::fast());
    sleep(seconds(20)).await;
    assert!(!second.leadership.is_leader());

    first.shutdown.request();
    soon(first.task).await.unwrap().unwrap();
    assert_eq!(holder(&server), "");
    assert_eq!(spec(&server).lease_duration_seconds, Some(1));
    assert!(!first.leadership.is_leader());
    assert!(
        first.metrics.encode().unwrap().contains("leader_election_master_status{name=\"bps-operator\"} 0\n")
    );

    let start = Instant::now();
    soon(second.leadership.acquired()).await;
    assert!(start.elapsed() < seconds(5), "{:?}", start.elapsed());
    assert!(holder(&server).starts_with("b_"));
    assert_eq!(spec(&server).lease_transitions, Some(1));
}

#[tokio::test(start_paused = true)]
async fn a_release_waits_for_permits_and_is_left_out_when_they_are_kept() {
    let server = Server::default();
    let first = start(&server, "a", Link::fast());
    soon(first.leadership.acquired()).await;
    let permit = first.leadership.permit().unwrap();

    first.shutdown.request();
    sleep(seconds(1)).await;
    assert!(!first.leadership.is_leader());
    assert!(first.leadership.permit().is_none(), "a stopping leader starts no write");
    assert!(holder(&server).starts_with("a_"), "released under a permit");
    drop(permit);
    soon(first.task).await.unwrap().unwrap();
    assert_eq!(holder(&server), "");

    let second = start(&server, "b", Link::fast());
    soon(second.leadership.acquired()).await;
    let _kept = second.leadership.permit().unwrap();
    second.shutdown.request();
    soon(second.task).await.unwrap().unwrap();
    assert!(holder(&server).starts_with("b_"), "a kept permit keeps the lease");
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_is_cut_off_stops_at_its_deadline_before_another_begins() {
    let server = Server::default();
    let first = start(&server, "a", Link::fast());
    soon(first.leadership.acquired()).await;
    let second = start(&server, "b", Link::fast());
    sleep(seconds(1)).await;
    let permit = first.leadership.permit().unwrap();
    let cut = Instant::now();
    first.link.cut(true);

    soon(first.leadership.lost()).await;
    assert_eq!(cut.elapsed(), seconds(9), "10 s after the renewal sent 1 s before the cut");
    let error = soon(first.task).await.unwrap().unwrap_err();
    assert!(matches!(error, Error::RenewDeadline { .. }), "{error:?}");

    soon(second.leadership.acquired()).await;
    assert!(Instant::now() >= permit.until(), "took over {:?} after the cut", cut.elapsed());
    assert!(cut.elapsed() < seconds(20), "{:?}", cut.elapsed());
    assert_eq!(spec(&server).lease_transitions, Some(1));
}

#[tokio::test(start_paused = true)]
async fn a_term_counts_from_the_request_not_from_its_answer() {
    let server = Server::default();
    let first = start(&server, "a", Link::slow_answers(seconds(2)));
    soon(first.leadership.acquired()).await;
    let acquired = Instant::now();
    assert_eq!(server.take_log(), [(Method::GET, 404), (Method::POST, 200)]);
    first.link.cut(true);

    soon(first.leadership.lost()).await;

    assert_eq!(acquired.elapsed(), seconds(8), "the answer took 2 s of the 10 s");
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_finds_another_name_stops_at_once() {
    let server = Server::default();
    let first = start(&server, "a", Link::fast());
    soon(first.leadership.acquired()).await;
    server.take_log();

    server.edit(|object| {
        object.as_mut().unwrap().spec.as_mut().unwrap().holder_identity = Some("somebody".to_owned());
    });
    let error = soon(first.task).await.unwrap().unwrap_err();

    assert!(matches!(&error, Error::Taken { holder } if holder == "somebody"), "{error:?}");
    assert!(!first.leadership.is_leader());
    assert_eq!(server.take_log(), [(Method::PUT, 409), (Method::GET, 200)]);
    assert_eq!(holder(&server), "somebody", "a loser leaves the lease alone");
}

#[tokio::test(start_paused = true)]
async fn a_new_label_costs_a_leader_one_conflict_and_stays() {
    let server = Server::default();
    let first = start(&server, "a", Link::fast());
    soon(first.leadership.acquired()).await;
    server.take_log();

    server.edit(|object| {
        let labels = &mut object.as_mut().unwrap().metadata.labels;
        labels.get_or_insert_default().insert("team".to_owned(), "blue".to_owned());
    });
    sleep(seconds(3)).await;

    assert!(first.leadership.is_leader());
    assert_eq!(server.take_log(), [(Method::PUT, 409), (Method::GET, 200), (Method::PUT, 200)]);
    assert_eq!(server.object().unwrap().metadata.labels.unwrap()["team"], "blue");
}

#[tokio::test(start_paused = true)]
async fn a_deleted_lease_changes_neither_leader_nor_count() {
    let server = Server::default();
    server.edit(|object| {
        let spec = LeaseSpec { lease_transitions: Some(7), ..LeaseSpec::default() };
        *object = Some(k8s_openapi::api::coordination::v1::Lease { spec: Some(spec), ..Default::default() });
    });
    let first = start(&server, "a", Link::fast());
    soon(first.leadership.acquired()).await;
    let second = start(&server, "b", Link::fast());
    sleep(seconds(5)).await;

    server.edit(|object| *object = None);
    // Longest time in which the second looks while there is none: both look every few seconds.
    for _ in 0..300 {
        sleep(Duration::from_millis(100)).await;
        assert!(first.leadership.is_leader());
        assert!(!second.leadership.is_leader());
    }
    assert_eq!(spec(&server).lease_transitions, Some(8));
}

#[tokio::test(start_paused = true)]
async fn a_candidate_stopped_at_any_moment_delays_the_next_by_one_term_at_most() {
    for moment in 0..40 {
        let server = Server::default();
        let first = start(&server, "a", Link::new(seconds(1), moment));
        sleep(Duration::from_millis(moment * 100)).await;
        first.shutdown.request();
        soon(first.task).await.unwrap().unwrap();
        assert!(!first.leadership.is_leader());

        let second = start(&server, "b", Link::fast());
        let start = Instant::now();
        soon(second.leadership.acquired()).await;
        assert!(start.elapsed() < seconds(15 + 5), "stopped at {moment}: {:?}", start.elapsed());
        second.task.abort();
    }
}

#[test]
fn times_that_contradict_each_other_are_refused() {
    let refused = |change: fn(&mut Settings)| {
        let mut settings = settings("a");
        change(&mut settings);
        settings.check().unwrap_err().to_string()
    };
    assert!(settings("a").check().is_ok());
    assert_ne!(settings("a").identity, settings("a").identity);
    let lease = refused(|settings| settings.renew_deadline = seconds(15));
    assert_eq!(lease, "accept lease settings: the lease duration is not more than the renew deadline");
    let retry = refused(|settings| settings.retry_period = seconds(9));
    assert_eq!(retry, "accept lease settings: the renew deadline is not more than 1.2 retry periods");
    let long = refused(|settings| settings.lease_duration = seconds(601));
    assert_eq!(long, "accept lease settings: the lease duration is more than 600 s");
    let nobody = refused(|settings| settings.identity.clear());
    assert_eq!(nobody, "accept lease settings: the identity is empty, which means released");
}

/// Two Pods that are restarted when they end, over slow links that are cut now and then.
async fn rivals(seed: u64) -> (u32, u32) {
    const TICK: Duration = Duration::from_millis(50);
    const TICKS: u32 = 4_000;
    let server = Server::default();
    let slow = |steps: u64, seed| Link::new(Duration::from_millis(400 * steps), seed);
    let links = [slow(seed % 5, seed), slow(seed % 3, seed + 1_000)];
    let mut rivals = [start(&server, "a", links[0].clone()), start(&server, "b", links[1].clone())];
    let (mut led, mut restarts) = (0, 0);
    for tick in 0..TICKS {
        sleep(TICK).await;
        let leaders = rivals.iter().filter(|rival| rival.leadership.is_leader()).count();
        assert!(leaders < 2, "seed {seed}: two leaders at tick {tick}");
        led += u32::try_from(leaders).unwrap();
        for (rival, link) in rivals.iter_mut().zip(&links) {
            if link.draw(200) == 0 {
                link.cut(link.draw(3) == 0);
            }
            if link.draw(1_000) == 0 {
                rival.shutdown.request();
            }
            if rival.task.is_finished() {
                restarts += 1;
                *rival = start(&server, "again", link.clone());
            }
        }
    }
    (led * 100 / TICKS, restarts)
}

#[tokio::test(start_paused = true)]
async fn two_candidates_never_lead_at_once_whatever_the_network_does() {
    const SEEDS: u64 = 20;
    let (mut led, mut restarts) = (0, 0);
    for seed in 1..=SEEDS {
        let outcome = rivals(seed).await;
        led += outcome.0;
        restarts += outcome.1;
    }
    // Otherwise the property would hold because nothing happened.
    assert!(led / 20 > 20, "somebody led only {} % of the time", led / 20);
    assert!(restarts > 100, "only {restarts} restarts");
}
