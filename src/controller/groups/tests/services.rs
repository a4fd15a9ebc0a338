//! Whose the Service is that leads to the actives of a group.

use bps_core::manifests::{group_service, pair_slice};
use k8s_openapi::api::core::v1::Service;

use super::*;

/// The group behind the Service `shop`, and that Service as it is made.
fn exposed() -> (HAGroup, Value) {
    let mut exposed = group();
    exposed.spec.service =
        serde_json::from_value(json!({"name": "shop", "ports": [{"port": 80}]})).expect("a Service");
    let mut service = group_service(&exposed).expect("it has one");
    service["metadata"]["uid"] = json!("service-uid");
    service["metadata"]["resourceVersion"] = json!("7");
    (exposed, service)
}

/// What came of a look at the group: itself, what was written of the Service, the Service behind which the slice of the pair was
/// made, and the last status.
struct Came {
    look: Look,
    written: Vec<(String, Value)>,
    behind: Value,
    status: String,
}

/// Looks once, with this Service in the watch and that one on the API server.
async fn look_with(shown: Option<Value>, there: Option<Value>) -> Came {
    let (client, server) = pair();
    let (log, serving) = server.serve(move |seen| {
        let is_service = seen.path.contains("/services");
        match (&there, seen.method.as_str()) {
            (Some(_), "POST") if is_service => (409, status(409, "AlreadyExists", "shop is there")),
            (Some(there), "GET") if is_service => (200, there.clone()),
            _ => answered(seen),
        }
    });
    let mut stores = Stores::with(exposed().0, [lease()]).with_pods([pod(1), pod(2)]);
    if let Some(shown) = shown {
        stores = stores.with_service(serde_json::from_value::<Service>(shown).expect("a Service"));
    }
    let (context, _) = context(&client, stores);
    let look = look(&context, &job()).await;
    serving.abort();
    let log = log.lock().unwrap();
    let of = |kind: &'static str| log.iter().filter(move |seen| seen.path.contains(kind));
    let written = of("/services").filter(|seen| seen.method != "GET");
    let slice = of("/endpointslices").find(|seen| seen.method == "POST").expect("the pair has a slice");
    Came {
        look,
        written: written.map(|seen| (seen.method.clone(), seen.body.clone())).collect(),
        behind: slice.body["metadata"]["labels"][keys::LABEL_SERVICE_NAME].clone(),
        status: of("/status").next_back().map(|seen| seen.body.to_string()).unwrap_or_default(),
    }
}

/// Clients of that Service would reach the actives of this group.
#[tokio::test]
async fn addresses_get_behind_no_service_of_somebody_else() {
    let mut foreign = exposed().1;
    foreign["metadata"]["ownerReferences"] =
        json!([{"apiVersion": "v1", "kind": "X", "name": "x", "uid": "x"}]);
    let mut unlabelled = foreign.clone();
    unlabelled["metadata"]["labels"] = json!({});
    for (shown, writes) in [(None, 1), (Some(foreign), 0)] {
        let came = look_with(shown, Some(unlabelled.clone())).await;
        assert!(matches!(came.look, Look::Refused(_)), "people hear of it");
        assert_eq!((came.written.len(), came.behind), (writes, Value::Null));
        let said =
            "could not write the Service shop: it belongs to somebody else; delete it, or use another name";
        assert!(came.status.contains(said), "{}", came.status);
    }
}

#[tokio::test]
async fn a_service_that_went_without_its_group_is_the_next_ones() {
    let mut left = exposed().1;
    left["metadata"]["ownerReferences"] = json!([]);
    let came = look_with(Some(left.clone()), Some(left)).await;
    let [(method, patch)] = &came.written[..] else { panic!("one write: {:?}", came.written) };
    let owner = &patch["metadata"]["ownerReferences"][0]["uid"];
    assert_eq!((method.as_str(), owner, &came.behind), ("PATCH", &json!("group-uid"), &json!("shop")));
    assert!(matches!(came.look, Look::Settled(_)), "{}", came.status);
}

/// A single write that fails must not lead clients to nobody.
#[tokio::test]
async fn slices_stay_behind_a_service_that_could_not_be_taken_over_yet() {
    let (exposed, mut left) = exposed();
    left["metadata"]["ownerReferences"] = json!([]);
    let mut slice = pair_slice(&exposed, "web-0", &[], false).expect("it has a Service");
    slice["metadata"]["ownerReferences"] = json!([]);
    let (client, server) = pair();
    let (log, serving) = server.serve(|seen| {
        let is_met = seen.method == "PATCH" && seen.path.contains("/services");
        if is_met { (409, status(409, "Conflict", "somebody wrote it")) } else { answered(seen) }
    });
    let stores = Stores::with(exposed, [lease()])
        .with_pods([pod(1), pod(2)])
        .with_service(serde_json::from_value(left).expect("a Service"))
        .with_slices([serde_json::from_value(slice).expect("a slice")]);
    let (context, _) = context(&client, stores);
    assert!(matches!(look(&context, &job()).await, Look::Settled(_)), "it is repeated soon");
    serving.abort();
    let patches = changes(&log, "endpointslices");
    let labels = patches.iter().map(|patch| &patch["metadata"]["labels"][keys::LABEL_SERVICE_NAME]);
    assert_eq!(labels.collect::<Vec<_>>(), [&json!("shop")], "{log:?}");
}

#[tokio::test]
async fn a_service_that_has_lost_its_labels_gets_them_back() {
    let (_, mut unlabelled) = exposed();
    unlabelled["metadata"]["labels"] = json!({"app": "shop"});
    let came = look_with(None, Some(unlabelled)).await;
    let [(_, _), (method, patch)] = &came.written[..] else { panic!("two writes: {:?}", came.written) };
    let label = &patch["metadata"]["labels"][keys::LABEL_GROUP];
    assert_eq!((method.as_str(), label, &came.behind), ("PATCH", &json!("web"), &json!("shop")));
    assert!(matches!(came.look, Look::Settled(_)));
}
