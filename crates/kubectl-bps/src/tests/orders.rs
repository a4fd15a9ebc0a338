//! What is written for an order, and what is said when a part of it fails.

use bps_api::keys;
use bps_observe::testing::{lease, pod};
use bps_testkit::mock_api::{Seen, pair, status};
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

use crate::arguments::{FenceArguments, FenceVerb, Format};
use crate::cluster::{Cluster, NO_LEASES};
use crate::report::{Report, told_report};
use crate::{Error, fence};

/// The answer to `fence on`, and the paths of what was written; the write with this number, from 1, is refused.
async fn fenced(
    names: &[&str],
    refused: usize,
    output: Option<Format>,
) -> (Result<String, Error>, Vec<String>) {
    fenced_by(&[lease(&[])], names, (refused, output)).await
}

/// The same where these are the Leases.
async fn fenced_by(
    leases: &[Lease],
    names: &[&str],
    (refused, output): (usize, Option<Format>),
) -> (Result<String, Error>, Vec<String>) {
    let (client, server) = pair();
    let leases = leases.to_vec();
    let mut writes = 0;
    let (log, serving) = server.serve(move |seen| match (seen.method.as_str(), seen.path.rsplit('/').next()) {
        ("GET", Some("leases")) => {
            (200, json!({"apiVersion": "coordination.k8s.io/v1", "kind": "LeaseList", "metadata": {}, "items": leases}))
        }
        ("GET", Some("web-1")) => (200, json!(pod(1, json!({(keys::LABEL_GROUP): "web"})))),
        ("GET", Some("web-2")) => (200, json!(pod(2, json!({})))),
        ("PATCH", _) => {
            writes += 1;
            let forbidden = || (403, status(403, "Forbidden", "you may not"));
            if writes == refused { forbidden() } else { (200, json!(leases[0])) }
        }
        _ => (404, status(404, "NotFound", "there is none")),
    });
    let cluster = Cluster { client, namespace: "one".to_owned() };
    let pods = names.iter().map(|name| (*name).to_owned()).collect();
    let answer = fence::run(&cluster, &FenceVerb::On(FenceArguments { pods, output })).await;
    serving.abort();
    let is_write = |seen: &&Seen| seen.method == "PATCH";
    let written = log.lock().unwrap().iter().filter(is_write).map(|seen| seen.path.clone()).collect();
    (answer, written)
}

#[tokio::test(start_paused = true)]
async fn no_pod_is_fenced_if_one_of_them_is_unknown() {
    let (answer, written) = fenced(&["web-1", "nobody"], 0, None).await;
    assert!(answer.expect_err("there is no such Pod").chain().contains("nobody"));
    assert_eq!(written, [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_standby_of_several_is_fenced_in_the_pair_of_each() {
    let mut second = lease(&[]);
    second.metadata.name = Some("web-1".to_owned());
    let (answer, written) = fenced_by(&[lease(&[]), second], &["web-2"], (0, None)).await;
    let said = answer.expect("it is fenced");
    let pairs: Vec<&str> =
        said.lines().filter_map(|line| line.split_once(':')).map(|(pair, _)| pair).collect();
    assert_eq!(pairs, ["web-0", "web-1"], "{said}");
    let names: Vec<&str> = written.iter().filter_map(|path| path.rsplit('/').next()).collect();
    assert_eq!(names, ["web-0", "web-1"]);
}

#[tokio::test(start_paused = true)]
async fn who_may_act_by_a_lease_that_cannot_be_read_is_not_said_to_act_in_no_pair() {
    let unreadable = lease(&[(keys::ANNOTATION_HA_HOLD, "Nobody")]);
    let (answer, written) = fenced_by(&[unreadable], &["web-1"], (0, None)).await;
    let said = answer.expect_err("it cannot be fenced").chain();
    assert!(said.starts_with("the Lease web-0 of group web cannot be read"), "{said}");
    assert!(said.contains("delete the Pod"), "{said}");
    assert_eq!(written, [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn what_was_done_before_a_write_was_refused_is_told() {
    let (answer, written) = fenced(&["web-1", "web-2"], 2, None).await;
    let error = answer.expect_err("the second write is refused");
    assert!(error.done().starts_with("web-0: web-1 is fenced: "), "{}", error.done());
    assert!(error.chain().starts_with("write Lease web-0: "), "{}", error.chain());
    assert_eq!((written.len(), error.exit_code()), (2, 1));
    let (answer, _) = fenced(&["web-1", "web-2"], 2, Some(Format::Json)).await;
    let error = answer.expect_err("the second write is refused");
    let done: Value = serde_json::from_str(error.done()).expect("JSON");
    assert_eq!(done["pods"].as_array().map(Vec::len), Some(1), "{done}");
    for output in [None, Some(Format::Json)] {
        let (answer, _) = fenced(&["web-1", "web-2"], 1, output).await;
        assert_eq!(answer.expect_err("the first write is refused").done(), "");
    }
}

#[tokio::test]
async fn who_may_not_read_leases_is_told_what_to_ask_for() {
    let (client, server) = pair();
    let (_, serving) = server.serve(|_| (403, status(403, "Forbidden", "you may not")));
    let cluster = Cluster { client, namespace: "one".to_owned() };
    let of_leases = cluster.list::<Lease>(None, "").await.expect_err("refused").chain();
    let of_pods = cluster.list::<Pod>(None, "").await.expect_err("refused").chain();
    serving.abort();
    assert!(of_leases.contains("ClusterRole backuppodsets-pair-viewer"), "{of_leases}");
    assert!(of_pods.starts_with("list pods: "), "{of_pods}");
}

#[test]
fn without_leases_a_group_is_shown_as_the_operator_told_it() {
    let status = json!({"state": "Ready", "summary": {"pairs": "1/1", "spares": 1, "actives": "web-1"}, "spares": ["web-3"],
        "pairs": [{"name": "web-7", "active": "web-1", "standby": "web-2", "epoch": "4294967296", "state": "Paired"}]});
    let group = json!({"metadata": {"name": "web", "namespace": "one"}, "spec": {}, "status": status});
    let report = told_report(&serde_json::from_value(group).unwrap(), NO_LEASES.to_owned());
    let parts: Vec<_> = report.pairs[0].pods.iter().map(|pod| (&*pod.name, &*pod.part)).collect();
    assert_eq!((report.pairs[0].number, parts), (7, vec![("web-1", "active"), ("web-2", "standby")]));
    let text = crate::status::text(&Report { groups: vec![report], sets: Vec::new() }, Timestamp::UNIX_EPOCH);
    assert!(text.contains("web-3") && text.contains("backuppodsets-pair-viewer"), "{text}");
}
