//! One look at a set: what counts as refused, and what ends it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bps_api::{HAGroup, keys};
use bps_core::manifests::{service, set_group, set_group_spec};
use bps_observe::readable::Readable;
use bps_observe::{Change, SetKey, Watched, Written, observe};
use bps_runtime::backoff::KeyedBackoff;
use bps_testkit::mock_api::{Seen, pair, status};
use k8s_openapi::api::core::v1::Service;
use kube::Client;
use serde_json::{Value, json};

use super::{context, job, key, primary, unready_primary};
use crate::apply::testing::{NOW, pod, ring, set, slim};
use crate::controller::housekeeping::known_keys;
use crate::controller::queue::Again;
use crate::controller::reconcile::{Context, Look, reconcile};
use crate::controller::refresh::refresh;

/// Answers creations with a new primary, or with a refusal while the switch is on, and status writes with the set.
fn api(is_refusing: Arc<AtomicBool>) -> impl FnMut(&Seen) -> (u16, Value) + Send + 'static {
    move |seen| match (seen.method.as_str(), is_refusing.load(Ordering::Relaxed)) {
        ("POST", true) => (500, status(500, "InternalError", "etcd is away")),
        ("POST", false) => {
            let mut created = primary(seen.body["metadata"]["name"].as_str().unwrap_or_default());
            created["metadata"]["resourceVersion"] = json!("30");
            created["metadata"]["labels"] = seen.body["metadata"]["labels"].clone();
            (201, created)
        }
        _ => (200, serde_json::to_value(super::known_set(&json!({}))).unwrap()),
    }
}

/// Answers as [`api`], and refuses creations of Pods whose label of this key has this value. The set has these fields.
fn refusing(
    fields: &Value,
    key: &'static str,
    refused: &'static str,
) -> impl FnMut(&Seen) -> (u16, Value) + Send + 'static {
    let [mut refuse, mut take] = [true, false].map(|is_refusing| api(Arc::new(AtomicBool::new(is_refusing))));
    let known = serde_json::to_value(super::known_set(fields)).unwrap();
    move |seen| match (seen.method.as_str(), seen.body["metadata"]["labels"][key] == refused) {
        ("POST", true) => refuse(seen),
        ("POST", false) => take(seen),
        _ => (200, known.clone()),
    }
}

/// How many creations were asked for of Pods whose label of this key has this value.
fn created(log: &Mutex<Vec<Seen>>, key: &str, value: &str) -> usize {
    let log = log.lock().unwrap();
    let is_it = |seen: &&Seen| seen.method == "POST" && seen.body["metadata"]["labels"][key] == value;
    log.iter().filter(is_it).count()
}

async fn delays(context: &Context, count: usize) -> Vec<u128> {
    let mut delays = Vec::new();
    for _ in 0..count {
        match reconcile(context, &job()).await {
            Look::Refused(again) => {
                delays.push(again.after.as_millis());
                tokio::time::sleep(again.after).await;
            }
            settled @ Look::Settled(_) => panic!("{settled:?} after {delays:?}"),
        }
    }
    delays
}

#[tokio::test(start_paused = true)]
async fn a_set_that_is_refused_is_looked_at_less_and_less_often_until_it_succeeds() {
    let (client, server) = pair();
    let is_refusing = Arc::new(AtomicBool::new(true));
    let (_, serving) = server.serve(api(Arc::clone(&is_refusing)));
    let context = context(&client, &json!({"replicas": 1}), &[]);
    assert_eq!(delays(&context, 3).await, [250, 500, 1_000]);

    is_refusing.store(false, Ordering::Relaxed);
    assert_eq!(reconcile(&context, &job()).await, Look::Settled(None));
    assert!(context.refusals.times(&key()) == 0);

    is_refusing.store(true, Ordering::Relaxed);
    lose_all_pods(&context);
    assert_eq!(delays(&context, 2).await, [250, 500]);
    serving.abort();
}

#[tokio::test(start_paused = true)]
async fn while_creations_are_refused_one_of_all_is_tried() {
    let (client, server) = pair();
    let is_refusing = Arc::new(AtomicBool::new(true));
    let fields = json!({"replicas": 3});
    let known = serde_json::to_value(super::known_set(&fields)).unwrap();
    let mut answer = api(Arc::clone(&is_refusing));
    let (log, serving) = server.serve(move |seen| match seen.method.as_str() {
        "POST" => answer(seen),
        _ => (200, known.clone()),
    });
    let context = context(&client, &fields, &[]);
    let posts = || log.lock().unwrap().iter().filter(|seen| seen.method == "POST").count();
    delays(&context, 1).await;
    assert_eq!(posts(), 3);
    delays(&context, 4).await;
    assert_eq!(posts(), 7);
    is_refusing.store(false, Ordering::Relaxed);
    assert_eq!(reconcile(&context, &job()).await, Look::Settled(None));
    assert_eq!(posts(), 10, "after the first that is taken all others follow in the same look");
    serving.abort();
}

#[tokio::test(start_paused = true)]
async fn an_event_brings_no_refused_creation_forward() {
    let (client, server) = pair();
    let (log, serving) = server.serve(api(Arc::new(AtomicBool::new(true))));
    let context = context(&client, &json!({"replicas": 3}), &[]);
    let posts = || log.lock().unwrap().iter().filter(|seen| seen.method == "POST").count();
    delays(&context, 5).await;
    let before = posts();
    for _ in 0..20 {
        assert!(matches!(reconcile(&context, &job()).await, Look::Refused(_) | Look::Settled(Some(_))));
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(posts() - before, 1, "one that was due");
    serving.abort();
}

#[tokio::test(start_paused = true)]
async fn a_primary_does_not_wait_for_backups_that_are_refused() {
    let (client, server) = pair();
    let fields = json!({"replicas": 1, "hotBackups": 1});
    let (log, serving) = server.serve(refusing(&fields, keys::LABEL_ROLE, "hot"));
    let context = context(&client, &fields, &[]);
    let posts = |role: &str| created(&log, keys::LABEL_ROLE, role);
    delays(&context, 6).await;
    assert_eq!((posts("primary"), posts("hot")), (1, 6));
    delays(&context, 1).await;
    lose_all_pods(&context);
    assert!(matches!(reconcile(&context, &job()).await, Look::Refused(_)));
    assert_eq!(posts("primary"), 2, "it was made in the very next look");
    serving.abort();
}

#[tokio::test(start_paused = true)]
async fn a_subset_does_not_wait_for_one_whose_pods_are_refused() {
    let (client, server) = pair();
    let of_zone = |name: &str, replicas: u32| {
        let values = json!([{"key": "zone", "operator": "In", "values": [name]}]);
        json!({"name": name, "replicas": replicas, "nodeSelectorTerm": {"matchExpressions": values}})
    };
    let subsets = [of_zone("a", 2), of_zone("b", 2)];
    let fields = json!({"replicas": 4, "topology": {"subsets": subsets}});
    let (log, serving) = server.serve(refusing(&fields, keys::LABEL_SUBSET, "a"));
    let context = context(&client, &fields, &[]);
    let posts = |subset: &str| created(&log, keys::LABEL_SUBSET, subset);
    delays(&context, 6).await;
    assert_eq!((posts("a"), posts("b")), (7, 2));
    delays(&context, 1).await;
    lose_all_pods(&context);
    assert!(matches!(reconcile(&context, &job()).await, Look::Refused(_) | Look::Settled(Some(_))));
    // The server gives them the uids of those that are gone, so that they are made more than once.
    assert!(posts("b") >= 4, "{} were made in the very next look", posts("b") - 2);
    serving.abort();
}

/// A look after this many milliseconds that service depends on.
fn urgent(milliseconds: u64) -> Again {
    Again { after: Duration::from_millis(milliseconds), change: Change::Urgent }
}

/// A set whose failover is due in 5 s, and what an operator needs for it.
fn failover(client: &Client, hot_backups: u32) -> (Value, Context) {
    let fields = json!({"replicas": 1, "hotBackups": hot_backups, "failoverDelaySeconds": 5});
    let context = context(client, &fields, &[unready_primary("web-0"), pod("web-1", ("hot", 17))]);
    (serde_json::to_value(super::known_set(&fields)).unwrap(), context)
}

/// It has happened so often in a row.
fn repeat(pauses: &KeyedBackoff<SetKey>, times: u32) {
    for _ in 0..times {
        pauses.again(&key());
    }
}

#[tokio::test(start_paused = true)]
async fn a_failover_that_is_due_is_looked_at_before_the_pause_after_refusals_ends() {
    let (client, server) = pair();
    let (known, context) = failover(&client, 2);
    let (_, serving) = server.serve(move |seen| match seen.method.as_str() {
        "POST" => (500, status(500, "InternalError", "etcd is away")),
        _ => (200, known.clone()),
    });
    repeat(&context.refusals, 3);
    assert_eq!(delays(&context, 3).await, [2_000, 4_000, 5_000]);
    assert_eq!(reconcile(&context, &job()).await, Look::Refused(urgent(5_000)));
    assert_eq!(context.refusals.times(&key()), 7, "the pause itself goes on growing");
    serving.abort();
}

#[tokio::test]
async fn a_failover_that_is_due_is_looked_at_before_the_pause_after_stale_writes_ends() {
    let (client, server) = pair();
    let (_, serving) = server.serve(|_| (409, status(409, "Conflict", "the object has been modified")));
    let (_, context) = failover(&client, 1);
    repeat(&context.stale, 9);
    assert_eq!(reconcile(&context, &job()).await, Look::Settled(Some(urgent(5_000))));
    assert_eq!(context.stale.times(&key()), 10, "the pause itself goes on growing");
    serving.abort();
}

fn lose_all_pods(context: &Context) {
    let mut cache = context.sink.cache();
    let pods = observe(&cache, &key(), NOW).unwrap().snapshot.pods;
    for pod in pods {
        let mut lost = primary(&pod.pod.name.0);
        lost["metadata"]["uid"] = json!(pod.pod.uid.0);
        slim(&lost).lost(&mut cache, NOW);
    }
}

#[tokio::test]
async fn a_set_that_is_gone_is_forgiven_and_nothing_is_sent() {
    let (client, server) = pair();
    let (log, serving) = server.serve(|_| (500, Value::Null));
    let context = context(&client, &json!({}), &[]);
    repeat(&context.refusals, 9);
    set(&json!({})).lost(&mut context.sink.cache(), NOW);
    assert_eq!(reconcile(&context, &job()).await, Look::Settled(None));
    assert!(context.refusals.times(&key()) == 0);
    assert_eq!(*log.lock().unwrap(), []);
    serving.abort();
}

/// What a look at a set with these fields sends, as method and last part of the path.
async fn sent(fields: Value, pods: &[Value]) -> (Look, Vec<(String, String)>) {
    let (client, server) = pair();
    let (log, serving) = server.serve(api(Arc::default()));
    let context = context(&client, &fields, pods);
    let look = reconcile(&context, &job()).await;
    serving.abort();
    let short =
        |seen: &Seen| (seen.method.clone(), seen.path.rsplit('/').next().unwrap_or_default().to_owned());
    let log: Arc<Mutex<Vec<Seen>>> = log;
    let sent = log.lock().unwrap().iter().map(short).collect();
    (look, sent)
}

fn status_write() -> (String, String) {
    ("PATCH".into(), "status".into())
}

#[tokio::test]
async fn a_shortage_is_filled_in_one_look_and_told_once() {
    let created = ("POST".to_owned(), "pods".to_owned());
    let (look, sent) = sent(json!({"replicas": 2}), &[]).await;
    assert_eq!((look, sent), (Look::Settled(None), vec![created.clone(), created, status_write()]));
}

#[tokio::test]
async fn nothing_but_status_is_written_for_a_paused_or_a_wrong_spec() {
    for fields in [
        json!({"replicas": 2, "paused": true}),
        json!({"replicas": 5_000}),
        json!({"service": {"name": "front", "ports": [{"port": 80, "targetPort": "nowhere"}]}}),
    ] {
        let (look, sent) = sent(fields.clone(), &[]).await;
        assert_eq!((look, sent), (Look::Settled(None), vec![status_write()]), "{fields}");
    }
}

#[tokio::test]
async fn a_set_says_in_which_of_its_pairs_nobody_may_act() {
    let (client, server) = pair();
    let (log, serving) = server.serve(api(Arc::default()));
    let container = json!({"name": "web", "image": "web:1", "command": ["/web"]});
    let fields = json!({"replicas": 1, "activeStandby": {"agentSource": "Image"}, "template": {"spec": {"containers": [container]}}});
    let context = context(&client, &fields, &[primary("web-0")]);
    let message = "nobody may act in web-0; bring the lost Pod back";
    let set = set(&fields);
    let mut group = set_group(&set, &set_group_spec(&set).unwrap().unwrap());
    group["status"]["conditions"] = json!([{
        "type": "Withheld", "status": "True", "reason": "NoLevelCopy", "message": message, "lastTransitionTime": NOW,
    }]);
    let group: HAGroup = serde_json::from_value(group).unwrap();
    Readable::from(group).seen(&mut context.sink.cache(), NOW);
    assert!(matches!(reconcile(&context, &job()).await, Look::Settled(_)));
    serving.abort();
    let log = log.lock().unwrap();
    let told = &log.iter().find(|seen| seen.path.ends_with("/status")).unwrap().body["status"];
    let conditions = told["conditions"].as_array().unwrap();
    let degraded = conditions.iter().find(|condition| condition["type"] == "Degraded").unwrap();
    let expected = (&json!("Degraded: Withheld"), &json!("Withheld"), &json!(message));
    assert_eq!((&told["state"], &degraded["reason"], &degraded["message"]), expected);
}

#[tokio::test]
async fn no_address_is_put_behind_a_service_of_somebody_else() {
    let (client, server) = pair();
    let fields = json!({"replicas": 1, "service": {"name": "front", "ports": [{"port": 80}]}});
    let known = serde_json::to_value(super::known_set(&fields)).unwrap();
    let (log, serving) = server.serve(move |seen| match (seen.method.as_str(), seen.path.as_str()) {
        ("POST", _) => (409, status(409, "AlreadyExists", "it already exists")),
        ("GET", "/api/v1/namespaces/shop/services/front") => {
            (200, json!({"metadata": {"name": "front", "namespace": "shop", "uid": "u9"}}))
        }
        _ => (200, known.clone()),
    });
    let context = context(&client, &fields, &[primary("web-0")]);
    assert!(matches!(reconcile(&context, &job()).await, Look::Refused(_)));
    // From then on it is known whose the Service is, until it is time to try again.
    assert_eq!(reconcile(&context, &job()).await, Look::Settled(Some(Duration::from_secs(60).into())));
    serving.abort();
    let log = log.lock().unwrap();
    let sent: Vec<&str> = log.iter().filter_map(|seen| seen.path.rsplit('/').next()).collect();
    assert_eq!(sent, ["services", "front", "status", "status"]);
    for told in log.iter().filter(|seen| seen.path.ends_with("/status")) {
        assert_eq!(told.body["status"]["state"], json!("Degraded: ForeignObject"));
    }
}

#[tokio::test]
async fn a_stale_write_ends_the_look_and_has_it_repeated_soon() {
    let (client, server) = pair();
    let (log, serving) = server.serve(|seen| match seen.method.as_str() {
        "PATCH" if seen.path.ends_with("/status") => {
            (200, serde_json::to_value(super::known_set(&json!({}))).unwrap())
        }
        _ => (409, status(409, "Conflict", "the object has been modified")),
    });
    // A hot backup is to be promoted.
    let context = context(&client, &json!({"replicas": 1}), &[pod("web-0", ("hot", 17))]);
    let look = reconcile(&context, &job()).await;
    serving.abort();
    assert_eq!(look, Look::Settled(Some(urgent(500))), "a promotion is due");
    let patches = log.lock().unwrap().iter().filter(|seen| seen.path.ends_with("/web-0")).count();
    assert_eq!(patches, 1, "what others changed is not written again before it is seen");
}

/// Answers reads with the set and newer versions of this Pod and of its slice, and every write with a conflict.
fn stale_api(fields: &Value, newer: Value) -> impl FnMut(&Seen) -> (u16, Value) + Send + 'static {
    let known = serde_json::to_value(super::known_set(fields)).unwrap();
    move |seen| match (seen.method.as_str(), seen.path.as_str()) {
        ("GET", path) if path.ends_with("/backuppodsets/web") => (200, known.clone()),
        ("GET", path) if path.ends_with("/pods") => {
            let mut newer = newer.clone();
            newer["metadata"]["resourceVersion"] = json!("40");
            (200, listed(vec![newer]))
        }
        ("GET", path) if path.ends_with("/endpointslices") => {
            let owner = json!({"apiVersion": "backup.example.com/v1alpha1", "kind": "BackupPodSet",
                "name": "web", "uid": known["metadata"]["uid"], "controller": true});
            let metadata = json!({"name": "front-bps", "namespace": "shop", "uid": "u8", "resourceVersion": "40",
                "labels": {(keys::LABEL_SET): "web"}, "ownerReferences": [owner]});
            (200, listed(vec![json!({"metadata": metadata, "addressType": "IPv4", "endpoints": []})]))
        }
        ("GET", path) if path.ends_with("/services") || path.ends_with("/poddisruptionbudgets") => {
            (200, listed(vec![]))
        }
        ("GET", _) => (404, status(404, "NotFound", "there is none")),
        _ => (409, status(409, "Conflict", "the object has been modified")),
    }
}

/// A list at version 41.
fn listed(items: Vec<Value>) -> Value {
    json!({"apiVersion": "v1", "kind": "List", "metadata": {"resourceVersion": "41"}, "items": items})
}

/// A user who changes the objects of a set all the time must not have the objects of the whole cluster listed again.
#[tokio::test]
async fn a_set_whose_writes_are_stale_again_and_again_is_read_anew_and_nothing_else_is() {
    let (client, server) = pair();
    let fields = json!({"replicas": 1});
    let (log, serving) = server.serve(stale_api(&fields, pod("web-0", ("hot", 17))));
    let context = context(&client, &fields, &[pod("web-0", ("hot", 17))]);
    let asked = context.sink.relist.asked();
    let read = || -> Vec<String> {
        let log = log.lock().unwrap();
        let reads = log.iter().filter(|seen| seen.method == "GET");
        let mut read: Vec<String> =
            reads.map(|seen| seen.path.rsplit('/').take(2).collect::<Vec<_>>().join(" of ")).collect();
        read.sort();
        read
    };
    for _ in 0..2 {
        reconcile(&context, &job()).await;
    }
    assert_eq!(read(), [""; 0], "two stale writes in a row are no doubt yet");
    for _ in 0..3 {
        reconcile(&context, &job()).await;
    }
    let expected =
        ["endpointslices", "poddisruptionbudgets", "pods", "services"].map(|kind| format!("{kind} of shop"));
    assert_eq!(read(), [&expected[..], &["web of backuppodsets".to_owned()]].concat(), "once in ten seconds");
    let patched = log.lock().unwrap().iter().rev().find(|seen| seen.path.ends_with("/pods/web-0")).cloned();
    let version = patched.map(|seen| seen.body["metadata"]["resourceVersion"].clone());
    assert_eq!(version, Some(json!("40")), "what was read is what is decided from");
    assert!(!asked.has_changed().unwrap());
    serving.abort();
}

/// A slice that the watch has not shown yet, or not as it is: it is read, and not made again and again.
#[tokio::test]
async fn a_slice_whose_writes_are_stale_again_and_again_is_read_anew_and_nothing_of_other_sets_is() {
    let (client, server) = pair();
    let fields = json!({"replicas": 1, "service": {"name": "front", "ports": [{"port": 80}]}});
    let (log, serving) = server.serve(stale_api(&fields, primary("web-0")));
    let context = context(&client, &fields, &[primary("web-0")]);
    let set = super::known_set(&fields);
    let mut known = service(&set, set.spec.service.as_ref().unwrap());
    known["metadata"]["uid"] = json!("u7");
    // Newer than the list in which it is not.
    known["metadata"]["resourceVersion"] = json!("50");
    let known: Service = serde_json::from_value(known).unwrap();
    context.sink.cache().wrote(Written::Service(Box::new(known)), NOW);
    let asked = context.sink.relist.asked();
    for _ in 0..3 {
        reconcile(&context, &job()).await;
    }
    serving.abort();
    let log = log.lock().unwrap();
    let written = log.iter().rev().find(|seen| seen.method != "GET" && seen.path.contains("/endpointslices"));
    let written = written.map(|seen| (seen.method.as_str(), &seen.body["metadata"]["resourceVersion"]));
    assert_eq!(written, Some(("PATCH", &json!("40"))), "{log:?}");
    assert!(!asked.has_changed().unwrap(), "nothing of other sets is listed");
}

#[tokio::test]
async fn what_a_watch_showed_while_a_set_was_read_anew_stays() {
    let (client, server) = pair();
    let fields = json!({"replicas": 1});
    let context = context(&client, &fields, &[pod("web-0", ("hot", 17))]);
    let sink = context.sink.clone();
    let former = super::known_set(&fields);
    let mut anew = former.clone();
    anew.metadata.uid = Some("another".into());
    anew.metadata.resource_version = Some("50".into());
    let (is_told, mut answer) = (AtomicBool::new(false), stale_api(&fields, pod("web-0", ("hot", 17))));
    let shown = anew.clone();
    let (_, serving) = server.serve(move |seen| {
        if seen.method == "GET" && !is_told.swap(true, Ordering::Relaxed) {
            former.lost(&mut sink.cache(), NOW);
            shown.clone().seen(&mut sink.cache(), NOW);
        }
        answer(seen)
    });
    refresh(&context.client, &context.sink, &key()).await.unwrap();
    serving.abort();
    assert_eq!(context.sink.cache().set(&key()).unwrap().metadata.uid, anew.metadata.uid);
}

#[tokio::test]
async fn a_set_that_is_about_to_stall_is_looked_at_then() {
    let (client, server) = pair();
    // Nothing but the deadline ends the wait for its only Pod.
    let fields = json!({"replicas": 1, "progressDeadlineSeconds": 30, "unreadyDeadlineSeconds": 0});
    let (_, serving) = server.serve(api(Arc::default()));
    let context = context(&client, &fields, &[unready_primary("web-0")]);
    let expected = Again::from(Duration::from_secs(30));
    assert_eq!(reconcile(&context, &job()).await, Look::Settled(Some(expected)));
    serving.abort();
}

/// A Pod that became a primary while it waits at its gate, since a second.
fn primary_at_gate(name: &str) -> Value {
    let mut woken = primary(name);
    let ids = ring().public_keys().map(|key| key.id().to_string());
    woken["metadata"]["annotations"][keys::ANNOTATION_WAKE_KEYS] = json!(ids.join(","));
    woken["spec"]["initContainers"] = json!([{"name": keys::CONTAINER_GATE}]);
    let gate = json!({"name": keys::CONTAINER_GATE, "ready": false, "restartCount": 0,
        "state": {"running": {"startedAt": "2025-12-31T23:59:59Z"}}});
    woken["status"] = json!({
        "phase": "Pending", "podIP": "198.18.0.2", "initContainerStatuses": [gate],
        "conditions": [{"type": "Ready", "status": "False", "lastTransitionTime": "2025-12-31T00:00:00Z"}],
    });
    woken
}

/// A webhook or a quota may refuse the addresses for ever: who is to be woken and who is missing must not wait for that.
#[tokio::test]
async fn addresses_that_are_refused_hold_up_no_ticket_and_no_refill() {
    let (client, server) = pair();
    let (log, serving) = server.serve(|seen| match seen.path.rsplit('/').next() {
        Some("endpointslices") => (422, status(422, "Invalid", "denied by a webhook")),
        Some("pods") => {
            let mut created = pod(seen.body["metadata"]["name"].as_str().unwrap_or_default(), ("hot", 30));
            for part in ["labels", "annotations"] {
                created["metadata"][part] = seen.body["metadata"][part].clone();
            }
            (201, created)
        }
        _ => (200, serde_json::to_value(super::known_set(&json!({}))).unwrap()),
    });
    let fields = json!({
        "replicas": 2, "hotBackups": 1, "service": {"name": "front", "ports": [{"port": 80}]},
    });
    let context = context(&client, &fields, &[primary("web-0"), primary_at_gate("web-1")]);
    context.sink.cache().know_keys(known_keys(&ring()));
    let set = super::known_set(&fields);
    let mut own = service(&set, set.spec.service.as_ref().unwrap());
    own["metadata"]["resourceVersion"] = json!("7");
    let own: Service = serde_json::from_value(own).unwrap();
    context.sink.cache().wrote(Written::Service(Box::new(own)), NOW);
    let look = reconcile(&context, &job()).await;
    serving.abort();
    assert_eq!(look, Look::Refused(urgent(250)), "addresses are missing");
    let snapshot = observe(&context.sink.cache(), &key(), NOW).unwrap().snapshot;
    let woken = snapshot.pods.iter().find(|view| view.pod.name.0 == "web-1").unwrap();
    assert!(woken.next_ticket.is_some(), "a ticket was sent");
    let posted = |what: &str| {
        log.lock().unwrap().iter().filter(|seen| seen.method == "POST" && seen.path.ends_with(what)).count()
    };
    assert_eq!([posted("/endpointslices"), posted("/pods")], [1, 1], "each is tried once in a look");
}
