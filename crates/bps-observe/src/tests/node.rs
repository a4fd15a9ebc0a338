//! Raw nodes to what they can carry, and how many lost ones are a storm.

use std::collections::BTreeMap;

use bps_api::ZONE_LABEL;
use bps_core::model::{NodeHealth, NodeName, NodeView, Storm};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::{at, condition, ready_pod, set, template};
use crate::node::node_view;
use crate::slim::SlimNode;
use crate::storm::{Nodes, StormThreshold, assess};
use crate::{Cache, Change, SetKey, Watched, observe};

fn health(spec: Value, conditions: &[Value]) -> NodeHealth {
    let node = json!({"metadata": {"name": "n1"}, "spec": spec, "status": {"conditions": conditions}});
    node_view(&serde_json::from_value(node).expect("a node"), ZONE_LABEL).health
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
    assert_eq!(health(out_of_service.clone(), &[ready]), NodeHealth::Cordoned, "it answers");
    assert_eq!(health(out_of_service, &[not_ready]), NodeHealth::Gone);
}

#[test]
fn a_node_has_the_zone_of_its_label_and_the_failure_domain_of_the_one_that_is_asked_for() {
    let labels = json!({"topology.kubernetes.io/zone": "east", "zone": "west", "rack": "r7"});
    let node = json!({"metadata": {"name": "n1", "labels": labels}});
    let node = serde_json::from_value(node).unwrap();
    let in_domain = |domain: Option<&str>| NodeView {
        name: NodeName("n1".into()),
        zone: Some("east".into()),
        domain: domain.map(str::to_owned),
        health: NodeHealth::NotReady,
    };
    assert_eq!(node_view(&node, ZONE_LABEL), in_domain(Some("east")));
    assert_eq!(node_view(&node, "rack"), in_domain(Some("r7")));
    assert_eq!(node_view(&node, "row"), in_domain(None), "not the zone in its place");
}

#[test]
fn a_node_that_somebody_is_about_to_take_away_is_as_good_as_cordoned() {
    let ready = condition("Ready", "True", 1);
    for taint in ["karpenter.sh/disrupted", "ToBeDeletedByClusterAutoscaler"] {
        let spec = json!({"taints": [{"key": taint, "effect": "NoSchedule"}]});
        assert_eq!(health(spec, std::slice::from_ref(&ready)), NodeHealth::Cordoned, "{taint}");
    }
    let announced = |status| health(json!({}), &[ready.clone(), condition("MaintenancePlanned", status, 1)]);
    assert_eq!(announced("True"), NodeHealth::Cordoned);
    assert_eq!(announced("False"), NodeHealth::Healthy);
}

/// Nodes of which the first ones are as bad as `worst` since the beginning; those from `empty` on carry no Pod.
struct Fleet {
    nodes: usize,
    lost: usize,
    worst: NodeHealth,
    empty: usize,
}

impl Fleet {
    /// The storm after so many seconds.
    fn storm(&self, threshold: StormThreshold, seconds: i64) -> Option<Storm> {
        let name = |index: usize| NodeName(format!("n{index}"));
        let health = |index: usize| if index < self.lost { self.worst } else { NodeHealth::Healthy };
        let view =
            |index: usize| NodeView { name: name(index), zone: None, domain: None, health: health(index) };
        let views: BTreeMap<NodeName, NodeView> =
            (0..self.nodes).map(|index| (name(index), view(index))).collect();
        let silent_since: BTreeMap<NodeName, Timestamp> =
            (0..self.lost).map(|index| (name(index), at(i64::try_from(index).unwrap()))).collect();
        let carries = |node: &NodeName| usize::from((0..self.empty).any(|index| name(index) == *node));
        let nodes = Nodes { views: &views, silent_since: &silent_since, missing_since: &BTreeMap::new() };
        // One Pod is unbound.
        assess(&nodes, carries, self.empty + 1, threshold, at(seconds))
    }
}

/// How many of how many Pods are lost, if that is a storm.
fn lost(nodes: usize, lost: usize, worst: NodeHealth) -> Option<[usize; 2]> {
    let fleet = Fleet { nodes, lost, worst, empty: nodes };
    fleet.storm(StormThreshold::default(), 100).map(|storm| [storm.lost, storm.total])
}

#[test]
fn more_than_55_percent_of_the_nodes_and_at_least_two_lost_are_a_storm() {
    let cases = [
        (0, 0, None),
        (1, 1, None),
        (2, 1, None),
        (2, 2, Some([2, 3])),
        (3, 2, Some([2, 4])),
        (4, 2, None),
        (20, 11, None),
        (20, 12, Some([12, 21])),
        (100, 55, None),
        (100, 56, Some([56, 101])),
    ];
    for (nodes, count, expected) in cases {
        assert_eq!(lost(nodes, count, NodeHealth::NotReady), expected, "{count} of {nodes}");
    }
    assert_eq!(lost(3, 3, NodeHealth::Gone), None, "nodes that are gone for sure are no doubt");
    assert_eq!(lost(3, 3, NodeHealth::Cordoned), None);
}

#[test]
fn silent_nodes_without_pods_of_sets_are_no_loss() {
    let fleet = |empty| Fleet { nodes: 7, lost: 4, worst: NodeHealth::NotReady, empty };
    assert_eq!(fleet(0).storm(StormThreshold::default(), 100), None);
    // 2 of the 5 that count.
    assert_eq!(fleet(2).storm(StormThreshold::default(), 100), None);
    assert_eq!(fleet(4).storm(StormThreshold::default(), 100).map(|storm| storm.lost), Some(4));
}

#[test]
fn a_storm_ends_when_the_silence_of_enough_nodes_has_lasted_for_ten_minutes() {
    let fleet = Fleet { nodes: 4, lost: 3, worst: NodeHealth::NotReady, empty: 4 };
    let expected = Storm {
        lost: 3,
        total: 5,
        nodes: ["n0", "n1", "n2"].map(|name| NodeName(name.into())).into(),
        // The first two that became silent are believed: one of two nodes is left.
        until: at(601),
    };
    assert_eq!(fleet.storm(StormThreshold::default(), 599), Some(expected.clone()));
    let later = fleet.storm(StormThreshold::default(), 600).map(|storm| (storm.lost, storm.until));
    assert_eq!(later, Some((2, at(601))));
    assert_eq!(fleet.storm(StormThreshold::default(), 601), None);
}

#[test]
fn who_runs_the_operator_says_from_which_share_on_losses_are_doubted() {
    let fleet = Fleet { nodes: 4, lost: 3, worst: NodeHealth::NotReady, empty: 4 };
    let has_storm = |percent| fleet.storm(StormThreshold(percent), 100).is_some();
    assert_eq!([0, 55, 74, 75, 100].map(has_storm), [true, true, true, false, false]);
}

#[test]
fn a_set_sees_the_failure_domains_of_its_own_label() {
    let labels = json!({"topology.kubernetes.io/zone": "east", "rack": "r7"});
    let node = json!({"metadata": {"name": "n1", "labels": labels}, "spec": {}, "status": {}});
    let domain = |topology: &Value| {
        let mut cache = Cache::default();
        set(json!({"template": template(), "topology": topology})).seen(&mut cache, at(0));
        serde_json::from_value::<SlimNode>(node.clone()).unwrap().seen(&mut cache, at(0));
        ready_pod(1).seen(&mut cache, at(1));
        let key = SetKey { namespace: "shop".into(), name: "web".into() };
        let observed = observe(&cache, &key, at(2)).expect("the set is there");
        let node = observed.snapshot.pods[0].node.clone().expect("the Pod is bound");
        assert_eq!(node.zone.as_deref(), Some("east"), "clients are led by zones in any case");
        node.domain
    };
    assert_eq!(domain(&Value::Null).as_deref(), Some("east"));
    assert_eq!(domain(&json!({})).as_deref(), Some("east"));
    assert_eq!(domain(&json!({"key": "rack"})).as_deref(), Some("r7"));
    assert_eq!(domain(&json!({"key": "row"})), None);
}

#[test]
fn a_node_in_another_failure_domain_is_news_for_the_sets_with_pods_on_it_that_go_by_its_label() {
    let mut cache = Cache::default();
    set(json!({"template": template(), "topology": {"key": "rack"}})).seen(&mut cache, at(0));
    let labelled = |cache: &mut Cache, name: &str, labels: Value| {
        let node = json!({"metadata": {"name": name, "labels": labels}, "spec": {}, "status": {}});
        serde_json::from_value::<SlimNode>(node).unwrap().seen(cache, at(0))
    };
    let show = |cache: &mut Cache, name: &str, rack: &str| labelled(cache, name, json!({"rack": rack}));
    show(&mut cache, "n1", "r7");
    show(&mut cache, "n2", "r7");
    ready_pod(1).seen(&mut cache, at(1));
    let key = SetKey { namespace: "shop".into(), name: "web".into() };
    assert_eq!(show(&mut cache, "n1", "r8"), [(key, Change::Ordinary)]);
    assert_eq!(show(&mut cache, "n1", "r8"), []);
    assert_eq!(show(&mut cache, "n2", "r8"), [], "none of its Pods is there");
    let other = json!({"rack": "r8", "cpu": "fast"});
    assert_eq!(labelled(&mut cache, "n1", other), [], "the set does not go by that label");
}
