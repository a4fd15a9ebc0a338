//! What each action sends: method, path, body, and the guards in it.

use std::net::IpAddr;

use bps_api::keys;
use bps_api::service::IpFamily;
use bps_core::manifests::{self, PodRequest, ShownAddresses};
use bps_core::model::{Action, Endpoint, ExposedKind, Leftover, Outcome, PodName, Role, Uid};
use bps_observe::{Observation, Written};
use bps_testkit::mock_api::{Seen, pair};
use k8s_openapi::api::core::v1::Service;
use serde_json::{Value, json};

use super::{is_about_set, observation, plain, pod_ref, take};
use crate::apply::testing::{NOW, SET_UID, applier, gate_kit, pod, set};

const MERGE_PATCH: &str = "application/merge-patch+json";
const PODS: &str = "/api/v1/namespaces/shop/pods";

/// The one request that an action makes, answered with this, once it knows that the set stands; and what became of it.
async fn sent(seen: &Observation, action: Action, answer: &Value) -> (Seen, Outcome, Option<Written>) {
    let (client, mut server) = pair();
    let applier = applier(&client);
    let (tried, request) = tokio::join!(take(&applier, seen, &action), async {
        let mut call = server.call().await;
        if is_about_set(&call.seen) {
            call.reply(200, &serde_json::to_value(set(&json!({}))).unwrap());
            call = server.call().await;
        }
        let request = call.seen.clone();
        call.reply(200, answer);
        request
    });
    assert_eq!(tried.result.step.action, action);
    assert_eq!((tried.result.message, tried.result.started), (None, NOW));
    (request, tried.result.outcome, tried.written)
}

/// A request by the field manager of the operator.
fn request(method: &str, path: &str, (content_type, body): (&str, Value)) -> Seen {
    Seen {
        method: method.into(),
        path: path.into(),
        query: format!("&fieldManager={}", keys::FIELD_MANAGER),
        content_type: content_type.into(),
        body,
    }
}

fn is_pod(written: Option<&Written>, version: &str) -> bool {
    let Some(Written::Pod(pod)) = written else { return false };
    pod.metadata.resource_version.as_deref() == Some(version)
}

#[tokio::test]
async fn a_creation_posts_the_manifest() {
    for role in Role::ALL {
        let name = PodName("web-3f583358bca8".into());
        let action = Action::Create { name: name.clone(), role, slot: 3, subset: None };
        let (seen, outcome, written) =
            sent(&plain(), action, &pod("web-3f583358bca8", (role.as_str(), 18))).await;
        let set = set(&json!({}));
        let wanted =
            PodRequest { set: &set, name: &name, role, slot: 3, subset: None, now: NOW, injection: None };
        let body = manifests::pod(&wanted, &gate_kit().settings).expect("a Pod");
        let lenient = request("POST", PODS, ("application/json", body));
        // A field that the API server does not know is refused, not dropped.
        let query = format!("{}&fieldValidation=Strict", lenient.query);
        assert_eq!(seen, Seen { query, ..lenient });
        assert_eq!(outcome, Outcome::Done);
        assert!(is_pod(written.as_ref(), "18"));
    }
}

#[tokio::test]
async fn a_conversion_patches_role_and_time_of_the_version_that_was_seen() {
    let action = Action::Convert { pod: pod_ref("web-0", 17), from: Role::Hot, to: Role::Primary };
    let (seen, outcome, written) = sent(&plain(), action, &pod("web-0", ("primary", 18))).await;
    let body = json!({"metadata": {
        "uid": "uid-web-0",
        "resourceVersion": "17",
        "labels": {"backup.example.com/role": "primary", "type": "primary"},
        "annotations": {"backup.example.com/role-since": "2026-01-01T00:00:00.000Z"},
    }});
    assert_eq!(seen, request("PATCH", &format!("{PODS}/web-0"), (MERGE_PATCH, body)));
    assert_eq!(outcome, Outcome::Done);
    assert!(is_pod(written.as_ref(), "18"));
}

#[tokio::test]
async fn an_adoption_patches_the_owner_of_the_version_that_was_seen() {
    let action = Action::Adopt { pod: pod_ref("web-0", 17) };
    let (seen, outcome, written) = sent(&plain(), action, &pod("web-0", ("hot", 18))).await;
    let owner = json!({
        "apiVersion": "backup.example.com/v1alpha1", "kind": "BackupPodSet", "name": "web", "uid": SET_UID,
        "controller": true, "blockOwnerDeletion": true,
    });
    let body = json!({"metadata": {
        "uid": "uid-web-0", "resourceVersion": "17", "ownerReferences": [owner],
    }});
    assert_eq!(seen, request("PATCH", &format!("{PODS}/web-0"), (MERGE_PATCH, body)));
    assert_eq!(outcome, Outcome::Done);
    assert!(is_pod(written.as_ref(), "18"));
}

#[tokio::test]
async fn a_deletion_names_incarnation_and_version_and_knows_whether_the_pod_is_gone() {
    let mut leaving = pod("web-0", ("hot", 18));
    leaving["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:30Z");
    leaving["metadata"]["deletionGracePeriodSeconds"] = json!(30);
    // What a real server answers for a Pod without a node: conversation `delete-unbound-pod`.
    let mut unbound = leaving.clone();
    unbound["metadata"]["deletionGracePeriodSeconds"] = json!(0);
    let mut held = unbound.clone();
    held["metadata"]["finalizers"] = json!(["example.com/held"]);
    let success = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"});
    let ended = pod("web-0", ("hot", 18));
    for (answer, is_gone) in
        [(leaving, false), (held, false), (unbound, true), (ended, true), (success, true)]
    {
        let action = Action::Delete { pod: pod_ref("web-0", 17), role: Role::Hot, is_ready: true };
        let (seen, outcome, written) = sent(&plain(), action, &answer).await;
        assert_eq!((seen.method.as_str(), seen.path), ("DELETE", format!("{PODS}/web-0")));
        let guards = json!({"preconditions": {"uid": "uid-web-0", "resourceVersion": "17"}});
        assert_eq!(seen.body, guards);
        assert_eq!(outcome, Outcome::Done);
        match written {
            Some(Written::PodGone(pod)) if is_gone => {
                let meta = &pod.metadata;
                let identity = [&meta.namespace, &meta.name, &meta.uid].map(Option::as_deref);
                assert_eq!(identity, [Some("shop"), Some("web-0"), Some("uid-web-0")]);
            }
            written => assert!(!is_gone && is_pod(written.as_ref(), "18"), "{written:?}"),
        }
    }
}

/// Fields of a set that exposes port 80, with its Service and slice as the server keeps them at version 21.
pub(super) fn exposed() -> (Value, [Value; 2]) {
    let fields = json!({"service": {"name": "front", "ports": [{"port": 80}]}});
    let set = set(&fields);
    let wanted = set.spec.service.as_ref().unwrap();
    let service = manifests::service(&set, wanted);
    let slice = manifests::endpoint_slice(
        &set,
        wanted,
        &[],
        ShownAddresses { family: IpFamily::IPv4, endpoints: &[] },
    );
    let kept = |mut object: Value| {
        object["metadata"]["uid"] = json!("u-front");
        object["metadata"]["resourceVersion"] = json!("21");
        object
    };
    (fields, [kept(service), kept(slice)])
}

#[tokio::test]
async fn a_service_is_created_or_put_right_at_the_version_that_was_seen() {
    let (fields, objects) = exposed();
    let services = "/api/v1/namespaces/shop/services";
    let set = set(&fields);
    let wanted = manifests::service(&set, set.spec.service.as_ref().unwrap());
    // Nothing that it must not have is sent to make it.
    let body = serde_json::to_value(serde_json::from_value::<Service>(wanted.clone()).unwrap()).unwrap();
    let answer = objects[0].clone();
    let (seen, outcome, written) = sent(&observation(&fields, &[]), Action::PublishService, &answer).await;
    assert_eq!(seen, request("POST", services, ("application/json", body.clone())));
    assert_eq!(outcome, Outcome::Done);
    assert!(matches!(written, Some(Written::Service(_))), "{written:?}");

    let (seen, outcome, written) =
        sent(&observation(&fields, &objects), Action::PublishService, &answer).await;
    let labels = &wanted["metadata"]["labels"];
    let port = json!({"port": 80, "targetPort": 80, "protocol": "TCP", "name": null, "appProtocol": null});
    let body = json!({
        "metadata": {"uid": "u-front", "resourceVersion": "21", "labels": labels, "annotations": {}},
        "spec": {
            "type": "ClusterIP", "ports": [port], "selector": null,
            "internalTrafficPolicy": "Cluster", "sessionAffinity": "None", "sessionAffinityConfig": null,
            "trafficDistribution": null, "loadBalancerClass": null, "loadBalancerSourceRanges": null,
        },
    });
    assert_eq!(seen, request("PATCH", &format!("{services}/front"), (MERGE_PATCH, body)));
    assert_eq!(outcome, Outcome::Done);
    assert!(matches!(written, Some(Written::Service(_))), "{written:?}");
}

#[tokio::test]
async fn what_an_earlier_set_left_behind_gets_an_owner() {
    let (fields, mut objects) = exposed();
    let owners = objects[0]["metadata"]["ownerReferences"].clone();
    for object in &mut objects {
        object["metadata"]["ownerReferences"] = json!([]);
    }
    let seen = observation(&fields, &objects);
    for (action, answer) in [
        (Action::PublishService, &objects[0]),
        (Action::Expose { family: IpFamily::IPv4, endpoints: vec![] }, &objects[1]),
    ] {
        let (sent, outcome, _) = sent(&seen, action, answer).await;
        assert_eq!((&sent.body["metadata"]["ownerReferences"], outcome), (&owners, Outcome::Done));
    }
}

#[tokio::test]
async fn the_group_of_a_paired_set_is_created_or_put_right_whatever_version_it_has_by_now() {
    let container = json!({"name": "web", "image": "web:1", "command": ["/web"]});
    let fields = json!({
        "replicas": 2, "activeStandby": {}, "template": {"spec": {"containers": [container]}},
    });
    let groups = "/apis/backup.example.com/v1alpha1/namespaces/shop/hagroups";
    let set = set(&fields);
    let spec = manifests::set_group_spec(&set).unwrap().unwrap();
    let body = manifests::set_group(&set, &spec);
    let mut kept = body.clone();
    kept["metadata"]["uid"] = json!("u-web");
    kept["metadata"]["resourceVersion"] = json!("21");
    let (seen, outcome, written) = sent(&observation(&fields, &[]), Action::PublishGroup, &kept).await;
    assert_eq!(seen, request("POST", groups, ("application/json", body.clone())));
    assert_eq!(outcome, Outcome::Done);
    assert!(matches!(written, Some(Written::Group(_))), "{written:?}");

    let (seen, outcome, _) = sent(&observation(&fields, &[kept.clone()]), Action::PublishGroup, &kept).await;
    let metadata = json!({"uid": "u-web", "labels": body["metadata"]["labels"]});
    let spec = json!({"pairs": 2, "paused": false, "service": null, "replicationPorts": null, "handover": null,
        "standbyFor": null, "timing": null, "topology": null});
    let patch = json!({"metadata": metadata, "spec": spec});
    assert_eq!(seen, request("PATCH", &format!("{groups}/web"), (MERGE_PATCH, patch)));
    assert_eq!(outcome, Outcome::Done);
}

#[tokio::test]
async fn addresses_are_written_in_one_request() {
    let (fields, objects) = exposed();
    let slices = "/apis/discovery.k8s.io/v1/namespaces/shop/endpointslices";
    let endpoint = Endpoint {
        pod: PodName("web-0".into()),
        uid: Uid("uid-web-0".into()),
        address: IpAddr::from([198, 18, 0, 1]),
        node: None,
        zone: None,
        is_ready: true,
        is_terminating: false,
    };
    let action = || Action::Expose { family: IpFamily::IPv4, endpoints: vec![endpoint.clone()] };
    let set = set(&fields);
    let wanted = set.spec.service.as_ref().unwrap();
    let ports = manifests::slice_ports(&set, wanted).unwrap();
    let body = manifests::endpoint_slice(
        &set,
        wanted,
        &ports,
        ShownAddresses { family: IpFamily::IPv4, endpoints: std::slice::from_ref(&endpoint) },
    );
    let answer = objects[1].clone();
    let (seen, outcome, written) = sent(&observation(&fields, &[]), action(), &answer).await;
    assert_eq!(seen, request("POST", slices, ("application/json", body.clone())));
    assert_eq!(outcome, Outcome::Done);
    assert!(matches!(written, Some(Written::Slice(_))), "{written:?}");

    let (seen, outcome, written) = sent(&observation(&fields, &objects), action(), &answer).await;
    let labels = &body["metadata"]["labels"];
    let patch = json!({
        "metadata": {"uid": "u-front", "resourceVersion": "21", "labels": labels},
        "endpoints": body["endpoints"], "ports": body["ports"],
    });
    assert_eq!(seen, request("PATCH", &format!("{slices}/front-bps"), (MERGE_PATCH, patch)));
    assert_eq!(outcome, Outcome::Done);
    assert!(matches!(written, Some(Written::Slice(_))), "{written:?}");
}

/// As a version had it that knew one slice only, in a cluster that has got another family since.
#[tokio::test]
async fn a_slice_of_another_family_than_its_name_says_makes_way() {
    let (fields, mut objects) = exposed();
    objects[1]["addressType"] = json!("IPv6");
    let seen = observation(&fields, &objects);
    let action = Action::Expose { family: IpFamily::IPv4, endpoints: vec![] };
    let (request, outcome, written) = sent(&seen, action, &objects[1]).await;
    let path = "/apis/discovery.k8s.io/v1/namespaces/shop/endpointslices/front-bps";
    assert_eq!((request.method.as_str(), request.path.as_str()), ("DELETE", path));
    assert_eq!(request.body["preconditions"], json!({"uid": "u-front", "resourceVersion": "21"}));
    assert_eq!(outcome, Outcome::Stale, "nobody is led to it yet");
    assert!(matches!(written, Some(Written::SliceGone(_))), "{written:?}");
}

#[tokio::test]
async fn families_that_a_service_has_are_not_sent_again() {
    for (wanted, is_sent) in
        [(json!(["IPv4"]), false), (json!(["IPv4", "IPv6"]), true), (json!(["IPv6"]), true)]
    {
        let (mut fields, mut objects) = exposed();
        fields["service"]["ipFamilies"] = wanted.clone();
        fields["service"]["ipFamilyPolicy"] = json!("PreferDualStack");
        objects[0]["spec"]["ipFamilies"] = json!(["IPv4"]);
        let seen = observation(&fields, &objects);
        let (request, _, _) = sent(&seen, Action::PublishService, &objects[0]).await;
        let spec = &request.body["spec"];
        assert_eq!(spec["ipFamilyPolicy"], "PreferDualStack");
        assert_eq!(spec["ipFamilies"], if is_sent { wanted } else { Value::Null });
    }
}

#[tokio::test]
async fn a_budget_is_created_or_put_right_with_what_somebody_added_to_it_taken_away() {
    let fields = json!({"replicas": 2, "hotBackups": 1});
    let set = set(&fields);
    let body = manifests::budget(&set).expect("it wants one");
    let budgets = "/apis/policy/v1/namespaces/shop/poddisruptionbudgets";
    let mut kept = body.clone();
    kept["metadata"]["uid"] = json!("u-budget");
    kept["metadata"]["resourceVersion"] = json!("21");
    let action = || Action::PublishBudget;
    let (seen, outcome, written) = sent(&observation(&fields, &[]), action(), &kept).await;
    assert_eq!(seen, request("POST", budgets, ("application/json", body.clone())));
    assert_eq!(outcome, Outcome::Done);
    assert!(matches!(written, Some(Written::Budget(_))), "{written:?}");

    let mut edited = kept.clone();
    edited["spec"]["selector"]["matchLabels"]["app"] = json!("web");
    let (seen, outcome, _) = sent(&observation(&fields, &[edited]), action(), &kept).await;
    let mut spec = body["spec"].clone();
    spec["maxUnavailable"] = Value::Null;
    spec["selector"]["matchLabels"]["app"] = Value::Null;
    let labels = &body["metadata"]["labels"];
    // Its status, and with that its version, changes with each Pod.
    let metadata = json!({"uid": "u-budget", "labels": labels});
    let patch = json!({"metadata": metadata, "spec": spec});
    assert_eq!(seen, request("PATCH", &format!("{budgets}/web-bps"), (MERGE_PATCH, patch)));
    assert_eq!(outcome, Outcome::Done);
}

#[tokio::test]
async fn what_an_earlier_spec_exposed_is_deleted_at_the_version_that_was_seen() {
    let (fields, objects) = exposed();
    let paths =
        ["/api/v1/namespaces/shop/services", "/apis/discovery.k8s.io/v1/namespaces/shop/endpointslices"];
    let kinds = [ExposedKind::Service, ExposedKind::Slice];
    for ((path, kind), object) in paths.into_iter().zip(kinds).zip(objects) {
        let former = Leftover {
            kind,
            name: "former".into(),
            uid: Uid("u-former".into()),
            resource_version: "9".into(),
        };
        let (seen, outcome, written) =
            sent(&observation(&fields, &[]), Action::Retire { object: former }, &object).await;
        let body = json!({"preconditions": {"uid": "u-former", "resourceVersion": "9"}});
        let expected = Seen {
            query: String::new(),
            ..request("DELETE", &format!("{path}/former"), ("application/json", body))
        };
        assert_eq!((seen, outcome), (expected, Outcome::Done));
        let is_gone = matches!(written, Some(Written::ServiceGone(_) | Written::SliceGone(_)));
        assert!(is_gone, "{written:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_set_that_lost_its_service_meanwhile_sends_nothing() {
    let (client, mut server) = pair();
    let applier = applier(&client);
    for action in [Action::PublishService, Action::Expose { family: IpFamily::IPv4, endpoints: vec![] }] {
        let tried = take(&applier, &plain(), &action).await;
        assert_eq!((tried.result.outcome, tried.result.message), (Outcome::Stale, None));
        assert!(tried.written.is_none());
    }
    assert_eq!(server.calls().await.len(), 0);
}
