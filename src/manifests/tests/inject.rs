//! The agent goes into a template and out of it without a trace.

use serde_json::{Value, json};

use crate::api::keys;
use crate::manifests::{AgentSource, InjectError, Injection, inject, uninject};

fn injection() -> Injection {
    let arguments = vec!["--on-active=/hook".to_owned()];
    let source = AgentSource::Copy { image: "bps-agent:1".into() };
    Injection { group: "web".into(), source, container: None, arguments }
}

fn template() -> Value {
    json!({
        "metadata": {"labels": {"app": "web"}},
        "spec": {"containers": [{
            "name": "web",
            "image": "web:1",
            "command": ["/web", "serve"],
            "args": ["--port=80"],
            "ports": [
                {"containerPort": 80},
                {"containerPort": 443, "protocol": "TCP"},
                {"containerPort": 443, "protocol": "UDP"},
            ],
            "env": [{"name": "POD_NAME", "value": "mine"}],
            "livenessProbe": {"httpGet": {"path": "/", "port": 80}},
            "readinessProbe": {"httpGet": {"path": "/ready", "port": 80}},
        }]},
    })
}

#[test]
fn the_agent_starts_the_application_with_its_own_arguments() {
    let injected = inject(&template(), &injection()).unwrap();
    let container = &injected["spec"]["containers"][0];
    let command: Vec<&str> =
        container["command"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    let expected = [
        "/bps-ha/bps-agent",
        "run",
        "--group=web",
        "--key-file=/bps-ha-keys/keys",
        "--peer-bind=0.0.0.0:20001",
        "--health-bind=0.0.0.0:20002",
        "--state-dir=/bps-ha",
        "--state-file=/bps-ha/state.json",
        "--relay-port=80",
        "--relay-port=443",
        "--on-active=/hook",
        "--",
        "/web",
        "serve",
    ];
    assert_eq!(command, expected);
    assert_eq!(container["args"], json!(["--port=80"]));
    assert_eq!(container.get("livenessProbe"), None);
    assert_eq!(container["readinessProbe"]["httpGet"]["port"], json!(keys::AGENT_HEALTH_PORT));
    let names: Vec<_> =
        container["env"].as_array().unwrap().iter().map(|entry| entry["name"].clone()).collect();
    assert_eq!(names, ["POD_NAME", "POD_UID", "POD_NAMESPACE", "POD_IP", "HA_AGENT"]);
    assert_eq!(injected["spec"]["initContainers"][0]["image"], "bps-agent:1");
    assert_eq!(injected["spec"]["volumes"][1]["secret"]["secretName"], "web-ha-keys");
    assert_eq!(injected["metadata"]["labels"], json!({"app": "web", (keys::LABEL_GROUP): "web"}));
}

#[test]
fn the_ports_of_an_application_that_runs_in_both_roles_are_not_relayed() {
    let arguments = vec!["--on-active=/hook".to_owned(), "--run-in-standby".to_owned()];
    let injected = inject(&template(), &Injection { arguments, ..injection() }).unwrap();
    assert!(!injected.to_string().contains("--relay-port"), "{injected}");
}

#[test]
fn twice_is_once_and_out_again_is_nothing() {
    let once = inject(&template(), &injection()).unwrap();
    assert_eq!(inject(&once, &injection()).unwrap(), once);
    assert_eq!(uninject(&once), template());
    assert_eq!(uninject(&template()), template());
}

#[test]
fn another_group_replaces_the_first_one() {
    let once = inject(&template(), &injection()).unwrap();
    let other = Injection { group: "other".into(), ..injection() };
    assert_eq!(inject(&once, &other), inject(&template(), &other));
}

#[test]
fn what_stands_in_the_way_is_named_with_what_to_write_instead() {
    let refused = |change: &dyn Fn(&mut Value), container: Option<&str>| {
        let mut template = template();
        change(&mut template["spec"]);
        let container = container.map(str::to_owned);
        inject(&template, &Injection { container, ..injection() }).expect_err("it cannot run an agent")
    };
    let second = |spec: &mut Value| {
        spec["containers"].as_array_mut().unwrap().push(json!({"name": "side", "image": "side:1"}));
    };
    let known = vec!["web".to_owned(), "side".to_owned()];
    assert_eq!(refused(&second, None), InjectError::Ambiguous { known });
    assert_eq!(refused(&second, Some("side")), InjectError::NoCommand { container: "side".into() });
    let missing = InjectError::NoContainer { wanted: "db".into(), known: vec!["web".into()] };
    assert_eq!(refused(&|_| {}, Some("db")), missing);
    assert_eq!(
        refused(&|spec| spec["shareProcessNamespace"] = json!(true), None),
        InjectError::SharedProcesses
    );
    assert_eq!(
        refused(&|spec| spec["automountServiceAccountToken"] = json!(false), None),
        InjectError::NoToken
    );
}
