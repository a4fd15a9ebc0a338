//! One look at a set: what counts as refused, and what ends it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use kube::core::DeserializeGuard;
use serde_json::{Value, json};

use super::{context, job, key, primary};
use crate::api::HAGroup;
use crate::apply::testing::{NOW, Seen, pair, set, slim, status};
use crate::controller::reconcile::{Context, Look, reconcile};
use crate::manifests::{set_group, set_group_spec};
use crate::observe::Watched;

/// Answers creations with a new primary, or with a refusal while the switch is on, and status writes with the set.
fn api(is_refusing: Arc<AtomicBool>) -> impl FnMut(&Seen) -> (u16, Value) + Send + 'static {
    move |seen| match (seen.method.as_str(), is_refusing.load(Ordering::Relaxed)) {
        ("POST", true) => (500, status(500, "InternalError", "etcd is away")),
        ("POST", false) => {
            let mut created = primary(seen.body["metadata"]["name"].as_str().unwrap_or_default());
            created["metadata"]["resourceVersion"] = json!("30");
            (201, created)
        }
        _ => (200, serde_json::to_value(super::known_set(&json!({}))).unwrap()),
    }
}

async fn delays(context: &Context, count: usize) -> Vec<u128> {
    let mut delays = Vec::new();
    for _ in 0..count {
        match reconcile(context, &job()).await {
            Look::Refused(delay) => delays.push(delay.as_millis()),
            settled @ Look::Settled(_) => panic!("{settled:?}"),
        }
    }
    delays
}

#[tokio::test]
async fn a_set_that_is_refused_is_looked_at_less_and_less_often_until_it_succeeds() {
    let (client, server) = pair();
    let is_refusing = Arc::new(AtomicBool::new(true));
    let (_, serving) = server.serve(api(Arc::clone(&is_refusing)));
    let context = context(&client, &json!({"replicas": 1}), &[]);
    assert_eq!(delays(&context, 3).await, [250, 500, 1_000]);

    is_refusing.store(false, Ordering::Relaxed);
    assert_eq!(reconcile(&context, &job()).await, Look::Settled(None));
    assert!(context.refusals.0.lock().unwrap().is_empty());

    is_refusing.store(true, Ordering::Relaxed);
    lose_all_pods(&context);
    assert_eq!(delays(&context, 2).await, [250, 500]);
    serving.abort();
}

fn lose_all_pods(context: &Context) {
    let mut cache = context.sink.cache();
    let pods = crate::observe::observe(&cache, &key(), NOW).unwrap().snapshot.pods;
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
    context.refusals.0.lock().unwrap().insert(key(), 9);
    set(&json!({})).lost(&mut context.sink.cache(), NOW);
    assert_eq!(reconcile(&context, &job()).await, Look::Settled(None));
    assert!(context.refusals.0.lock().unwrap().is_empty());
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
    DeserializeGuard(Ok(group)).seen(&mut context.sink.cache(), NOW);
    assert!(matches!(reconcile(&context, &job()).await, Look::Settled(_)));
    serving.abort();
    let log = log.lock().unwrap();
    let told = &log.iter().find(|seen| seen.path.ends_with("/status")).unwrap().body["status"];
    let degraded = &told["conditions"][2];
    let expected = (&json!("Degraded: Withheld"), &json!("Withheld"), &json!(message));
    assert_eq!((&told["state"], &degraded["reason"], &degraded["message"]), expected);
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
    let context =
        context(&client, &json!({"replicas": 1}), &[crate::apply::testing::pod("web-0", ("hot", 17))]);
    let look = reconcile(&context, &job()).await;
    serving.abort();
    assert_eq!(look, Look::Settled(Some(Duration::from_millis(500))));
    let patches = log.lock().unwrap().iter().filter(|seen| seen.path.ends_with("/web-0")).count();
    assert_eq!(patches, 1, "what others changed is not written again before it is seen");
}
