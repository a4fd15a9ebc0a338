//! The scheduler of the chart: the stock kube-scheduler with our extender beside it.

use std::path::{Path, PathBuf};

use bps_api::quantity::thousandths;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::ResourceExt;
use kube::api::{Api, PostParams};
use lab::binaries::{self, Component, KUBERNETES_VERSION};
use lab::image::{APP_IMAGE, EXTENDER_IMAGE, ImageFile, ImageSpec, NONROOT_ID};
use lab::install::chart;
use lab::progress::Progress;
use serde_json::{Value, json};

use crate::stage::Stage;
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

/// Takes what the chart added away again, also from the cluster as a whole, if the claim fails as well.
struct Installed<'a> {
    stage: &'a Stage,
    manifest: String,
}

impl Drop for Installed<'_> {
    fn drop(&mut self) {
        // A second panic would end the process.
        let removed = ["delete", "-f", &self.manifest, "--wait=false", "--ignore-not-found"];
        self.stage.bench.try_kubectl(&removed).ok();
    }
}

/// Shares of what a node has: a Pod beside which others are to be placed, and each of these. With both on one node its resources are
/// used more evenly than those of an empty one. Unit: percent.
const MEMORY_OF_FIRST: u64 = 30;
const CPU_OF_OTHERS: u64 = 10;

pub(crate) async fn pods_are_placed_by_the_scheduler_of_the_chart_and_by_its_other_replica(stage: Stage) {
    let directory = tempfile::tempdir().unwrap();
    stage.bench.load_image(&stock_image());
    let manifest = rendered(&stage, directory.path()).to_str().unwrap().to_owned();
    stage.bench.kubectl(&["apply", "-f", &manifest]);
    let installed = Installed { stage: &stage, manifest };
    wait::until(stage.api::<Deployment>(), "", |found: &[Deployment]| {
        let ready = found.first().and_then(|it| it.status.as_ref()?.ready_replicas).unwrap_or_default();
        if ready == REPLICAS { Ok(()) } else { Err(format!("{ready} replicas are ready")) }
    })
    .await;

    let nodes: Api<Node> = Api::all(stage.client());
    let node = nodes.get("n2").await.unwrap();
    let of_node = |resource: &str, percent: u64| {
        let allocatable = node.status.as_ref().and_then(|status| status.allocatable.as_ref()).unwrap();
        thousandths(&allocatable[resource].0).unwrap() * percent / 100
    };
    let memory = json!({"memory": (of_node("memory", MEMORY_OF_FIRST) / 1_000).to_string()});
    let cpu = json!({"cpu": format!("{}m", of_node("cpu", CPU_OF_OTHERS))});
    place(&stage, "first", json!({"nodeName": "n2"}), &memory).await;
    let by_rbra = || json!({"schedulerName": ALONE});
    for name in ["second", "third"] {
        assert_eq!(place(&stage, name, by_rbra(), &cpu).await, "n2", "{name}");
    }

    let former = leader(&stage, |_| true).await;
    stage.delete(&stage.api::<Pod>().get(&former).await.unwrap()).await;
    leader(&stage, |holder| holder != former).await;
    assert_eq!(place(&stage, "fourth", by_rbra(), &cpu).await, "n2");
    drop(installed);
}

/// Creates a Pod with these requests and further fields; returns its node.
async fn place(stage: &Stage, name: &str, fields: Value, requests: &Value) -> String {
    let container = json!({"name": "web", "image": APP_IMAGE, "resources": {"requests": requests}});
    let mut spec = json!({"containers": [container], "terminationGracePeriodSeconds": 0});
    spec.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec});
    let pods: Api<Pod> = stage.api();
    pods.create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();
    wait::until(pods, "", |found: &[Pod]| {
        let pod = found.iter().find(|pod| pod.name_any() == name).ok_or("it is not there")?;
        pod.spec.as_ref().and_then(|spec| spec.node_name.clone()).ok_or(format!("{name} has no node"))
    })
    .await
}

/// Waits until a replica schedules; returns the name of its Pod.
async fn leader(stage: &Stage, is_wanted: impl Fn(&str) -> bool) -> String {
    wait::until(stage.api::<Lease>(), "", |found: &[Lease]| {
        let lease = found.iter().find(|lease| lease.name_any() == SCHEDULER).ok_or("no Lease")?;
        let holder = lease.spec.as_ref().and_then(|spec| spec.holder_identity.clone()).unwrap_or_default();
        // A replica adds a number to the name of its host.
        let pod = holder.split_once('_').map(|(pod, _)| pod.to_owned());
        pod.filter(|pod| is_wanted(pod)).ok_or(format!("held by {holder:?}"))
    })
    .await
}
