//! Claims about nodes that are lost, return or are cordoned.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, PostParams};
use lab::ready;
use serde_json::{Value, json};

use crate::load::Witness;
use crate::stage::{Stage, WEB, complete, exposed_web, node, one, roles, uids, web};
use crate::wait;

pub(crate) async fn a_cordoned_node_gives_the_primary_role_away(stage: Stage) {
    stage.apply(&web([1, 1, 0])).await;
    let before = stage.settled(WEB, [1, 1, 0]).await;
    let cordoned = node(one(&before, "primary"));
    assert_ne!(node(one(&before, "hot")), cordoned, "the scheduler was asked to spread the set");
    stage.kubectl(&["cordon", &cordoned]);
    let swapped = uids(&before, "hot");
    let after = stage
        .pods_where(WEB, |pods| {
            complete(pods, [1, 1, 0])?;
            if uids(pods, "primary") == swapped { Ok(()) } else { Err("the role did not move".into()) }
        })
        .await;
    stage.kubectl(&["uncordon", &cordoned]);
    assert_eq!(uids(&after, "hot"), uids(&before, "primary"));
}

pub(crate) async fn a_node_that_an_autoscaler_is_about_to_remove_gives_the_primary_role_away(stage: Stage) {
    stage.apply(&web([1, 1, 1])).await;
    let before = stage.settled(WEB, [1, 1, 1]).await;
    let doomed = node(one(&before, "primary"));
    stage.kubectl(&["taint", "node", &doomed, "karpenter.sh/disrupted=:NoSchedule"]);
    let swapped = uids(&before, "hot");
    stage
        .pods_where(WEB, |pods| {
            if uids(pods, "primary") == swapped { Ok(()) } else { Err("the role did not move".into()) }
        })
        .await;
    stage.kubectl(&["taint", "node", &doomed, "karpenter.sh/disrupted-"]);
    stage.settled(WEB, [1, 1, 1]).await;
}

pub(crate) async fn objects_of_nodes_that_never_came_keep_no_set_from_being_repaired(stage: Stage) {
    let nodes: Api<Node> = Api::all(stage.client());
    let names: Vec<String> = (0..4).map(|number| format!("sleeper-{number}")).collect();
    stage.apply(&web([1, 0, 0])).await;
    let before = stage.settled(WEB, [1, 0, 0]).await;
    for name in &names {
        let node: Node = serde_json::from_value(json!({"metadata": {"name": name}})).unwrap();
        nodes.create(&PostParams::default(), &node).await.unwrap();
    }
    stage.delete(&before[0]).await;
    let after = stage.settled(WEB, [1, 0, 0]).await;
    for name in &names {
        nodes.delete(name, &DeleteParams::default()).await.unwrap();
    }
    assert_ne!(uids(&after, "primary"), uids(&before, "primary"));
}

pub(crate) async fn a_lost_node_is_survived_and_leaves_no_surplus_when_it_returns(stage: Stage) {
    stage.apply(&exposed_web([2, 2, 1])).await;
    let before = stage.settled(WEB, [2, 2, 1]).await;
    stage.exposes(&uids(&before, "primary")).await;
    let lost = node(one(&before, "primary"));
    stage.bench.cluster.power_off(&lost).unwrap();
    let on_lost =
        |pod: &&Pod| pod.spec.as_ref().and_then(|spec| spec.node_name.clone()).as_deref() == Some(&lost);
    let survivors = stage
        .pods_where(WEB, |pods| {
            let living: Vec<Pod> = pods.iter().filter(|pod| !on_lost(pod)).cloned().collect();
            complete(&living, [2, 2, 1])
        })
        .await;
    let living: Vec<Pod> = survivors.iter().filter(|pod| !on_lost(pod)).cloned().collect();
    stage.exposes(&uids(&living, "primary")).await;
    let hot_before: BTreeSet<_> = uids(&before, "hot").into_iter().chain(uids(&before, "primary")).collect();
    assert!(uids(&living, "primary").is_subset(&hot_before), "a hot backup was there to be promoted");
    let witness = Witness::start(&stage);
    witness.begun().await;
    stage.bench.cluster.power_on(&lost).unwrap();
    ready::nodes(&stage.client(), std::slice::from_ref(&lost), wait::LIMIT).await.unwrap();
    let nodes: Api<Node> = Api::all(stage.client());
    wait::until(nodes, "", |nodes| {
        let tainted =
            nodes.iter().filter(|node| node.spec.as_ref().is_some_and(|spec| spec.taints.is_some()));
        let names: Vec<String> = tainted.map(ResourceExt::name_any).collect();
        if names.is_empty() { Ok(()) } else { Err(format!("tainted: {names:?}")) }
    })
    .await;
    let after = stage.settled(WEB, [2, 2, 1]).await;
    stage.exposes(&uids(&after, "primary")).await;
    assert_eq!(witness.fewest(), 2, "fewer Pods were exposed when the node returned");
}

/// Nobody finds a node for these Pods but this test, which does so for the cold one only.
pub(crate) async fn a_primary_that_never_runs_gives_its_place_to_a_cold_backup(stage: Stage) {
    let mut set = exposed_web([1, 0, 1]);
    set["spec"]["schedulerName"] = json!("nobody");
    set["spec"]["unreadyDeadlineSeconds"] = json!(2);
    stage.apply(&set).await;
    let made = stage
        .pods_where(WEB, |pods| match pods.len() {
            2 => Ok(()),
            other => Err(format!("{other} pods")),
        })
        .await;
    let [stuck, cold] = ["primary", "cold"].map(|role| one(&made, role));
    let target = json!({"apiVersion": "v1", "kind": "Node", "name": "n1"});
    let binding = json!({
        "apiVersion": "v1", "kind": "Binding", "metadata": {"name": cold.name_any()}, "target": target,
    });
    let pods: Api<Pod> = stage.api();
    let _: Value =
        pods.create_subresource("binding", &cold.name_any(), &PostParams::default(), &binding).await.unwrap();
    stage.exposes(&uids(&made, "cold")).await;
    let after = stage
        .pods_where(WEB, |pods| match uids(pods, "cold").len() {
            1 => Ok(()),
            other => Err(format!("{other} cold pods")),
        })
        .await;
    assert_eq!(uids(&after, "primary"), uids(&made, "cold"));
    assert!(
        !roles(&after).contains_key(&stuck.uid().unwrap()),
        "it could have run one day, beside the other one"
    );
}
