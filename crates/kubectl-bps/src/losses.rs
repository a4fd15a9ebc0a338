//! Does to a scene what is asked about: takes nodes, Pods and primaries away, and says so in words.
//!
//! Asks no cluster. What is not there is refused with the names of what is.

use std::collections::BTreeSet;

use bps_api::{BackupPodSet, TopologySubset, ZONE_LABEL, keys};
use bps_observe::slim::SlimPod;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, NodeCondition};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;

use super::Error;
use super::arguments::WhatifArguments;
use super::plan::assumed_nodes;
use super::room::is_in_subset;
use super::scene::{Scene, full_node};

/// Changes the scene as asked; returns what was changed, in words.
///
/// # Errors
/// `Usage` if what is to be lost is not there, `Refused` if that takes nodes which may not be listed.
pub(super) fn lose(scene: &mut Scene, wanted: &WhatifArguments) -> Result<Vec<String>, Error> {
    let mut losses = Vec::new();
    let WhatifArguments {
        pods,
        nodes,
        zones,
        subsets,
        cordoned,
        scale_in,
        set: _,
        save: _,
        from: _,
        output: _,
    } = wanted;
    for name in pods {
        delete(scene, name)?;
        losses.push(format!("Pod {name} is deleted"));
    }

    let subsets = subsets.iter().map(|name| subset(&scene.set, name)).collect::<Result<Vec<_>, _>>()?;
    if scene.nodes.is_none() {
        if !zones.is_empty() || !subsets.is_empty() {
            return Err(unlisted());
        }
        scene.nodes = Some(assumed_nodes(&scene.objects.pods).iter().map(full_node).collect());
    }
    let taken = scene.taken;
    let all = scene.nodes.as_deref_mut().unwrap_or_default();
    for name in nodes {
        silence(named(all, name)?, taken);
        losses.push(format!("node {name} is lost"));
    }
    for zone in zones {
        let count = silence_those(all, taken, |node| node.labels().get(ZONE_LABEL) == Some(zone));
        if count == 0 {
            return Err(unknown_zone(all, zone));
        }
        losses.push(format!("zone {zone} is lost, {}", nodes_words(count)));
    }
    for subset in subsets {
        let name = &subset.name;
        let count = silence_those(all, taken, |node| is_in_subset(&subset, node));
        if count == 0 {
            return Err(Error::Usage(format!(
                "no node is in the subset {name:?}: compare its nodeSelectorTerm with `kubectl get nodes \
                 --show-labels`"
            )));
        }
        losses.push(format!("subset {name} is lost, {}", nodes_words(count)));
    }
    for name in cordoned {
        named(all, name)?.spec.get_or_insert_default().unschedulable = Some(true);
        losses.push(format!("node {name} is cordoned"));
    }

    if let Some(pods) = *scale_in {
        shrink(&mut scene.set, pods)?;
        losses.push(format!("{pods} primaries fewer are wanted"));
    }
    scene.renew_nodes();
    Ok(losses)
}

fn nodes_words(count: usize) -> String {
    format!("{count} {}", if count == 1 { "node" } else { "nodes" })
}

/// The subset of this name in the specification of a set.
fn subset(set: &BackupPodSet, name: &str) -> Result<TopologySubset, Error> {
    let subsets = set.spec.topology.iter().flat_map(|topology| &topology.subsets);
    let known: Vec<&str> = subsets.clone().map(|subset| subset.name.as_str()).collect();
    let found = subsets.clone().find(|subset| subset.name == name);
    found.cloned().ok_or_else(|| {
        let set = set.name_any();
        Error::Usage(if known.is_empty() {
            format!("{set} has no subsets in spec.topology: name nodes by --node, or a zone by --zone")
        } else {
            format!("{set} has no subset {name:?}; there are: {}", known.join(", "))
        })
    })
}

fn unlisted() -> Error {
    Error::Refused(
        "you may not list nodes, so it is not known which are in a zone or a subset: name the nodes by --node, or ask \
         for `list` of nodes"
            .to_owned(),
    )
}

fn unknown_zone(nodes: &[Node], zone: &str) -> Error {
    let known: BTreeSet<&str> =
        nodes.iter().filter_map(|node| node.labels().get(ZONE_LABEL)).map(String::as_str).collect();
    let known = if known.is_empty() {
        "no node has a zone".to_owned()
    } else {
        format!("there are: {}", known.into_iter().collect::<Vec<_>>().join(", "))
    };
    Error::Usage(format!("no node is in a zone {zone:?}; {known}"))
}

/// The node of this name.
fn named<'n>(nodes: &'n mut [Node], name: &str) -> Result<&'n mut Node, Error> {
    let known: Vec<String> = nodes.iter().map(ResourceExt::name_any).collect();
    let found = nodes.iter_mut().find(|node| node.name_any() == name);
    found.ok_or_else(|| Error::Usage(format!("no node is called {name:?}; there are: {}", known.join(", "))))
}

/// Has a Pod of the set end.
fn delete(scene: &mut Scene, name: &str) -> Result<(), Error> {
    let (namespace, set) = (scene.set.namespace(), scene.set.name_any());
    let is_own =
        |pod: &SlimPod| pod.namespace() == namespace && pod.labels().get(keys::LABEL_SET) == Some(&set);
    let pods = &mut scene.objects.pods;
    let known: Vec<String> = pods.iter().filter(|pod| is_own(pod)).map(ResourceExt::name_any).collect();
    let found = pods.iter_mut().find(|pod| is_own(pod) && pod.name_any() == name);
    let pod = found.ok_or_else(|| {
        Error::Usage(format!("no Pod of {set} is called {name:?}; there are: {}", known.join(", ")))
    })?;
    pod.metadata.deletion_timestamp = Some(Time(scene.taken));
    Ok(())
}

/// Has nodes say nothing any more; returns how many.
fn silence_those(nodes: &mut [Node], since: Timestamp, is_lost: impl Fn(&Node) -> bool) -> usize {
    let mut count = 0;
    for node in nodes.iter_mut().filter(|node| is_lost(node)) {
        silence(node, since);
        count += 1;
    }
    count
}

/// Has a node say nothing any more, as Kubernetes tells it. One that says nothing already has done so for longer.
fn silence(node: &mut Node, since: Timestamp) {
    let conditions = node.status.get_or_insert_default().conditions.get_or_insert_default();
    let is_ready = |condition: &NodeCondition| condition.type_ == "Ready" && condition.status == "True";
    if !conditions.iter().any(is_ready) && conditions.iter().any(|condition| condition.type_ == "Ready") {
        return;
    }
    conditions.retain(|condition| condition.type_ != "Ready");
    conditions.push(NodeCondition {
        type_: "Ready".to_owned(),
        status: "Unknown".to_owned(),
        last_transition_time: Some(Time(since)),
        ..NodeCondition::default()
    });
}

/// Has a set want so many primaries fewer.
fn shrink(set: &mut BackupPodSet, pods: u32) -> Result<(), Error> {
    if set.spec.active_standby.is_some() {
        return Err(Error::Usage(
            "which pairs of a set with activeStandby end is decided by its group: --scale-in is not for such sets"
                .to_owned(),
        ));
    }
    let replicas = set.spec.replicas;
    let left = i32::try_from(pods).ok().and_then(|pods| replicas.checked_sub(pods)).filter(|left| *left >= 0);
    let left = left.ok_or_else(|| {
        Error::Usage(format!("the set wants {replicas} primaries: write --scale-in with {replicas} or less"))
    })?;
    set.spec.replicas = left;
    Ok(())
}
