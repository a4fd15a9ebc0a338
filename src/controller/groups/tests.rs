//! Looks at one group, with an API server that tests answer for.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bps_api::{HAGroup, HandoverOrder, PairStatus, keys};
use bps_core::model::NodeName;
use bps_observe::slim::SlimPod;
use bps_observe::{Change, NotedNodes, SetKey};
use bps_runtime::lease::Leadership;
use bps_runtime::metrics::Metrics;
use bps_runtime::shutdown::Shutdown;
use bps_runtime::sync::Instant;
use bps_testkit::mock_api::{Seen, pair, status};
use bps_wire::uid::format_uid;
use k8s_openapi::api::coordination::v1::Lease;
use kube::Client;
use serde_json::{Value, json};
use tokio::sync::watch;

use super::kubelets::Kubelets;
use super::look::{after_stale_writes, look};
use super::stores::Stores;
use super::{Context, Surroundings, look_at_all};
use crate::apply::testing::{clock, ring};
use crate::controller::events::{self, EventWriter};
use crate::controller::queue::{Again, Job, Queue};
use crate::controller::reconcile::Look;
use crate::controller::reconcile::after_refusals;

mod behind;
mod departed;
mod lost;
mod services;
mod writes;

fn key() -> SetKey {
    SetKey { namespace: "shop".into(), name: "web".into() }
}

fn group() -> HAGroup {
    let group = json!({
        "apiVersion": "backup.example.com/v1alpha1", "kind": "HAGroup",
        "metadata": {"name": "web", "namespace": "shop", "uid": "group-uid", "resourceVersion": "5"},
        "spec": {},
    });
    serde_json::from_value(group).expect("a group")
}

/// What a leading operator needs, with this group in its stores, and what writes its events.
fn context(client: &Client, stores: Stores) -> (Context, EventWriter) {
    let metrics = Metrics::new("test");
    let (events, writer) = events::channel(client.clone(), clock(), "bps-operator-0".into(), &metrics.sets);
    let surroundings = Surroundings {
        client: client.clone(),
        clock: clock(),
        leadership: Leadership::won(),
        metrics,
        events,
        keys: watch::channel(ring()).1,
        nodes_noted: watch::channel(NotedNodes::default()).1,
        cache: Arc::default(),
    };
    let memories = Mutex::default();
    (
        Context {
            surroundings,
            stores: vec![stores],
            unlisted: watch::channel(0).1,
            memories,
            kubelets: Kubelets::default(),
            refusals: after_refusals(),
            stale: after_stale_writes(),
        },
        writer,
    )
}

fn job() -> Job {
    Job { key: key(), change: Change::Urgent, since: Instant::now(), urgent: watch::channel(()).1 }
}

fn pod(number: u128) -> SlimPod {
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": format!("web-{number}"), "namespace": "shop", "uid": format_uid(number),
            "labels": {(keys::LABEL_GROUP): "web"}, "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"nodeName": format!("n{number}")},
        "status": {"phase": "Running", "podIP": format!("10.0.0.{number}")},
    });
    serde_json::from_value(pod).expect("a Pod")
}

/// Takes every write.
fn answered(seen: &Seen) -> (u16, Value) {
    if seen.path.ends_with("/status") {
        return (200, serde_json::to_value(group()).unwrap());
    }
    // What a patch takes away is not there.
    let mut written = json!({});
    json_patch::merge(&mut written, &seen.body);
    (200, written)
}

#[tokio::test]
async fn a_group_that_is_refused_is_looked_at_later_and_forgiven_by_success() {
    let (client, server) = pair();
    let is_refusing = Arc::new(AtomicBool::new(true));
    let switch = Arc::clone(&is_refusing);
    let answer = move |seen: &Seen| {
        let is_refused = switch.load(Ordering::Relaxed) && !seen.path.ends_with("/status");
        if is_refused { (403, status(403, "Forbidden", "no")) } else { answered(seen) }
    };
    let (_, serving) = server.serve(answer);
    let (context, _) = context(&client, Stores::with(group(), []));
    for delay in [250, 500] {
        assert_eq!(look(&context, &job()).await, Look::Refused(Duration::from_millis(delay).into()));
    }

    is_refusing.store(false, Ordering::Relaxed);
    assert!(matches!(look(&context, &job()).await, Look::Settled(_)));
    assert!(context.refusals.times(&key()) == 0);
    serving.abort();
}

/// A list after a watch that was away names only groups that there are. Of one that is gone nothing is kept all the same: every
/// group is looked at again when its keys are due.
#[tokio::test]
async fn nothing_is_kept_of_a_group_whose_deletion_no_watch_has_shown() {
    let (client, server) = pair();
    let (_, serving) = server.serve(answered);
    let (mut context, _) = context(&client, Stores::with(group(), []));
    let settled = look(&context, &job()).await;
    let Look::Settled(Some(Again { after, .. })) = settled else { panic!("nobody looks again: {settled:?}") };
    assert!(after <= Duration::from_secs(600), "{after:?}");
    assert_eq!(context.memories.lock().unwrap().len(), 1);

    context.stores = context.stores.into_iter().map(Stores::emptied).collect();
    assert_eq!(look(&context, &job()).await, Look::Settled(None));
    assert!(context.memories.lock().unwrap().is_empty());
    serving.abort();
}

/// How many requests of a log changed these objects.
fn changes(log: &Mutex<Vec<Seen>>, kind: &str) -> Vec<Value> {
    let log = log.lock().unwrap();
    let is_of_kind = |seen: &&Seen| seen.method != "GET" && seen.path.split('/').any(|part| part == kind);
    let of_kind = log.iter().filter(is_of_kind);
    of_kind.map(|seen| seen.body.clone()).collect()
}

#[tokio::test]
async fn keys_are_written_once_for_each_version_of_what_they_are_made_from() {
    let (client, server) = pair();
    let (log, serving) = server.serve(answered);
    let (context, _) = context(&client, Stores::with(group(), []));
    for _ in 0..2 {
        assert!(matches!(look(&context, &job()).await, Look::Settled(_)));
    }
    serving.abort();
    assert_eq!(changes(&log, "secrets").len(), 1, "{log:?}");
}

/// Agents of an idle group would else hear of it minutes later.
#[tokio::test(start_paused = true)]
async fn groups_are_looked_at_when_the_operators_keys_change() {
    let (client, _server) = pair();
    let (mut context, _) = context(&client, Stores::with(group(), []));
    let (ring_now, keys) = watch::channel(ring());
    context.surroundings.keys = keys;
    let queue = Queue::closed();
    queue.open();
    let next =
        async || tokio::time::timeout(Duration::from_secs(1), queue.take(true)).await.map(|job| job.key);
    let jobs = async {
        let first = next().await;
        queue.done(&key());
        let idle = next().await;
        ring_now.send_replace(ring());
        [first, idle, next().await]
    };
    let [first, idle, after] = tokio::select! {
        () = look_at_all(&context, &queue) => panic!("it goes on as long as the operator"),
        jobs = jobs => jobs,
    };
    assert_eq!((first, idle.is_err(), after), (Ok(key()), true, Ok(key())));
}

/// Else the active would stay until it is evicted, which a budget over actives forbids.
#[tokio::test(start_paused = true)]
async fn groups_are_looked_at_when_a_node_of_theirs_is_about_to_be_taken_away() {
    let (client, _server) = pair();
    let (mut context, _) = context(&client, Stores::with(group(), []).with_pods([pod(1)]));
    let (told, nodes) = watch::channel(NotedNodes::default());
    context.surroundings.nodes_noted = nodes;
    let queue = Queue::closed();
    queue.open();
    let next =
        async || tokio::time::timeout(Duration::from_secs(1), queue.take(true)).await.map(|job| job.key);
    let jobs = async {
        drop(next().await);
        queue.done(&key());
        let mut found = Vec::new();
        for node in ["n2", "n1"] {
            told.send_replace(NotedNodes {
                leaving: [NodeName(node.to_owned())].into(),
                ..NotedNodes::default()
            });
            found.push(next().await.is_ok());
        }
        found
    };
    let found = tokio::select! {
        () = look_at_all(&context, &queue) => panic!("it goes on as long as the operator"),
        found = jobs => found,
    };
    assert_eq!(found, [false, true], "its only Pod is on the second one");
}

#[tokio::test]
async fn permissions_are_written_if_they_are_not_there_and_an_idle_group_costs_nothing() {
    let (client, server) = pair();
    let (log, serving) = server.serve(answered);
    let stores = || Stores::with(group(), []).with_pods([pod(1)]);
    let (before, _) = context(&client, stores());
    assert!(matches!(look(&before, &job()).await, Look::Settled(_)));
    let [role, binding] = ["roles", "rolebindings"].map(|kind| changes(&log, kind));
    assert_eq!((role.len(), binding.len()), (1, 1), "{log:?}");
    let role = serde_json::from_value(role[0].clone()).expect("a Role");
    let binding = serde_json::from_value(binding[0].clone()).expect("a RoleBinding");

    let (mut after, _) = context(&client, stores().with_permissions(role, binding));
    after.memories = before.memories;
    log.lock().unwrap().clear();
    look(&after, &job()).await;
    serving.abort();
    let kinds = ["secrets", "roles", "rolebindings"];
    assert_eq!(kinds.map(|kind| changes(&log, kind).len()), [0; 3], "{log:?}");
}

#[tokio::test]
async fn a_role_of_somebody_else_is_left_alone_and_reported() {
    let (client, server) = pair();
    let foreign =
        json!({"metadata": {"name": "web-ha-agent", "namespace": "shop", "uid": "u-foreign"}, "rules": []});
    let (log, serving) =
        server.serve(move |seen| match (seen.method.as_str(), seen.path.contains("/roles")) {
            ("POST", true) => (409, status(409, "AlreadyExists", "it exists")),
            ("GET", true) => (200, foreign.clone()),
            _ => answered(seen),
        });
    let (context, _) = context(&client, Stores::with(group(), []).with_pods([pod(1)]));
    assert!(matches!(look(&context, &job()).await, Look::Refused(_)));
    serving.abort();
    let written = changes(&log, "roles");
    assert_eq!(written.len(), 1, "it is made, or left alone: {written:?}");
}

/// The pair `web-0`, in which the second Pod acts after a handover, with what it told about that.
fn lease() -> Lease {
    let member = |number: u128| json!({"uid": format_uid(number), "pod": format!("web-{number}"), "address": format!("10.0.0.{number}:20001")});
    let told = json!({"epoch": 4_294_967_297_u64, "cause": "ApplicationEnded", "detected": 0, "fenced": 310, "lease": 1_250});
    let lease = json!({
        "metadata": {"name": "web-0", "namespace": "shop", "uid": format_uid(50), "resourceVersion": "5",
            "labels": {(keys::LABEL_GROUP): "web"}, "annotations": {
                (keys::ANNOTATION_HA_PAIR): "0", (keys::ANNOTATION_HA_SEQUENCE): "1",
                (keys::ANNOTATION_HA_HOLD): "Peer", (keys::ANNOTATION_HA_WRITES): "4",
                (keys::ANNOTATION_HA_MEMBERS): json!([member(1), member(2)]).to_string(),
                (keys::ANNOTATION_HA_TAKEOVER): told.to_string(),
            }},
        "spec": {"holderIdentity": format!("web-2_{}", format_uid(2)), "leaseTransitions": 1},
    });
    serde_json::from_value(lease).expect("a Lease")
}

#[tokio::test(start_paused = true)]
async fn a_takeover_is_told_once_in_status_event_and_metrics() {
    let mut known = group();
    known.spec.paused = true;
    let [name, active, standby, epoch, state] =
        ["web-0", "web-1", "web-2", "4294967296", "Paired"].map(str::to_owned);
    let before = PairStatus { name, active, standby, epoch, state, ..PairStatus::default() };
    known.status.get_or_insert_default().pairs = vec![before];
    let (client, server) = pair();
    let (log, serving) = server.serve(answered);
    let (context, writer) = context(&client, Stores::with(known, [lease()]));
    let shutdown = Shutdown::new();
    let writing = tokio::spawn(writer.run(shutdown.clone()));
    assert!(matches!(look(&context, &job()).await, Look::Settled(_)));
    tokio::time::sleep(Duration::from_secs(1)).await;
    shutdown.request();
    writing.await.unwrap();
    serving.abort();

    let log = log.lock().unwrap();
    let status: Vec<&Value> =
        log.iter().filter(|seen| seen.path.ends_with("/status")).map(|seen| &seen.body).collect();
    let phases = json!({"detected": 0, "fenced": 1, "lease": 2});
    let takeover = &status[0]["status"]["takeovers"][0];
    assert_eq!((&takeover["reason"], &takeover["phases"]), (&json!("ApplicationEnded"), &phases));
    let events = log.iter().filter(|seen| seen.path.ends_with("/events"));
    let events: Vec<_> = events.map(|seen| (&seen.body["reason"], &seen.body["regarding"]["kind"])).collect();
    assert_eq!(events, [(&json!("Takeover"), &json!("HAGroup"))]);
    let mut notes = log.iter().filter_map(|seen| seen.body["note"].as_str());
    let times = "; since its beginning: detected 0 ms, fenced 0.31 ms, lease 1.25 ms";
    assert!(notes.any(|note| note.ends_with(times)), "no event has the times: {log:?}");
    let metrics = context.surroundings.metrics.encode().unwrap();
    for line in [
        "backuppodset_takeovers_total{reason=\"ApplicationEnded\"} 1",
        "backuppodset_takeover_phase_seconds_sum{phase=\"lease\"} 0.00125",
    ] {
        assert!(metrics.lines().any(|found| found == line), "{line} is not in\n{metrics}");
    }
}

/// What one look writes into this annotation of Leases.
async fn written(group: HAGroup, lease: Lease, annotation: &str) -> Vec<Value> {
    let (client, server) = pair();
    let (log, serving) = server.serve(answered);
    let (context, _) = context(&client, Stores::with(group, [lease]));
    look(&context, &job()).await;
    serving.abort();
    let log = log.lock().unwrap();
    let leases = log.iter().filter(|seen| seen.path.contains("/leases"));
    leases.filter_map(|seen| seen.body["metadata"]["annotations"].get(annotation).cloned()).collect()
}

#[tokio::test]
async fn agents_are_told_a_new_order_of_a_planned_handover_once() {
    let mut wishing = group();
    wishing.spec.handover = Some(HandoverOrder::MakeBeforeBreak);
    let annotation =
        |order: HandoverOrder| [(keys::ANNOTATION_HA_HANDOVER.to_owned(), order.as_str().to_owned())];
    let mut told = lease();
    told.metadata.annotations.get_or_insert_default().extend(annotation(HandoverOrder::MakeBeforeBreak));
    let cases = [
        (wishing.clone(), lease(), Some(json!("MakeBeforeBreak"))),
        (wishing, told.clone(), None),
        (group(), told, Some(Value::Null)),
        (group(), lease(), None),
    ];
    for (group, lease, expected) in cases {
        assert_eq!(written(group, lease, keys::ANNOTATION_HA_HANDOVER).await, Vec::from_iter(expected));
    }
}

#[tokio::test]
async fn agents_are_told_of_a_service_that_is_added_or_taken_away() {
    let mut exposed = group();
    exposed.spec.service =
        serde_json::from_value(json!({"name": "shop", "ports": [{"port": 80}]})).expect("a Service");
    let mut told = lease();
    let slice = (keys::ANNOTATION_HA_SLICE.to_owned(), "web-0".to_owned());
    told.metadata.annotations.get_or_insert_default().extend([slice]);
    let cases = [
        (exposed.clone(), lease(), Some(json!("web-0"))),
        (exposed, told.clone(), None),
        (group(), told, Some(Value::Null)),
        (group(), lease(), None),
    ];
    for (group, lease, expected) in cases {
        assert_eq!(written(group, lease, keys::ANNOTATION_HA_SLICE).await, Vec::from_iter(expected));
    }
}

#[tokio::test]
async fn a_lease_with_a_term_that_is_over_is_deleted_and_its_pods_wait() {
    let (client, server) = pair();
    let (log, serving) = server.serve(answered);
    let mut newer = lease();
    newer.spec.get_or_insert_default().lease_transitions = Some(7);
    let (before, _) = context(&client, Stores::with(group(), [newer]));
    look(&before, &job()).await;
    let (mut after, _) = context(&client, Stores::with(group(), [lease()]));
    after.memories = before.memories;
    log.lock().unwrap().clear();
    assert!(matches!(look(&after, &job()).await, Look::Refused(_)), "people hear of it");
    serving.abort();
    let log = log.lock().unwrap();
    let deleted = log.iter().filter(|seen| seen.method == "DELETE").map(|seen| seen.path.as_str());
    assert_eq!(deleted.collect::<Vec<_>>(), ["/apis/coordination.k8s.io/v1/namespaces/shop/leases/web-0"]);
    let made = log.iter().filter(|seen| seen.method == "POST" && seen.path.ends_with("/leases"));
    assert_eq!(made.count(), 0, "whoever acted may still act");
}
