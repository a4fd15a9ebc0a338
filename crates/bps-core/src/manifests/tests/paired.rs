//! Sets with active and standby Pods: their Pods, their group, and what tells one revision from another.

use bps_api::{GroupTiming, HandoverOrder};
use serde_json::{Value, json};

use super::golden::assert_golden;
use super::{pod_of, set};
use crate::manifests::{InjectError, check_agent, revision, set_group, set_group_spec, set_injection};
use crate::model::Role;

/// Everything that the agent or the group is told.
fn paired() -> Value {
    let container = json!({
        "name": "web", "image": "web:1", "command": ["/web"], "ports": [{"name": "http", "containerPort": 8080}],
        "livenessProbe": {"httpGet": {"path": "/", "port": 8080}},
    });
    json!({
        "replicas": 3,
        "template": {"spec": {"containers": [container, {"name": "log", "image": "log:1"}]}},
        "service": {"name": "front", "ports": [{"name": "http", "port": 80, "targetPort": "http"}], "drainSeconds": 2},
        "activeStandby": {
            "container": "web", "runInStandby": true, "arguments": ["--log-level=debug"],
            "hooks": {"onActive": "/promote now", "onStandby": "/follow", "timeoutSeconds": 9},
            "replicationPorts": [{"port": 7000}],
        },
    })
}

#[test]
fn every_pod_of_a_paired_set_starts_the_agent_and_none_sleeps_before_it_hands_over() {
    let set = set(paired());
    assert_golden("pod-paired-primary", &pod_of(&set, Role::Primary));
    assert_golden("pod-paired-cold", &pod_of(&set, Role::Cold));
}

#[test]
fn the_group_of_a_paired_set_has_its_service_with_numbers_for_ports() {
    let set = set(paired());
    let spec = set_group_spec(&set).expect("ports that exist").expect("it is paired");
    assert_golden("set-group", &set_group(&set, &spec));
}

#[test]
fn a_set_tells_its_agents_what_to_replicate_and_its_group_how_fast_to_be() {
    let mut spec = paired();
    spec["activeStandby"] = json!({
        "container": "web", "stateDir": "/var/lib/web", "promoteWhen": "Always",
        "timing": {"holdMilliseconds": 4_900, "watchMilliseconds": 5_000, "apiOutageSeconds": 90},
    });
    let set = set(spec);
    let told = set_injection(&set, Some("agent:1")).expect("it is paired").arguments;
    assert_eq!(told, ["--replicate=/var/lib/web", "--promote-when=always"]);
    let timing = set_group_spec(&set).expect("ports that exist").expect("it is paired").timing;
    let expected = GroupTiming {
        hold_milliseconds: 4_900,
        watch_milliseconds: 5_000,
        api_outage_seconds: 90,
        ..GroupTiming::default()
    };
    assert_eq!(timing, Some(expected));
}

#[test]
fn agents_and_group_are_told_for_how_many_primaries_one_stands_by() {
    let mut spec = paired();
    spec["activeStandby"] = json!({"container": "web", "stateDir": "/state"});
    let alone = revision(&set(spec.clone()).spec);
    spec["activeStandby"]["standbyFor"] = json!(3);
    let set = set(spec);
    assert_ne!(revision(&set.spec), alone, "the agents have other seats");
    let told = set_injection(&set, Some("agent:1")).expect("it is paired").arguments;
    assert_eq!(told, ["--replicate=/state", "--standby-for=3"]);
    let group = set_group_spec(&set).expect("ports that exist").expect("it is paired");
    assert_eq!(group.standby_for, Some(3));
}

#[test]
fn the_order_of_a_planned_handover_is_the_group_s_and_no_revision() {
    let mut spec = paired();
    spec["activeStandby"] = json!({"container": "web"});
    let usual = revision(&set(spec.clone()).spec);
    spec["activeStandby"]["handover"] = json!("MakeBeforeBreak");
    let set = set(spec);
    assert_eq!(revision(&set.spec), usual);
    assert_eq!(set_injection(&set, Some("agent:1")).expect("it is paired").arguments, [""; 0]);
    let group = set_group_spec(&set).expect("ports that exist").expect("it is paired");
    assert_eq!(group.handover, Some(HandoverOrder::MakeBeforeBreak));
}

#[test]
fn a_set_without_pairs_has_no_group_and_no_agent() {
    let set = set(json!({"template": {"spec": {"containers": [{"name": "web", "image": "web:1"}]}}}));
    assert_eq!((set_group_spec(&set), set_injection(&set, Some("agent:1"))), (Ok(None), None));
}

#[test]
fn what_agents_are_told_makes_a_revision_and_what_the_group_is_told_does_not() {
    let of = |path: &str, value: Value| {
        let mut spec = paired();
        *spec.pointer_mut(path).expect("a field") = value;
        revision(&set(spec).spec)
    };
    let usual = revision(&set(paired()).spec);
    let told = [
        ("/activeStandby/container", json!("log")),
        ("/activeStandby/runInStandby", json!(false)),
        ("/activeStandby/hooks/onActive", json!("/promote later")),
        ("/activeStandby/arguments", json!([])),
        ("/activeStandby", json!({"container": "web", "stateDir": "/var/lib/web"})),
    ];
    for (path, value) in told {
        assert_ne!(of(path, value), usual, "{path}");
    }
    assert_eq!(of("/activeStandby/replicationPorts", json!([])), usual);
    assert_eq!(of("/replicas", json!(1)), usual);
}

#[test]
fn a_template_that_cannot_run_the_agent_is_told_apart() {
    let (container, hook) = (|| "web".to_owned(), json!({"exec": {"command": ["/hook"]}}));
    let cases = [
        (
            "/containers/0",
            "command",
            json!([]),
            InjectError::NoCommand { container: container(), image: Some("web:1".into()), has_args: false },
        ),
        (
            "/containers/0",
            "lifecycle",
            json!({"postStart": hook}),
            InjectError::PostStart { container: container() },
        ),
        (
            "/containers/0",
            "lifecycle",
            json!({"preStop": hook}),
            InjectError::PreStop { container: container() },
        ),
        (
            "/containers/0",
            "ports",
            json!([{"containerPort": 20_002}]),
            InjectError::AgentPort { container: container(), port: 20_002 },
        ),
        (
            "/containers/0",
            "restartPolicy",
            json!("Never"),
            InjectError::ContainerRestartPolicy { container: container(), policy: "Never".into() },
        ),
        ("", "shareProcessNamespace", json!(true), InjectError::SharedProcesses),
        ("", "hostPID", json!(true), InjectError::HostProcesses),
        ("", "hostNetwork", json!(true), InjectError::HostNetwork),
    ];
    for (path, field, value, error) in cases {
        let mut spec = paired();
        spec.pointer_mut(&format!("/template/spec{path}")).expect("a parent")[field] = value;
        let set = set(spec);
        let injection = set_injection(&set, Some("agent:1")).expect("it is paired");
        assert_eq!(check_agent(&set, &injection), Err(error));
    }
}
