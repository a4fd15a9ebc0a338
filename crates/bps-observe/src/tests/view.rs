//! A raw Pod to what decisions see of it.

use std::collections::BTreeMap;

use bps_api::{ZONE_LABEL, keys};
use bps_core::model::{
    Gate, Lifecycle, NodeHealth, NodeName, NodeView, Ownership, Part, PodName, PodRef, PodView, Revision,
    Role, RoleLabels, Signs, Subset, SubsetName, Uid,
};
use serde_json::{Value, json};

use super::{SET_UID, at, merge, pod, ready_pod, text};
use crate::KnownKeys;
use crate::cache::{Hosts, Noted};
use crate::node::node_view;
use crate::pod::{PodContext, address, other_address, pod_view};
use crate::slim::SlimPod;

fn view(pod: &SlimPod) -> Option<PodView> {
    let labels = [("topology.kubernetes.io/zone", "east"), ("rack", "r7")]
        .map(|(key, value)| (key.to_owned(), value.to_owned()));
    let node = json!({"metadata": {"name": "n1", "labels": BTreeMap::from(labels.clone())},
        "spec": {"unschedulable": true},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]}});
    let node = node_view(&serde_json::from_value(node).unwrap(), ZONE_LABEL);
    let labels = BTreeMap::from([(node.name.clone(), BTreeMap::from(labels))]);
    let nodes = BTreeMap::from([(node.name.clone(), node)]);
    let known = KnownKeys(["k2", "k3"].map(str::to_owned).into());
    let mut noted = Noted::default();
    noted.tried_ticket(Uid("u0".into()), at(99), at(97));
    let missing_since = BTreeMap::new();
    let hosts = Hosts {
        nodes: &nodes,
        labels: &labels,
        domain_key: "rack",
        missing_since: &missing_since,
        now: at(100),
    };
    pod_view(pod, &PodContext { set_uid: SET_UID, subsets: &subsets(), hosts, keys: &known, noted: &noted })
}

/// Two subsets of the wish.
fn subsets() -> [Subset; 2] {
    ["east", "west"].map(|name| Subset {
        name: SubsetName(name.to_owned()),
        replicas: 1,
        hot_backups: 0,
        cold_backups: 0,
        partition: 0,
    })
}

/// The ready Pod, changed like this.
fn changed(changes: &Value) -> Option<PodView> {
    let mut body = serde_json::to_value(ready_pod(5)).unwrap();
    merge(&mut body, changes);
    view(&serde_json::from_value(body).unwrap())
}

#[test]
fn everything_that_decisions_need_is_read() {
    let raw = json!({"metadata": {
        "labels": {
            (keys::LABEL_ROLE): "hot", (keys::LABEL_TYPE): "hotbackup", (keys::LABEL_REVISION): "0123456789",
            (keys::LABEL_HA_STATE): "active", (keys::LABEL_PEER): "web-1", (keys::LABEL_SUBSET): "west",
        },
        "annotations": {
            (keys::ANNOTATION_SLOT): "7", (keys::ANNOTATION_ROLE_SINCE): "2026-01-01T00:00:08.125Z",
        },
    }});
    let expected = PodView {
        pod: PodRef { name: PodName("web-0".into()), uid: Uid("u0".into()), resource_version: "10".into() },
        ownership: Ownership::Ours,
        role: Role::Hot,
        labels: RoleLabels::Right,
        role_since: at(8) + jiff::SignedDuration::from_millis(125),
        part: Part::Active { peer: Some(PodName("web-1".into())) },
        slot: 7,
        revision: Revision("0123456789".into()),
        subset: Some(1),
        created: at(0),
        lifecycle: Lifecycle::Ready { since: at(5) },
        gate: Gate::None,
        gate_trouble: None,
        has_known_key: true,
        stopped: None,
        first_ticket: Some(at(97)),
        next_ticket: Some(at(99)),
        is_running: true,
        signs: Signs { progressed: Some(at(3)), ..Signs::default() },
        is_serving: true,
        node: Some(NodeView {
            name: NodeName("n1".into()),
            zone: Some("east".into()),
            domain: Some("r7".into()),
            health: NodeHealth::Cordoned,
        }),
        address: Some([198, 18, 0, 1].into()),
        other_address: None,
    };
    assert_eq!(changed(&raw), Some(expected));
}

#[test]
fn a_pod_of_somebody_else_or_without_role_is_not_seen() {
    let owner = |uid: &str, is_controller: bool| json!([{"apiVersion": "v1", "kind": "X", "name": "x", "uid": uid, "controller": is_controller}]);
    let ownership =
        |owners: Value| changed(&json!({"metadata": {"ownerReferences": owners}})).map(|view| view.ownership);
    assert_eq!(ownership(owner(SET_UID, true)), Some(Ownership::Ours));
    assert_eq!(ownership(owner("other", true)), None);
    assert_eq!(ownership(owner("other", false)), Some(Ownership::Orphan));
    assert_eq!(ownership(Value::Null), Some(Ownership::Orphan));
    for role in [Value::Null, json!(""), json!("Primary"), json!("hotbackup")] {
        assert_eq!(changed(&json!({"metadata": {"labels": {(keys::LABEL_ROLE): role}}})), None, "{role}");
    }
}

#[test]
fn annotations_that_cannot_be_read_do_no_harm() {
    let annotations = json!({(keys::ANNOTATION_SLOT): "-1", (keys::ANNOTATION_ROLE_SINCE): "yesterday"});
    let view = changed(&json!({
        "metadata": {"annotations": annotations, "creationTimestamp": text(4)}, "status": {"podIP": "x"},
    }));
    let view = view.expect("the Pod has owner and role");
    assert_eq!((view.slot, view.role_since, view.address), (u32::MAX, at(4), None));
}

#[test]
fn a_pod_on_a_node_that_is_not_known_is_on_a_gone_node() {
    let node = |name: Value| changed(&json!({"spec": {"nodeName": name}})).unwrap().node;
    let gone = NodeView { name: NodeName("n9".into()), zone: None, domain: None, health: NodeHealth::Gone };
    assert_eq!([node(json!("n9")), node(Value::Null)], [Some(gone), None]);
}

#[test]
fn a_gate_can_be_opened_while_one_of_its_keys_is_known() {
    let is_known = |ids: Value| {
        let annotations = json!({"annotations": {(keys::ANNOTATION_WAKE_KEYS): ids}});
        let body = json!({"metadata": annotations, "spec": {"initContainers": [{"name": "bps-gate"}]}});
        view(&pod(&body)).unwrap().has_known_key
    };
    let cases = [
        (json!("k2"), true),
        (json!("k1,k3"), true),
        (json!("k1"), false),
        (json!("k22"), false),
        (json!(""), false),
        // Somebody removed the annotation: that alone is no reason to give the Pod up.
        (Value::Null, true),
    ];
    for (ids, expected) in cases {
        assert_eq!(is_known(ids.clone()), expected, "{ids}");
    }
}

#[test]
fn a_gate_of_a_former_set_of_the_name_cannot_be_opened() {
    let is_known = |uid: Value| {
        let annotations = json!({(keys::ANNOTATION_WAKE_KEYS): "k2", (keys::ANNOTATION_GATE_OF): uid});
        let spec = json!({"initContainers": [{"name": "bps-gate"}]});
        view(&pod(&json!({"metadata": {"annotations": annotations}, "spec": spec}))).unwrap().has_known_key
    };
    assert_eq!([json!(SET_UID), Value::Null, json!("former")].map(is_known), [true, true, false]);
}

#[test]
fn a_pod_has_at_most_one_address_of_each_family() {
    let addresses = |status: Value| {
        let pod = json!({"metadata": {"creationTimestamp": text(4)}, "status": status});
        let pod = serde_json::from_value(pod).unwrap();
        [address(&pod), other_address(&pod)].map(|found| found.map(|found| found.to_string()))
    };
    let (v4, v6) = (Some("198.18.0.1".to_owned()), Some("2001:2::1".to_owned()));
    let (one, other) = (json!({"ip": "198.18.0.1"}), json!({"ip": "2001:2::1"}));
    assert_eq!(addresses(json!({})), [None, None]);
    assert_eq!(addresses(json!({"podIP": "198.18.0.1"})), [v4.clone(), None]);
    assert_eq!(addresses(json!({"podIP": "198.18.0.1", "podIPs": [one]})), [v4.clone(), None]);
    assert_eq!(addresses(json!({"podIP": "198.18.0.1", "podIPs": [one, other]})), [v4.clone(), v6.clone()]);
    assert_eq!(addresses(json!({"podIP": "2001:2::1", "podIPs": [other, one]})), [v6, v4]);
}

#[test]
fn a_pod_of_a_subset_that_is_no_more_is_of_none() {
    let of = |subset: &str| {
        let labels = json!({"metadata": {"labels": {(keys::LABEL_SUBSET): subset}}});
        changed(&labels).expect("a Pod of the set").subset
    };
    assert_eq!(["east", "west", "north"].map(of), [Some(0), Some(1), None]);
}
