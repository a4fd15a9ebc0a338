//! Raw nodes to what they can carry, and how many lost ones are a storm.

use std::collections::BTreeMap;
use std::sync::Arc;

use bps_core::model::{NodeHealth, NodeName, NodeView, Storm};
use serde_json::{Value, json};

use super::{condition, pod};
use crate::node::node_view;
use crate::storm::assess;

fn health(spec: Value, conditions: &[Value]) -> NodeHealth {
    let node = json!({"metadata": {"name": "n1"}, "spec": spec, "status": {"conditions": conditions}});
    node_view(&serde_json::from_value(node).expect("a node")).health
}

#[test]
fn a_node_is_as_healthy_as_the_worst_that_is_known_of_it() {
    let ready = condition("Ready", "True", 1);
    let not_ready = condition("Ready", "False", 1);
    let unknown = condition("Ready", "Unknown", 1);
    let pressure = condition("MemoryPressure", "True", 1);
    let cordoned = json!({"unschedulable": true});
    let out_of_service =
        json!({"taints": [{"key": "node.kubernetes.io/out-of-service", "effect": "NoExecute"}]});
    let other_taint = json!({"taints": [{"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"}]});
    let none = json!({});
    assert_eq!(health(none.clone(), &[ready.clone(), pressure.clone()]), NodeHealth::Healthy);
    assert_eq!(health(other_taint, std::slice::from_ref(&ready)), NodeHealth::Healthy);
    assert_eq!(health(cordoned.clone(), std::slice::from_ref(&ready)), NodeHealth::Cordoned);
    assert_eq!(health(none.clone(), std::slice::from_ref(&not_ready)), NodeHealth::NotReady);
    assert_eq!(health(none.clone(), &[unknown]), NodeHealth::NotReady);
    assert_eq!(health(none, &[pressure]), NodeHealth::NotReady);
    assert_eq!(health(cordoned, std::slice::from_ref(&not_ready)), NodeHealth::NotReady);
    assert_eq!(health(out_of_service.clone(), &[ready]), NodeHealth::Gone);
    assert_eq!(health(out_of_service, &[not_ready]), NodeHealth::Gone);
}

#[test]
fn a_node_has_the_zone_of_its_label() {
    let labels = json!({"topology.kubernetes.io/zone": "east", "zone": "west"});
    let node = json!({"metadata": {"name": "n1", "labels": labels}});
    assert_eq!(
        node_view(&serde_json::from_value(node).unwrap()),
        NodeView { name: NodeName("n1".into()), zone: Some("east".into()), health: NodeHealth::NotReady }
    );
}

/// The storm of so many nodes, the first ones lost, with one Pod on each and one that is unbound.
fn storm(nodes: usize, lost: usize, worst: NodeHealth) -> Option<Storm> {
    let name = |index: usize| NodeName(format!("n{index}"));
    let health = |index: usize| if index < lost { worst } else { NodeHealth::Healthy };
    let view = |index: usize| NodeView { name: name(index), zone: None, health: health(index) };
    let views: BTreeMap<NodeName, NodeView> = (0..nodes).map(|index| (name(index), view(index))).collect();
    let on_node = |index: usize| Arc::new(pod(&json!({"spec": {"nodeName": name(index).0}})));
    let unbound = Arc::new(pod(&json!({"spec": {"nodeName": null}})));
    let pods: Vec<_> = (0..nodes).map(on_node).chain([unbound]).collect();
    assess(&views, pods.iter())
}

#[test]
fn more_than_55_percent_of_the_nodes_and_at_least_two_lost_are_a_storm() {
    let lost = NodeHealth::NotReady;
    let cases = [
        (0, 0, None),
        (1, 1, None),
        (2, 1, None),
        (2, 2, Some(Storm { lost: 2, total: 3 })),
        (3, 2, Some(Storm { lost: 2, total: 4 })),
        (4, 2, None),
        (20, 11, None),
        (20, 12, Some(Storm { lost: 12, total: 21 })),
        (100, 55, None),
        (100, 56, Some(Storm { lost: 56, total: 101 })),
    ];
    for (nodes, count, expected) in cases {
        assert_eq!(storm(nodes, count, lost), expected, "{count} of {nodes}");
    }
    assert_eq!(storm(3, 3, NodeHealth::Gone), None, "nodes that are gone for sure are no doubt");
    assert_eq!(storm(3, 3, NodeHealth::Cordoned), None);
}
