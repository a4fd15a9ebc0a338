//! Every Pod made from a restricted template satisfies the `restricted` level of Kubernetes' Pod Security Standards.

use serde_json::{Value, json};

use super::{gate_settings, pod_of, restricted_template, set};
use crate::model::Role;

/// Volume types that the restricted level allows. Source: `policy/check_restrictedVolumes.go` of
/// k8s.io/pod-security-admission 0.36.4.
const VOLUME_TYPES: [&str; 9] = [
    "configMap",
    "csi",
    "downwardAPI",
    "emptyDir",
    "ephemeral",
    "image",
    "persistentVolumeClaim",
    "projected",
    "secret",
];

/// What the restricted level forbids in this Pod; the rules are those of the standard's page, one line each.
fn violations(pod: &Value) -> Vec<String> {
    let spec = &pod["spec"];
    let mut found = Vec::new();
    let mut demand = |holds: bool, what: &str, whose: &str| {
        if !holds {
            found.push(format!("{whose}: {what}"));
        }
    };
    for field in ["hostNetwork", "hostPID", "hostIPC"] {
        demand(spec[field] != json!(true), field, "pod");
    }
    demand(spec["securityContext"]["runAsUser"] != json!(0), "runAsUser", "pod");
    for volume in spec["volumes"].as_array().into_iter().flatten() {
        let types = volume.as_object().unwrap().keys().filter(|key| *key != "name");
        let is_allowed = types.into_iter().all(|kind| VOLUME_TYPES.contains(&kind.as_str()));
        demand(is_allowed, "volume type", volume["name"].as_str().unwrap());
    }
    let lists = ["initContainers", "containers"].map(|list| spec[list].as_array());
    for container in lists.into_iter().flatten().flatten() {
        let name = container["name"].as_str().unwrap();
        let own = &container["securityContext"];
        let effective = |field: &str| {
            if own[field].is_null() { spec["securityContext"][field].clone() } else { own[field].clone() }
        };
        demand(own["allowPrivilegeEscalation"] == json!(false), "allowPrivilegeEscalation", name);
        demand(own["privileged"] != json!(true), "privileged", name);
        demand(own["capabilities"]["drop"] == json!(["ALL"]), "capabilities.drop", name);
        let added = own["capabilities"]["add"].as_array();
        demand(added.into_iter().flatten().all(|one| one == "NET_BIND_SERVICE"), "capabilities.add", name);
        demand(effective("runAsNonRoot") == json!(true), "runAsNonRoot", name);
        demand(effective("runAsUser") != json!(0), "runAsUser", name);
        let profile = effective("seccompProfile")["type"].clone();
        demand(profile == "RuntimeDefault" || profile == "Localhost", "seccompProfile", name);
        let ports = container["ports"].as_array();
        let has_host_port = ports.into_iter().flatten().any(|port| !port["hostPort"].is_null());
        demand(!has_host_port, "hostPort", name);
    }
    found
}

#[test]
fn every_generated_pod_is_admitted_by_restricted_pod_security() {
    let service = json!({"name": "front", "ports": [{"port": 80}]});
    for role in Role::ALL {
        for image_gate in [true, false] {
            let spec = json!({
                "template": restricted_template(), "coldStart": {"imageGate": image_gate}, "service": service,
            });
            assert_eq!(violations(&pod_of(&set(spec), role)), [""; 0], "{role}, image gate {image_gate}");
        }
    }
}

#[test]
fn every_way_in_which_the_agent_comes_is_admitted_by_restricted_pod_security() {
    let mut template = restricted_template();
    template["spec"]["containers"][0]["command"] = json!(["/web"]);
    for source in ["Copy", "ImageVolume", "Image"] {
        let active_standby = json!({"container": "web", "agentSource": source});
        let set = set(json!({"template": template, "activeStandby": active_standby}));
        for role in Role::ALL {
            assert_eq!(violations(&pod_of(&set, role)), [""; 0], "{role}, {source}");
        }
    }
}

#[test]
fn the_check_sees_each_kind_of_violation() {
    let cases = [
        ("/spec/hostNetwork", json!(true)),
        ("/spec/securityContext", json!({})),
        ("/spec/volumes/0", json!({"name": "root", "hostPath": {"path": "/"}})),
        ("/spec/initContainers/0/securityContext", json!({})),
        ("/spec/initContainers/0/securityContext/runAsUser", json!(0)),
        ("/spec/initContainers/0/securityContext/capabilities/add", json!(["SYS_TIME"])),
        ("/spec/containers/0/ports", json!([{"containerPort": 80, "hostPort": 80}])),
    ];
    for (path, value) in cases {
        let mut pod = pod_of(&set(json!({"template": restricted_template()})), Role::Cold);
        let (parent, field) = path.rsplit_once('/').unwrap();
        let parent = pod.pointer_mut(parent).unwrap();
        if let Value::Array(items) = parent {
            items[field.parse::<usize>().unwrap()] = value;
        } else {
            parent[field] = value;
        }
        assert_ne!(violations(&pod), [""; 0], "{path}");
    }
}

#[test]
fn a_gate_knows_public_keys_and_a_pod_that_is_not_cold_knows_none() {
    let set = set(json!({"template": restricted_template()}));
    let [first, second] = [0, 1].map(|index| gate_settings().public_keys[index].clone());
    for role in Role::ALL {
        let text = pod_of(&set, role).to_string();
        let knows = [&first.0, &first.1, &second.0, &second.1].map(|part| text.contains(part.as_str()));
        assert_eq!(knows, [role == Role::Cold; 4], "{role}");
    }
}

#[test]
fn only_the_gate_is_told_the_keys_the_set_and_its_own_pod() {
    let cold = pod_of(&set(json!({"template": restricted_template()})), Role::Cold);
    let containers =
        ["initContainers", "containers"].map(|list| cold["spec"][list].as_array().unwrap().clone());
    let with_env: Vec<Value> = containers.into_iter().flatten().filter(|one| !one["env"].is_null()).collect();
    let [gate] = with_env.as_slice() else { panic!("{with_env:#?}") };
    assert_eq!(gate["name"], "bps-gate");
    let names: Vec<&Value> =
        gate["env"].as_array().unwrap().iter().map(|variable| &variable["name"]).collect();
    assert_eq!(names, ["BPS_POD_UID", "BPS_SET_UID", "BPS_WAKE_KEYS"]);
}

/// Kubernetes evicts and kills Burstable Pods before Guaranteed ones; a cold backup must not be worth less.
#[test]
fn a_guaranteed_template_stays_guaranteed_while_it_is_cold() {
    let amounts = json!({"cpu": "500m", "memory": "64Mi"});
    for image_gate in [true, false] {
        let container =
            json!({"name": "web", "image": "web:1", "resources": {"limits": amounts, "requests": amounts}});
        let spec = json!({
            "template": {"spec": {"containers": [container]}}, "coldStart": {"imageGate": image_gate},
        });
        let cold = pod_of(&set(spec), Role::Cold);
        for container in cold["spec"]["initContainers"].as_array().unwrap() {
            let expected = json!({"limits": amounts, "requests": amounts});
            assert_eq!(container["resources"], expected, "{}, image gate {image_gate}", container["name"]);
        }
    }
}
