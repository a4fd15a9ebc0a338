//! Claims about creation, scaling and deletion.

use bps_api::BackupPodSet;
use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use k8s_openapi::api::core::v1::{Pod, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{Api, DeleteParams, PostParams};
use serde_json::json;

use crate::bench::ROOT;
use crate::stage::{Stage, WEB, exposed_web, roles, uids, web};
use crate::wait;

pub(crate) async fn the_papers_example_becomes_two_primaries_two_hot_and_two_cold_with_its_columns_right(
    stage: Stage,
) {
    stage.kubectl(&["apply", "-f", &format!("{ROOT}/examples/paper-fig3.yaml")]);
    stage.settled("bps-sample", [2, 2, 2]).await;
    let shown = stage.kubectl(&["get", "bps"]);
    let rows: Vec<Vec<&str>> = shown.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(rows[0], ["NAME", "REPLICAS", "HOTBACKUPS", "COLDBACKUPS", "STATUS", "AGE"]);
    assert_eq!(rows[1][..5], ["bps-sample", "2/2", "2/2", "2/2", "Ready"]);
    let primaries = stage.kubectl(&["get", "pods", "-l", "type=primary", "-o", "name"]);
    assert_eq!(primaries.lines().count(), 2);
}

pub(crate) async fn scaling_out_converts_and_keeps_every_pod(stage: Stage) {
    stage.apply(&web([2, 2, 2])).await;
    let before = roles(&stage.settled(WEB, [2, 2, 2]).await);
    stage.scale([3, 3, 3]).await;
    let after = roles(&stage.settled(WEB, [3, 3, 3]).await);
    let kept: Vec<_> = before.keys().filter(|uid| after.contains_key(*uid)).collect();
    assert_eq!(kept.len(), 6, "{before:?} became {after:?}");
    let converted = before.iter().filter(|(uid, role)| after[*uid] != **role).count();
    // One hot backup became primary, two cold ones became hot.
    assert_eq!(converted, 3, "{before:?} became {after:?}");
}

pub(crate) async fn scaling_in_keeps_a_serving_primary(stage: Stage) {
    stage.apply(&web([3, 3, 3])).await;
    let before = stage.settled(WEB, [3, 3, 3]).await;
    stage.scale([1, 1, 1]).await;
    let after = stage.settled(WEB, [1, 1, 1]).await;
    for role in ["primary", "hot", "cold"] {
        assert!(uids(&after, role).is_subset(&uids(&before, role)), "a {role} Pod was not kept");
    }
}

pub(crate) async fn every_count_goes_to_zero_and_back(stage: Stage) {
    stage.apply(&web([1, 1, 1])).await;
    stage.settled(WEB, [1, 1, 1]).await;
    for counts in [[0, 1, 1], [0, 0, 0], [1, 0, 0], [1, 1, 1]] {
        stage.scale(counts).await;
        stage.settled(WEB, counts).await;
    }
}

pub(crate) async fn kubectl_scale_and_an_autoscaler_act_on_primaries(stage: Stage) {
    stage.apply(&web([1, 1, 0])).await;
    stage.settled(WEB, [1, 1, 0]).await;
    stage.kubectl(&["scale", "bps", WEB, "--replicas=2"]);
    stage.settled(WEB, [2, 1, 0]).await;
    // There are no metrics here; the least number of an autoscaler holds without them.
    let autoscalers: Api<HorizontalPodAutoscaler> = stage.api();
    autoscalers.create(&PostParams::default(), &autoscaler()).await.unwrap();
    stage.settled(WEB, [3, 1, 0]).await;
}

fn autoscaler() -> HorizontalPodAutoscaler {
    let target = json!({"apiVersion": "backup.example.com/v1alpha1", "kind": "BackupPodSet", "name": WEB});
    let usage = json!({"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 70}});
    let metrics = [json!({"type": "Resource", "resource": usage})];
    let spec = json!({"scaleTargetRef": target, "minReplicas": 3, "maxReplicas": 4, "metrics": metrics});
    serde_json::from_value(json!({"metadata": {"name": WEB}, "spec": spec})).unwrap()
}

pub(crate) async fn a_deleted_set_takes_everything_of_its_with_it(stage: Stage) {
    stage.apply(&exposed_web([1, 1, 1])).await;
    stage.settled(WEB, [1, 1, 1]).await;
    let sets: Api<BackupPodSet> = stage.api();
    sets.delete(WEB, &DeleteParams::default()).await.unwrap();
    let none = |count: usize| if count == 0 { Ok(()) } else { Err(format!("{count} are left")) };
    let labels = "backup.example.com/set=web";
    wait::until(stage.api::<BackupPodSet>(), "", |sets| none(sets.len())).await;
    wait::until(stage.api::<Pod>(), labels, |pods| none(pods.len())).await;
    wait::until(stage.api::<Service>(), "", |services| none(services.len())).await;
    wait::until(stage.api::<EndpointSlice>(), "", |slices| none(slices.len())).await;
    wait::until(stage.api::<ControllerRevision>(), "", |revisions| none(revisions.len())).await;
}
