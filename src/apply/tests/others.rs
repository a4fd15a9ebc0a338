//! What others left behind the Service: which of it is taken away, and what is told.

use bps_core::model::{Action, Outcome, Refusal};
use bps_observe::Written;
use bps_testkit::mock_api::{Seen, pair, status};
use serde_json::{Value, json};

use super::requests::exposed;
use super::{observation, take};
use crate::apply::testing::applier;

const SLICES: &str = "/apis/discovery.k8s.io/v1/namespaces/shop/endpointslices";
const ENDPOINTS: &str = "/api/v1/namespaces/shop/endpoints/front";

fn slice(name: &str, managed_by: &str) -> Value {
    json!({
        "metadata": {
            "name": name, "uid": format!("u-{name}"), "resourceVersion": "7",
            "labels": {
                "kubernetes.io/service-name": "front", "endpointslice.kubernetes.io/managed-by": managed_by,
            },
        },
        "addressType": "IPv4", "endpoints": [], "ports": [],
    })
}

/// The Endpoints object of the Service, as these field managers wrote it.
fn endpoints(managers: &[&str]) -> Value {
    let managed: Vec<Value> = managers.iter().map(|manager| json!({"manager": manager})).collect();
    json!({"metadata": {"name": "front", "uid": "u-e", "resourceVersion": "8", "managedFields": managed}})
}

/// What came of clearing the Service behind which these slices are, beside this Endpoints object; and each request as `METHOD path`.
async fn cleared(
    slices: Vec<Value>,
    endpoints: Option<Value>,
    code: u16,
) -> (Outcome, Option<String>, Option<Vec<String>>, Vec<Seen>) {
    let (fields, objects) = exposed();
    let seen = observation(&fields, &objects);
    let names: Vec<String> =
        slices.iter().filter_map(|slice| slice["metadata"]["name"].as_str()).map(str::to_owned).collect();
    let (client, server) = pair();
    let (log, serving) = server.serve(move |request| match (request.method.as_str(), &endpoints) {
        ("DELETE", _) => (code, deletion(code)),
        ("GET", Some(endpoints)) if request.path == ENDPOINTS => (200, endpoints.clone()),
        ("GET", None) if request.path == ENDPOINTS => (404, status(404, "NotFound", "none")),
        _ => (200, json!({"metadata": {}, "items": slices})),
    });
    let applied = take(&applier(&client), &seen, &Action::ClearAddresses).await;
    serving.abort();
    let left = match applied.written {
        Some(Written::Cleared(cleared)) => {
            assert_eq!((cleared.service.as_str(), cleared.uid.as_str()), ("front", "u-front"));
            // Whatever is there still is known to be, so that no look asks for it again.
            let gone = cleared.deleted.iter().filter_map(|slice| slice.metadata.name.as_ref());
            let mut all: Vec<&String> = gone.chain(&cleared.standing).collect();
            all.sort();
            assert_eq!(all, names.iter().collect::<Vec<_>>());
            Some(cleared.left)
        }
        _ => None,
    };
    let log = log.lock().unwrap().clone();
    (applied.result.outcome, applied.result.message, left, log)
}

fn lines(log: &[Seen]) -> Vec<String> {
    log.iter().map(|seen| format!("{} {}", seen.method, seen.path)).collect()
}

/// What the API server answers to a deletion.
fn deletion(code: u16) -> Value {
    match code {
        200 => json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}),
        403 => status(403, "Forbidden", "no"),
        404 => status(404, "NotFound", "none"),
        _ => status(409, "Conflict", "another version"),
    }
}

#[tokio::test]
async fn what_kubernetes_wrote_is_deleted_at_the_version_that_was_seen() {
    let slices = vec![
        slice("front-a", "endpointslice-controller.k8s.io"),
        slice("front-b", "endpointslicemirroring-controller.k8s.io"),
    ];
    let original = endpoints(&["kube-controller-manager"]);
    let (outcome, message, left, log) = cleared(slices, Some(original), 200).await;
    assert_eq!((outcome, left), (Outcome::Done, Some(vec![])));
    assert_eq!(message.as_deref(), Some("endpoints/front, endpointslice/front-a, endpointslice/front-b"));
    let (list, get) = (format!("GET {SLICES}"), format!("GET {ENDPOINTS}"));
    let deletions = [ENDPOINTS.to_owned(), format!("{SLICES}/front-a"), format!("{SLICES}/front-b")]
        .map(|path| format!("DELETE {path}"));
    assert_eq!(lines(&log), [vec![list, get], deletions.to_vec()].concat());
    let guard = |uid: &str, version: &str| json!({"preconditions": {"uid": uid, "resourceVersion": version}});
    let bodies: Vec<&Value> = log.iter().skip(2).map(|seen| &seen.body).collect();
    assert_eq!(bodies, [&guard("u-e", "8"), &guard("u-front-a", "7"), &guard("u-front-b", "7")]);
}

#[tokio::test]
async fn what_a_person_wrote_is_left_and_told() {
    let copy = slice("front-b", "endpointslicemirroring-controller.k8s.io");
    let slices = vec![copy, slice("front-mine", "me")];
    let original = endpoints(&["kube-controller-manager", "kubectl-edit"]);
    let (outcome, message, left, log) = cleared(slices, Some(original), 200).await;
    assert_eq!((outcome, message), (Outcome::Done, None));
    let told = vec!["endpoints/front".to_owned(), "endpointslice/front-mine".to_owned()];
    assert_eq!(left, Some(told));
    assert!(log.iter().all(|seen| seen.method == "GET"), "{:?}", lines(&log));
}

#[tokio::test]
async fn a_copy_without_an_original_is_deleted() {
    let copy = slice("front-b", "endpointslicemirroring-controller.k8s.io");
    let (outcome, message, left, _) = cleared(vec![copy], None, 200).await;
    assert_eq!((outcome, left), (Outcome::Done, Some(vec![])));
    assert_eq!(message.as_deref(), Some("endpointslice/front-b"));
}

#[tokio::test]
async fn a_slice_that_was_written_meanwhile_is_left_to_the_next_look() {
    let slices = vec![slice("front-a", "endpointslice-controller.k8s.io")];
    let (outcome, _, left, _) = cleared(slices.clone(), None, 409).await;
    assert_eq!((outcome, left), (Outcome::Stale, None));

    let (outcome, _, left, _) = cleared(slices.clone(), None, 404).await;
    assert_eq!((outcome, left), (Outcome::Done, Some(vec![])));

    let (outcome, message, left, _) = cleared(slices, None, 403).await;
    assert_eq!((outcome, left), (Outcome::Failed(Refusal::Forbidden), None));
    assert_eq!(message.as_deref(), Some("no"));
}
