//! Where the stock scheduler puts Pods of a set, on hollow nodes: Pods are bound and start nowhere.

use std::collections::BTreeMap;
use std::time::Duration;

use bps_api::BackupPodSet;
use bps_core::manifests::{GateSettings, PodRequest, pod};
use bps_core::model::{PodName, Role};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod, ServiceAccount};
use kube::api::{Api, PostParams};
use kube::runtime::wait::await_condition;
use kube::{Client, ResourceExt as _};
use lab::control_plane::ControlPlane;
use lab::hollow::{self, Detection, HollowNodes};
use serde_json::{Value, json};
use tokio::time::timeout;

/// Equal nodes with 16 CPUs each, in three zones in turn.
const NODES: u16 = 20;
/// Room of a node: a hollow node has 200 m of CPU for each Pod.
const PODS_PER_NODE: usize = 80;
/// Pods of 10 m that are made one after the other.
const PODS: u32 = 40;
/// Most nodes that it uses without being asked to spread them.
const FEW_NODES: usize = 4;
/// How long the scheduler may take for one.
const WITHIN: Duration = Duration::from_secs(30);
const NAMESPACE: &str = "default";

/// A set like that of the paper, whose candidates are chosen at random, with these further fields of its Pods.
fn set(name: &str, placement: &Value) -> BackupPodSet {
    let container = json!({
        "name": "web", "image": "registry.local/lab-app:dev", "resources": {"requests": {"cpu": "10m", "memory": "10Mi"}},
    });
    let mut spec = json!({"containers": [container]});
    spec.as_object_mut().unwrap().extend(placement.as_object().unwrap().clone());
    let set = json!({
        "apiVersion": "backup.example.com/v1alpha1", "kind": "BackupPodSet",
        "metadata": {"name": name, "namespace": NAMESPACE, "uid": format!("{name}-uid")},
        "spec": {"replicas": PODS, "strategy": {"init": "random"}, "template": {"spec": spec}},
    });
    serde_json::from_value(set).unwrap()
}

/// The primary of a set for a slot, as the operator makes it.
fn primary(set: &BackupPodSet, slot: u32) -> Pod {
    let gate = GateSettings { image: "gate".to_owned(), public_keys: Vec::new() };
    let name = PodName(format!("{}-{slot}", set.metadata.name.as_deref().unwrap()));
    let request = PodRequest {
        set,
        name: &name,
        role: Role::Primary,
        slot,
        subset: None,
        now: Timestamp::now(),
        injection: None,
    };
    serde_json::from_value(pod(&request, &gate).unwrap()).unwrap()
}

/// Makes so many primaries of a set, each once the one before is bound; how many are on each node.
async fn placed(pods: &Api<Pod>, set: &BackupPodSet, count: u32) -> BTreeMap<String, usize> {
    let mut on_nodes = BTreeMap::new();
    for slot in 0..count {
        let made = pods.create(&PostParams::default(), &primary(set, slot)).await.unwrap();
        let is_bound = |seen: Option<&Pod>| node_of(seen).is_some();
        let bound = timeout(WITHIN, await_condition(pods.clone(), &made.name_any(), is_bound)).await;
        let bound = bound.expect("it is bound in time").unwrap();
        *on_nodes.entry(node_of(bound.as_ref()).unwrap().to_owned()).or_default() += 1;
    }
    on_nodes
}

fn node_of(pod: Option<&Pod>) -> Option<&str> {
    pod?.spec.as_ref()?.node_name.as_deref()
}

/// Pods are admitted once the namespace has its account.
async fn await_account(client: &Client) {
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), NAMESPACE);
    let is_there = |account: Option<&ServiceAccount>| account.is_some();
    timeout(WITHIN, await_condition(accounts, "default", is_there))
        .await
        .expect("the account is made")
        .unwrap();
}

/// kube-scheduler takes the first of several nodes with the same score, in whole numbers up to 100, and spreads Pods by itself only
/// if a Service or a controller of a kind that it knows selects them. So a node gets one Pod after the other until its score has
/// changed by one.
#[tokio::test(flavor = "multi_thread")]
async fn pods_that_are_alike_are_spread_although_the_scheduler_puts_them_onto_few_nodes() {
    let parent = tempfile::tempdir().unwrap();
    let control_plane = ControlPlane::start(parent.path().join("placement")).await.unwrap();
    let client = control_plane.client().await.unwrap();
    let options = hollow::Options { pods_per_node: PODS_PER_NODE, ..hollow::Options::default() };
    let nodes = HollowNodes::start(client.clone(), NODES, options).await.unwrap();
    await_account(&client).await;
    let pods: Api<Pod> = Api::namespaced(client.clone(), NAMESPACE);

    // An empty list keeps the operator's constraints out.
    let left_alone = placed(&pods, &set("alone", &json!({"topologySpreadConstraints": []})), PODS).await;
    assert!(left_alone.len() <= FEW_NODES, "kube-scheduler 1.36.4 takes two: {left_alone:?}");

    let spread = placed(&pods, &set("spread", &json!({})), PODS).await;
    let most = spread.values().max();
    assert_eq!((spread.len(), most), (usize::from(NODES), Some(&2)), "{spread:?}");
    drop(nodes);
}

/// A constraint that must hold counts, if it says nothing else, the domains of nodes that no Pod may be on as well: their fewest Pods
/// are none, so no other domain may have more than one.
#[tokio::test(flavor = "multi_thread")]
async fn a_tier_that_must_be_spread_does_not_wait_for_a_zone_whose_nodes_are_lost() {
    let parent = tempfile::tempdir().unwrap();
    let control_plane = ControlPlane::start(parent.path().join("spread")).await.unwrap();
    let client = control_plane.client().await.unwrap();
    // One in each of three zones.
    let nodes = HollowNodes::start(client.clone(), 3, hollow::Options::default()).await.unwrap();
    await_account(&client).await;
    let pods: Api<Pod> = Api::namespaced(client.clone(), NAMESPACE);
    let lost = nodes.nodes()[0].name.clone();
    nodes.power_off(&lost, Detection::Written).await.unwrap();

    let mut required = set("required", &json!({}));
    required.spec.topology = serde_json::from_value(json!({"tiers": "Required"})).unwrap();
    let spread = placed(&pods, &required, 4).await;
    assert_eq!(spread.values().collect::<Vec<_>>(), [&2, &2], "{spread:?}");
    assert!(!spread.contains_key(&lost));

    // As Kubernetes has it by default.
    required.metadata.name = Some("default".to_owned());
    let of_default = |slot| {
        let mut made = primary(&required, slot);
        let constraints = made.spec.as_mut().unwrap().topology_spread_constraints.as_mut().unwrap();
        for constraint in constraints {
            constraint.node_taints_policy = None;
        }
        made
    };
    for slot in 0..3 {
        pods.create(&PostParams::default(), &of_default(slot)).await.unwrap();
    }
    let is_refused = |seen: Option<&Pod>| {
        let conditions = seen.and_then(|pod| pod.status.as_ref()?.conditions.as_ref());
        conditions.into_iter().flatten().any(|condition| condition.reason.as_deref() == Some("Unschedulable"))
    };
    let refused = timeout(WITHIN, await_condition(pods.clone(), "default-2", is_refused)).await;
    refused.expect("the third Pod waits for the lost zone").unwrap();
    drop(nodes);
}
