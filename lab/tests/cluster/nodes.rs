//! Claims about nodes that are lost, return or are cordoned.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use bps_api::keys;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, EvictParams, ListParams, PostParams};
use lab::ready;
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::load::Witness;
use crate::stage::{Stage, WEB, complete, exposed_web, node, one, roles, uids, web};
use crate::wait::{self, role};

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

/// How long a kubelet is away that is restarted; a node that is silent for so short is not lost.
const KUBELET_AWAY: Duration = Duration::from_secs(10);
/// How long it is looked at afterwards: longer than a kubelet takes to see its containers and to probe them.
const KUBELET_BACK: Duration = Duration::from_secs(10);

pub(crate) async fn a_kubelet_that_is_restarted_moves_no_role(stage: Stage) {
    stage.apply(&exposed_web([1, 1, 1])).await;
    let before = stage.settled(WEB, [1, 1, 1]).await;
    let kubelet = format!("{}/kubelet", node(one(&before, "primary")));
    stage.bench.cluster.stop(&kubelet, false).unwrap();
    sleep(KUBELET_AWAY).await;
    stage.bench.cluster.start(&kubelet).unwrap();
    let until = Instant::now() + KUBELET_BACK;
    let pods: Api<Pod> = stage.api();
    let selector = format!("{}={WEB}", keys::LABEL_SET);
    while Instant::now() < until {
        let now = pods.list(&ListParams::default().labels(&selector)).await.unwrap().items;
        assert_eq!(
            roles(&now),
            roles(&before),
            "{:?}",
            now.iter().map(|pod| &pod.status).collect::<Vec<_>>()
        );
        sleep(Duration::from_millis(100)).await;
    }
    stage.settled(WEB, [1, 1, 1]).await;
}

/// Its containers go on: unlike after a lost node, what comes back serves as it did before.
pub(crate) async fn a_kubelet_that_was_away_until_its_node_was_lost_moves_no_role_when_it_comes_back(
    stage: Stage,
) {
    stage.apply(&exposed_web([2, 1, 1])).await;
    let before = stage.settled(WEB, [2, 1, 1]).await;
    let lost = node(one(&before, "primary"));
    let kubelet = format!("{lost}/kubelet");
    stage.bench.cluster.stop(&kubelet, false).unwrap();
    let is_on_lost = |pod: &Pod| pod.spec.as_ref().and_then(|spec| spec.node_name.as_ref()) == Some(&lost);
    let living = |pods: &[Pod]| pods.iter().filter(|pod| !is_on_lost(pod)).cloned().collect::<Vec<Pod>>();
    let survivors = living(&stage.pods_where(WEB, |pods| complete(&living(pods), [2, 1, 1])).await);
    stage.exposes(&uids(&survivors, "primary")).await;
    let witness = Witness::start(&stage);
    witness.begun().await;
    stage.bench.cluster.start(&kubelet).unwrap();
    ready::nodes(&stage.client(), std::slice::from_ref(&lost), wait::LIMIT).await.unwrap();
    let after = stage.settled(WEB, [2, 1, 1]).await;
    assert_eq!(uids(&after, "primary"), uids(&survivors, "primary"), "a second failover");
    assert_eq!(witness.fewest(), 2, "fewer Pods were exposed when the node returned");
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

pub(crate) async fn a_node_is_drained_of_a_pod_that_was_cold_once_without_further_flags(stage: Stage) {
    for cold_start in [json!({"imageGate": false}), json!({"gateSource": "ImageVolume"})] {
        let mut set = web([1, 0, 1]);
        set["spec"]["coldStart"] = cold_start;
        stage.to_be_drained(&mut set["spec"]["template"]);
        stage.apply(&set).await;
        let before = stage.settled(WEB, [1, 0, 1]).await;
        stage.delete(one(&before, "primary")).await;
        let woken = stage.settled(WEB, [1, 0, 1]).await;
        assert_eq!(uids(&woken, "primary"), uids(&before, "cold"), "it has had a gate");
        let drained = node(one(&woken, "primary"));
        stage.drain(&drained, &["--timeout=60s"]);
        let after = stage.settled(WEB, [1, 0, 1]).await;
        stage.kubectl(&["uncordon", &drained]);
        assert!(after.iter().all(|pod| node(pod) != drained), "nothing is left there");
        stage.kubectl(&["delete", "bps", WEB, "--wait=true"]);
        stage
            .pods_where(WEB, |pods| if pods.is_empty() { Ok(()) } else { Err("there are Pods".into()) })
            .await;
    }
}

pub(crate) async fn a_budget_lets_one_pod_that_runs_be_evicted_and_makes_way_for_another_one(stage: Stage) {
    stage.apply(&web([2, 2, 2])).await;
    let before = stage.settled(WEB, [2, 2, 2]).await;
    allows(&stage, &format!("{WEB}-bps"), 1).await;
    let pods: Api<Pod> = stage.api();
    let running = before.iter().filter(|pod| role(pod) == "primary").map(ResourceExt::name_any);
    let mut evicted = Vec::new();
    for name in running {
        evicted.push(pods.evict(&name, &EvictParams::default()).await.map_err(|error| error.to_string()));
    }
    assert!(evicted[0].is_ok(), "{evicted:?}");
    let refusal = evicted[1].as_ref().expect_err("two at once");
    assert!(refusal.contains("disruption budget"), "{refusal}");
    stage.settled(WEB, [2, 2, 2]).await;

    // Two budgets for one Pod would keep it from ever being evicted.
    let mine = json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "mine"},
        "spec": {"minAvailable": 3, "selector": {"matchLabels": {"app": WEB, keys::LABEL_ROLE: "primary"}}},
    });
    let mine: PodDisruptionBudget = serde_json::from_value(mine).unwrap();
    let budgets: Api<PodDisruptionBudget> = stage.api();
    budgets.create(&PostParams::default(), &mine).await.unwrap();
    budgets_are(&stage, &["mine"]).await;
    budgets.delete("mine", &DeleteParams::default()).await.unwrap();
    budgets_are(&stage, &["web-bps"]).await;
    stage.scale([1, 0, 2]).await;
    budgets_are(&stage, &[]).await;
}

/// Waits until a budget allows so many evictions.
async fn allows(stage: &Stage, name: &str, wanted: i32) {
    wait::until(stage.api(), "", |budgets: &[PodDisruptionBudget]| {
        let budget = budgets.iter().find(|budget| budget.name_any() == name).ok_or("there is none")?;
        let allowed = budget.status.as_ref().map(|status| status.disruptions_allowed);
        if allowed == Some(wanted) { Ok(()) } else { Err(format!("{:?}", budget.status)) }
    })
    .await;
}

/// Waits until the namespace has these budgets and no other.
async fn budgets_are(stage: &Stage, wanted: &[&str]) {
    wait::until(stage.api(), "", |budgets: &[PodDisruptionBudget]| {
        let names: Vec<String> = budgets.iter().map(ResourceExt::name_any).collect();
        if names == wanted { Ok(()) } else { Err(format!("{names:?}")) }
    })
    .await;
}
