//! The PodDisruptionBudget of a set, and those of others for the same Pods.

use bps_core::manifests::budget;
use bps_core::model::{ExposedKind, ObjectState};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use serde_json::{Value, json};

use super::{at, merge, set};
use crate::{Cache, Change, Kind, Observation, Scope, SetKey, Watched as _, misleading_budget, observe};

fn wish(changes: &Value) -> Value {
    let container = json!({"name": "web", "image": "web:1"});
    let template = json!({"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [container]}});
    let mut wish = json!({"replicas": 2, "hotBackups": 1, "template": template});
    merge(&mut wish, changes);
    wish
}

/// The set with these fields, and these budgets.
fn seen(fields: &Value, budgets: &[Value]) -> Observation {
    let mut cache = Cache::default();
    set(wish(fields)).seen(&mut cache, at(0));
    cache.begin_list(Kind::Budgets, &Scope(None));
    for budget in budgets {
        read(budget).seen(&mut cache, at(0));
    }
    cache.end_list(Kind::Budgets, &Scope(None), at(0));
    let key = SetKey { namespace: "shop".into(), name: "web".into() };
    observe(&cache, &key, at(1)).expect("the set is there")
}

fn read(budget: &Value) -> PodDisruptionBudget {
    serde_json::from_value(budget.clone()).unwrap()
}

/// The set's own one, changed like this.
fn own(changes: &Value) -> Value {
    let mut body = budget(&set(wish(&json!({})))).expect("it wants one");
    merge(&mut body, &json!({"metadata": {"uid": "u-own", "resourceVersion": "4"}}));
    merge(&mut body, changes);
    body
}

/// One of somebody else.
fn foreign(selector: &Value) -> Value {
    json!({
        "metadata": {"name": "mine", "namespace": "shop", "uid": "u-mine", "resourceVersion": "5"},
        "spec": {"maxUnavailable": 1, "selector": selector},
    })
}

#[test]
fn a_budget_is_compared_with_the_counts() {
    let state = |fields: &Value, budgets: &[Value]| seen(fields, budgets).snapshot.budget;
    assert_eq!(state(&json!({}), &[]), Some(ObjectState::Absent));
    assert_eq!(state(&json!({}), &[own(&json!({}))]), Some(ObjectState::Current));
    for edit in [
        json!({"spec": {"minAvailable": 1}}),
        json!({"spec": {"minAvailable": null, "maxUnavailable": 1}}),
        json!({"spec": {"selector": {"matchLabels": {"app": "web"}}}}),
        json!({"spec": {"unhealthyPodEvictionPolicy": null}}),
    ] {
        assert_eq!(state(&json!({}), &[own(&edit)]), Some(ObjectState::Outdated), "{edit}");
    }
    assert_eq!(state(&json!({"hotBackups": 2}), &[own(&json!({}))]), Some(ObjectState::Outdated));
    let taken = own(
        &json!({"metadata": {"ownerReferences": null, "labels": null}, "spec": {"selector": {"matchLabels": {"app": "x"}}}}),
    );
    assert_eq!(state(&json!({}), &[taken]), Some(ObjectState::Foreign));
}

#[test]
fn a_set_with_one_pod_that_runs_or_a_wish_for_none_gives_its_budget_up() {
    for fields in [json!({"replicas": 1, "hotBackups": 0}), json!({"disruption": {"budget": "None"}})] {
        let snapshot = seen(&fields, &[own(&json!({}))]).snapshot;
        assert_eq!(snapshot.budget, None);
        let left: Vec<_> = snapshot.leftovers.iter().map(|left| (left.kind, left.name.as_str())).collect();
        assert_eq!(left, [(ExposedKind::Budget, "web-bps")]);
        assert_eq!(seen(&fields, &[]).snapshot.leftovers, []);
    }
}

#[test]
fn the_set_makes_way_for_a_budget_of_somebody_else_for_the_same_pods() {
    for selector in [
        json!({}),
        json!({"matchLabels": {"app": "web"}}),
        json!({"matchLabels": {"type": "primary"}}),
        json!({"matchExpressions": [{"key": "backup.example.com/role", "operator": "NotIn", "values": ["cold"]}]}),
    ] {
        let snapshot = seen(&json!({}), &[own(&json!({})), foreign(&selector)]).snapshot;
        assert_eq!((snapshot.budget, snapshot.leftovers.len()), (None, 1), "{selector}");
    }
    for selector in [
        json!(null),
        json!({"matchLabels": {"app": "api"}}),
        json!({"matchLabels": {"backup.example.com/role": "cold"}}),
    ] {
        let snapshot = seen(&json!({}), &[own(&json!({})), foreign(&selector)]).snapshot;
        assert_eq!(snapshot.budget, Some(ObjectState::Current), "{selector}");
    }
}

#[test]
fn sets_hear_of_budgets_but_not_of_what_those_count() {
    let mut cache = Cache::default();
    set(wish(&json!({}))).seen(&mut cache, at(0));
    let key = SetKey { namespace: "shop".into(), name: "web".into() };
    let mine = foreign(&json!({}));
    assert_eq!(read(&mine).seen(&mut cache, at(1)), [(key.clone(), Change::Ordinary)]);
    let mut counted = mine.clone();
    merge(
        &mut counted,
        &json!({"metadata": {"resourceVersion": "6"}, "status": {"currentHealthy": 2, "desiredHealthy": 1, "disruptionsAllowed": 1, "expectedPods": 2}}),
    );
    assert_eq!(read(&counted).seen(&mut cache, at(2)), []);
    assert_eq!(read(&counted).lost(&mut cache, at(3)), [(key.clone(), Change::Ordinary)]);
    let own = own(&json!({}));
    assert_eq!(read(&own).seen(&mut cache, at(4)), [(key.clone(), Change::Contested)]);
    assert_eq!(read(&own).lost(&mut cache, at(5)), [(key, Change::Contested)]);
}

#[test]
fn a_budget_that_counts_primaries_and_selects_others_is_misleading() {
    let told = |selector: &Value, spec: &Value| {
        let mut budget = foreign(selector);
        budget["spec"]["maxUnavailable"].take();
        merge(&mut budget["spec"], spec);
        misleading_budget(&read(&budget), &set(wish(&json!({}))))
    };
    let (all, primaries) = (json!({}), json!({"matchLabels": {"type": "primary"}}));
    let text = told(&all, &json!({"maxUnavailable": 1})).expect("it misleads");
    assert!(text.contains("spec.replicas (2)") && text.contains("minAvailable as a number"), "{text}");
    assert!(told(&all, &json!({"minAvailable": "50%"})).is_some());
    assert!(
        told(&json!({"matchLabels": {"type": "coldbackup"}}), &json!({"maxUnavailable": "10%"})).is_some()
    );
    assert_eq!(told(&all, &json!({"minAvailable": 2})), None);
    assert_eq!(told(&primaries, &json!({"maxUnavailable": 1})), None);
    assert_eq!(told(&json!({"matchLabels": {"app": "api"}}), &json!({"maxUnavailable": 1})), None);
    assert_eq!(misleading_budget(&read(&own(&json!({}))), &set(wish(&json!({})))), None);
}

#[test]
fn no_budget_is_kept_before_it_is_known_which_there_are_and_nothing_else_waits_for_that() {
    let mut cache = Cache::expecting([(Kind::Budgets, Scope(None))]);
    assert!(cache.is_synced());
    set(wish(&json!({}))).seen(&mut cache, at(0));
    let key = SetKey { namespace: "shop".into(), name: "web".into() };
    assert_eq!(observe(&cache, &key, at(1)).unwrap().snapshot.budget, None);
    cache.begin_list(Kind::Budgets, &Scope(None));
    assert_eq!(cache.end_list(Kind::Budgets, &Scope(None), at(2)), [(key.clone(), Change::Ordinary)]);
    assert_eq!(observe(&cache, &key, at(3)).unwrap().snapshot.budget, Some(ObjectState::Absent));
}

#[test]
fn a_label_that_somebody_added_to_the_selector_is_named_so_that_it_can_be_taken_away() {
    let edited = own(&json!({"spec": {"selector": {"matchLabels": {"app": "web"}}}}));
    let seen = seen(&json!({}), &[edited]);
    assert_eq!(
        (seen.snapshot.budget, seen.budget_surplus),
        (Some(ObjectState::Outdated), vec!["app".to_owned()])
    );
}
