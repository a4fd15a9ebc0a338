//! The real API server answers every conversation as its file says, and so does the simulated one.
//!
//! A file that this test refutes is wrong: correct it, and then the simulated server.

use std::path::Path;
use std::time::Duration;

use bps_testkit::conversations::{File, all, assert_none, differences};
use k8s_openapi::api::core::v1::{Namespace, ServiceAccount};
use kube::Client;
use kube::api::{Api, DeleteParams, PostParams};
use kube::runtime::wait::await_condition;
use serde_json::json;

use crate::crd;

/// Longest wait until a new namespace has its default account.
const READY_WITHIN: Duration = Duration::from_secs(30);

/// One conversation in a namespace of its own, whose name the server chooses: the cluster may have been asked before.
async fn differences_in_a_new_namespace(client: &Client, file: &File) -> String {
    let namespaces = Api::<Namespace>::all(client.clone());
    let namespace = json!({"metadata": {"generateName": format!("{}-", file.name)}});
    let namespace = serde_json::from_value(namespace).expect("a namespace");
    let created = namespaces.create(&PostParams::default(), &namespace).await.expect("a namespace");
    let namespace = created.metadata.name.expect("a name");
    // No Pod is accepted before its namespace has this account.
    let accounts = Api::<ServiceAccount>::namespaced(client.clone(), &namespace);
    let is_there = |account: Option<&ServiceAccount>| account.is_some();
    let ready = tokio::time::timeout(READY_WITHIN, await_condition(accounts, "default", is_there)).await;
    ready.expect("in time").expect("a watch");
    let found = differences(file, client, &namespace).await;
    namespaces.delete(&namespace, &DeleteParams::default()).await.expect("its end");
    found
}

#[tokio::test]
async fn the_real_server_answers_every_conversation() {
    let client = crd::cluster().await;
    let mut found = Vec::new();
    for file in all(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/conversations")) {
        found.push(differences_in_a_new_namespace(&client, &file).await);
    }
    assert_none(&found);
}
