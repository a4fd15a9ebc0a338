//! Network policies that are shipped, against the labels that Pods have at the moments at which they matter.

use std::path::Path;

use bps_api::BackupPodSet;
use bps_core::manifests::{GateSettings, PodRequest, pod, role_patch};
use bps_core::model::{PodName, PodRef, Role, Uid};
use bps_testkit::files::sets;
use jiff::Timestamp;
use serde_json::Value;

/// The only policy in a file of `deploy/policies`.
fn policy(name: &str) -> Value {
    let path = format!("{}/deploy/policies/{name}.yaml", env!("CARGO_MANIFEST_DIR"));
    serde_saphyr::from_str(&std::fs::read_to_string(path).expect("a readable file")).expect("YAML")
}

fn selects(policy: &Value, labels: &Value) -> bool {
    let wanted = policy["spec"]["podSelector"]["matchLabels"].as_object().expect("a selector by labels");
    wanted.iter().all(|(key, value)| labels[key] == *value)
}

#[test]
fn tickets_are_let_in_although_the_role_is_written_before_they_are_sent() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/paper-fig3.yaml");
    let set: BackupPodSet = serde_json::from_value(sets(&file).remove(0)).expect("a set");
    let settings = GateSettings { image: "wakeup:1".into(), public_keys: Vec::new() };
    let (name, now) = (PodName("web-0".into()), Timestamp::UNIX_EPOCH);
    let request = PodRequest { set: &set, name: &name, role: Role::Cold, slot: 0, now, injection: None };
    let cold = pod(&request, &settings).expect("a Pod")["metadata"]["labels"].take();
    let seen = PodRef { name, uid: Uid("u0".into()), resource_version: "1".into() };
    let mut asked = cold.clone();
    let written = role_patch(&seen, Role::Primary, None, now)["metadata"]["labels"].take();
    for (key, value) in written.as_object().expect("labels") {
        asked[key] = value.clone();
    }

    let [isolating, letting_in] = ["cold-gate", "cold-gate-default-deny"].map(policy);
    assert_eq!(
        [&cold, &asked].map(|labels| selects(&isolating, labels)),
        [true, false],
        "it serves others by then"
    );
    assert_eq!([&cold, &asked].map(|labels| selects(&letting_in, labels)), [true, true]);
    assert_eq!(isolating["spec"]["ingress"], letting_in["spec"]["ingress"]);
}
