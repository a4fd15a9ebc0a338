//! Claims about workloads of pairs: they grow, shrink and are replaced by their own controllers, which wait until each Pod is
//! ready.

use std::collections::BTreeSet;

use bps_api::PairStatus;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointSlice};
use kube::ResourceExt;
use kube::api::ListParams;
use lab::bench::pairs::watch::Watch;

use crate::actors::Actors;
use crate::load::Load;
use crate::notes::note;
use crate::pairs::{
    paired, pod, reported, served_again, shown, start_deployment, start_lone_pods,
    start_sleeping_stateful_set, start_stateful_set, start_watched_stateful_set,
};
use crate::stage::{Stage, WEB};
use crate::wait;

pub(crate) async fn pairs_come_and_go_with_the_replicas_of_a_deployment(stage: Stage) {
    start_deployment(&stage, 4).await;
    paired(&stage, 2).await;
    for replicas in [3, 2, 5, 1, 2] {
        scaled(&stage, "deployment", replicas).await;
    }
}

pub(crate) async fn a_stateful_set_grows_one_pod_after_the_other_and_shrinks_from_the_top(stage: Stage) {
    let watch = Watch::start(&stage.bench.cluster, "n1").await.unwrap();
    start_watched_stateful_set(&stage, 2, watch.address).await;
    paired(&stage, 1).await;
    // Whoever acts is asked, and tells the sink.
    let actors = Actors::start(&stage);
    // The third Pod belongs to no pair before there is a fourth, which comes when the third is ready.
    for replicas in [4, 3, 2, 5, 1, 2] {
        scaled(&stage, "statefulset", replicas).await;
    }
    drop(actors.stop().await);
    let (answers, late) = watch.seen();
    note(format!("{late} of {answers} answers were of one that had been followed"));
    assert!(answers > 0 && late == 0, "{}", watch.describe());
}

pub(crate) async fn no_request_fails_when_pairs_go_whose_containers_sleep_before_they_end(stage: Stage) {
    // Two seconds for nodes to lead elsewhere, and one for a machine with much to do.
    start_sleeping_stateful_set(&stage, 6, 3).await;
    let mut actives = BTreeSet::new();
    for pair in paired(&stage, 3).await {
        actives.extend(pod(&stage, &pair.active).await.uid());
    }
    stage.exposes(&actives).await;
    let load = Load::start(&stage, "n1").await;
    scaled(&stage, "statefulset", 2).await;
    wait::until(stage.api(), &format!("app={WEB}"), |pods: &[Pod]| match pods.len() {
        2 => Ok(()),
        count => Err(format!("there are {count} Pods")),
    })
    .await;
    let outage = load.stop().await;
    note(format!("{outage}"));
    assert!(outage.requests > 0 && outage.failed == 0, "{outage}");
}

pub(crate) async fn no_request_fails_when_two_actives_without_standbys_become_one_pair(stage: Stage) {
    start_lone_pods(&stage, 4).await;
    let pairs = paired(&stage, 2).await;
    let mut actives = BTreeSet::new();
    for pair in &pairs {
        actives.extend(pod(&stage, &pair.active).await.uid());
    }
    stage.exposes(&actives).await;
    let load = Load::start(&stage, "n1").await;
    for pair in &pairs {
        stage.kubectl(&["delete", "pod", &pair.standby, "--wait=false"]);
    }
    // Clients are led to the other one before one ends, and not back again.
    readiness(&stage, |shown| shown == [Some(false), Some(true)]).await;
    let next = readiness(&stage, |shown| shown != [Some(false), Some(true)]).await;
    assert_eq!(next, [Some(true)]);
    paired(&stage, 1).await;
    let outage = load.stop().await;
    note(format!("{outage}"));
    assert!(outage.requests > 0 && outage.failed == 0, "{outage}");
}

/// Waits until the addresses behind the Service are ready or not in such a way, sorted.
async fn readiness(stage: &Stage, is_awaited: impl Fn(&[Option<bool>]) -> bool) -> Vec<Option<bool>> {
    let of_service = format!("kubernetes.io/service-name={WEB}");
    wait::until(stage.api(), &of_service, |slices: &[EndpointSlice]| {
        let endpoints = slices.iter().flat_map(|slice| &slice.endpoints);
        let ready =
            |endpoint: &Endpoint| endpoint.conditions.as_ref().and_then(|conditions| conditions.ready);
        let mut shown: Vec<_> = endpoints.map(ready).collect();
        shown.sort_unstable();
        if is_awaited(&shown) { Ok(shown) } else { Err(format!("ready: {shown:?}")) }
    })
    .await
}

/// Asks for so many Pods, and waits until as many pairs are whole as there can be.
async fn scaled(stage: &Stage, kind: &str, replicas: usize) {
    stage.kubectl(&["scale", kind, WEB, &format!("--replicas={replicas}")]);
    let is_right = |seen: &[PairStatus]| {
        let complete = seen.iter().filter(|pair| pair.state == "Paired").count();
        // Of an odd number one is a spare, or acts alone because it did before.
        let is_bounded = (1..=replicas.div_ceil(2)).contains(&seen.len());
        is_bounded && complete == replicas / 2 && seen.iter().all(|pair| !pair.active.is_empty())
    };
    reported(stage, is_right).await;
}

pub(crate) async fn a_rollout_of_a_deployment_of_one_pair_reaches_both_pods(stage: Stage) {
    start_deployment(&stage, 2).await;
    rolled_out(&stage, "deployment").await;
}

pub(crate) async fn a_rollout_of_a_stateful_set_of_one_pair_reaches_both_pods(stage: Stage) {
    start_stateful_set(&stage, 2).await;
    rolled_out(&stage, "statefulset").await;
}

/// Replaces both Pods of a pair while clients come.
async fn rolled_out(stage: &Stage, kind: &str) {
    let pair = paired(stage, 1).await.remove(0);
    shown(stage, &pair).await;
    let load = Load::start(stage, "n1").await;
    roll_out(stage, kind, WEB).await;
    let pair = paired(stage, 1).await.remove(0);
    shown(stage, &pair).await;
    served_again(&format!("rollout of a {kind}"), load).await;
}

/// Lets a workload replace its Pods, which have its name as label `app`, and waits until all are others and ready.
pub(crate) async fn roll_out(stage: &Stage, kind: &str, name: &str) {
    let labels = format!("app={name}");
    let pods = stage.api::<Pod>().list(&ListParams::default().labels(&labels)).await.unwrap();
    let before = uids(&pods.items);
    stage.kubectl(&["rollout", "restart", kind, name]);
    wait::until(stage.api(), &labels, |pods: &[Pod]| {
        let is_new = uids(pods).is_disjoint(&before) && pods.len() == before.len();
        if is_new && pods.iter().all(wait::is_ready) {
            Ok(())
        } else {
            Err(pods.iter().map(wait::describe).collect::<Vec<_>>().join(", "))
        }
    })
    .await;
}

fn uids(pods: &[Pod]) -> BTreeSet<String> {
    pods.iter().filter_map(ResourceExt::uid).collect()
}
