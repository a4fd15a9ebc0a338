//! Ports of the slice, and the revision of a template.

use serde_json::{Value, json};

use super::set;
use crate::manifests::{PortError, SlicePort, revision, slice_ports};

fn ports(ports: Value) -> Result<Vec<SlicePort>, PortError> {
    let containers = json!([
        {"name": "web", "image": "web:1", "ports": [{"name": "http", "containerPort": 8080}, {"containerPort": 1}]},
        {"name": "log", "image": "log:3", "ports": [{"name": "admin", "containerPort": 9000}]},
        {"name": "bare", "image": "bare:1"},
    ]);
    let sidecar = json!({"name": "proxy", "image": "proxy:1", "restartPolicy": "Always",
        "ports": [{"name": "proxied", "containerPort": 15001}]});
    let first = json!({"name": "init", "image": "init:1", "ports": [{"name": "gone", "containerPort": 1}]});
    let service = json!({"name": "front", "ports": ports});
    let spec = json!({"containers": containers, "initContainers": [first, sidecar]});
    let set = set(json!({"template": {"spec": spec}, "service": service}));
    slice_ports(&set, set.spec.service.as_ref().unwrap())
}

fn slice_port(name: &str, port: i32, protocol: &'static str) -> SlicePort {
    SlicePort { name: name.into(), port, protocol, app_protocol: None }
}

#[test]
fn a_target_port_is_itself_a_number_or_a_name_of_any_container() {
    let found = ports(json!([
        {"name": "same", "port": 80},
        {"name": "number", "port": 81, "targetPort": 8181, "protocol": "SCTP"},
        {"name": "first", "port": 82, "targetPort": "http", "protocol": "UDP"},
        {"name": "second", "port": 83, "targetPort": "admin"},
        {"name": "sidecar", "port": 84, "targetPort": "proxied"},
    ]));
    let expected = [
        slice_port("same", 80, "TCP"),
        slice_port("number", 8181, "SCTP"),
        slice_port("first", 8080, "UDP"),
        slice_port("second", 9000, "TCP"),
        slice_port("sidecar", 15_001, "TCP"),
    ];
    assert_eq!(found, Ok(expected.to_vec()));
    assert_eq!(ports(json!([{"port": 80}])), Ok(vec![slice_port("", 80, "TCP")]));
}

#[test]
fn an_unknown_port_name_is_answered_with_those_that_exist() {
    let error = ports(json!([{"port": 80}, {"port": 81, "targetPort": "htpp"}])).unwrap_err();
    assert_eq!(
        error.to_string(),
        "service.ports: targetPort \"htpp\" is not the name of a container port; \
         write a number or one of [\"http\", \"admin\", \"proxied\"]"
    );
}

#[test]
fn a_revision_follows_what_reaches_the_pods_and_nothing_else() {
    let of = |template: Value| revision(&set(json!({"template": template})).spec).0;
    let spec = json!({"containers": [{"name": "web", "image": "web:1"}]});
    let plain = of(json!({"spec": spec}));
    assert!(
        plain.len() == 10 && plain.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')),
        "{plain}"
    );
    let labelled = of(json!({"metadata": {"labels": {"a": "1", "b": "2"}}, "spec": spec}));
    assert_eq!(
        of(json!({"metadata": {"name": "x", "labels": {"b": "2", "a": "1"}}, "spec": spec})),
        labelled
    );
    let others = [
        labelled,
        of(json!({"metadata": {"annotations": {"a": "1", "b": "2"}}, "spec": spec})),
        of(json!({"metadata": {"labels": {"a": "1"}}, "spec": spec})),
        of(json!({"spec": {"containers": [{"name": "web", "image": "web:2"}]}})),
    ];
    let distinct: std::collections::BTreeSet<&String> = others.iter().chain([&plain]).collect();
    assert_eq!(distinct.len(), 5);
}
