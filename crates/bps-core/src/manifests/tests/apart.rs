//! The Pods of a pair are on different nodes, if the scheduler can.

use bps_api::keys;
use serde_json::{Value, json};

use super::inject::{injection, template};
use super::{pod_of, set};
use crate::manifests::{inject, uninject};
use crate::model::Role;

/// The term that is added.
fn term() -> Value {
    json!({
        "weight": 100,
        "podAffinityTerm": {
            "topologyKey": "kubernetes.io/hostname",
            "labelSelector": {"matchLabels": {"backup.example.com/group": "web"}},
        },
    })
}

fn preferring(terms: &Value) -> Value {
    json!({"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": terms}})
}

/// The template with these fields of its Pod.
fn placed(fields: &Value) -> Value {
    let mut template = template();
    for (key, value) in fields.as_object().unwrap() {
        template["spec"][key] = value.clone();
    }
    template
}

#[test]
fn a_template_that_does_not_say_where_its_pods_go_prefers_different_nodes() {
    let once = inject(&template(), &injection()).unwrap();
    assert_eq!(once["spec"]["affinity"], preferring(&json!([term()])));
    assert_eq!(inject(&once, &injection()).unwrap(), once);
    assert_eq!(uninject(&once), Ok(template()));

    let zone = json!({"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": []}});
    let on_nodes = placed(&json!({"affinity": {"nodeAffinity": zone}}));
    let once = inject(&on_nodes, &injection()).unwrap();
    let mut expected = preferring(&json!([term()]));
    expected["nodeAffinity"] = zone;
    assert_eq!(once["spec"]["affinity"], expected);
    assert_eq!(uninject(&once), Ok(on_nodes));
}

#[test]
fn a_template_that_says_where_its_pods_go_keeps_its_word() {
    let own = [
        json!({"affinity": preferring(&json!([]))}),
        json!({"affinity": {"podAntiAffinity": {}}}),
        json!({"topologySpreadConstraints": [{"maxSkew": 1}]}),
        json!({"topologySpreadConstraints": []}),
    ];
    for own in own {
        let before = placed(&own);
        let once = inject(&before, &injection()).unwrap();
        for field in ["affinity", "topologySpreadConstraints"] {
            assert_eq!(once["spec"].get(field), before["spec"].get(field), "{own}");
        }
        assert_eq!(uninject(&once), Ok(before));
    }
}

#[test]
fn a_wish_that_was_edited_since_stays_but_for_the_term_that_was_added() {
    let mut other = term();
    other["weight"] = json!(50);
    let once = |terms: Value| {
        let mut once = inject(&template(), &injection()).unwrap();
        once["spec"]["affinity"] = preferring(&terms);
        once
    };
    let expected = placed(&json!({"affinity": preferring(&json!([other]))}));
    for terms in [json!([term(), other]), json!([other])] {
        assert_eq!(uninject(&once(terms)).as_ref(), Ok(&expected));
    }
}

#[test]
fn a_paired_set_spreads_its_pods_once_and_those_of_all_roles_whatever_its_strategy() {
    let container = json!({"name": "web", "image": "web:1", "command": ["/web"]});
    let of = |strategy: &str| {
        let pod = pod_of(
            &set(json!({
                "replicas": 1, "strategy": {"init": strategy}, "activeStandby": {},
                "template": {"spec": {"containers": [container]}},
            })),
            Role::Primary,
        );
        let constraints = pod["spec"]["topologySpreadConstraints"].as_array().cloned().unwrap_or_default();
        let of_all = |each: &&Value| each["labelSelector"]["matchLabels"][keys::LABEL_ROLE].is_null();
        let over_all = constraints.iter().filter(of_all).count();
        (constraints.len(), over_all, pod["spec"].get("affinity").cloned())
    };
    assert_eq!(["best", "random"].map(of), [(2, 2, None), (2, 2, None)]);
}
