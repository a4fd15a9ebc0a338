//! What a Service says to cloud providers, proxies and load balancers, and how an edit reaches one that exists.

use bps_api::service::TrafficDistribution;
use serde_json::{Value, json};

use super::set;
use crate::manifests::{covers, hints, service, service_patch};
use crate::model::{Endpoint, NodeName, PodName, Uid};

/// The Service of a set with these fields in `spec.service`.
fn body(fields: &Value) -> Value {
    let mut wanted = json!({"name": "front", "ports": [{"port": 80}]});
    wanted.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    let template = json!({"spec": {"containers": [{"name": "web", "image": "web:1"}]}});
    let set = set(json!({"template": template, "service": wanted}));
    service(&set, set.spec.service.as_ref().unwrap())
}

/// The merge patch for a Service that was made from one wish and is to follow another.
fn patch(from: &Value, to: &Value) -> Value {
    let annotations = serde_json::from_value(body(from)["metadata"]["annotations"].clone()).unwrap();
    service_patch(&body(to), Some(&annotations))
}

#[test]
fn every_field_of_the_wish_is_in_the_service() {
    let made = body(&json!({
        "type": "LoadBalancer", "annotations": {"lb.example.com/kind": "inner"}, "labels": {"team": "shop"},
        "loadBalancerClass": "example.com/inner", "loadBalancerSourceRanges": ["198.18.0.0/15"],
        "externalTrafficPolicy": "Local", "internalTrafficPolicy": "Local", "sessionAffinity": "ClientIP",
        "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 60}}, "trafficDistribution": "PreferSameZone",
    }));
    let expected = json!({
        "type": "LoadBalancer",
        "ports": [{"port": 80, "protocol": "TCP", "targetPort": 80}],
        "selector": null,
        "externalTrafficPolicy": "Local",
        "internalTrafficPolicy": "Local",
        "sessionAffinity": "ClientIP",
        "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 60}},
        "loadBalancerClass": "example.com/inner",
        "loadBalancerSourceRanges": ["198.18.0.0/15"],
        "trafficDistribution": "PreferSameZone",
    });
    assert_eq!(made["spec"], expected);
    assert_eq!(made["metadata"]["annotations"]["lb.example.com/kind"], json!("inner"));
    assert_eq!(made["metadata"]["labels"]["team"], json!("shop"));
}

#[test]
fn what_is_not_wanted_any_more_goes_and_what_others_wrote_stays() {
    let before = json!({
        "annotations": {"kept": "1", "gone": "1"}, "labels": {"gone": "1"}, "sessionAffinity": "ClientIP",
        "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 60}}, "trafficDistribution": "PreferClose",
    });
    let after = patch(&before, &json!({"annotations": {"kept": "2"}}));
    let written = json!({"annotations": ["kept"], "labels": []}).to_string();
    assert_eq!(
        after["metadata"]["annotations"],
        json!({"kept": "2", "gone": null, "backup.example.com/written-keys": written})
    );
    assert_eq!(after["metadata"]["labels"]["gone"], Value::Null);
    for field in ["sessionAffinityConfig", "trafficDistribution"] {
        assert_eq!(after["spec"].get(field), Some(&Value::Null), "{field}");
    }
    assert_eq!(after["spec"]["sessionAffinity"], json!("None"));
    let bare = patch(&before, &json!({}));
    assert_eq!(
        bare["metadata"]["annotations"],
        json!({"kept": null, "gone": null, "backup.example.com/written-keys": null})
    );
}

#[test]
fn a_service_that_is_no_load_balancer_any_more_loses_what_only_one_may_have() {
    let before = json!({
        "type": "LoadBalancer", "loadBalancerClass": "example.com/inner",
        "loadBalancerSourceRanges": ["198.18.0.0/15"], "externalTrafficPolicy": "Local",
    });
    let after = patch(&before, &json!({}));
    for field in ["loadBalancerClass", "loadBalancerSourceRanges"] {
        assert_eq!(after["spec"].get(field), Some(&Value::Null), "{field}");
    }
    // With external addresses of somebody else it keeps one, by default of the API server.
    assert_eq!(after["spec"].get("externalTrafficPolicy"), None);
}

#[test]
fn what_the_cluster_chooses_stays_as_it_is() {
    let after = patch(&json!({}), &json!({"type": "LoadBalancer", "sessionAffinity": "ClientIP"}));
    for field in ["loadBalancerClass", "loadBalancerSourceRanges", "sessionAffinityConfig", "clusterIP"] {
        assert_eq!(after["spec"].get(field), None, "{field}");
    }
    let mut chosen = body(&json!({"type": "LoadBalancer", "sessionAffinity": "ClientIP"}));
    chosen["spec"]["loadBalancerClass"] = json!("example.com/usual");
    chosen["spec"]["clusterIP"] = json!("198.18.1.1");
    chosen["metadata"]["annotations"]["lb.example.com/id"] = json!("7");
    assert!(covers(&chosen, &after));
    chosen["spec"]["externalTrafficPolicy"] = json!("Local");
    assert!(!covers(&chosen, &after));
}

#[test]
fn an_unreadable_record_of_written_keys_takes_nothing_away() {
    let annotations = [("backup.example.com/written-keys".to_owned(), "no JSON".to_owned())].into();
    let patch = service_patch(&body(&json!({})), Some(&annotations));
    assert_eq!(patch["metadata"]["annotations"], json!({"backup.example.com/written-keys": null}));
}

#[test]
fn an_address_is_hinted_for_its_own_zone_and_node_while_it_is_ready() {
    let ready = Endpoint {
        pod: PodName("web-0".into()),
        uid: Uid("u0".into()),
        address: "198.18.0.1".parse().unwrap(),
        node: Some(NodeName("n1".into())),
        zone: Some("east".into()),
        is_ready: true,
        is_terminating: false,
    };
    let zone = json!({"forZones": [{"name": "east"}]});
    let node = json!({"forNodes": [{"name": "n1"}]});
    let both = json!({"forZones": [{"name": "east"}], "forNodes": [{"name": "n1"}]});
    let leaving = Endpoint { is_ready: false, ..ready.clone() };
    let nowhere = Endpoint { zone: None, ..ready.clone() };
    let cases = [
        (None, &ready, None),
        (Some(TrafficDistribution::PreferClose), &ready, Some(zone.clone())),
        (Some(TrafficDistribution::PreferSameZone), &ready, Some(zone)),
        (Some(TrafficDistribution::PreferSameNode), &ready, Some(both)),
        (Some(TrafficDistribution::PreferSameZone), &nowhere, None),
        (Some(TrafficDistribution::PreferSameNode), &nowhere, Some(node)),
        (Some(TrafficDistribution::PreferSameNode), &leaving, None),
    ];
    for (distribution, endpoint, expected) in cases {
        assert_eq!(hints(distribution, endpoint), expected, "{distribution:?} {endpoint:?}");
    }
}
