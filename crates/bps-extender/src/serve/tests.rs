//! Answers over HTTP: scores, waits, refusals, and what is counted.

use axum::body::Body;
use axum::http::Request;
use bps_runtime::shutdown::Shutdown;
use bps_testkit::mock_api::{Call, pair};
use http_body_util::BodyExt as _;
use k8s_openapi::api::core::v1::{Node, Pod};
use serde_json::{Value, json};
use tower::ServiceExt as _;

use super::*;
use crate::balance::Deviation;
use crate::view::STALE_AFTER;
use crate::watch::watch;

/// Has listed two nodes of 4 and 40 CPUs without a Pod.
fn desk() -> ScoreDesk {
    let desk = unready();
    desk.shared.change(|view| {
        view.begin_nodes();
        for (name, cpu) in [("n1", "4"), ("n2", "40")] {
            let node = json!({"metadata": {"name": name}, "status": {"allocatable": {"cpu": cpu, "memory": "40Gi"}}});
            view.see_node(&serde_json::from_value::<Node>(node).unwrap());
        }
        view.end_nodes();
        view.end_pods();
    });
    desk
}

fn unready() -> ScoreDesk {
    let scoring = Scoring { deviation: Deviation::Population, seed: 1, alone_in: "bps-rbra".to_owned() };
    let shared = SharedSums::new(NodeSums::new(["cpu", "memory"].map(|name| name.parse().unwrap()).to_vec()));
    ScoreDesk { shared, scoring, metrics: ExtenderMetrics::new("1.2.3") }
}

fn pod(name: &str, node: Option<&str>) -> Pod {
    let requests = json!({"requests": {"cpu": "1", "memory": "1Gi"}});
    let spec = json!({"containers": [{"name": "web", "resources": requests}], "nodeName": node});
    let metadata = json!({"name": name, "namespace": "default", "uid": name});
    serde_json::from_value(json!({"metadata": metadata, "spec": spec})).unwrap()
}

fn request_of(name: &str) -> String {
    json!({"Pod": pod(name, None), "NodeNames": ["n1", "n2"]}).to_string()
}

async fn ask(desk: &ScoreDesk, body: impl Into<Body>) -> (StatusCode, Value) {
    let request = Request::post("/prioritize").body(body.into()).unwrap();
    let response = desk.clone().router().oneshot(request).await.unwrap();
    let status = response.status();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (status, serde_json::from_slice(&body).unwrap_or(Value::Null))
}

/// Counters that are not 0.
fn counted(desk: &ScoreDesk) -> Vec<String> {
    let text = bps_runtime::metrics::encode(&desk.metrics.registry()).unwrap();
    let is_ours = |line: &&str| {
        let is_counter = line.contains("_total{result") && line.starts_with("backuppodset_extender");
        is_counter && !line.ends_with(" 0")
    };
    let mut counted: Vec<_> =
        text.lines().filter(is_ours).map(|line| line.replace("backuppodset_extender_", "")).collect();
    counted.sort();
    counted
}

#[tokio::test(start_paused = true)]
async fn a_request_is_answered_with_a_score_for_each_node() {
    let desk = desk();
    let scores = json!([{"Host": "n1", "Score": 8}, {"Host": "n2", "Score": 10}]);
    assert_eq!(ask(&desk, request_of("web-0")).await, (StatusCode::OK, scores));
    assert_eq!(
        counted(&desk),
        [r#"prioritize_total{result="Scored"} 1"#, r#"wait_total{result="NotNeeded"} 1"#]
    );
}

#[tokio::test(start_paused = true)]
async fn the_next_answer_waits_for_where_the_pod_before_went() {
    let desk = desk();
    ask(&desk, request_of("web-0")).await;
    let next = tokio::spawn({
        let desk = desk.clone();
        async move { ask(&desk, request_of("web-1")).await }
    });
    tokio::time::sleep(WAIT_MAX / 2).await;
    assert!(!next.is_finished());

    desk.shared.change(|view| view.see_pod(&pod("other", Some("n2"))));
    tokio::time::sleep(WAIT_MAX / 4).await;
    assert!(!next.is_finished(), "another Pod says nothing of it");

    desk.shared.change(|view| view.see_pod(&pod("web-0", Some("n1"))));
    // Half of its CPUs would be used, and a twentieth of the memory.
    let scores = json!([{"Host": "n1", "Score": 6}, {"Host": "n2", "Score": 10}]);
    assert_eq!(next.await.unwrap(), (StatusCode::OK, scores));
    let waits = [r#"wait_total{result="NotNeeded"} 1"#, r#"wait_total{result="Seen"} 1"#];
    assert_eq!(counted(&desk)[1..], waits);
}

#[tokio::test(start_paused = true)]
async fn a_binding_that_is_not_seen_holds_nothing_up_for_longer_than_the_bound() {
    let desk = desk();
    ask(&desk, request_of("web-0")).await;
    let begun = Instant::now();
    assert_eq!(ask(&desk, request_of("web-1")).await.0, StatusCode::OK);
    assert_eq!(begun.elapsed(), WAIT_MAX);
    assert_eq!(counted(&desk).last().unwrap(), r#"wait_total{result="TimedOut"} 1"#);

    // The same Pod again: it was not placed.
    let begun = Instant::now();
    assert_eq!(ask(&desk, request_of("web-1")).await.0, StatusCode::OK);
    assert_eq!(begun.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_the_scheduler_gives_up_is_counted() {
    let desk = desk();
    ask(&desk, request_of("web-0")).await;
    let waiting = tokio::time::timeout(WAIT_MAX / 2, ask(&desk, request_of("web-1")));
    assert!(waiting.await.is_err());
    assert_eq!(counted(&desk)[0], r#"prioritize_total{result="Abandoned"} 1"#);
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_answered_is_refused_and_counted() {
    let unready = unready();
    assert_eq!(ask(&unready, request_of("web-0")).await.0, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(counted(&unready), [r#"prioritize_total{result="Unready"} 1"#]);

    let desk = desk();
    assert_eq!(ask(&desk, "no request").await.0, StatusCode::BAD_REQUEST);
    assert_eq!(ask(&desk, vec![b' '; REQUEST_MAX_BYTES + 1]).await.0, StatusCode::BAD_REQUEST);
    assert_eq!(counted(&desk), [r#"prioritize_total{result="BadRequest"} 2"#]);
}

/// An API server with the two nodes and no Pod, at which nothing happens: a watch shows nothing.
///
/// While it is away requests fail, those that wait for an answer too. Returns what switches it on and off, the desk
/// that watches it, and the paths of all lists.
fn watching() -> (signal::Sender<bool>, ScoreDesk, Arc<Mutex<Vec<String>>>) {
    let (client, mut server) = pair();
    let (there, mut is_there) = signal::channel(true);
    let lists = Arc::new(Mutex::new(Vec::new()));
    let listed = Arc::clone(&lists);
    tokio::spawn(async move {
        let mut watches: Vec<Call> = Vec::new();
        loop {
            let call = tokio::select! {
                call = server.call() => call,
                _ = is_there.changed() => {
                    watches.drain(..).for_each(Call::reset);
                    continue;
                }
            };
            if !*is_there.borrow() {
                call.reset();
            } else if call.seen.query.contains("watch=") {
                watches.push(call);
            } else {
                listed.lock().unwrap().push(call.seen.path.clone());
                let node = |name: &str, cpu: &str| {
                    let allocatable = json!({"cpu": cpu, "memory": "40Gi"});
                    json!({"metadata": {"name": name}, "status": {"allocatable": allocatable}})
                };
                let nodes = call.seen.path.ends_with("nodes");
                let items = if nodes { vec![node("n1", "4"), node("n2", "40")] } else { Vec::new() };
                call.reply(200, &json!({"metadata": {"resourceVersion": "7"}, "items": items}));
            }
        }
    });
    let desk = unready();
    tokio::spawn(watch::<Node>(client.clone(), desk.shared.clone(), Shutdown::new()));
    tokio::spawn(watch::<Pod>(client, desk.shared.clone(), Shutdown::new()));
    (there, desk, lists)
}

#[tokio::test(start_paused = true)]
async fn scores_fall_silent_while_the_api_server_is_away_and_come_back_with_it() {
    let (there, desk, _) = watching();
    desk.shared.until(NodeSums::is_ready).await;
    assert_eq!(ask(&desk, request_of("web-0")).await.0, StatusCode::OK);

    there.send_replace(false);
    tokio::time::sleep(STALE_AFTER).await;
    assert_eq!(ask(&desk, request_of("web-0")).await.0, StatusCode::OK, "so long it may be away for both");
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(ask(&desk, request_of("web-0")).await.0, StatusCode::SERVICE_UNAVAILABLE);
    assert!(desk.shared.view().is_ready(), "a Pod that was ready stays so");

    there.send_replace(true);
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(ask(&desk, request_of("web-0")).await.0, StatusCode::OK);
    let answers = [r#"prioritize_total{result="Scored"} 3"#, r#"prioritize_total{result="Stale"} 1"#];
    assert_eq!(counted(&desk)[..2], answers);
}

#[tokio::test(start_paused = true)]
async fn after_a_moment_without_an_api_server_a_cluster_at_rest_is_listed_once_more() {
    let (there, desk, lists) = watching();
    desk.shared.until(NodeSums::is_ready).await;
    // Long enough after the first list.
    tokio::time::sleep(Duration::from_secs(60)).await;
    there.send_replace(false);
    tokio::time::sleep(Duration::from_millis(100)).await;
    there.send_replace(true);
    for _ in 0..60 {
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(ask(&desk, request_of("web-0")).await.0, StatusCode::OK);
    }
    let mut lists = lists.lock().unwrap().clone();
    lists.sort();
    assert_eq!(lists, ["/api/v1/nodes", "/api/v1/nodes", "/api/v1/pods", "/api/v1/pods"]);
}

#[test]
fn only_the_loopback_interface_is_private() {
    let is_private = |address: &str| super::is_private(address.parse().unwrap());
    assert!(is_private("127.0.0.1:8090") && is_private("[::1]:8090"));
    assert!(!is_private("0.0.0.0:8090") && !is_private("[::]:8090") && !is_private("10.0.0.7:8090"));
}
