//! What would become of a set.

use std::collections::BTreeMap;

use bps_api::{BackupPodSet, keys};
use bps_core::manifests::revision;
use bps_observe::testing::{set, set_pod};
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt as _;
use serde_json::json;

use crate::arguments::WhatifArguments;
use crate::cluster::SetObjects;
use crate::document;
use crate::scene::Scene;
use crate::whatif::{Prospect, prospect};

/// A node with room for ten Pods, in a zone that is called as the node.
fn node(number: u32) -> Node {
    let name = format!("node-{number}");
    serde_json::from_value(json!({
        "metadata": {"name": name, "labels": {"topology.kubernetes.io/zone": format!("zone-{number}")}},
        "spec": {},
        "status": {
            "allocatable": {"pods": "10"},
            "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}],
        },
    }))
    .expect("a node")
}

/// One primary on the second node, and a hot backup on the third one.
pub(super) fn scene() -> Scene {
    let set: BackupPodSet = set();
    let template = revision(&set.spec).0;
    let mut pods = vec![set_pod(2, "primary"), set_pod(3, "hot")];
    for pod in &mut pods {
        pod.labels_mut().insert(keys::LABEL_REVISION.to_owned(), template.clone());
    }
    let nodes = Some(vec![node(1), node(2), node(3)]);
    let mut scene = Scene {
        taken: super::texts::now(),
        set,
        objects: SetObjects {
            pods,
            budgets: Some(Vec::new()),
            is_cluster_wide: true,
            ..SetObjects::default()
        },
        nodes,
        requested: Some(BTreeMap::new()),
    };
    scene.renew_nodes();
    scene
}

fn without(nodes: &[&str]) -> WhatifArguments {
    WhatifArguments {
        nodes: nodes.iter().map(|name| (*name).to_owned()).collect(),
        ..WhatifArguments::default()
    }
}

#[test]
fn the_loss_of_a_node_is_told_as_it_goes_on() {
    let told = prospect(scene(), &without(&["node-2"])).expect("it is foreseen").text();
    // Its name is made of a digest.
    let made =
        told.split_once("create ").and_then(|(_, rest)| rest.split(' ').next()).expect("a Pod is made");
    let told = told.replace(made, "web-new");
    let expected = "\
BackupPodSet one/web: node node-2 is lost

At first 0 of 1 primaries serve.

After 0.0 s:
  - operator: convert web-3 from hot to primary (ScaledOut: More Pods of a role are wanted than there are.)
  - operator: convert web-2 from primary to hot (NodeLost: The node of a Pod does not answer.)
  - operator: create web-new as hot (ScaledOut: More Pods of a role are wanted than there are.)
  - operator: write the PodDisruptionBudget (BudgetChanged: The PodDisruptionBudget of the set was missing or differed \
                    from its counts.)
  - web-new finds a place on node-1
  - web-new is ready
  1 of 1 primaries serve (web-3).

After 300.0 s:
  - web-2 is evicted from its lost node
  1 of 1 primaries serve (web-3).

The set outlives this: in the end 1 of 1 primaries serve (web-3). Backups that are left: 1 hot, 0 cold.

What it is made from:
  - how long Kubernetes takes to call a node lost: times begin when it does (40 to 50 s after its last word if nobody \
                    changed --node-monitor-grace-period)
  - how long things will take; the Pods that are there took: a new Pod 0.0 s, a gate no time, because no Pod of the set \
                    tells, a wake-up no time, because no Pod of the set tells
  - which keys of gates it has: those of the cold Pods are taken for known
  - pauses after refused writes and between tickets to a gate
  - what else the scheduler looks at: required spreads and anti-affinity, volumes, ports of the host, and Pods of others \
                    that have to find a place, too
";
    assert_eq!(told, expected);
}

#[test]
fn a_set_that_loses_everything_does_not_outlive_it() {
    let all = WhatifArguments { zones: vec!["zone-2".to_owned()], ..without(&["node-1", "node-3"]) };
    let lost = prospect(scene(), &all).expect("it is foreseen");
    assert!(!lost.survives && lost.serving.is_empty(), "{lost:?}");
    assert_eq!(lost.losses, ["node node-1 is lost", "node node-3 is lost", "zone zone-2 is lost, 1 node"]);
}

#[test]
fn fewer_primaries_and_cordoned_nodes_are_foreseen() {
    let fewer = WhatifArguments { scale_in: Some(1), ..WhatifArguments::default() };
    let left = prospect(scene(), &fewer).expect("it is foreseen");
    assert!(left.survives);
    assert_eq!((left.wanted, left.tiers.primary.len(), left.tiers.hot.len()), (0, 0, 1));

    let cordoned = WhatifArguments { cordoned: vec!["node-2".to_owned()], ..WhatifArguments::default() };
    let left = prospect(scene(), &cordoned).expect("it is foreseen");
    assert_eq!(left.serving, ["web-3"], "the primary leaves a cordoned node");
}

#[test]
fn what_is_not_there_is_refused_with_what_is() {
    let refused =
        |wanted: &WhatifArguments| prospect(scene(), wanted).expect_err("it is refused").to_string();
    assert_eq!(
        refused(&without(&["node-9"])),
        "no node is called \"node-9\"; there are: node-1, node-2, node-3"
    );
    let zone = WhatifArguments { zones: vec!["east".to_owned()], ..WhatifArguments::default() };
    assert_eq!(refused(&zone), "no node is in a zone \"east\"; there are: zone-1, zone-2, zone-3");
    let fewer = WhatifArguments { scale_in: Some(2), ..WhatifArguments::default() };
    assert_eq!(refused(&fewer), "the set wants 1 primaries: write --scale-in with 1 or less");
}

#[test]
fn nodes_that_may_not_be_listed_are_known_by_their_pods() {
    let blind = || {
        let mut blind = Scene { nodes: None, requested: None, ..scene() };
        blind.objects.nodes = None;
        blind
    };
    let told = prospect(blind(), &without(&["node-2"])).expect("it is foreseen");
    assert_eq!(told.serving, ["web-3"]);
    assert!(told.unknown.iter().any(|line| line.starts_with("what the nodes have room for")), "{told:?}");
    assert!(
        told.unknown.iter().any(|line| line.starts_with("the nodes, which you may not list")),
        "{told:?}"
    );
    let zone = WhatifArguments { zones: vec!["zone-2".to_owned()], ..WhatifArguments::default() };
    let refused = prospect(blind(), &zone).expect_err("zones are not known").to_string();
    assert!(refused.contains("name the nodes by --node"), "{refused}");
}

/// Two zones as subsets, and a third subset that no node is in.
fn scene_with_subsets() -> Scene {
    let subset = |name: &str, values: &[&str]| {
        let requirement = json!({"key": "topology.kubernetes.io/zone", "operator": "In", "values": values});
        json!({"name": name, "nodeSelectorTerm": {"matchExpressions": [requirement]}})
    };
    let subsets =
        [subset("east", &["zone-1", "zone-2"]), subset("west", &["zone-3"]), subset("south", &["zone-4"])];
    let mut scene = scene();
    scene.set.spec.topology = Some(serde_json::from_value(json!({"subsets": subsets})).expect("a topology"));
    scene
}

fn without_subsets(names: &[&str]) -> WhatifArguments {
    let subsets = names.iter().map(|name| (*name).to_owned()).collect();
    WhatifArguments { subsets, ..WhatifArguments::default() }
}

#[test]
fn the_loss_of_a_subset_is_that_of_all_its_nodes() {
    let east = prospect(scene_with_subsets(), &without_subsets(&["east"])).expect("it is foreseen");
    assert_eq!(east.losses, ["subset east is lost, 2 nodes"]);
    let same = prospect(scene_with_subsets(), &without(&["node-1", "node-2"])).expect("it is foreseen");
    assert_eq!(east, Prospect { losses: east.losses.clone(), ..same });
    assert_eq!((east.survives, east.serving.as_slice()), (true, &["web-3".to_owned()][..]));

    let both = prospect(scene_with_subsets(), &without_subsets(&["east", "west"])).expect("it is foreseen");
    assert_eq!(both.losses, ["subset east is lost, 2 nodes", "subset west is lost, 1 node"]);
    assert!(!both.survives);
}

#[test]
fn a_subset_that_cannot_be_lost_is_refused_with_what_can() {
    let refused = |scene: Scene, name: &str| {
        prospect(scene, &without_subsets(&[name])).expect_err("it is refused").to_string()
    };
    assert_eq!(
        refused(scene_with_subsets(), "north"),
        "web has no subset \"north\"; there are: east, west, south"
    );
    assert_eq!(
        refused(scene(), "north"),
        "web has no subsets in spec.topology: name nodes by --node, or a zone by --zone"
    );
    assert!(refused(scene_with_subsets(), "south").starts_with("no node is in the subset \"south\": "));
    let blind = Scene { nodes: None, requested: None, ..scene_with_subsets() };
    let told = refused(blind, "east");
    assert!(told.starts_with("you may not list nodes, so it is not known which are in a zone"), "{told}");
}

#[test]
fn a_scene_that_was_saved_is_the_same_again() {
    let saved = document::json(&scene()).expect("it is written");
    let read: Scene = serde_json::from_str(&saved).expect("it is read");
    let wanted = without(&["node-3"]);
    assert_eq!(prospect(read, &wanted).expect("foreseen"), prospect(scene(), &wanted).expect("foreseen"));
}
