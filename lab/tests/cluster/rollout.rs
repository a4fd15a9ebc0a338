//! Claims about changed templates.

use bps_api::keys;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use serde_json::json;

use crate::load::{Load, Witness};
use crate::stage::{Stage, WEB, complete, exposed_web, roles, uids};
use crate::wait;

pub(crate) fn is_of_revision(pod: &Pod, revision: &str) -> bool {
    pod.labels().get(keys::LABEL_REVISION).is_some_and(|label| label == revision)
}

pub(crate) fn revision_of(pods: &[Pod]) -> String {
    let first = pods[0].labels()[keys::LABEL_REVISION].clone();
    assert!(pods.iter().all(|pod| is_of_revision(pod, &first)));
    first
}

pub(crate) async fn a_new_template_reaches_every_pod_without_a_failed_request(stage: Stage) {
    stage.apply(&exposed_web([2, 1, 1])).await;
    let before = stage.settled(WEB, [2, 1, 1]).await;
    stage.exposes(&uids(&before, "primary")).await;
    let old = revision_of(&before);
    let load = Load::start(&stage, "n2").await;
    let witness = Witness::start(&stage);
    witness.begun().await;
    stage.change(json!({"template": {"metadata": {"annotations": {"edition": "second"}}}})).await;
    let after = stage
        .pods_where(WEB, |pods| {
            complete(pods, [2, 1, 1])?;
            let outdated = pods.iter().filter(|pod| is_of_revision(pod, &old)).count();
            if outdated == 0 { Ok(()) } else { Err(format!("{outdated} outdated pods")) }
        })
        .await;
    stage.exposes(&uids(&after, "primary")).await;
    stage.settled(WEB, [2, 1, 1]).await;
    let known = roles(&before);
    wait::until(stage.api::<Pod>(), "", |pods| {
        let left = pods.iter().filter(|pod| known.contains_key(&pod.uid().unwrap())).count();
        if left == 0 { Ok(()) } else { Err(format!("{left} old pods are left")) }
    })
    .await;
    let outage = load.stop().await;
    assert!(witness.fewest() >= 2, "fewer Pods were exposed than wanted");
    assert!(outage.requests > 0 && outage.failed == 0, "{outage}");
}

pub(crate) async fn a_broken_template_stops_after_one_backup_and_a_revert_recovers(stage: Stage) {
    stage.apply(&exposed_web([2, 2, 0])).await;
    let before = stage.settled(WEB, [2, 2, 0]).await;
    let old = revision_of(&before);
    let witness = Witness::start(&stage);
    witness.begun().await;
    let mut broken = exposed_web([2, 2, 0]);
    broken["spec"]["template"]["spec"]["containers"][0]["image"] = json!("registry.local/missing:1");
    stage.apply(&broken).await;
    // The kubelet has tried and waits: by then a rollout that does not stop would have gone on.
    let stuck = stage
        .pods_where(WEB, |pods| {
            let new = pods.iter().find(|pod| !is_of_revision(pod, &old)).ok_or("nothing is new")?;
            if waits_for_image(new) { Ok(()) } else { Err(wait::describe(new)) }
        })
        .await;
    let outdated = stuck.iter().filter(|pod| is_of_revision(pod, &old)).count();
    assert_eq!((outdated, stuck.len()), (3, 4), "one backup is tried and no more");
    assert_eq!(uids(&stuck, "primary"), uids(&before, "primary"));
    stage.apply(&exposed_web([2, 2, 0])).await;
    let after = stage
        .pods_where(WEB, |pods| {
            complete(pods, [2, 2, 0])?;
            if pods.iter().all(|pod| is_of_revision(pod, &old)) { Ok(()) } else { Err("not reverted".into()) }
        })
        .await;
    stage.settled(WEB, [2, 2, 0]).await;
    assert_eq!(uids(&after, "primary"), uids(&before, "primary"));
    assert_eq!(witness.fewest(), 2, "fewer Pods were exposed than wanted");
}

fn waits_for_image(pod: &Pod) -> bool {
    let statuses =
        pod.status.as_ref().and_then(|status| status.container_statuses.clone()).unwrap_or_default();
    let reason = |one: &k8s_openapi::api::core::v1::ContainerStatus| {
        one.state.as_ref()?.waiting.as_ref()?.reason.clone()
    };
    statuses.iter().filter_map(reason).any(|reason| reason == "ImagePullBackOff")
}
