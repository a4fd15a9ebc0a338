//! What the status tells of steps whose look could not write it.

use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};

use bps_core::model::{Action, Outcome, PodName, Reason, Refusal, Role, Step, StepResult};
use bps_core::testing as given;
use bps_runtime::clock::Clock;
use bps_testkit::mock_api::{Seen, pair, status};
use jiff::SignedDuration;
use kube::Client;
use serde_json::{Value, json};

use super::{context, job, known_set, unready_primary};
use crate::apply::testing::pod;
use crate::controller::reconcile::{Context, reconcile};
use crate::controller::report::notes;

/// Time between two looks.
const LOOKS_APART: SignedDuration = SignedDuration::from_secs(30);

/// A set whose failover is due, and what an operator needs for it.
fn failover(client: &Client) -> Context {
    let fields = json!({"replicas": 1, "hotBackups": 1});
    context(client, &fields, &[unready_primary("web-0"), pod("web-1", ("hot", 17))])
}

/// The answer to a write of a Pod: the Pod with the labels that were asked for.
fn converted(seen: &Seen) -> (u16, Value) {
    let name = seen.path.rsplit('/').next().unwrap_or_default();
    let mut written = if name == "web-0" { unready_primary(name) } else { pod(name, ("hot", 30)) };
    for (label, value) in seen.body["metadata"]["labels"].as_object().into_iter().flatten() {
        written["metadata"]["labels"][label] = value.clone();
    }
    written["metadata"]["resourceVersion"] = json!("30");
    (200, written)
}

/// Statuses that are written in three looks at a failover, while the first `refused` of them meet a newer version.
async fn statuses(refused: usize) -> Vec<Value> {
    let (client, server) = pair();
    let mut asked = 0;
    let (log, serving) = server.serve(move |seen| {
        if !seen.path.ends_with("/status") {
            return converted(seen);
        }
        asked += 1;
        if asked <= refused {
            return (409, status(409, "Conflict", "the object has been modified"));
        }
        let mut set = serde_json::to_value(known_set(&json!({"replicas": 1, "hotBackups": 1}))).unwrap();
        set["metadata"]["resourceVersion"] = json!("31");
        set["status"] = seen.body["status"].clone();
        (200, set)
    });
    let mut context = failover(&client);
    let look = Arc::new(AtomicI32::new(0));
    let (first, looked) = (context.sink.clock.now(), look.clone());
    context.sink.clock = Clock::new(move || first + LOOKS_APART * looked.load(Ordering::Relaxed));
    for _ in 0..3 {
        reconcile(&context, &job()).await;
        look.fetch_add(1, Ordering::Relaxed);
    }
    serving.abort();
    let log = log.lock().unwrap();
    log.iter().filter(|seen| seen.path.ends_with("/status")).map(|seen| seen.body["status"].clone()).collect()
}

#[tokio::test]
async fn a_failover_is_told_although_the_status_of_its_look_was_not_taken() {
    for refused in [0, 1, 2] {
        let told = statuses(refused).await;
        assert_eq!(told.len(), refused + 1, "what was told is not told again: {told:?}");
        let taken = &told[refused];
        let failover = &taken["lastFailover"];
        assert_eq!(failover, &told[0]["lastFailover"], "its times are those of its own look");
        let shown = (&failover["lostPod"], &failover["successor"], &failover["reason"]);
        assert_eq!(shown, (&json!("web-0"), &json!("web-1"), &json!("PodUnready")), "{refused}: {taken}");
        let pods = taken["conversions"].as_array().into_iter().flatten().map(|one| &one["pod"]);
        assert_eq!(pods.collect::<Vec<_>>(), [&json!("web-0"), &json!("web-1")], "{refused}: {taken}");
    }
}

#[test]
fn what_is_refused_again_and_again_is_told_once() {
    let mut woken = given::pod("web-0", Role::Primary, 0);
    woken.first_ticket = Some(given::now());
    let snapshot = given::snapshot(given::desired([1, 0, 0]), vec![woken.clone()]);
    let result = |action: Action, refusal: Refusal, seconds: i64| StepResult {
        step: Step { action, reason: Reason::PodMissing },
        outcome: Outcome::Failed(refusal),
        message: None,
        started: given::seconds_ago(-seconds),
        elapsed: SignedDuration::ZERO,
    };
    let created = |name: &str, refusal: Refusal| {
        let action = Action::Create { name: PodName(name.into()), role: Role::Cold, slot: 1, subset: None };
        result(action, refusal, 0)
    };
    let asked = |seconds: i64| {
        let action = Action::Wake { pod: woken.pod.clone(), address: given::address(0) };
        result(action, Refusal::GateRefused, seconds)
    };
    let results = [
        created("web-1", Refusal::QuotaExceeded),
        created("web-2", Refusal::QuotaExceeded),
        created("web-3", Refusal::Forbidden),
        asked(0),
        asked(1),
    ];
    let told = |results: &[StepResult]| {
        notes(&snapshot, results).into_iter().map(|note| note.action).collect::<Vec<_>>()
    };
    assert_eq!(told(&results), ["create web-1", "create web-3", "wake web-0"]);
    assert_eq!(told(&[asked(1)]), [""; 0]);
}
