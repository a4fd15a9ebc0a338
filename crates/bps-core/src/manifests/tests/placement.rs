//! Where a Pod asks to be put: spread over domains, and confined to its subset of the nodes.

use bps_api::keys;
use serde_json::{Value, json};

use super::{gate_settings, now, set};
use crate::manifests::{PodRequest, pod, set_group_spec};
use crate::model::{PodName, Role, SubsetName};

/// A set whose template has these fields, and with this `topology`.
fn placed(fields: &Value, topology: &Value) -> bps_api::BackupPodSet {
    let mut spec = json!({"containers": [{"name": "web", "image": "web:1"}]});
    for (key, value) in fields.as_object().expect("fields") {
        spec[key] = value.clone();
    }
    set(json!({"template": {"spec": spec}, "topology": topology}))
}

/// The Pod of a set that is made for a subset.
fn pod_in(set: &bps_api::BackupPodSet, subset: Option<&str>) -> Value {
    let (name, subset) = (PodName("web-0".into()), subset.map(|name| SubsetName(name.into())));
    let request = PodRequest {
        set,
        name: &name,
        role: Role::Hot,
        slot: 0,
        subset: subset.as_ref(),
        now: now(),
        injection: None,
    };
    pod(&request, &gate_settings()).expect("a Pod")
}

#[test]
fn a_pod_of_a_subset_carries_its_name_goes_to_its_nodes_and_tolerates_their_taints() {
    let in_east = json!({"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["east"]});
    let toleration = json!({"key": "spot", "operator": "Exists"});
    let topology = json!({"subsets": [
        {"name": "west"},
        {"name": "east", "nodeSelectorTerm": {"matchExpressions": [in_east]}, "tolerations": [toleration]},
    ]});
    let pod = pod_in(&placed(&json!({}), &topology), Some("east"));
    assert_eq!(pod["metadata"]["labels"][keys::LABEL_SUBSET], "east");
    let terms = json!([{"matchExpressions": [in_east]}]);
    let required = json!({"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}});
    assert_eq!(pod["spec"]["affinity"], json!({"nodeAffinity": required}));
    assert_eq!(pod["spec"]["tolerations"], json!([toleration]));

    let pod = pod_in(&placed(&json!({}), &topology), Some("west"));
    assert_eq!(pod["metadata"]["labels"][keys::LABEL_SUBSET], "west");
    assert_eq!((&pod["spec"]["affinity"], &pod["spec"]["tolerations"]), (&Value::Null, &Value::Null));
}

#[test]
fn every_alternative_of_the_template_is_confined_to_the_subset() {
    let own = |value: &str| json!({"key": "disk", "operator": "In", "values": [value]});
    let preferred = json!([{"weight": 1, "preference": {"matchExpressions": [own("quick")]}}]);
    let alternatives = json!([{"matchExpressions": [own("ssd")]}, {"matchExpressions": [own("nvme")]}]);
    let fields = json!({
        "affinity": {"nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": alternatives},
            "preferredDuringSchedulingIgnoredDuringExecution": preferred,
        }},
        "tolerations": [{"key": "own", "operator": "Exists"}],
    });
    let on_node = json!({"key": "metadata.name", "operator": "In", "values": ["n1"]});
    let subset = json!({
        "name": "one", "nodeSelectorTerm": {"matchFields": [on_node]}, "tolerations": [{"key": "spot"}],
    });
    let pod = pod_in(&placed(&fields, &json!({"subsets": [subset]})), Some("one"));
    let confined = json!([
        {"matchExpressions": [own("ssd")], "matchFields": [on_node]},
        {"matchExpressions": [own("nvme")], "matchFields": [on_node]},
    ]);
    assert_eq!(
        pod["spec"]["affinity"]["nodeAffinity"],
        json!({
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": confined},
            "preferredDuringSchedulingIgnoredDuringExecution": preferred,
        })
    );
    assert_eq!(pod["spec"]["tolerations"], json!([{"key": "own", "operator": "Exists"}, {"key": "spot"}]));
}

#[test]
fn tiers_are_spread_over_the_domains_of_the_key_as_the_set_says() {
    let spread = |topology: Value| -> Vec<Value> {
        let pod = pod_in(&placed(&json!({}), &topology), None);
        let constraints = pod["spec"]["topologySpreadConstraints"].as_array().expect("constraints").iter();
        constraints.map(|each| json!([each["topologyKey"], each["whenUnsatisfiable"]])).collect()
    };
    let (rack, host) =
        (json!(["rack", "ScheduleAnyway"]), json!(["kubernetes.io/hostname", "ScheduleAnyway"]));
    let hard = json!(["rack", "DoNotSchedule"]);
    assert_eq!(spread(json!({"key": "rack"})), [rack.clone(), host.clone()]);
    assert_eq!(spread(json!({"key": "rack", "tiers": "Ignore"})), std::slice::from_ref(&host));
    assert_eq!(spread(json!({"key": "rack", "tiers": "Required"})), [rack, host.clone(), hard]);
    // Of one key there may be one soft constraint.
    assert_eq!(spread(json!({"key": "kubernetes.io/hostname"})), [host]);

    let set = placed(&json!({}), &json!({"key": "rack", "tiers": "Required"}));
    let hard = &pod_in(&set, None)["spec"]["topologySpreadConstraints"][2];
    assert_eq!(
        *hard,
        json!({
            "maxSkew": 1, "topologyKey": "rack", "whenUnsatisfiable": "DoNotSchedule", "nodeTaintsPolicy": "Honor",
            "labelSelector": {"matchLabels": {(keys::LABEL_SET): "web", (keys::LABEL_ROLE): "hot"}},
        })
    );
}

#[test]
fn the_group_of_a_set_of_pairs_learns_where_standbys_may_be() {
    let of = |topology: Value| {
        let template =
            json!({"spec": {"containers": [{"name": "web", "image": "web:1", "command": ["web"]}]}});
        let set = set(json!({"template": template, "activeStandby": {}, "topology": topology}));
        let group = set_group_spec(&set).expect("ports").expect("a group");
        json!(group.topology)
    };
    assert_eq!(of(Value::Null), Value::Null);
    let required = json!({"key": "rack", "standby": "Required"});
    assert_eq!(of(required.clone()), required);
    assert_eq!(of(json!({})), json!({"key": "topology.kubernetes.io/zone", "standby": "Preferred"}));
}
