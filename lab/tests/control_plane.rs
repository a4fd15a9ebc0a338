//! A control plane without nodes: needs no root, several fit on a machine, and none outlives its owner.

#![allow(clippy::unwrap_used)]

use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::api::{Api, ListParams, PostParams};
use lab::control_plane::ControlPlane;
use lab::machine::process;

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

    let mark = format!("tethered-{}/", std::process::id());
    assert!(process::marked(&mark).len() >= 4);
    drop((first, second));
    assert_eq!(process::marked(&mark), std::collections::BTreeSet::new());
}
