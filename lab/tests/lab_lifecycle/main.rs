//! A cluster with nodes, from nothing to nothing: what it promises, and what it leaves behind.
//!
//! Needs root; without it, it says so and does nothing. There is one test, because only one cluster with nodes fits on
//! a machine; one that is there to show something makes room.

#![allow(clippy::unwrap_used)]

mod pods;

use std::collections::{BTreeMap, BTreeSet};
use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DeleteParams, PostParams};
use kube::runtime::wait::{await_condition, conditions};
use lab::addresses::HOST;
use lab::cluster::{Cluster, Error, Options};
use lab::config::PAUSE_IMAGE;
use lab::cuts::Peer;
use lab::faults::Target;
use lab::machine::process::ProcessId;
use lab::machine::{cgroups, mounts, network, process, sysctls};
use lab::paths::{self, RunDirectory};
use lab::progress::Progress;
use lab::state::Purpose;

/// How long anything that a cluster does may take.
pub(crate) const WAIT: Duration = Duration::from_secs(60);
/// How long a datagram may take, an address that is asked for included.
const HEARD_WITHIN: Duration = Duration::from_secs(1);

/// Everything of the machine that a cluster touches.
#[derive(Debug, PartialEq)]
struct Machine {
    mounts: Vec<PathBuf>,
    links: String,
    routes: String,
    rules: String,
    cgroups: Vec<PathBuf>,
    sysctls: BTreeMap<String, String>,
    directories: BTreeSet<PathBuf>,
}

fn machine() -> Machine {
    let directories = ["/run", "/run/netns", "/var/lib", "/var/log", "/var/log/pods", "/opt", "/usr/libexec"];
    let entries = directories.iter().filter_map(|path| std::fs::read_dir(path).ok()).flatten().flatten();
    Machine {
        mounts: mounts::below(Path::new("/")).unwrap(),
        links: output("ip", &["-brief", "link"]),
        routes: output("ip", &["route", "show", "table", "all", "root", "198.18.0.0/15"]),
        rules: output("nft", &["list", "ruleset"]),
        cgroups: cgroups::present(),
        sysctls: sysctls::read(),
        directories: entries.map(|entry| entry.path()).collect(),
    }
}

fn output(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().unwrap();
    assert!(output.status.success(), "{program} {arguments:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

fn pod() -> Pod {
    serde_json::from_value(serde_json::json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "sleeper"},
        "spec": {
            "terminationGracePeriodSeconds": 0,
            "nodeSelector": {"topology.kubernetes.io/zone": "z2"},
            "containers": [{"name": "main", "image": PAUSE_IMAGE, "imagePullPolicy": "IfNotPresent"}],
        },
    }))
    .unwrap()
}

async fn running(pods: &Api<Pod>, restarts: i32) -> Pod {
    let restarted = move |pod: Option<&Pod>| {
        let status = pod.and_then(|pod| pod.status.as_ref()?.container_statuses.as_ref()?.first().cloned());
        status.is_some_and(|status| status.restart_count >= restarts && status.ready)
    };
    let condition = await_condition(pods.clone(), "sleeper", restarted);
    tokio::time::timeout(WAIT, condition).await.expect("the pod runs in time").unwrap().unwrap()
}

/// Whether a TCP connection from the node to the API server comes about.
fn reaches_api_server(cluster: &Cluster, node: &str) -> bool {
    let mut command = cluster.command_in(node, "timeout").unwrap();
    command.args(["2", "bash", "-c", "exec 3<>/dev/tcp/198.18.0.1/6443"]).output().unwrap().status.success()
}

/// Whether a datagram from the node gets to the machine with the control plane, whose addresses the node may have to ask for.
fn is_heard(cluster: &Cluster, node: &str) -> bool {
    let ear = UdpSocket::bind((HOST, 0)).unwrap();
    ear.set_read_timeout(Some(HEARD_WITHIN)).unwrap();
    let words =
        format!("ip neighbour flush all; echo > /dev/udp/{HOST}/{}", ear.local_addr().unwrap().port());
    cluster.command_in(node, "bash").unwrap().args(["-c", &words]).output().unwrap();
    ear.recv(&mut [0; 1]).is_ok()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_runs_pods_breaks_as_told_and_leaves_nothing_behind() {
    let run = RunDirectory::at("/run/backuppodset-lab-test");
    if !paths::is_root() {
        eprintln!("skipped: needs root");
        return;
    }
    Cluster::make_room(&run, Progress::Shown).unwrap();
    let before = machine();
    what_is_left_of_a_lost_directory_makes_room(&run);
    assert_eq!(machine(), before);
    let progress = Progress::Shown;
    let options = Options {
        run: run.clone(),
        nodes: 2,
        progress,
        purpose: Purpose::OneProcess(ProcessId::current()),
        ..Options::default()
    };

    let cluster = Cluster::up(options.clone()).await.unwrap();
    let mark = cluster.state().unwrap().run;
    let result = exercise(&cluster, options);
    // Whatever happened, the machine is cleared first.
    let result = tokio::spawn(result).await;
    Cluster::down(&run).unwrap();

    result.unwrap();
    assert_eq!(machine(), before);
    assert_eq!(process::marked(&mark), BTreeSet::new());
    Cluster::down(&run).expect("down may be repeated");
}

fn what_is_left_of_a_lost_directory_makes_room(run: &RunDirectory) {
    if !process::marked("").is_empty() {
        eprintln!("left out: what is left of a cluster is not told from what runs beside");
        return;
    }
    network::create_bridge("/run/backuppodset-lab-lost").unwrap();
    Cluster::make_room(run, Progress::Shown).unwrap();
}

fn exercise(cluster: &Cluster, options: Options) -> impl Future<Output = ()> + Send + 'static {
    let cluster = cluster.clone();
    async move {
        let second = Cluster::up(options).await;
        assert!(matches!(second, Err(Error::FindRunning { nodes: 2, .. })), "{second:?}");

        let client = cluster.client().await.unwrap();
        pods::load_tools(&cluster);
        pods::a_pod_resolves_the_name_of_a_service(&client).await;
        pods::a_claimed_volume_outlives_its_pod(&client).await;
        pods::pods_are_cut_off_from_each_other_and_healed(&cluster, &client).await;

        let pods: Api<Pod> = Api::default_namespaced(client);
        pods.create(&PostParams::default(), &pod()).await.unwrap();
        let placed = running(&pods, 0).await;
        assert_eq!(placed.spec.unwrap().node_name.as_deref(), Some("n2"));

        let target = Target { namespace: "default".into(), pod: "sleeper".into(), container: None };
        let aim = cluster.aim_at_process(&target).unwrap();
        cluster.kill_process(&target).unwrap();
        assert!(aim.processes().iter().all(|process| process::wait_gone(*process, WAIT)));
        running(&pods, 1).await;

        assert!(reaches_api_server(&cluster, "n1"));
        cluster.cut("n1", Peer::Api).unwrap();
        assert!(!reaches_api_server(&cluster, "n1"));
        assert!(reaches_api_server(&cluster, "n2"));
        cluster.heal("n1").unwrap();
        assert!(reaches_api_server(&cluster, "n1"));

        let hardware_address =
            || std::fs::read_to_string(format!("/sys/class/net/{}/address", network::BRIDGE)).unwrap();
        for (node, other) in [("n1", "n2"), ("n2", "n1")] {
            assert!(is_heard(&cluster, node));
            let known = hardware_address();
            cluster.cut(node, Peer::All).unwrap();
            assert!(!is_heard(&cluster, node), "{node} is cut off, and heard");
            assert_eq!(hardware_address(), known, "{other} knows the machine by another address than it has");
            assert!(reaches_api_server(&cluster, other));
            cluster.heal(node).unwrap();
            assert!(is_heard(&cluster, node));
        }

        let card = || {
            let mut shown = cluster.command_in("n2", "ip").unwrap();
            let told = shown.args(["-o", "link", "show", "eth0"]).output().unwrap().stdout;
            let told = String::from_utf8(told).unwrap();
            told.split_once("link/ether ").expect("an address").1.split(' ').next().map(str::to_owned)
        };
        let known = card();
        cluster.power_off("n2").unwrap();
        assert!(cluster.aim_at_process(&target).is_err());
        cluster.power_on("n2").unwrap();
        assert_eq!(card(), known, "the other nodes know n2 by another address than it has");
        running(&pods, 2).await;
        pods.delete("sleeper", &DeleteParams::default()).await.unwrap();
        let uid = placed.metadata.uid.unwrap();
        let gone = await_condition(pods.clone(), "sleeper", conditions::is_deleted(&uid));
        tokio::time::timeout(WAIT, gone).await.expect("the pod goes in time").unwrap();
    }
}
