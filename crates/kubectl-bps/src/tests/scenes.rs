//! What is asked of the API server for a forecast, and what is made of its answers.

use std::collections::BTreeMap;

use bps_api::keys;
use bps_observe::testing::set_pod;
use bps_testkit::mock_api::{Seen, pair, status};
use kube::ResourceExt as _;
use serde_json::{Value, json};

use super::prospects::scene;
use crate::arguments::WhatifArguments;
use crate::cluster::Cluster;
use crate::scene::Scene;
use crate::{Error, whatif};

/// What a person asks for who has the right to all of it.
const ALL: [&str; 8] = [
    "hagroups/web",
    "backuppodsets/web",
    "nodes",
    "pods",
    "one/services of sets",
    "one/endpointslices of sets",
    "one/hagroups of sets",
    "one/poddisruptionbudgets",
];

/// A Pod of others that requests a tenth of a CPU on the second node.
fn other(name: &str, phase: &str) -> Value {
    let resources = json!({"requests": {"cpu": "100m"}});
    json!({
        "metadata": {"name": name, "namespace": "two"},
        "spec": {"nodeName": "node-2", "containers": [{"name": "app", "resources": resources}]},
        "status": {"phase": phase},
    })
}

/// All Pods of the cluster: those of the set, one of another set, and two of others, one of which has ended.
fn pods() -> Vec<Value> {
    let mut foreign = set_pod(4, "hot");
    foreign.metadata.namespace = Some("two".to_owned());
    foreign.labels_mut().insert(keys::LABEL_SET.to_owned(), "shop".to_owned());
    let mut all: Vec<Value> = scene().objects.pods.iter().map(|pod| json!(pod)).collect();
    all.extend([json!(foreign), other("busy", "Running"), other("ended", "Succeeded")]);
    all
}

/// The request in short: what is listed or read, in which namespace, and of which label.
fn told(seen: &Seen) -> String {
    assert_eq!(seen.method, "GET", "a question changes nothing");
    assert!(!seen.query.contains("fieldSelector"), "{}", seen.query);
    let path = seen.path.split("/v1").last().unwrap_or_default().replace("alpha1", "");
    let what = path.trim_start_matches('/').trim_start_matches("namespaces/");
    // A single object is read; the namespace of lists is told.
    let what = if what.matches('/').count() == 2 { what.trim_start_matches("one/") } else { what };
    let of_sets = format!("labelSelector={}", keys::LABEL_SET.replace('/', "%2F"));
    format!("{what}{}", if seen.query.contains(&of_sets) { " of sets" } else { "" })
}

/// The answer to `whatif web`, and what was asked of a server that refuses these lists.
async fn foretold(refused: &'static [&'static str], code: u16) -> (Result<String, Error>, Vec<String>) {
    let (client, server) = pair();
    let there = scene();
    let (log, serving) = server.serve(move |seen| {
        let list = |items: Value| (200, json!({"metadata": {}, "items": items}));
        match told(seen).as_str() {
            what if refused.contains(&what) => (code, status(code, "Refused", "you may not")),
            "backuppodsets/web" => (200, json!(there.set)),
            "nodes" => list(json!(there.nodes)),
            "pods" => list(json!(pods())),
            "one/pods of sets" => list(json!(pods()[..2])),
            what if what.contains('/') && !what.starts_with("hagroups/") => list(json!([])),
            _ => (404, status(404, "NotFound", "there is none")),
        }
    });
    let connect = async || Ok(Cluster { client: client.clone(), namespace: "one".to_owned() });
    let wanted = WhatifArguments { set: Some("web".to_owned()), ..WhatifArguments::default() };
    let answer = whatif::run(&wanted, connect).await;
    serving.abort();
    let asked = log.lock().unwrap().iter().map(told).collect();
    (answer, asked)
}

#[tokio::test(start_paused = true)]
async fn each_kind_is_listed_once_and_the_pods_of_all_as_well() {
    let (answer, asked) = foretold(&[], 0).await;
    let text = answer.expect("the set is at rest");
    assert!(text.contains("in the end 1 of 1 primaries serve (web-2)"), "{text}");
    assert!(!text.contains("which you may not list") && !text.contains("what others request"), "{text}");
    assert_eq!(asked, ALL);
}

#[tokio::test(start_paused = true)]
async fn without_the_right_to_list_all_pods_those_of_the_namespace_are_listed() {
    let (answer, asked) = foretold(&["pods"], 403).await;
    let text = answer.expect("the set is at rest");
    assert!(text.contains("the Pods of other namespaces, which you may not list"), "{text}");
    assert!(text.contains("what others request, which takes a list of all Pods"), "{text}");
    let mut expected = ALL.to_vec();
    expected.insert(4, "one/pods of sets");
    assert_eq!(asked, expected);
}

#[tokio::test(start_paused = true)]
async fn a_list_that_fails_is_not_taken_for_one_that_is_not_permitted() {
    for (list, what) in [("pods", "list all Pods: "), ("nodes", "list nodes: ")] {
        let (answer, _) = foretold(if list == "pods" { &["pods"] } else { &["nodes"] }, 500).await;
        let told = answer.expect_err("the server has failed").chain();
        assert!(told.starts_with(what), "{told}");
    }
}

#[tokio::test(start_paused = true)]
async fn of_all_pods_those_of_sets_are_seen_and_all_that_are_bound_take_room() {
    let (client, server) = pair();
    let (_, serving) = server.serve(|seen| match told(seen).as_str() {
        "pods" => (200, json!({"metadata": {}, "items": pods()})),
        _ => (200, json!({"metadata": {}, "items": []})),
    });
    let cluster = Cluster { client, namespace: "one".to_owned() };
    let taken = Scene::take(&cluster, scene().set).await.expect("everything is listed");
    serving.abort();

    let mut expected = scene().objects.pods;
    expected.extend(serde_json::from_value::<Vec<_>>(json!(pods()[2..3])).expect("Pods of sets"));
    assert_eq!(taken.objects.pods, expected, "as if they were listed by themselves");
    assert!(taken.objects.is_cluster_wide);
    let of_others = |amounts: &BTreeMap<String, u64>| amounts.get("cpu").copied().unwrap_or_default();
    let on = taken.requested.expect("all Pods are listed");
    assert_eq!(
        (of_others(&on["node-2"]), on["node-2"]["pods"]),
        (100, 2_000),
        "the one that ended takes none"
    );
    assert_eq!(on.keys().collect::<Vec<_>>(), ["node-2", "node-3", "node-4"]);
}
