//! A control plane without nodes: needs no root, several fit on a machine, and none outlives its owner.

#![allow(clippy::unwrap_used)]

mod placement;
mod rbra;

use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::api::{Api, ListParams, PostParams};
use lab::cluster::{Cluster, Error, Options};
use lab::control_plane::ControlPlane;
use lab::machine::process::{self, ProcessId};
use lab::paths::RunDirectory;
use lab::state::{Journal, Purpose, State};
use rustix::process::Signal;

/// How long a killed process may take to end.
const WAIT: Duration = Duration::from_secs(60);

fn config_map(name: &str) -> ConfigMap {
    serde_json::from_value(serde_json::json!({"metadata": {"name": name}})).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn two_control_planes_are_apart_and_end_with_their_values() {
    let parent = tempfile::tempdir().unwrap();
    let first = ControlPlane::start(parent.path().join("first")).await.unwrap();
    let second = ControlPlane::start(parent.path().join("second")).await.unwrap();

    let of = async |one: &ControlPlane| Api::<ConfigMap>::default_namespaced(one.client().await.unwrap());
    of(&first).await.create(&PostParams::default(), &config_map("only-in-the-first")).await.unwrap();
    assert!(of(&first).await.get_opt("only-in-the-first").await.unwrap().is_some());
    assert!(of(&second).await.get_opt("only-in-the-first").await.unwrap().is_none());
    let namespaces: Api<Namespace> = Api::all(second.client().await.unwrap());
    assert!(!namespaces.list(&ListParams::default()).await.unwrap().items.is_empty());

    let marks = [first.own_mark(), second.own_mark()];
    for mark in &marks {
        assert!(process::marked(mark).len() >= 2, "{mark}");
    }
    drop((first, second));
    for mark in &marks {
        assert_eq!(process::marked(mark), std::collections::BTreeSet::new(), "{mark}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_whose_processes_were_killed_is_not_in_the_way_of_the_next_one() {
    let parent = tempfile::tempdir().unwrap();
    let run = RunDirectory::at(parent.path().join("cluster"));
    let own = ProcessId::current();
    let options = Options {
        run: run.clone(),
        is_control_plane_only: true,
        purpose: Purpose::OneProcess(own),
        ..Options::default()
    };
    let first = Cluster::up(options.clone()).await.unwrap().state().unwrap();
    let refused = Cluster::up(options.clone()).await;
    assert!(matches!(refused, Err(Error::FindRunning { .. })), "{refused:?}");

    let killed = Purpose::OneProcess(ProcessId { start_time: own.start_time - 1, ..own });
    Journal::open(run.clone(), State { purpose: killed, ..first.clone() }).unwrap();
    let second = Cluster::up(options.clone()).await.unwrap().state().unwrap();
    assert_ne!(second.run, first.run);
    assert_eq!(process::marked(&first.run), std::collections::BTreeSet::new());

    for process in process::marked(&second.run) {
        process.signal(Signal::KILL).unwrap();
        process::wait_gone(process, WAIT);
    }
    let third = Cluster::up(options).await.unwrap().state().unwrap();
    assert_ne!(third.run, second.run);
    Cluster::down(&run).unwrap();
}
