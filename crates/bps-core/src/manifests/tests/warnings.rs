//! Warnings about a template in which the agent does less than a user may expect.

use serde_json::{Value, json};

use super::inject::injection;
use crate::manifests::{InjectWarning, Injection, inject};

/// A template that has everything.
fn complete() -> Value {
    json!({
        "metadata": {"labels": {"app": "db"}},
        "spec": {
            "terminationGracePeriodSeconds": 7,
            "containers": [{
                "name": "db",
                "image": "db:1",
                "command": ["/db"],
                "ports": [{"containerPort": 5432}, {"containerPort": 80, "protocol": "TCP"}],
                "livenessProbe": {"tcpSocket": {"port": 5432}},
                "resources": {"limits": {"cpu": "200m"}},
                "volumeMounts": [{"name": "data", "mountPath": "/var/lib"}],
            }],
        },
    })
}

/// Warnings about the complete template with this in place of a field of its container.
fn told(field: &str, value: Value, arguments: &[&str]) -> Vec<InjectWarning> {
    let mut template = complete();
    template["spec"]["containers"][0][field] = value;
    told_of(&template, arguments)
}

/// Warnings about a template, which are the same before and after the agent is in it.
fn told_of(template: &Value, arguments: &[&str]) -> Vec<InjectWarning> {
    let arguments = arguments.iter().map(|argument| (*argument).to_owned()).collect();
    let injection = Injection { arguments, ..injection() };
    let warnings = injection.warnings(template);
    assert_eq!(injection.warnings(&inject(template, &injection).unwrap()), warnings);
    warnings
}

#[test]
fn a_template_that_has_everything_is_no_reason_to_warn() {
    assert_eq!(told_of(&complete(), &["--replicate=/var/lib/db"]), []);
}

#[test]
fn a_rollout_that_may_delete_both_pods_of_a_pair_at_once_is_told() {
    let warned = |kind: &str, spec: Value| match Injection::rollout_warning(kind, &spec) {
        Some(InjectWarning::SeveralAtOnce { by }) => by,
        None => String::new(),
        other => panic!("{other:?}"),
    };
    let rolling = |field: &str, replicas: u32, bound: Value| json!({"replicas": replicas, (field): {"rollingUpdate": {"maxUnavailable": bound}}});
    let deployment = |replicas, bound| warned("Deployment", rolling("strategy", replicas, bound));
    let set = |kind, replicas, bound| warned(kind, rolling("updateStrategy", replicas, bound));
    let [by_count, by_share] =
        ["2", "25%"].map(|bound| format!("strategy.rollingUpdate.maxUnavailable: {bound}"));

    assert_eq!(warned("Deployment", json!({"strategy": {"type": "Recreate"}})), "strategy.type: Recreate");
    assert_eq!(deployment(2, json!(2)), by_count);
    assert_eq!([deployment(7, json!("25%")), deployment(8, json!("25%"))], [String::new(), by_share.clone()]);
    assert_eq!([deployment(7, Value::Null), deployment(8, Value::Null)], [String::new(), by_share]);
    assert_eq!(warned("Deployment", json!({})), "");
    assert_eq!(set("StatefulSet", 4, json!("25%")), "");
    assert_eq!(set("StatefulSet", 5, json!("25%")), "updateStrategy.rollingUpdate.maxUnavailable: 25%");
    assert_eq!([set("StatefulSet", 2, json!(1)), set("StatefulSet", 2, Value::Null)], ["", ""]);
    assert_eq!(set("DaemonSet", 0, json!("1%")), "updateStrategy.rollingUpdate.maxUnavailable: 1%");
    assert_eq!(set("CloneSet", 4, json!(4)), "");
}

#[test]
fn ports_that_no_agent_relays_are_told() {
    let port = |number: u16, protocol: &str| json!({"containerPort": number, "protocol": protocol});
    let ports = json!([port(53, "UDP"), port(53, "TCP"), port(3868, "SCTP")]);
    let warning = InjectWarning::PortsNotRelayed { ports: vec!["UDP 53".into(), "SCTP 3868".into()] };
    assert_eq!(told("ports", ports.clone(), &[]), [warning]);
    assert_eq!(told("ports", ports, &["--run-in-standby"]), []);
}

#[test]
fn a_container_without_ports_relays_nothing_unless_an_argument_names_some() {
    for none in [Value::Null, json!([])] {
        assert_eq!(told("ports", none.clone(), &[]), [InjectWarning::NothingRelayed]);
        assert_eq!(told("ports", none.clone(), &["--relay-port=80"]), []);
        assert_eq!(told("ports", none.clone(), &["--relay-port", "80"]), []);
        assert_eq!(told("ports", none.clone(), &["--run-in-standby"]), []);
        assert_eq!(told("ports", none, &["--standby-for=2"]), []);
    }
}

#[test]
fn a_grace_period_that_is_shorter_than_a_handover_is_told() {
    let of = |grace: Value, sleep: Value| {
        let mut template = complete();
        template["spec"]["terminationGracePeriodSeconds"] = grace;
        template["spec"]["containers"][0]["lifecycle"] = json!({"preStop": {"sleep": {"seconds": sleep}}});
        told_of(&template, &[])
    };
    assert_eq!(of(json!(6), Value::Null), [InjectWarning::GraceTooShort { seconds: 6 }]);
    assert_eq!(of(json!(10), json!(4)), [InjectWarning::GraceTooShort { seconds: 6 }]);
    assert_eq!(of(Value::Null, json!(30)), [InjectWarning::GraceTooShort { seconds: 0 }]);
    assert_eq!(of(json!(10), json!(3)), []);
    let command = json!({"preStop": {"exec": {"command": ["sleep", "4"]}}});
    let mut sleeping = complete();
    sleeping["spec"]["terminationGracePeriodSeconds"] = json!(10);
    sleeping["spec"]["containers"][0]["lifecycle"] = command;
    assert_eq!(told_of(&sleeping, &[]), [InjectWarning::GraceTooShort { seconds: 6 }]);
    assert_eq!(of(Value::Null, Value::Null), []);
}

#[test]
fn a_cpu_limit_under_a_fifth_of_a_core_is_told() {
    let of = |limit: Value| told("resources", json!({"limits": {"cpu": limit}}), &[]);
    for (limit, text) in [
        (json!("199m"), "199m"),
        (json!("0.1"), "0.1"),
        (json!(0.1), "0.1"),
        (json!("150000u"), "150000u"),
        (json!("1000000n"), "1000000n"),
    ] {
        assert_eq!(of(limit), [InjectWarning::CpuLimitLow { limit: text.into() }]);
    }
    for limit in [json!("200m"), json!("0.2"), json!(1), json!("1k"), json!("250000u"), Value::Null] {
        assert_eq!(of(limit.clone()), [], "{limit}");
    }
}

#[test]
fn a_replicated_folder_that_no_volume_covers_is_told() {
    let warning = |directory: &str| [InjectWarning::StateNotMounted { directory: directory.into() }];
    let of = |arguments: &[&str]| told_of(&complete(), arguments);
    assert_eq!(of(&["--replicate=/var/library"]), warning("/var/library"));
    assert_eq!(of(&["--replicate", "/srv"]), warning("/srv"));
    assert_eq!(of(&["--replicate=/var/lib"]), []);
    assert_eq!(told("volumeMounts", Value::Null, &["--replicate=/var/lib"]), warning("/var/lib"));
}

#[test]
fn what_cannot_run_an_agent_is_no_reason_to_warn() {
    let mut template = complete();
    let side = json!({"name": "side", "ports": [{"containerPort": 53, "protocol": "UDP"}]});
    template["spec"]["containers"].as_array_mut().unwrap().push(side);
    for template in [template, json!("no template"), Value::Null] {
        assert_eq!(injection().warnings(&template), []);
    }
}

#[test]
fn each_warning_says_what_to_write_instead() {
    let table = [
        (
            InjectWarning::LivenessGivenUp,
            "the agent cannot do this livenessProbe (gRPC, HTTPS, another host, or headers), so an application that \
             hangs is not detected: give --agent-argument=--live-exec='[\"COMMAND\"]' or another --live- argument \
             of the agent",
        ),
        (
            InjectWarning::PortsNotRelayed { ports: vec!["UDP 53".into(), "SCTP 80".into()] },
            "the agent relays TCP only, and the container has the ports UDP 53, SCTP 80; after a handover clients \
             get no answer there from the old Pod until their nodes follow, and an application without a TCP port is \
             shown to clients before it listens: let clients send again, or serve TCP as well",
        ),
        (
            InjectWarning::NothingRelayed,
            "the container names no ports, so the agent relays none, and clients that reach a standby are refused: \
             write the ports of the application, or give --agent-argument=--relay-port=PORT for each",
        ),
        (
            InjectWarning::GraceTooShort { seconds: 5 },
            "the Pod has 5 s to end after its preStop sleep, and a planned handover may need 7 s besides what the \
             application takes: write a longer terminationGracePeriodSeconds",
        ),
        (
            InjectWarning::CpuLimitLow { limit: "50m".into() },
            "the CPU limit of 50m throttles the heartbeats of the agent with the application, so that a standby \
             takes over from an active that is only busy: write a limit of 200m or more, or none",
        ),
        (
            InjectWarning::StateNotMounted { directory: "/state".into() },
            "no volumeMount covers /state, so what is replicated to it is lost when the container restarts: mount a \
             volume at /state or above it",
        ),
    ];
    for (warning, text) in table {
        assert_eq!(warning.to_string(), text);
    }
}
