//! What Pods find in a cluster: names, volumes, and each other.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::{AsyncBufReadExt as _, TryStreamExt as _};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{Pod, Service};
use kube::api::{Api, DeleteParams, LogParams, PostParams};
use kube::runtime::wait::await_condition;
use kube::{Client, ResourceExt as _};
use lab::cluster::Cluster;
use lab::faults::{PodPair, Target};
use lab::image::{self, ImageFile, ImageSpec};
use lab::packages;
use serde_json::{Value, json};

use crate::WAIT;

const IMAGE: &str = "registry.local/busybox:1";
const PORT: u16 = 8080;

/// Gives the nodes an image with the tools of this machine's busybox.
pub(crate) fn load_tools(cluster: &Cluster) {
    let source = packages::find("busybox").unwrap();
    let spec = ImageSpec {
        name: IMAGE.to_owned(),
        entrypoint: vec!["/busybox".to_owned()],
        files: vec![ImageFile { source, destination: "/busybox".to_owned(), mode: 0o755 }],
        user: None,
        env: BTreeMap::new(),
    };
    let directory = tempfile::tempdir().unwrap();
    let archive = directory.path().join("busybox.tar");
    image::write_archive(&spec, &archive).unwrap();
    cluster.load(&archive).unwrap();
}

fn container(script: &str) -> Value {
    let command = ["/busybox", "sh", "-c", script];
    json!({"name": "main", "image": IMAGE, "imagePullPolicy": "IfNotPresent", "command": command})
}

fn pod(name: &str, zone: &str, script: &str) -> Pod {
    serde_json::from_value(json!({
        "metadata": {"name": name, "labels": {"app": name}},
        "spec": {
            "terminationGracePeriodSeconds": 0,
            "restartPolicy": "Never",
            "nodeSelector": {"topology.kubernetes.io/zone": zone},
            "containers": [container(script)],
        },
    }))
    .unwrap()
}

async fn awaited(pods: &Api<Pod>, name: &str, is_met: impl Fn(&Pod) -> bool) -> Pod {
    let condition = await_condition(pods.clone(), name, |pod: Option<&Pod>| pod.is_some_and(&is_met));
    let met = tokio::time::timeout(WAIT, condition).await;
    met.unwrap_or_else(|_| panic!("pod {name} gets there in time")).unwrap().unwrap()
}

fn is_ready(pod: &Pod) -> bool {
    let containers = pod.status.as_ref().and_then(|status| status.container_statuses.as_ref());
    containers.is_some_and(|all| all.iter().all(|container| container.ready))
}

fn has_succeeded(pod: &Pod) -> bool {
    pod.status.as_ref().is_some_and(|status| status.phase.as_deref() == Some("Succeeded"))
}

async fn expose(client: &Client, app: &str) -> Service {
    let service = json!({
        "metadata": {"name": app},
        "spec": {"selector": {"app": app}, "ports": [{"port": 80, "targetPort": PORT}]},
    });
    let services: Api<Service> = Api::default_namespaced(client.clone());
    services.create(&PostParams::default(), &serde_json::from_value(service).unwrap()).await.unwrap()
}

/// A Pod asks for a Service and is told its address.
pub(crate) async fn a_pod_resolves_the_name_of_a_service(client: &Client) {
    let address = expose(client, "named").await.spec.unwrap().cluster_ip.unwrap();
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    let script = "until /busybox nslookup named.default.svc.cluster.local; do /busybox sleep 0.2; done";
    pods.create(&PostParams::default(), &pod("asker", "z1", script)).await.unwrap();
    awaited(&pods, "asker", has_succeeded).await;
    let answer = pods.logs("asker", &LogParams::default()).await.unwrap();
    assert!(answer.contains(&format!("Address: {address}")), "{answer}");
}

/// A Pod of a StatefulSet finds what the one before it has written.
pub(crate) async fn a_claimed_volume_outlives_its_pod(client: &Client) {
    let script = "/busybox hostname >> /data/visits; /busybox cat /data/visits; exec /busybox sleep 3600";
    let mut main = container(script);
    main["volumeMounts"] = json!([{"name": "data", "mountPath": "/data"}]);
    let template = json!({
        "metadata": {"labels": {"app": "keeper"}},
        "spec": {"terminationGracePeriodSeconds": 0, "containers": [main]},
    });
    let claim = json!({
        "metadata": {"name": "data"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Mi"}}},
    });
    let set = json!({
        "metadata": {"name": "keeper"},
        "spec": {
            "serviceName": "keeper", "replicas": 1, "selector": {"matchLabels": {"app": "keeper"}},
            "template": template, "volumeClaimTemplates": [claim],
        },
    });
    let sets: Api<StatefulSet> = Api::default_namespaced(client.clone());
    sets.create(&PostParams::default(), &serde_json::from_value(set).unwrap()).await.unwrap();

    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    let first = awaited(&pods, "keeper-0", is_ready).await;
    says(&pods, "keeper-0", "keeper-0\n").await;
    pods.delete("keeper-0", &DeleteParams::default()).await.unwrap();
    awaited(&pods, "keeper-0", |pod| pod.uid() != first.uid() && is_ready(pod)).await;
    says(&pods, "keeper-0", "keeper-0\nkeeper-0\n").await;
}

/// Waits until a Pod has written this. It is ready when its shell runs, which may be before that has written anything.
async fn says(pods: &Api<Pod>, name: &str, expected: &str) {
    let parameters = LogParams { follow: true, ..LogParams::default() };
    let mut said = String::new();
    let told = async {
        let mut lines = pods.log_stream(name, &parameters).await.unwrap().lines();
        while said != expected {
            said += &lines.try_next().await.unwrap().expect("the container runs on");
            said.push('\n');
        }
    };
    let is_told = tokio::time::timeout(WAIT, told).await;
    assert!(is_told.is_ok(), "{name} says {said:?}");
}

fn target(pod: &str) -> Target {
    Target { namespace: "default".into(), pod: pod.into(), container: None }
}

/// Whether a TCP connection from within the Pod to the address comes about.
async fn reaches(cluster: &Cluster, pod: &str, address: &str, port: u16) -> bool {
    let sandbox = cluster.aim_at_sandbox(&target(pod)).unwrap().processes()[0].pid;
    let mut command = tokio::process::Command::new("nsenter");
    command.arg(format!("--net=/proc/{sandbox}/ns/net"));
    command.args(["timeout", "1", "bash", "-c", &format!("exec 3<>/dev/tcp/{address}/{port}")]);
    command.output().await.unwrap().status.success()
}

/// Waits until the way is as wanted: kube-proxy takes a second to learn of a new Service.
async fn comes_to_reach(cluster: &Cluster, pod: &str, address: &str, port: u16) {
    let reached = async {
        while !reaches(cluster, pod, address, port).await {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    tokio::time::timeout(WAIT, reached).await.expect("the way opens in time");
}

/// Two Pods of one node, of two nodes, and through a Service: none hears the other until the cut is healed.
pub(crate) async fn pods_are_cut_off_from_each_other_and_healed(cluster: &Cluster, client: &Client) {
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    let script = format!("exec /busybox httpd -f -p {PORT} -h /tmp");
    let mut addresses = BTreeMap::new();
    for (name, zone) in [("one", "z1"), ("neighbour", "z1"), ("distant", "z2")] {
        pods.create(&PostParams::default(), &pod(name, zone, &script)).await.unwrap();
        let running = awaited(&pods, name, is_ready).await;
        addresses.insert(name, running.status.unwrap().pod_ip.unwrap());
    }
    let service = expose(client, "distant").await.spec.unwrap().cluster_ip.unwrap();
    let (neighbour, distant) = (addresses["neighbour"].as_str(), addresses["distant"].as_str());
    for (address, port) in [(neighbour, PORT), (distant, PORT), (service.as_str(), 80)] {
        comes_to_reach(cluster, "one", address, port).await;
    }

    let both = |other: &str| PodPair { from: target("one"), to: target(other), is_both_ways: true };
    cluster.cut_pods(&both("neighbour")).unwrap();
    assert!(!reaches(cluster, "one", neighbour, PORT).await);
    assert!(!reaches(cluster, "neighbour", &addresses["one"], PORT).await);
    assert!(reaches(cluster, "one", distant, PORT).await);
    assert!(reaches(cluster, "distant", neighbour, PORT).await);

    // One way is enough: no connection comes about without answers.
    let answers = PodPair { from: target("distant"), to: target("one"), is_both_ways: false };
    cluster.cut_pods(&answers).unwrap();
    assert!(!reaches(cluster, "one", distant, PORT).await);
    assert!(!reaches(cluster, "one", &service, 80).await);
    assert_eq!(cluster.state().unwrap().cuts.len(), 3);

    cluster.heal_pods(&both("neighbour")).unwrap();
    cluster.heal_pods(&answers).unwrap();
    assert_eq!(cluster.state().unwrap().cuts.len(), 0);
    for (address, port) in [(neighbour, PORT), (distant, PORT), (service.as_str(), 80)] {
        assert!(reaches(cluster, "one", address, port).await, "{address}");
    }
}
