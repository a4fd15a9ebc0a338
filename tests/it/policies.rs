//! Network policies that are shipped, against the labels that Pods have at the moments at which they matter.

use std::path::Path;

use bps_api::{BackupPodSet, keys};
use bps_core::manifests::{GateSettings, PodRequest, pod, role_patch, set_injection};
use bps_core::model::{PodName, PodRef, Role, Uid};
use bps_testkit::files::{repository, sets};
use jiff::Timestamp;
use serde_json::{Value, json};

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
    let request =
        PodRequest { set: &set, name: &name, role: Role::Cold, slot: 0, subset: None, now, injection: None };
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

/// Ports of the API server: of its Service, and its own as a rule.
const API_SERVER_PORTS: [u16; 2] = [443, 6443];

/// The port that the application of the example listens on.
fn example_port() -> Value {
    let text = std::fs::read_to_string(repository().join("examples/active-standby/counter.yaml")).unwrap();
    let documents: Vec<Value> = serde_saphyr::from_multiple(&text).unwrap();
    let workload = documents.iter().find(|document| document["kind"] == "StatefulSet").unwrap();
    workload["spec"]["template"]["spec"]["containers"][0]["ports"][0]["containerPort"].clone()
}

#[test]
fn agents_reach_their_peers_and_the_api_server_where_everything_else_is_denied() {
    let port = |protocol: &str, port: Value| json!({"protocol": protocol, "port": port});
    let tcp = |number: u16| port("TCP", json!(number));
    let paired = json!({"matchExpressions": [{"key": keys::LABEL_GROUP, "operator": "Exists"}]});
    let peers = json!([{"podSelector": paired}]);
    let agents = [port("UDP", json!(keys::AGENT_PORT)), tcp(keys::AGENT_PORT), tcp(keys::AGENT_STATE_PORT)];
    let between: Vec<Value> = agents.into_iter().chain([port("TCP", example_port())]).collect();

    let expected = json!({
        "podSelector": paired,
        "policyTypes": ["Ingress", "Egress"],
        "ingress": [{"from": peers, "ports": between}, {"ports": [tcp(keys::AGENT_HEALTH_PORT)]}],
        "egress": [{"to": peers, "ports": between}, {"ports": API_SERVER_PORTS.map(tcp)}],
    });
    assert_eq!(policy("pairs")["spec"], expected);
}

#[test]
fn the_policy_of_pairs_selects_a_pod_from_its_creation_and_whatever_its_role() {
    let file = repository().join("examples/active-standby/set.yaml");
    let set: BackupPodSet = serde_json::from_value(sets(&file).remove(0)).unwrap();
    let settings = GateSettings { image: "wakeup:1".into(), public_keys: Vec::new() };
    let (name, now) = (PodName("pairs-0".into()), Timestamp::UNIX_EPOCH);
    let injection = set_injection(&set, Some("agent:1"));
    let seen = PodRef { name: name.clone(), uid: Uid("u0".into()), resource_version: "1".into() };

    for role in [Role::Primary, Role::Hot, Role::Cold] {
        let request = PodRequest {
            set: &set,
            name: &name,
            role,
            slot: 0,
            subset: None,
            now,
            injection: injection.as_ref(),
        };
        let made = pod(&request, &settings).unwrap();
        let written = role_patch(&seen, role, None, now);
        assert_eq!(made["metadata"]["labels"][keys::LABEL_GROUP], "pairs", "{role:?}");
        assert_eq!(written["metadata"]["labels"].get(keys::LABEL_GROUP), None, "{role:?}");
    }
}
