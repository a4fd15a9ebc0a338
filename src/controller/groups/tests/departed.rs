//! What is asked of the API server about Pods that are gone.

use super::*;

/// Pods that are not there any more, and the Leases of their nodes.
fn emptied(seen: &Seen) -> (u16, Value) {
    let name = seen.path.rsplit('/').next().unwrap_or_default();
    if seen.method == "GET" && seen.path.contains("/pods/") {
        return (404, status(404, "NotFound", "there is no such Pod"));
    }
    if seen.method == "GET" && seen.path.contains("/kube-node-lease/") {
        let metadata = json!({"name": name, "uid": name, "creationTimestamp": "2025-01-01T00:00:00Z"});
        let spec = json!({"renewTime": "2026-01-01T00:00:00.000000Z", "leaseDurationSeconds": 40});
        return (200, json!({"metadata": metadata, "spec": spec}));
    }
    answered(seen)
}

/// What was asked for by name, in its order.
fn asked(log: &Mutex<Vec<Seen>>) -> Vec<String> {
    let mut log = log.lock().unwrap();
    let all = std::mem::take(&mut *log).into_iter().filter(|seen| seen.method == "GET");
    all.map(|seen| seen.path.split('/').rev().take(2).collect::<Vec<_>>().join(" of ")).collect()
}

#[tokio::test]
async fn pods_that_are_gone_are_asked_for_and_then_how_their_kubelets_are() {
    let (client, server) = pair();
    let (log, serving) = server.serve(emptied);
    let stores = Stores::with(group(), [lease()]).with_pods([1, 2].map(pod));
    let (mut context, _) = context(&client, stores);
    assert!(matches!(look(&context, &job()).await, Look::Settled(_)));
    assert_eq!(asked(&log), [""; 0], "they are there");

    context.stores = context.stores.into_iter().map(|stores| stores.with_pods([])).collect();
    let looked = look(&context, &job()).await;
    assert_eq!(asked(&log), ["web-1 of pods", "web-2 of pods", "n1 of leases", "n2 of leases"]);
    let Look::Settled(Some(Again { after, .. })) = looked else {
        panic!("it is not looked again: {looked:?}")
    };
    assert!(after <= bps_observe::group::ASK_EACH, "{after:?}");

    assert!(matches!(look(&context, &job()).await, Look::Settled(_)));
    assert_eq!(asked(&log), [""; 0], "not as often as something happens");
    serving.abort();
}
