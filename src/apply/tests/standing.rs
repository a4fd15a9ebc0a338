//! Who takes what nobody owns: a set that stands, never one that goes away.

use bps_api::service::IpFamily;
use bps_core::manifests;
use bps_core::manifests::ShownAddresses;
use bps_core::model::{Action, Outcome, Refusal};
use bps_testkit::mock_api::{pair, status};
use serde_json::{Value, json};

use super::{is_about_set, observation, pod_ref, take};
use crate::apply::Applied;
use crate::apply::testing::{applier, set};

/// Each action that takes something, tried while the set is answered with this; no other request may come.
async fn tried(answer: (u16, Value)) -> Vec<Applied> {
    let fields = json!({"service": {"name": "front", "ports": [{"port": 80}]}});
    let exposing = set(&fields);
    let wanted = exposing.spec.service.as_ref().unwrap();
    let service = manifests::service(&exposing, wanted);
    let mut left_behind = [
        service,
        manifests::endpoint_slice(
            &exposing,
            wanted,
            &[],
            ShownAddresses { family: IpFamily::IPv4, endpoints: &[] },
        ),
    ];
    for object in &mut left_behind {
        object["metadata"]["resourceVersion"] = json!("21");
        object["metadata"]["ownerReferences"] = json!([]);
    }
    let seen = observation(&fields, &left_behind);
    let adoption = Action::Adopt { pod: pod_ref("web-0", 17) };
    let mut all = Vec::new();
    for action in
        [adoption, Action::PublishService, Action::Expose { family: IpFamily::IPv4, endpoints: vec![] }]
    {
        let (client, server) = pair();
        let answer = answer.clone();
        let (log, serving) = server.serve(move |_| answer.clone());
        all.push(take(&applier(&client), &seen, &action).await);
        serving.abort();
        let log = log.lock().unwrap();
        assert_eq!(log.iter().map(is_about_set).collect::<Vec<_>>(), [true], "{log:?}");
    }
    all
}

/// The garbage collector takes the owner off what `kubectl delete --cascade=orphan` shall keep; with the owner back on, it
/// would delete it.
#[tokio::test]
async fn a_set_that_goes_away_takes_nothing() {
    let leaving = |fields: Value| {
        let mut body = serde_json::to_value(set(&json!({}))).unwrap();
        for (field, value) in fields.as_object().unwrap() {
            body["metadata"][field] = value.clone();
        }
        (200, body)
    };
    for answer in [
        leaving(json!({"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["orphan"]})),
        leaving(json!({"uid": "of-the-next-one"})),
        (404, status(404, "NotFound", "no such set")),
    ] {
        for applied in tried(answer.clone()).await {
            assert_eq!(applied.result.outcome, Outcome::Stale, "{answer:?}");
            assert!(applied.written.is_none());
        }
    }
    for applied in tried((500, status(500, "InternalError", "etcd is away"))).await {
        assert_eq!(applied.result.outcome, Outcome::Failed(Refusal::ServerFailed));
    }
}
