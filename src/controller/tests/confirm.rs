//! A Pod that serves is deleted only if a consistent list, read after the decision, leads to the same decision.

use std::time::Duration;

use bps_observe::Watched as _;
use bps_testkit::mock_api::{Seen, pair, status};
use jiff::SignedDuration;
use serde_json::{Value, json};

use super::{context, job, primary};
use crate::apply::testing::{NOW, set, slim};
use crate::controller::queue::Again;
use crate::controller::reconcile::{Look, reconcile};

/// One primary is wanted; the cache holds two that are ready.
const FIELDS: &str = r#"{"replicas": 1}"#;

fn list(pods: &[Value], version: &str) -> Value {
    json!({"kind": "PodList", "apiVersion": "v1", "metadata": {"resourceVersion": version}, "items": pods})
}

/// What one look sends, without status writes, while lists of Pods are answered with this.
async fn sent(listed: (u16, Value)) -> (Look, Vec<Seen>) {
    let (client, server) = pair();
    let fields: Value = serde_json::from_str(FIELDS).unwrap();
    let context = context(&client, &fields, &[primary("web-0"), primary("web-1")]);
    let (log, serving) = server.serve(move |seen| match seen.method.as_str() {
        "GET" => listed.clone(),
        "DELETE" => (200, leaving(primary(seen.path.rsplit('/').next().unwrap_or_default()))),
        _ => (200, serde_json::to_value(set(&fields)).unwrap()),
    });
    let look = reconcile(&context, &job()).await;
    serving.abort();
    let log = log.lock().unwrap().clone();
    (look, log.into_iter().filter(|seen| !seen.path.ends_with("/status")).collect())
}

/// Method and last part of the path.
fn short(seen: &[Seen]) -> Vec<(&str, &str)> {
    seen.iter().map(|one| (one.method.as_str(), one.path.rsplit('/').next().unwrap_or_default())).collect()
}

/// The Pod that is given up, and the one that is kept, when the list agrees with the cache.
async fn given_up_and_kept() -> (String, String) {
    let (_, seen) = sent((200, list(&[primary("web-0"), primary("web-1")], "20"))).await;
    let name = seen.last().and_then(|one| one.path.rsplit('/').next()).unwrap_or_default().to_owned();
    let kept = if name == "web-0" { "web-1" } else { "web-0" };
    (name, kept.to_owned())
}

#[tokio::test]
async fn a_confirmed_deletion_is_sent_at_the_version_that_the_list_showed() {
    let (given_up, _) = given_up_and_kept().await;
    let mut pods = [primary("web-0"), primary("web-1")];
    for pod in &mut pods {
        pod["metadata"]["resourceVersion"] = json!("19");
    }
    let (look, seen) = sent((200, list(&pods, "20"))).await;
    assert_eq!(short(&seen), [("GET", "pods"), ("DELETE", given_up.as_str())]);
    assert!(seen[0].query.contains("labelSelector=backup.example.com%2Fset%3Dweb"), "{}", seen[0].query);
    assert!(!seen[0].query.contains("resourceVersion"), "the list must be consistent: {}", seen[0].query);
    let guards = json!({"uid": format!("uid-{given_up}"), "resourceVersion": "19"});
    assert_eq!(seen[1].body, json!({"preconditions": guards}));
    assert_eq!(look, Look::Settled(None));
}

/// The cache lags: the other primary went a moment ago, so the surplus one is the last that serves.
#[tokio::test]
async fn a_deletion_is_not_sent_when_the_list_lacks_the_pod_that_would_serve_on() {
    let (given_up, _) = given_up_and_kept().await;
    let (look, seen) = sent((200, list(&[primary(&given_up)], "20"))).await;
    assert_eq!(short(&seen), [("GET", "pods")]);
    assert_eq!(look, Look::Settled(None));
}

#[tokio::test]
async fn a_deletion_is_not_sent_when_the_list_shows_that_the_other_pod_does_not_serve() {
    let (_, kept) = given_up_and_kept().await;
    let mut pods = [primary("web-0"), primary("web-1")];
    for pod in pods.iter_mut().filter(|pod| pod["metadata"]["name"] == kept.as_str()) {
        pod["metadata"]["resourceVersion"] = json!("19");
        pod["status"]["containerStatuses"][0]["ready"] = json!(false);
    }
    let (_, seen) = sent((200, list(&pods, "20"))).await;
    // The other one is given up in its stead, and as it does not serve no list has to confirm that.
    assert_eq!(short(&seen), [("GET", "pods"), ("DELETE", kept.as_str())]);
}

/// Both plans must want the same deletion; one that only the second wants needs a list of its own.
#[tokio::test]
async fn a_pod_that_only_the_list_gives_up_is_not_deleted_by_that_list() {
    let (_, kept) = given_up_and_kept().await;
    let mut pods = [primary("web-0"), primary("web-1")];
    for pod in pods.iter_mut().filter(|pod| pod["metadata"]["name"] == kept.as_str()) {
        pod["metadata"]["resourceVersion"] = json!("19");
        pod["metadata"]["labels"]["backup.example.com/revision"] = json!("0123456789");
    }
    let (_, seen) = sent((200, list(&pods, "20"))).await;
    assert_eq!(short(&seen), [("GET", "pods"), ("GET", "pods"), ("DELETE", kept.as_str())]);
}

#[tokio::test]
async fn nothing_is_deleted_on_the_word_of_a_list_without_a_version() {
    let (look, seen) = sent((200, list(&[primary("web-0"), primary("web-1")], ""))).await;
    assert_eq!(short(&seen), [("GET", "pods")]);
    assert_eq!(look, Look::Settled(Some(Duration::from_millis(500).into())));
}

#[tokio::test]
async fn a_list_that_fails_is_asked_once_and_then_with_growing_delay() {
    let (look, seen) = sent((500, status(500, "InternalError", "etcd is away"))).await;
    assert_eq!(short(&seen), [("GET", "pods")]);
    assert_eq!(look, Look::Refused(Duration::from_millis(250).into()));
}

/// A Pod as the API server answers its deletion.
fn leaving(mut pod: Value) -> Value {
    pod["metadata"]["resourceVersion"] = json!("31");
    pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:30Z");
    pod
}

/// What one look sends about a Pod whose node no watch has shown, while the node is answered with this.
async fn sent_of_unknown_node(is_ready: bool, node: (u16, Value)) -> (Look, Vec<(String, String)>) {
    let (client, server) = pair();
    let fields = json!({"replicas": 0});
    let mut bound = primary("web-0");
    bound["spec"]["nodeName"] = json!("n2");
    bound["status"]["containerStatuses"][0]["ready"] = json!(is_ready);
    let context = context(&client, &fields, std::slice::from_ref(&bound));
    {
        // Its node is missing for so long that it is taken for gone.
        let (mut cache, long_ago) = (context.sink.cache(), NOW - SignedDuration::from_secs(41));
        slim(&bound).lost(&mut cache, long_ago);
        slim(&bound).seen(&mut cache, long_ago);
    }
    let (log, serving) = server.serve(move |seen| match seen.method.as_str() {
        "GET" if seen.path == "/api/v1/nodes/n2" => node.clone(),
        "GET" => (200, list(std::slice::from_ref(&bound), "20")),
        "DELETE" => (200, leaving(bound.clone())),
        _ => (200, serde_json::to_value(set(&fields)).unwrap()),
    });
    let look = reconcile(&context, &job()).await;
    serving.abort();
    let log = log.lock().unwrap().clone();
    let seen: Vec<Seen> = log.into_iter().filter(|seen| !seen.path.ends_with("/status")).collect();
    (look, short(&seen).into_iter().map(|(method, last)| (method.to_owned(), last.to_owned())).collect())
}

/// The watch of nodes may lag behind that of Pods, as when a node was added a moment ago.
#[tokio::test]
async fn a_pod_is_deleted_for_its_node_only_if_that_is_asked_for_and_gone() {
    let asked = [("GET".to_owned(), "pods".to_owned()), ("GET".to_owned(), "n2".to_owned())];
    let deleted = [asked.as_slice(), &[("DELETE".to_owned(), "web-0".to_owned())]].concat();
    let node = json!({"metadata": {"name": "n2"}});
    let mut off = node.clone();
    off["spec"] = json!({"taints": [{"key": "node.kubernetes.io/out-of-service", "effect": "NoExecute"}]});
    let mut working = off.clone();
    working["status"] = json!({"conditions": [{"type": "Ready", "status": "True"}]});
    let gone = status(404, "NotFound", "nodes \"n2\" not found");
    let failed = status(500, "InternalError", "etcd is away");
    let again = |milliseconds| Again::from(Duration::from_millis(milliseconds));
    for (answer, look, expected) in [
        ((200, node), Look::Settled(Some(again(500))), asked.as_slice()),
        ((200, working), Look::Settled(Some(again(500))), asked.as_slice()),
        ((200, off), Look::Settled(None), deleted.as_slice()),
        ((404, gone), Look::Settled(None), deleted.as_slice()),
        ((500, failed), Look::Refused(again(250)), asked.as_slice()),
    ] {
        for is_ready in [true, false] {
            let (looked, sent) = sent_of_unknown_node(is_ready, answer.clone()).await;
            assert_eq!((looked, sent.as_slice()), (look, expected), "{answer:?}, ready: {is_ready}");
        }
    }
}
