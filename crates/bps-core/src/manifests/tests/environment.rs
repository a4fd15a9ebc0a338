//! What an agent learns of its Pod from the environment, whatever the template says there.

use bps_api::keys;
use serde_json::{Value, json};

use super::inject::{injection, template, with};
use crate::manifests::{Injection, inject, uninject};

/// What the agent learns of its Pod beside the variables that it reads by itself.
fn identity(injected: &Value) -> Vec<&str> {
    let command = injected["spec"]["containers"][0]["command"].as_array().into_iter().flatten();
    let own = ["--pod=", "--pod-uid=", "--pod-ip=", "--namespace="];
    command.filter_map(Value::as_str).filter(|word| own.iter().any(|own| word.starts_with(own))).collect()
}

#[test]
fn an_agent_does_not_believe_what_a_template_says_of_its_pod() {
    let field =
        |name: &str, path: &str| json!({"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}});
    let says = json!([
        field("POD_UID", "metadata.uid"),
        field("POD_NAME", "metadata.name"),
        field("POD_NAMESPACE", "metadata.labels['zone']"),
        {"name": "POD_IP", "value": "10.0.0.9"},
    ]);
    let template = with("env", says.clone());
    let injected = inject(&template, &injection()).unwrap();
    assert_eq!(identity(&injected), ["--namespace=$(BPS_HA_POD_NAMESPACE)", "--pod-ip=$(BPS_HA_POD_IP)"]);
    let env = injected["spec"]["containers"][0]["env"].as_array().unwrap();
    assert_eq!(env[..4], *says.as_array().unwrap(), "the application keeps its own");
    let path = |name: &str| {
        let entry = env.iter().find(|entry| entry["name"] == name).expect("it is added");
        entry["valueFrom"]["fieldRef"]["fieldPath"].clone()
    };
    assert_eq!(path("BPS_HA_POD_IP"), "status.podIP");
    assert_eq!(path("BPS_HA_POD_NAMESPACE"), "metadata.namespace");
    assert_eq!(inject(&injected, &injection()).unwrap(), injected);
    assert_eq!(uninject(&injected), Ok(template));
}

#[test]
fn an_identity_that_the_template_gives_as_we_would_or_that_somebody_wrote_as_an_argument_counts() {
    let field = json!({"apiVersion": "v1", "fieldPath": "status.podIP"});
    let right = with("env", json!([{"name": "POD_IP", "valueFrom": {"fieldRef": field}}]));
    assert_eq!(identity(&inject(&right, &injection()).unwrap()), Vec::<&str>::new());
    let wrong = with("env", json!([{"name": "POD_IP", "value": "10.0.0.9"}]));
    let arguments = vec!["--pod-ip=10.0.0.8".to_owned()];
    let injected = inject(&wrong, &Injection { arguments, ..injection() }).unwrap();
    assert_eq!(identity(&injected), ["--pod-ip=10.0.0.8"]);
}

#[test]
fn an_agent_is_told_how_long_its_pod_may_take_to_end() {
    let told = |grace: Value, sleep: Value| {
        let mut template = template();
        template["spec"]["terminationGracePeriodSeconds"] = grace;
        template["spec"]["containers"][0]["lifecycle"] = json!({"preStop": {"sleep": {"seconds": sleep}}});
        let once = inject(&template, &injection()).unwrap();
        assert_eq!(uninject(&once).unwrap(), template);
        let env = once["spec"]["containers"][0]["env"].as_array().unwrap().clone();
        let told = env.into_iter().find(|entry| entry["name"] == keys::ENV_HA_END_WITHIN_SECONDS);
        told.map(|entry| entry["value"].clone())
    };
    assert_eq!(told(json!(12), Value::Null), Some(json!("12")));
    assert_eq!(told(Value::Null, json!(20)), Some(json!("10")));
    assert_eq!(told(json!(5), json!(5)), Some(json!("0")));
    assert_eq!(told(json!(33), json!(3)), None, "it takes that for granted");
}
