//! Where the stock scheduler puts Pods of a set, on hollow nodes: Pods are bound and start nowhere.

use std::collections::BTreeMap;
use std::time::Duration;

use bps_api::BackupPodSet;
use bps_core::manifests::{GateSettings, PodRequest, pod};
use bps_core::model::{PodName, Role};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod, ServiceAccount};
use kube::Client;
use kube::api::{Api, PostParams};
use kube::runtime::wait::await_condition;
use lab::control_plane::ControlPlane;
use lab::hollow::{self, HollowNodes};
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

/// A set like that of the paper, whose candidates are chosen at random.
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

/// Makes the primaries of a set as the operator does, each once the one before is bound; how many are on each node.
async fn placed(pods: &Api<Pod>, set: &BackupPodSet) -> BTreeMap<String, usize> {
    let gate = GateSettings { image: "gate".to_owned(), public_keys: Vec::new() };
    let mut on_nodes = BTreeMap::new();
    for slot in 0..PODS {
        let name = PodName(format!("{}-{slot}", set.metadata.name.as_deref().unwrap()));
        let request = PodRequest {
            set,
            name: &name,
            role: Role::Primary,
            slot,
            now: Timestamp::now(),
            injection: None,
        };
        let made: Pod = serde_json::from_value(pod(&request, &gate).unwrap()).unwrap();
        pods.create(&PostParams::default(), &made).await.unwrap();
        let is_bound = |seen: Option<&Pod>| node_of(seen).is_some();
        let bound = timeout(WITHIN, await_condition(pods.clone(), &name.0, is_bound)).await;
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
    let left_alone = placed(&pods, &set("alone", &json!({"topologySpreadConstraints": []}))).await;
    assert!(left_alone.len() <= FEW_NODES, "kube-scheduler 1.36.4 takes two: {left_alone:?}");

    let spread = placed(&pods, &set("spread", &json!({}))).await;
    let most = spread.values().max();
    assert_eq!((spread.len(), most), (usize::from(NODES), Some(&2)), "{spread:?}");
    drop(nodes);
}
