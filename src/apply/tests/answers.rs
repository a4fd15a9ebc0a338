//! What each answer of the API server comes to.

use bps_api::service::IpFamily;
use bps_core::manifests::ShownAddresses;
use std::slice::from_ref;

use bps_api::keys;
use bps_core::manifests;
use bps_core::model::{Action, Outcome, PodName, Refusal, Role};
use bps_observe::{Observation, TakenBack, Written};
use bps_testkit::mock_api::{pair, status};
use serde_json::{Value, json};

use super::{is_about_set, key, observation, plain, pod_ref, take};
use crate::apply::Applied;
use crate::apply::testing::{SET_UID, applier, pod, set};

fn create() -> Action {
    Action::Create { name: PodName("web-1".into()), role: Role::Hot, slot: 1, subset: None }
}

fn others() -> [Action; 3] {
    [
        Action::Convert { pod: pod_ref("web-0", 17), from: Role::Hot, to: Role::Primary },
        Action::Adopt { pod: pod_ref("web-0", 17) },
        Action::Delete { pod: pod_ref("web-0", 17), role: Role::Hot, is_ready: false },
    ]
}

/// Takes an action whose requests are answered with these, in order, once it knows that the set stands; no further one
/// may come.
async fn answered(seen: &Observation, action: &Action, answers: &[(u16, Value)]) -> Applied {
    let (client, mut server) = pair();
    let applier = applier(&client);
    let serving = async {
        for (code, body) in answers {
            let mut call = server.call().await;
            if is_about_set(&call.seen) {
                call.reply(200, &serde_json::to_value(set(&json!({}))).unwrap());
                call = server.call().await;
            }
            call.reply(*code, body);
        }
        server.call().await;
        panic!("a request too many");
    };
    tokio::select! {
        tried = take(&applier, seen, action) => tried,
        () = serving => unreachable!("it never ends"),
    }
}

#[tokio::test]
async fn each_refusal_of_the_server_has_its_word_and_its_message() {
    let quota =
        "pods \"web-1\" is forbidden: exceeded quota: pods, requested: pods=1, used: pods=2, limited: pods=2";
    let security = "pods \"web-1\" is forbidden: violates PodSecurity \"restricted:latest\"";
    let cases = [
        (404, "NotFound", "pods \"web-0\" not found", Outcome::Stale),
        (403, "Forbidden", quota, Outcome::Failed(Refusal::QuotaExceeded)),
        (403, "Forbidden", security, Outcome::Failed(Refusal::Forbidden)),
        (401, "Unauthorized", "Unauthorized", Outcome::Failed(Refusal::Forbidden)),
        (400, "BadRequest", "bad", Outcome::Failed(Refusal::Invalid)),
        (422, "Invalid", "Pod is invalid", Outcome::Failed(Refusal::Invalid)),
        (429, "TooManyRequests", "slow down", Outcome::Failed(Refusal::Throttled)),
        (500, "InternalError", "etcd is away", Outcome::Failed(Refusal::ServerFailed)),
        (503, "ServiceUnavailable", "soon", Outcome::Failed(Refusal::ServerFailed)),
        (504, "Timeout", "late", Outcome::Failed(Refusal::ServerFailed)),
    ];
    let seen = plain();
    for (code, reason, message, outcome) in cases {
        for action in others().into_iter().chain([create()]) {
            let tried = answered(&seen, &action, &[(code, status(code, reason, message))]).await;
            let told = (tried.result.outcome, tried.result.message.as_deref(), tried.written.is_none());
            assert_eq!(told, (outcome, Some(message), true), "{code} to {}", action.as_str());
        }
    }
}

#[tokio::test]
async fn a_namespace_that_ends_is_told_from_other_prohibitions() {
    let message = "unable to create new content in namespace shop because it is being terminated";
    let mut body = status(403, "Forbidden", message);
    body["details"] = json!({"causes": [{"reason": "NamespaceTerminating", "field": "metadata.namespace"}]});
    let tried = answered(&plain(), &create(), &[(403, body)]).await;
    assert_eq!(tried.result.outcome, Outcome::Failed(Refusal::NamespaceTerminating));
}

#[tokio::test]
async fn a_conflict_leaves_the_object_to_the_next_snapshot() {
    let conflict = (409, status(409, "Conflict", "the object has been modified"));
    for action in others() {
        let tried = answered(&plain(), &action, from_ref(&conflict)).await;
        assert_eq!(tried.result.outcome, Outcome::Stale, "{}", action.as_str());
        assert!(tried.written.is_none());
    }
}

#[tokio::test]
async fn a_lost_answer_is_told_with_its_cause() {
    for action in others().into_iter().chain([create()]) {
        let (client, mut server) = pair();
        let applier = applier(&client);
        let seen = plain();
        let (tried, ()) = tokio::join!(take(&applier, &seen, &action), async {
            server.call().await.reset();
        });
        assert_eq!(tried.result.outcome, Outcome::Failed(Refusal::NoAnswer), "{}", action.as_str());
        let message = tried.result.message.unwrap();
        assert!(message.contains("connection reset"), "{message}");
    }
}

#[tokio::test]
async fn a_pod_whose_labels_admission_changes_is_taken_back_and_told() {
    let created = pod("web-1", ("hot", 18));
    let deleted = (200, status(200, "", "done"));
    let conflict = (409, status(409, "Conflict", "the object has been modified"));
    let gone = (404, status(404, "NotFound", "pods \"web-1\" not found"));
    let away = (503, status(503, "ServiceUnavailable", "etcd is away"));
    for label in [keys::LABEL_SET, keys::LABEL_ROLE, keys::LABEL_REVISION] {
        let mut changed = created.clone();
        changed["metadata"]["labels"].as_object_mut().unwrap().remove(label);
        let (made, found) = ((201, changed.clone()), (200, changed));
        let again = [conflict.clone(), found];
        let ends = [
            (vec![deleted.clone()], "was deleted again"),
            (vec![gone.clone()], "was deleted again"),
            ([&again[..], from_ref(&deleted)].concat(), "was deleted again"),
            (vec![conflict.clone(), gone.clone()], "was deleted again"),
            (vec![conflict.clone(), away.clone(), deleted.clone()], "was deleted again"),
            ([&again[..], &again, from_ref(&conflict)].concat(), "has been modified"),
            ([&again[..], &again, from_ref(&gone)].concat(), "was deleted again"),
        ];
        for (end, fate) in ends {
            let tried = answered(&plain(), &create(), &[vec![made.clone()], end].concat()).await;
            assert_eq!(tried.result.outcome, Outcome::Failed(Refusal::Forbidden), "{label}");
            let message = tried.result.message.unwrap();
            assert!(message.contains(label) && message.contains(fate), "{message}");
            let Some(Written::TakenBack(TakenBack { set, words })) = tried.written else {
                panic!("no plan is to count it: {:?}", tried.written)
            };
            assert_eq!((set, words), (key(), message));
        }
    }
    let tried = answered(&plain(), &create(), &[(201, created)]).await;
    assert_eq!(tried.result.outcome, Outcome::Done, "{:?}", tried.result.message);
}

fn already_exists() -> (u16, Value) {
    (409, status(409, "AlreadyExists", "it already exists"))
}

/// Changes the metadata of an object: the controller's uid, and the set that its label names.
fn claimed(mut object: Value, (owner, set): (Option<&str>, Option<&str>)) -> Value {
    match owner {
        Some(uid) => object["metadata"]["ownerReferences"][0]["uid"] = json!(uid),
        None => object["metadata"]["ownerReferences"] = json!([]),
    }
    object["metadata"]["labels"][keys::LABEL_SET] = json!(set.unwrap_or("elsewhere"));
    object
}

#[tokio::test]
async fn a_name_that_is_taken_is_ours_only_with_our_owner_and_our_labels() {
    let cases = [
        ((Some(SET_UID), Some("web")), "hot", Outcome::Stale),
        ((Some("other"), Some("web")), "hot", Outcome::Failed(Refusal::NameTaken)),
        ((None, Some("web")), "hot", Outcome::Failed(Refusal::NameTaken)),
        // Somebody took the Pod out of the set by a label: it never fills this place again.
        ((Some(SET_UID), None), "hot", Outcome::Failed(Refusal::NameTaken)),
        ((Some(SET_UID), Some("web")), "", Outcome::Failed(Refusal::NameTaken)),
    ];
    for (claim, role, outcome) in cases {
        let found = (200, claimed(pod("web-1", (role, 18)), claim));
        let tried = answered(&plain(), &create(), &[already_exists(), found]).await;
        assert_eq!(tried.result.outcome, outcome, "{claim:?} {role:?}");
        let is_kept = matches!(&tried.written, Some(Written::Pod(pod))
            if pod.metadata.resource_version.as_deref() == Some("18"));
        assert_eq!((is_kept, tried.written.is_some()), (outcome == Outcome::Stale, is_kept), "{claim:?}");
    }
}

#[tokio::test]
async fn a_name_that_was_taken_a_moment_ago_is_tried_again() {
    let gone = (404, status(404, "NotFound", "pods \"web-1\" not found"));
    let tried = answered(&plain(), &create(), &[already_exists(), gone]).await;
    assert_eq!((tried.result.outcome, tried.written.is_none()), (Outcome::Stale, true));
    let failed = (500, status(500, "InternalError", "etcd is away"));
    let tried = answered(&plain(), &create(), &[already_exists(), failed]).await;
    assert_eq!(tried.result.outcome, Outcome::Failed(Refusal::ServerFailed));
}

/// A create whose answer was lost and whose event has not come yet meets its own object.
#[tokio::test]
async fn an_exposure_that_exists_already_is_ours_or_somebody_elses() {
    let fields = json!({"service": {"name": "front", "ports": [{"port": 80}]}});
    let seen = observation(&fields, &[]);
    let set = set(&fields);
    let wanted = set.spec.service.as_ref().unwrap();
    let objects = [
        (Action::PublishService, manifests::service(&set, wanted)),
        (
            Action::Expose { family: IpFamily::IPv4, endpoints: vec![] },
            manifests::endpoint_slice(
                &set,
                wanted,
                &[],
                ShownAddresses { family: IpFamily::IPv4, endpoints: &[] },
            ),
        ),
    ];
    for (action, mut object) in objects {
        object["metadata"]["uid"] = json!("u-front");
        object["metadata"]["resourceVersion"] = json!("21");
        let found = |claim| (200, claimed(object.clone(), claim));
        // Without the label it is put right in the next look.
        for claim in [(Some(SET_UID), Some("web")), (Some(SET_UID), None)] {
            let ours = answered(&seen, &action, &[already_exists(), found(claim)]).await;
            let is_kept = matches!(ours.written, Some(Written::Service(_) | Written::Slice(_)));
            let told = (ours.result.outcome, is_kept);
            assert_eq!(told, (Outcome::Stale, true), "{}: {claim:?}", action.as_str());
        }
        for claim in [(Some("other"), Some("web")), (None, None)] {
            let foreign = answered(&seen, &action, &[already_exists(), found(claim)]).await;
            let is_told = matches!(foreign.written, Some(Written::NameTaken(_)));
            let told = (foreign.result.outcome, is_told);
            assert_eq!(told, (Outcome::Failed(Refusal::NameTaken), true), "{}: {claim:?}", action.as_str());
        }
        let gone = (404, status(404, "NotFound", "not found"));
        let gone = answered(&seen, &action, &[already_exists(), gone]).await;
        assert_eq!((gone.result.outcome, gone.written.is_none()), (Outcome::Stale, true));
    }
}

#[tokio::test]
async fn a_conflict_about_the_exposure_is_stale() {
    let fields = json!({"service": {"name": "front", "ports": [{"port": 80}]}});
    let set = set(&fields);
    let wanted = set.spec.service.as_ref().unwrap();
    let mut objects = [
        manifests::service(&set, wanted),
        manifests::endpoint_slice(
            &set,
            wanted,
            &[],
            ShownAddresses { family: IpFamily::IPv4, endpoints: &[] },
        ),
    ];
    for object in &mut objects {
        object["metadata"]["resourceVersion"] = json!("21");
    }
    let seen = observation(&fields, &objects);
    for action in [Action::PublishService, Action::Expose { family: IpFamily::IPv4, endpoints: vec![] }] {
        for (code, reason) in [(409, "Conflict"), (404, "NotFound")] {
            let tried = answered(&seen, &action, &[(code, status(code, reason, "changed"))]).await;
            let told = (tried.result.outcome, tried.written.is_none());
            assert_eq!(told, (Outcome::Stale, true), "{code} to {}", action.as_str());
        }
    }
}
