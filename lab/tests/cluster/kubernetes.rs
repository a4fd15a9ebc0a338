//! Claims about Kubernetes alone: what the operator does for Services, budgets and gates rests on them. See `docs/kubernetes.md`.

use std::pin::pin;
use std::time::{Duration, Instant};

use futures::TryStreamExt as _;

use k8s_openapi::api::core::v1::{Pod, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::ResourceExt as _;
use kube::api::{Api, DeleteParams, EvictParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use lab::faults::Target;
use lab::image::APP_IMAGE;
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};

use crate::notes::note;
use crate::stage::{Stage, WEB, one, web};
use crate::wait;

/// Label of slices: who keeps them.
const MANAGED_BY: &str = "endpointslice.kubernetes.io/managed-by";

pub(crate) async fn kubernetes_leaves_slices_behind_when_a_selector_is_taken_away(stage: Stage) {
    // An Endpoints object without addresses is not copied.
    run(&stage, json!({"name": "plain", "image": APP_IMAGE}), json!([])).await;
    let ports = json!([{"name": "http", "port": 80, "targetPort": 8080}]);
    let service = json!({
        "metadata": {"name": "plain", "labels": {"team": "shop"}},
        "spec": {"selector": {"app": "plain"}, "ports": ports},
    });
    let service: Service = serde_json::from_value(service).unwrap();
    let services: Api<Service> = stage.api();
    services.create(&PostParams::default(), &service).await.unwrap();
    let of_controller = slice_by(&stage, "endpointslice-controller.k8s.io").await;
    assert_eq!(of_controller.labels()["team"], "shop", "labels of the Service are copied");

    let without = Patch::Merge(json!({"spec": {"selector": null}}));
    services.patch("plain", &PatchParams::default(), &without).await.unwrap();
    let copy = slice_by(&stage, "endpointslicemirroring-controller.k8s.io").await;
    assert_eq!(
        copy.labels()["team"],
        "shop",
        "labels of the Service are copied to Endpoints, and from there"
    );
    // The controller of slices has seen the change as well: it is one process with the one that copies.
    let slices: Api<EndpointSlice> = stage.api();
    assert!(slices.get_opt(&of_controller.name_any()).await.unwrap().is_some(), "it stays");
}

/// Waits for a slice of the Service `plain` that this controller keeps.
async fn slice_by(stage: &Stage, controller: &str) -> EndpointSlice {
    wait::until(stage.api(), "kubernetes.io/service-name=plain", |slices: &[EndpointSlice]| {
        let found =
            slices.iter().find(|slice| slice.labels().get(MANAGED_BY).is_some_and(|by| by == controller));
        found.cloned().ok_or_else(|| format!("{controller} has none"))
    })
    .await
}

pub(crate) async fn kubernetes_counts_budgets_from_primaries_and_asks_none_for_cold_backups(stage: Stage) {
    let mut set = web([2, 2, 2]);
    set["spec"]["disruption"] = json!({"budget": "None"});
    stage.apply(&set).await;
    let pods = stage.settled(WEB, [2, 2, 2]).await;
    let of_all = |name: &str, form: (&str, Value)| {
        let mut spec = json!({"selector": {"matchLabels": {"app": WEB}}});
        spec[form.0] = form.1;
        let budget = json!({"metadata": {"name": name}, "spec": spec});
        serde_json::from_value::<PodDisruptionBudget>(budget).unwrap()
    };
    let budgets: Api<PodDisruptionBudget> = stage.api();
    budgets
        .create(&PostParams::default(), &of_all("one-at-a-time", ("maxUnavailable", json!(1))))
        .await
        .unwrap();
    // Two are expected, the scale of the set; one of them must stay; four are healthy.
    wait::until(stage.api(), "", |budgets: &[PodDisruptionBudget]| {
        let status = budgets.first().and_then(|budget| budget.status.clone()).ok_or("there is none")?;
        let counts = [status.expected_pods, status.desired_healthy, status.current_healthy];
        let is_so = counts == [2, 1, 4] && status.disruptions_allowed == 3;
        if is_so { Ok(()) } else { Err(format!("{status:?}")) }
    })
    .await;
    budgets.delete("one-at-a-time", &DeleteParams::default()).await.unwrap();

    budgets.create(&PostParams::default(), &of_all("all", ("minAvailable", json!(6)))).await.unwrap();
    wait::until(stage.api(), "", |budgets: &[PodDisruptionBudget]| {
        let found = budgets.iter().find(|budget| budget.name_any() == "all");
        let allowed =
            found.and_then(|budget| budget.status.as_ref()).map(|status| status.disruptions_allowed);
        if allowed == Some(0) { Ok(()) } else { Err(format!("{allowed:?}")) }
    })
    .await;
    let api: Api<Pod> = stage.api();
    let evict = async |role: &str| api.evict(&one(&pods, role).name_any(), &EvictParams::default()).await;
    let refused = evict("hot").await.expect_err("none may go");
    assert!(refused.to_string().contains("disruption budget"), "{refused}");
    assert!(evict("cold").await.is_ok(), "a Pod that is pending goes unasked");
}

pub(crate) async fn kubernetes_shows_an_annotation_to_a_running_container_within_seconds(stage: Stage) {
    let field = json!({"fieldPath": "metadata.annotations['note']"});
    let volume = json!({"name": "shown", "downwardAPI": {"items": [{"path": "note", "fieldRef": field}]}});
    let mount = json!({"name": "shown", "mountPath": "/shown"});
    let container = json!({"name": "plain", "image": APP_IMAGE, "volumeMounts": [mount]});
    let shown = run(&stage, container, json!([volume])).await;
    let target = Target { container: Some("plain".to_owned()), ..stage.target(&shown) };
    let aim = stage.bench.cluster.aim_at_container(&target).unwrap();
    let process = aim.processes().first().expect("it runs").pid;
    let file = format!("/proc/{process}/root/shown/note");
    let text = || std::fs::read_to_string(&file).unwrap();
    assert_eq!(text(), "", "an annotation that is not there is an empty file");

    let began = Instant::now();
    let annotated = Patch::Merge(json!({"metadata": {"annotations": {"note": "42"}}}));
    let pods: Api<Pod> = stage.api();
    pods.patch("plain", &PatchParams::default(), &annotated).await.unwrap();
    while text() != "42" {
        assert!(began.elapsed() < wait::LIMIT, "it is not shown");
        sleep(Duration::from_millis(10)).await;
    }
    note(format!("shown after {} ms", began.elapsed().as_millis()));
}

pub(crate) async fn kubernetes_shows_how_a_deleted_pod_ended_before_it_is_gone(stage: Stage) {
    let before = run(&stage, json!({"name": "plain", "image": APP_IMAGE}), json!([])).await;
    let pods: Api<Pod> = stage.api();
    let only_it = WatchParams::default().labels("app=plain");
    let version = before.resource_version().expect("it was made");
    let mut events = pin!(pods.watch(&only_it, &version).await.unwrap());
    pods.delete("plain", &DeleteParams::default()).await.unwrap();
    let gone = loop {
        let event = timeout(wait::LIMIT, events.try_next()).await.expect("it is not gone").unwrap();
        if let WatchEvent::Deleted(pod) = event.expect("the watch goes on") {
            break pod;
        }
    };
    let status = gone.status.unwrap_or_default();
    assert!(matches!(status.phase.as_deref(), Some("Succeeded" | "Failed")), "{status:?}");
    let all = status.container_statuses.unwrap_or_default();
    let is_terminated =
        all.iter().all(|one| one.state.as_ref().is_some_and(|state| state.terminated.is_some()));
    assert!(!all.is_empty() && is_terminated, "{all:?}");
    let conditions = status.conditions.unwrap_or_default();
    assert!(conditions.iter().all(|condition| condition.type_ != "DisruptionTarget"), "{conditions:?}");
}

/// Starts the Pod `plain` with this container and waits until it runs; returns it.
async fn run(stage: &Stage, container: Value, volumes: Value) -> Pod {
    let pod = json!({
        "metadata": {"name": "plain", "labels": {"app": "plain"}},
        "spec": {"containers": [container], "volumes": volumes},
    });
    let pod: Pod = serde_json::from_value(pod).unwrap();
    stage.api::<Pod>().create(&PostParams::default(), &pod).await.unwrap();
    wait::until(stage.api(), "app=plain", |pods: &[Pod]| {
        pods.iter().find(|pod| wait::is_ready(pod)).cloned().ok_or_else(|| "it does not run".to_owned())
    })
    .await
}
