//! The ways in which the agent comes into a Pod: what each adds, and that any of them takes the place of any other.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::golden::assert_golden;
use super::{pod_of, set};
use crate::manifests::{AgentSource, Injection, inject, revision, set_injection, uninject};
use crate::model::Role;

fn sources() -> [AgentSource; 3] {
    [
        AgentSource::Copy { image: "bps-agent:1".into() },
        AgentSource::ImageVolume { image: "bps-agent:1".into() },
        AgentSource::Image { path: "/usr/local/bin/bps-agent".into() },
    ]
}

fn injected(template: &Value, source: AgentSource) -> Value {
    let injection = Injection {
        group: "web".into(),
        source,
        container: Some("web".into()),
        image_command: None,
        arguments: vec![],
    };
    inject(template, &injection).expect("it can run an agent")
}

/// A set whose agent comes like this.
fn paired(active_standby: Value) -> Value {
    let container =
        json!({"name": "web", "image": "web:1", "imagePullPolicy": "Always", "command": ["/web"]});
    json!({"template": {"spec": {"containers": [container]}}, "activeStandby": active_standby})
}

#[test]
fn only_a_copied_agent_costs_a_container_and_a_cold_pod_waits_before_any_agent() {
    let volume = set(paired(json!({"agentSource": "ImageVolume"})));
    assert_golden("pod-paired-cold-image-volume", &pod_of(&volume, Role::Cold));
    let built_in = set(paired(json!({"agentSource": "Image", "agentPath": "/opt/bps-agent"})));
    assert_golden("pod-paired-cold-image", &pod_of(&built_in, Role::Cold));
}

#[test]
fn a_set_whose_image_has_the_agent_needs_no_other_image() {
    let source = |active_standby: Value, image: Option<&str>| {
        set_injection(&set(paired(active_standby)), image).map(|injection| injection.source)
    };
    let image = || "agent:1".to_owned();
    assert_eq!(source(json!({}), Some("agent:1")), Some(AgentSource::Copy { image: image() }));
    let volume = json!({"agentSource": "ImageVolume"});
    assert_eq!(source(volume.clone(), Some("agent:1")), Some(AgentSource::ImageVolume { image: image() }));
    assert_eq!([source(json!({}), None), source(volume, None)], [None, None]);
    let built_in = AgentSource::Image { path: "/bps-agent".into() };
    assert_eq!(source(json!({"agentSource": "Image"}), None), Some(built_in));
}

#[test]
fn another_way_makes_a_revision_and_the_default_by_its_name_does_not() {
    let of = |active_standby: Value| revision(&set(paired(active_standby)).spec);
    let usual = of(json!({}));
    assert_eq!(of(json!({"agentSource": "Copy"})), usual);
    let volume = of(json!({"agentSource": "ImageVolume"}));
    let built_in = of(json!({"agentSource": "Image"}));
    let elsewhere = of(json!({"agentSource": "Image", "agentPath": "/opt/bps-agent"}));
    let all = std::collections::BTreeSet::from([usual.0, volume.0, built_in.0, elsewhere.0]);
    assert_eq!(all.len(), 4);
}

/// A template in which anything may stand where the agent puts something.
fn template() -> impl Strategy<Value = Value> {
    let parts = proptest::collection::vec(any::<bool>(), PARTS.len());
    let policy = proptest::option::of(prop_oneof![Just("Always"), Just("IfNotPresent")]);
    (parts, policy).prop_map(|(chosen, policy)| {
        let containers = json!([
            {"name": "side", "image": "side:1"},
            {"name": "web", "image": "web:1", "command": ["/web"]},
        ]);
        let mut template =
            json!({"metadata": {"labels": {"app": "web"}}, "spec": {"containers": containers}});
        if let Some(policy) = policy {
            template["spec"]["containers"][1]["imagePullPolicy"] = json!(policy);
        }
        for ((path, part), _) in PARTS.iter().zip(chosen).filter(|(_, is_there)| *is_there) {
            let (parent, field) = path.rsplit_once('/').expect("a path");
            let part: Value = serde_json::from_str(part).expect("JSON");
            template.pointer_mut(parent).expect("a parent")[field] = part;
        }
        template
    })
}

/// Where something may stand, parents first, and what.
const PARTS: [(&str, &str); 9] = [
    ("/metadata/annotations", r#"{"team": "shop"}"#),
    ("/spec/initContainers", r#"[{"name": "migrate", "image": "tools:2"}]"#),
    ("/spec/volumes", r#"[{"name": "tools", "image": {"reference": "tools:2"}}]"#),
    ("/spec/containers/1/volumeMounts", r#"[{"name": "tools", "mountPath": "/tools"}]"#),
    (
        "/spec/containers/1/env",
        r#"[{"name": "HA_AGENT", "value": "mine"}, {"name": "POD_IP", "value": "x"}]"#,
    ),
    ("/spec/containers/1/resources", r#"{"limits": {"cpu": "1", "example.com/gpu": "1"}}"#),
    ("/spec/containers/1/readinessProbe", r#"{"httpGet": {"path": "/", "port": 80}}"#),
    ("/spec/containers/1/startupProbe", r#"{"httpGet": {"path": "/", "port": 80}}"#),
    ("/spec/containers/0/volumeMounts", r#"[{"name": "tools", "mountPath": "/tools"}]"#),
];

proptest! {
    #[test]
    fn each_way_takes_the_place_of_any_other_and_leaves_nothing_behind(template in template()) {
        for source in sources() {
            let once = injected(&template, source.clone());
            prop_assert_eq!(uninject(&once), Ok(template.clone()));
            for other in sources() {
                prop_assert_eq!(injected(&once, other.clone()), injected(&template, other));
            }
            let starts_one_more = once["spec"]["initContainers"] != template["spec"]["initContainers"];
            prop_assert_eq!(starts_one_more, matches!(source, AgentSource::Copy { .. }));
        }
    }
}
