//! What is written for an order, and what is said when a part of it fails.

use serde_json::json;

use crate::apply::testing::{Seen, pair, status};
use crate::observe::testing::{lease, pod};
use crate::plugin::arguments::{FenceArguments, FenceVerb};
use crate::plugin::cluster::Cluster;
use crate::plugin::{Error, fence};

/// The answer to `fence on`, and the paths of what was written; the write with this number, from 1, is refused.
async fn fenced(names: &[&str], refused: usize) -> (Result<String, Error>, Vec<String>) {
    let (client, server) = pair();
    let mut writes = 0;
    let (log, serving) = server.serve(move |seen| match (seen.method.as_str(), seen.path.rsplit('/').next()) {
        ("GET", Some("leases")) => {
            let items = json!([lease(&[])]);
            (200, json!({"apiVersion": "coordination.k8s.io/v1", "kind": "LeaseList", "metadata": {}, "items": items}))
        }
        ("GET", Some("web-1")) => (200, json!(pod(1, json!({})))),
        ("GET", Some("web-2")) => (200, json!(pod(2, json!({})))),
        ("PATCH", _) => {
            writes += 1;
            let forbidden = || (403, status(403, "Forbidden", "you may not"));
            if writes == refused { forbidden() } else { (200, json!(lease(&[]))) }
        }
        _ => (404, status(404, "NotFound", "there is none")),
    });
    let cluster = Cluster { client, namespace: "one".to_owned() };
    let pods = names.iter().map(|name| (*name).to_owned()).collect();
    let answer = fence::run(&cluster, &FenceVerb::On(FenceArguments { pods, output: None })).await;
    serving.abort();
    let is_write = |seen: &&Seen| seen.method == "PATCH";
    let written = log.lock().unwrap().iter().filter(is_write).map(|seen| seen.path.clone()).collect();
    (answer, written)
}

#[tokio::test(start_paused = true)]
async fn no_pod_is_fenced_if_one_of_them_is_unknown() {
    let (answer, written) = fenced(&["web-1", "nobody"], 0).await;
    assert!(answer.expect_err("there is no such Pod").chain().contains("nobody"));
    assert_eq!(written, [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn what_was_done_before_a_write_was_refused_is_told() {
    let (answer, written) = fenced(&["web-1", "web-2"], 2).await;
    let error = answer.expect_err("the second write is refused");
    assert!(error.done().starts_with("web-0: web-1 is fenced: "), "{}", error.done());
    assert!(error.chain().starts_with("write Lease web-0: "), "{}", error.chain());
    assert_eq!((written.len(), error.exit_code()), (2, 1));
    let (answer, _) = fenced(&["web-1", "web-2"], 1).await;
    assert_eq!(answer.expect_err("the first write is refused").done(), "");
}
