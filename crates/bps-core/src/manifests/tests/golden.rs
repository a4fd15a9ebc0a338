//! Whole objects against the files of `tests/golden`. `UPDATE=1` rewrites them.

use std::net::IpAddr;
use std::path::Path;

use bps_api::keys;
use bps_api::service::IpFamily;
use serde_json::{Value, json};

use super::{pod_of, set};
use crate::manifests::{
    ShownAddresses, budget, controller_revision, endpoint_slice, least_available, role_patch, service,
    slice_ports,
};
use crate::model::{Endpoint, NodeName, PodName, PodRef, Role, Uid};

/// Compares with the file, byte for byte.
pub(super) fn assert_golden(name: &str, object: &Value) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden").join(format!("{name}.yaml"));
    let text = serde_saphyr::to_string(object).expect("YAML");
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&path, &text).expect("write the file");
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(
        text, expected,
        "{name}: if the change is wanted, run the tests with UPDATE=1 and read the diff"
    );
}

fn plain_template() -> Value {
    json!({"spec": {"containers": [{"name": "web", "image": "web:1"}]}})
}

/// Everything of a container that the gate copies or must leave alone.
fn rich_template() -> Value {
    json!({
        "metadata": {"name": "ignored", "labels": {"app": "web"}, "annotations": {"team": "shop"}},
        "spec": {
            "initContainers": [
                {"name": "migrate", "image": "tools:2", "imagePullPolicy": "Always"},
                {"name": "warm", "image": "web:1"},
            ],
            "containers": [
                {"name": "web", "image": "web:1", "imagePullPolicy": "IfNotPresent",
                 "lifecycle": {"postStart": {"exec": {"command": ["hello"]}}},
                 "resources": {"requests": {"cpu": "1", "memory": "64Mi", "example.com/gpu": "1"},
                               "limits": {"memory": "128Mi", "ephemeral-storage": "1Gi"}}},
                {"name": "log", "image": "log:3", "resources": {"limits": {"cpu": "100m"}},
                 "lifecycle": {"preStop": {"exec": {"command": ["flush"]}}}},
                {"name": "log-again", "image": "log:3"},
            ],
            "volumes": [{"name": "data", "emptyDir": {}}],
        },
    })
}

fn exposed() -> Value {
    json!({"name": "front", "ports": [
        {"name": "http", "port": 80, "targetPort": "web", "appProtocol": "http"},
        {"name": "dns", "port": 53, "protocol": "UDP", "nodePort": 30053},
    ], "type": "NodePort", "drainSeconds": 2})
}

#[test]
fn a_primary_is_the_template_with_labels_owner_and_spread() {
    let set = set(json!({"template": plain_template()}));
    assert_golden("pod-primary", &pod_of(&set, Role::Primary));
}

#[test]
fn a_hot_backup_of_an_exposed_set_drains_unless_the_template_says_how_it_ends() {
    let set = set(json!({"template": rich_template(), "service": exposed()}));
    assert_golden("pod-hot-drained", &pod_of(&set, Role::Hot));
}

#[test]
fn a_cold_backup_pulls_every_image_before_its_gate() {
    let set = set(json!({"template": rich_template()}));
    assert_golden("pod-cold", &pod_of(&set, Role::Cold));
}

#[test]
fn a_cold_backup_without_image_gate_has_one_more_init_container_as_in_the_paper() {
    let template = json!({
        "metadata": {"name": "nginx", "labels": {"app": "nginx"}},
        "spec": {"containers": [{"name": "nginx", "image": "nginx:1.14.2"}]},
    });
    let set = set(json!({
        "template": template, "coldStart": {"imageGate": false}, "strategy": {"init": "random"},
        "schedulerName": "default-scheduler",
    }));
    assert_golden("pod-cold-paper", &pod_of(&set, Role::Cold));
}

#[test]
fn a_cold_backup_whose_gate_is_mounted_has_no_volume_of_its_node() {
    let set = set(json!({"template": plain_template(), "coldStart": {"gateSource": "ImageVolume"}}));
    assert_golden("pod-cold-image-volume", &pod_of(&set, Role::Cold));
}

#[test]
fn only_the_operators_own_volumes_are_added_to_those_that_the_autoscaler_may_lose() {
    let named = |set: Value| {
        let pod = pod_of(&super::set(set), Role::Cold);
        pod["metadata"]["annotations"][keys::ANNOTATION_EVICTABLE_VOLUMES].as_str().map(str::to_owned)
    };
    assert_eq!(named(json!({"template": rich_template()})).as_deref(), Some("bps-gate"));
    let mut template = rich_template();
    template["metadata"]["annotations"] = json!({(keys::ANNOTATION_EVICTABLE_VOLUMES): "data"});
    assert_eq!(named(json!({"template": template})).as_deref(), Some("data,bps-gate"));
    let mounted = json!({"gateSource": "ImageVolume"});
    assert_eq!(named(json!({"template": rich_template(), "coldStart": mounted})), None);
}

#[test]
fn the_budget_lets_one_of_the_pods_that_run_go() {
    let set = set(json!({"template": plain_template(), "replicas": 2, "hotBackups": 1, "coldBackups": 4}));
    assert_golden("budget", &budget(&set).expect("it wants one"));
}

#[test]
fn one_pod_that_runs_has_no_budget() {
    let least = |replicas: i32, hot: i32| {
        let fields =
            json!({"template": plain_template(), "replicas": replicas, "hotBackups": hot, "coldBackups": 3});
        least_available(&set(fields).spec)
    };
    let found = [least(0, 0), least(1, 0), least(0, 1), least(1, 1), least(2, 0), least(1_000, 1_000)];
    assert_eq!(found, [None, None, None, Some(1), Some(1), Some(1_999)]);
}

#[test]
fn a_template_that_places_its_pods_itself_is_left_alone() {
    let constraint = json!({"maxSkew": 2, "topologyKey": "rack", "whenUnsatisfiable": "DoNotSchedule"});
    for placement in [
        json!({"topologySpreadConstraints": [constraint]}),
        json!({"topologySpreadConstraints": []}),
        json!({"affinity": {"podAffinity": {}}}),
        json!({"affinity": {"podAntiAffinity": {}}}),
        json!({"nodeName": "here"}),
    ] {
        let mut spec = json!({"containers": [{"name": "web", "image": "web:1"}]});
        spec.as_object_mut().unwrap().extend(placement.as_object().unwrap().clone());
        let exposed = json!({"name": "front", "ports": [{"port": 80}], "drainSeconds": 0});
        let set = set(json!({"template": {"spec": spec}, "service": exposed}));
        assert_eq!(pod_of(&set, Role::Primary)["spec"], spec);
    }
}

#[test]
fn each_tier_is_spread_alone_or_with_the_others_as_its_own_strategy_says() {
    let mut template = plain_template();
    template["spec"]["affinity"] = json!({"nodeAffinity": {}});
    let set = set(json!({"template": template, "strategy": {
        "init": "oldest", "unallocatedToReplicas": "best", "unallocatedToHotbackup": "random",
        "unallocatedToColdbackup": "spread",
    }}));
    let spread = |role| -> Vec<Value> {
        let pod = pod_of(&set, role);
        let constraints = pod["spec"]["topologySpreadConstraints"].as_array().expect("constraints").iter();
        let over = constraints.map(|each| {
            let role = &each["labelSelector"]["matchLabels"][keys::LABEL_ROLE];
            json!([each["topologyKey"], each["whenUnsatisfiable"], role])
        });
        over.collect()
    };
    // The API server takes one constraint of each key and each answer to what cannot be satisfied.
    let over = |role: Value| {
        ["topology.kubernetes.io/zone", "kubernetes.io/hostname"]
            .map(|key| json!([key, "ScheduleAnyway", role]))
    };
    let expected = [over(Value::Null), over(json!("hot")), over(Value::Null)];
    assert_eq!(Role::ALL.map(spread), expected);
}

#[test]
fn a_gate_runs_as_its_own_user_or_as_whom_the_cluster_names() {
    let users = |cold_start: Value| {
        let pod = pod_of(&set(json!({"template": plain_template(), "coldStart": cold_start})), Role::Cold);
        let containers = pod["spec"]["initContainers"].as_array().expect("the gate's").clone();
        let user = |container: &Value| {
            let context = &container["securityContext"];
            assert_eq!(context["runAsNonRoot"], true);
            [context["runAsUser"].clone(), context["runAsGroup"].clone()]
        };
        containers.iter().map(user).collect::<Vec<_>>()
    };
    assert_eq!(users(json!({})), [[json!(65532), json!(65532)], [json!(65532), json!(65532)]]);
    assert_eq!(
        users(json!({"gateUser": "Inherit"})),
        [[Value::Null, Value::Null], [Value::Null, Value::Null]]
    );
}

#[test]
fn backups_have_a_class_of_their_own_and_primaries_that_of_the_template() {
    let template = json!({"spec": {
        "containers": [{"name": "web", "image": "web:1"}],
        "priorityClassName": "vital", "priority": 1000, "preemptionPolicy": "PreemptLowerPriority",
    }});
    let fields = ["priorityClassName", "priority", "preemptionPolicy"];
    let classes = |spec: Value| {
        let set = set(spec);
        Role::ALL.map(|role| {
            let pod = pod_of(&set, role);
            fields.map(|field| pod["spec"][field].clone())
        })
    };
    let own = [json!("vital"), json!(1000), json!("PreemptLowerPriority")];
    assert_eq!(classes(json!({"template": template})), [own.clone(), own.clone(), own.clone()]);
    let patient = [json!("patient"), Value::Null, Value::Null];
    let named = json!({"template": template, "backupPriorityClassName": "patient"});
    assert_eq!(classes(named), [own, patient.clone(), patient]);
}

#[test]
fn the_scheduler_of_the_set_wins_over_that_of_the_template() {
    let template =
        json!({"spec": {"schedulerName": "inner", "containers": [{"name": "web", "image": "web:1"}]}});
    let scheduler = |spec| pod_of(&set(spec), Role::Hot)["spec"]["schedulerName"].clone();
    assert_eq!(scheduler(json!({"template": template, "schedulerName": "outer"})), "outer");
    assert_eq!(scheduler(json!({"template": template})), "inner");
}

/// The API server refuses a preStop sleep that is longer than the grace period of the Pod.
#[test]
fn a_drain_always_fits_into_the_grace_period() {
    // Grace period of the template, drainSeconds, then both as they are sent.
    let cases = [
        (None, 1, None, Some(1)),
        (None, 30, None, Some(30)),
        (None, 31, Some(61), Some(31)),
        (Some(60), 31, Some(60), Some(31)),
        (Some(10), 31, Some(10), Some(10)),
        (Some(0), 1, Some(0), None),
    ];
    for (own_grace, drain, grace, sleep) in cases {
        let mut spec = json!({"containers": [{"name": "web", "image": "web:1"}]});
        if let Some(seconds) = own_grace {
            spec["terminationGracePeriodSeconds"] = json!(seconds);
        }
        let exposed = json!({"name": "front", "ports": [{"port": 80}], "drainSeconds": drain});
        let pod = pod_of(&set(json!({"template": {"spec": spec}, "service": exposed})), Role::Primary);
        let sent = (
            pod["spec"]["terminationGracePeriodSeconds"].as_i64(),
            pod["spec"]["containers"][0]["lifecycle"]["preStop"]["sleep"]["seconds"].as_i64(),
        );
        assert_eq!(sent, (grace, sleep), "grace period {own_grace:?}, drain {drain}");
    }
}

#[test]
fn a_changed_role_is_one_patch_of_labels_and_time_at_the_version_that_was_seen() {
    let pod = PodRef { name: PodName("web-1".into()), uid: Uid("u1".into()), resource_version: "17".into() };
    let mut expected = json!({"metadata": {
        "uid": "u1",
        "resourceVersion": "17",
        "labels": {"backup.example.com/role": "hot", "type": "hotbackup"},
        "annotations": {"backup.example.com/role-since": "2026-01-01T00:00:00.250Z"},
    }});
    assert_eq!(role_patch(&pod, Role::Hot, None, super::now()), expected);
    expected["metadata"]["annotations"]["backup.example.com/ticket"] = json!("42");
    assert_eq!(role_patch(&pod, Role::Hot, Some("42"), super::now()), expected);
}

#[test]
fn the_service_has_no_selector_and_every_port() {
    let set = set(json!({"template": plain_template(), "service": exposed()}));
    assert_golden("service", &service(&set, set.spec.service.as_ref().unwrap()));
}

#[test]
fn the_slice_names_each_endpoint_with_its_pod() {
    let container =
        json!({"name": "web", "image": "web:1", "ports": [{"name": "web", "containerPort": 8080}]});
    let set = set(json!({"template": {"spec": {"containers": [container]}}, "service": exposed()}));
    let service = set.spec.service.as_ref().unwrap();
    let endpoint = |number: u8, is_terminating: bool| Endpoint {
        pod: PodName(format!("web-{number}")),
        uid: Uid(format!("u{number}")),
        address: IpAddr::from([198, 18, 0, number]),
        node: (number == 1).then(|| NodeName("n1".into())),
        zone: (number == 1).then(|| "east".into()),
        is_ready: !is_terminating,
        is_terminating,
    };
    let ports = slice_ports(&set, service).unwrap();
    let endpoints = [endpoint(1, false), endpoint(2, true)];
    let shown = ShownAddresses { family: IpFamily::IPv4, endpoints: &endpoints };
    let slice = endpoint_slice(&set, service, &ports, shown);
    assert_golden("endpoint-slice", &slice);
}

#[test]
fn each_family_has_a_slice_of_its_own() {
    let set = set(json!({"template": plain_template(), "service": exposed()}));
    let service = set.spec.service.as_ref().unwrap();
    let slices = [IpFamily::IPv4, IpFamily::IPv6]
        .map(|family| endpoint_slice(&set, service, &[], ShownAddresses { family, endpoints: &[] }));
    let names = slices.map(|slice| json!([slice["metadata"]["name"], slice["addressType"]]));
    assert_eq!(names, [json!(["front-bps", "IPv4"]), json!(["front-bps-ipv6", "IPv6"])]);
}

#[test]
fn a_revision_keeps_the_template_under_its_hash() {
    let set = set(json!({"template": rich_template()}));
    assert_golden("controller-revision", &controller_revision(&set, 7));
}
