//! Objects of a group for tests.

use bps_api::{HAGroup, keys};
use bps_wire::uid::format_uid;
use serde_json::value::from_value;
use serde_json::{Value, json};

/// The group `web`, which is behind a Service.
pub(super) fn group() -> HAGroup {
    from_value(json!({
        "apiVersion": "backup.example.com/v1alpha1", "kind": "HAGroup",
        "metadata": {"name": "web", "namespace": "shop", "uid": "group-uid"},
        "spec": {"service": {"name": "web", "ports": [{"port": 80}]}},
    }))
    .unwrap()
}

/// A Pod of it that runs.
pub(super) fn pod(number: u128) -> Value {
    json!({
        "metadata": {"name": format!("web-{number}"), "namespace": "shop", "uid": format_uid(number),
            "labels": {(keys::LABEL_GROUP): "web"}},
        "spec": {"containers": []},
        "status": {"phase": "Running", "podIP": format!("10.0.0.{number}")},
    })
}

/// The Lease of a pair of these Pods, of which the first one acts.
pub(super) fn lease(pair: u32, members: [u128; 2]) -> Value {
    let member = |number: u128| json!({"uid": format_uid(number), "pod": format!("web-{number}"), "address": format!("10.0.0.{number}:20001")});
    json!({
        "metadata": {"name": format!("web-{pair}"), "uid": format_uid(50 + u128::from(pair)),
            "resourceVersion": "5", "labels": {(keys::LABEL_GROUP): "web"}, "annotations": {
                (keys::ANNOTATION_HA_PAIR): pair.to_string(), (keys::ANNOTATION_HA_SEQUENCE): "0",
                (keys::ANNOTATION_HA_HOLD): "Api", (keys::ANNOTATION_HA_WRITES): "1",
                (keys::ANNOTATION_HA_MEMBERS): json!(members.map(member)).to_string(),
            }},
        "spec": {"holderIdentity": format!("web-{}_{}", members[0], format_uid(members[0])),
            "leaseTransitions": 1},
    })
}
