//! The operator among 500 Pods on hollow nodes that fail and are deleted: every set is whole again.

use std::collections::BTreeMap;
use std::time::Duration;

use bps_api::{BackupPodSet, keys};
use futures::{StreamExt as _, stream};
use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::runtime::reflector::ObjectRef;
use kube::{Client, ResourceExt as _};
use lab::hollow::{self, HollowNodes};
use serde_json::{Value, json};

use crate::crd;
use crate::operator::operate;

/// Sets of 2 primaries, 2 hot and 1 cold backup each: 500 Pods.
const SETS: usize = 100;
const COUNTS: [usize; 3] = [2, 2, 1];
/// Longest wait until every set is whole: a machine that also compiles needs a minute for 500 Pods.
const WHOLE_WITHIN: Duration = Duration::from_secs(300);
/// Pause between two looks; what is waited for is the sum of 500 Pods, which no single watch shows.
const LOOK_EVERY: Duration = Duration::from_millis(500);
const NAMESPACE: &str = "churn";
/// Requests in flight at once.
const IN_FLIGHT: usize = 16;

/// What there is of one set: Pods by role, and whether any is on its way or missing.
fn is_whole(pods: &[&Pod]) -> bool {
    let stays = |pod: &&&Pod| pod.metadata.deletion_timestamp.is_none();
    let role = |pod: &Pod| pod.labels().get(keys::LABEL_ROLE).cloned().unwrap_or_default();
    let staying: Vec<_> = pods.iter().filter(stays).collect();
    let of = |wanted: &str| staying.iter().filter(|pod| role(pod) == wanted).count();
    let is_up = |pod: &&&&Pod| role(pod) == "cold" || hollow::is_ready(pod);
    ["primary", "hot", "cold"].map(of) == COUNTS && staying.iter().filter(is_up).count() == staying.len()
}

async fn all_whole(client: &Client) -> Vec<Pod> {
    let api: Api<Pod> = Api::namespaced(client.clone(), NAMESPACE);
    let whole = async {
        loop {
            let pods = api.list(&ListParams::default()).await.expect("a list").items;
            let mut by_set: BTreeMap<String, Vec<&Pod>> = BTreeMap::new();
            for pod in &pods {
                by_set
                    .entry(pod.labels().get(keys::LABEL_SET).cloned().unwrap_or_default())
                    .or_default()
                    .push(pod);
            }
            if by_set.len() == SETS && by_set.values().all(|pods| is_whole(pods)) {
                return pods;
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    };
    tokio::time::timeout(WHOLE_WITHIN, whole).await.expect("every set is whole in time")
}

fn set(index: usize) -> Value {
    let [primaries, hot, cold] = COUNTS;
    json!({
        "apiVersion": "backup.example.com/v1alpha1", "kind": "BackupPodSet",
        "metadata": {"name": format!("set-{index}"), "namespace": NAMESPACE},
        "spec": {
            "replicas": primaries, "hotBackups": hot, "coldBackups": cold, "wakeupTimeout": 60,
            "template": {"spec": {"terminationGracePeriodSeconds": 1, "containers": [{"name": "web", "image": "none"}]}},
        },
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn five_hundred_pods_that_churn_end_as_their_sets_want_them_and_not_one_more() {
    let client = crd::cluster().await;
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}});
    let params = PatchParams::apply("churn").force();
    namespaces.patch(NAMESPACE, &params, &Patch::Apply(namespace)).await.expect("a namespace");
    let nodes = HollowNodes::start(client.clone(), 5, hollow::Options::default()).await.expect("nodes");
    let (_tasks, shutdown) = operate(client.clone(), NAMESPACE).await;
    let sets: Api<BackupPodSet> = Api::namespaced(client.clone(), NAMESPACE);
    let create = async |index| {
        let set: BackupPodSet = serde_json::from_value(set(index)).expect("a set");
        sets.create(&PostParams::default(), &set).await.expect("a set");
    };
    stream::iter(0..SETS).for_each_concurrent(IN_FLIGHT, create).await;
    let first = all_whole(&client).await;

    // A third is deleted and a third crashes, whatever their roles.
    let pods: Api<Pod> = Api::namespaced(client.clone(), NAMESPACE);
    let (pods, nodes_of) = (&pods, &nodes);
    let disturb = async |(index, pod): (usize, Pod)| match index % 3 {
        0 => drop(pods.delete(&pod.name_any(), &DeleteParams::default()).await),
        // A Pod that is gone already cannot crash.
        1 => drop(nodes_of.crash(&ObjectRef::from_obj(&pod)).await),
        _ => {}
    };
    stream::iter(first.into_iter().enumerate()).for_each_concurrent(IN_FLIGHT, disturb).await;
    let last = all_whole(&client).await;
    let staying = last.iter().filter(|pod| pod.metadata.deletion_timestamp.is_none()).count();
    assert_eq!(staying, SETS * COUNTS.iter().sum::<usize>());

    shutdown.request();
    nodes.remove().await.expect("the nodes go");
}
