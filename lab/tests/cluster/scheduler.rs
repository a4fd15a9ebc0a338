//! The scheduler of the chart: the stock kube-scheduler with our extender beside it.

use std::path::{Path, PathBuf};

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::Api;
use lab::binaries::{self, Component, KUBERNETES_VERSION};
use lab::image::{EXTENDER_IMAGE, ImageFile, ImageSpec, NONROOT_ID};
use lab::install::chart;
use lab::progress::Progress;
use serde_json::json;

use crate::stage::{Stage, WEB, web};
use crate::wait;

/// Name of the Deployment, the Lease and the profile.
const SCHEDULER: &str = "bps-scheduler";
/// Profile in which nothing but the extender scores.
const ALONE: &str = "bps-rbra";
/// Name of the stock scheduler's image, as the chart asks for it.
const STOCK_IMAGE: &str = "registry.k8s.io/kube-scheduler";
const REPLICAS: i32 = 2;

/// The program of the cluster's own scheduler, at the place that it has in the published image.
fn stock_image() -> ImageSpec {
    let built = binaries::ensure(&[Component::Scheduler], Progress::Shown).unwrap();
    let program = ImageFile {
        source: built.find(Component::Scheduler).unwrap().to_owned(),
        destination: "/usr/local/bin/kube-scheduler".to_owned(),
        mode: 0o755,
    };
    ImageSpec {
        name: format!("{STOCK_IMAGE}:{KUBERNETES_VERSION}"),
        entrypoint: vec![program.destination.clone()],
        files: vec![program],
        user: Some(format!("{NONROOT_ID}:{NONROOT_ID}")),
        ..ImageSpec::default()
    }
}

/// Writes what the chart adds for the scheduler into a file.
fn rendered(stage: &Stage, directory: &Path) -> PathBuf {
    let (repository, tag) = EXTENDER_IMAGE.split_once(':').unwrap();
    let [repository, tag] = [("repository", repository), ("tag", tag)]
        .map(|(field, value)| format!("scheduler.extenderImage.{field}={value}"));
    let templates = ["rbac", "deployment", "policies"].map(|name| format!("templates/scheduler/{name}.yaml"));
    let mut arguments = vec!["--set", "scheduler.enabled=true", "--set", &repository, "--set", &tag];
    arguments.extend(templates.iter().flat_map(|template| ["--show-only", template]));
    let file = directory.join("scheduler.yaml");
    std::fs::write(&file, chart::render(&stage.namespace, KUBERNETES_VERSION, &arguments).unwrap()).unwrap();
    file
}

pub(crate) async fn pods_are_placed_by_the_scheduler_of_the_chart_and_by_its_other_replica(stage: Stage) {
    let directory = tempfile::tempdir().unwrap();
    stage.bench.load_image(&stock_image());
    let manifest = rendered(&stage, directory.path());
    let manifest = manifest.to_str().unwrap();
    stage.bench.kubectl(&["apply", "-f", manifest]);
    wait::until(stage.api::<Deployment>(), "", |found| {
        let ready = found.first().and_then(|it| it.status.as_ref()?.ready_replicas).unwrap_or_default();
        if ready == REPLICAS { Ok(()) } else { Err(format!("{ready} replicas are ready")) }
    })
    .await;

    let mut set = web([1, 1, 0]);
    set["spec"]["template"]["spec"]["schedulerName"] = json!(ALONE);
    stage.apply(&set).await;
    stage.settled(WEB, [1, 1, 0]).await;

    // The one that leads is lost; Pods that come meanwhile wait for the other one.
    let leader = leader(&stage).await;
    let pods: Api<Pod> = stage.api();
    stage.delete(&pods.get(&leader).await.unwrap()).await;
    stage.scale([2, 2, 0]).await;
    for pod in stage.settled(WEB, [2, 2, 0]).await {
        assert_eq!(pod.spec.as_ref().unwrap().scheduler_name.as_deref(), Some(ALONE), "{}", pod.name_any());
    }
    assert_ne!(self::leader(&stage).await, leader);
    stage.bench.kubectl(&["delete", "-f", manifest, "--wait=false"]);
}

/// Name of the Pod that schedules.
async fn leader(stage: &Stage) -> String {
    let leases: Api<Lease> = stage.api();
    let lease = leases.get(SCHEDULER).await.unwrap();
    let holder = lease.spec.and_then(|spec| spec.holder_identity).unwrap_or_default();
    // A replica adds a number to the name of its host.
    holder.split_once('_').map_or_else(|| holder.clone(), |(pod, _)| pod.to_owned())
}
