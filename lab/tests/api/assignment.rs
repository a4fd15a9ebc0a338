//! The operator and a group of many Pods that are ready already.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bps_api::keys;
use bps_wire::lease::Record;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use kube::api::ListParams;
use serde_json::json;

use crate::operator::operate;
use crate::plugin::scene::{GROUP, Scene};

/// As many as in the benchmark's row.
const PODS: u8 = 128;
/// Longest wait until each has its state: a machine that also compiles needs some seconds.
const ASSIGNED_WITHIN: Duration = Duration::from_secs(120);
/// Pause between two looks; what is waited for is the sum of all Pods and Leases.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// The peer of each Pod that has one, by their labels.
async fn peers(scene: &Scene) -> BTreeMap<String, String> {
    let pods = scene.cluster.api::<Pod>().list(&ListParams::default()).await.expect("a list").items;
    let standbys =
        pods.iter().filter(|pod| pod.labels().get(keys::LABEL_HA_STATE).is_some_and(|it| it == "standby"));
    let peer = |pod: &Pod| Some((pod.name_any(), pod.labels().get(keys::LABEL_PEER)?.clone()));
    standbys.filter_map(peer).collect()
}

/// Waits until so many Pods have a peer, each the peer of its own, and returns them.
async fn all_assigned(scene: &Scene, count: usize) -> BTreeMap<String, String> {
    let assigned = async {
        loop {
            let peers = peers(scene).await;
            if peers.len() == count && peers.iter().all(|(pod, peer)| peers.get(peer) == Some(pod)) {
                return peers;
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    };
    tokio::time::timeout(ASSIGNED_WITHIN, assigned).await.expect("each has a peer in time")
}

/// The members of each Lease of the group, by name.
async fn members(scene: &Scene) -> Vec<BTreeSet<String>> {
    let leases = scene.cluster.api::<Lease>();
    let labels = ListParams::default().labels(&format!("{}={GROUP}", keys::LABEL_GROUP));
    let leases = leases.list(&labels).await.expect("a list").items;
    let records = leases.iter().map(|lease| Record::read(lease).expect("a Lease of a pair"));
    records.map(|record| record.directory.values().map(|contact| contact.pod.clone()).collect()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn each_of_many_ready_pods_has_one_peer_and_one_lease_and_keeps_them_when_others_go() {
    let scene = Scene::set("assignment").await;
    for number in 0..PODS {
        let labels = json!({(keys::LABEL_GROUP): GROUP});
        scene.labelled_pod(&format!("web-{number}"), (number, labels)).await;
    }
    let (_tasks, shutdown) = operate(scene.cluster.client.clone(), &scene.cluster.namespace).await;
    let before = all_assigned(&scene, PODS.into()).await;
    let pairs: BTreeSet<BTreeSet<String>> =
        before.iter().map(|(pod, peer)| [pod.clone(), peer.clone()].into()).collect();
    let leases = members(&scene).await;
    assert_eq!(leases.len(), usize::from(PODS) / 2);
    assert_eq!(leases.into_iter().collect::<BTreeSet<_>>(), pairs);

    // Two Pods of two pairs: those that they leave behind become a pair, and nobody else is touched.
    let left: Vec<&BTreeSet<String>> = pairs.iter().take(2).collect();
    for pair in &left {
        scene.delete_pod(pair.first().expect("two Pods")).await;
    }
    let mut expected = before.clone();
    expected.retain(|pod, _| left.iter().all(|pair| !pair.contains(pod)));
    let [one, other] = [left[0], left[1]].map(|pair| pair.last().expect("two Pods").clone());
    expected.insert(one.clone(), other.clone());
    expected.insert(other, one);
    assert_eq!(all_assigned(&scene, expected.len()).await, expected);
    shutdown.request();
}
