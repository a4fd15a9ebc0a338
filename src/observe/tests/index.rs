//! Which sets an event affects, and which Pods are found for a set.

use kube::core::DeserializeGuard;
use serde_json::{Value, json};

use super::{at, condition, pod, ready_pod, set, template};
use crate::api::keys;
use crate::model::NodeHealth;
use crate::observe::slim::{SlimNode, SlimPod};
use crate::observe::store::CONFIRMATION_DEADLINE;
use crate::observe::{Affected, Cache, Change, Kind, KnownKeys, Scope, SetKey, Watched, Written};

fn key(name: &str) -> SetKey {
    SetKey { namespace: "shop".into(), name: name.into() }
}

fn urgent(name: &str) -> Affected {
    (key(name), Change::Urgent)
}

/// The ready Pod `web-0` at a version with the label of this set.
fn of_set(name: &str, version: u64) -> SlimPod {
    let mut pod = ready_pod(5);
    pod.metadata.resource_version = Some(version.to_string());
    pod.metadata.labels.as_mut().unwrap().insert(keys::LABEL_SET.to_owned(), name.to_owned());
    pod
}

fn names(cache: &Cache, set: &str) -> Vec<String> {
    cache.pods_of(&key(set)).map(|pod| pod.metadata.name.clone().unwrap()).collect()
}

fn node(ready: &str, unschedulable: bool) -> SlimNode {
    let body = json!({
        "metadata": {"name": "n1"}, "spec": {"unschedulable": unschedulable},
        "status": {"conditions": [condition("Ready", ready, 1)]},
    });
    serde_json::from_value(body).unwrap()
}

#[test]
fn a_pod_that_changes_its_set_is_news_for_both() {
    let mut cache = Cache::default();
    assert_eq!(of_set("web", 1).seen(&mut cache, at(0)), [urgent("web")]);
    assert_eq!(of_set("api", 2).seen(&mut cache, at(0)), [urgent("api"), urgent("web")]);
    assert_eq!((names(&cache, "web"), names(&cache, "api")), (vec![], vec!["web-0".to_owned()]));
    assert_eq!(of_set("web", 1).seen(&mut cache, at(0)), [], "an old event changes nothing");
    // The event of its deletion carries a label that the cache has not seen.
    assert_eq!(of_set("web", 3).lost(&mut cache, at(0)), [urgent("api")]);
    assert_eq!((names(&cache, "web"), names(&cache, "api")), (vec![], vec![]));
}

#[test]
fn a_pod_that_was_made_anew_under_its_name_is_news() {
    let mut cache = Cache::default();
    of_set("web", 1).seen(&mut cache, at(0));
    let mut again = of_set("web", 2);
    again.metadata.uid = Some("u1".into());
    assert_eq!(again.seen(&mut cache, at(0)), [urgent("web")]);
}

#[test]
fn a_set_is_news_when_its_wish_its_end_or_its_identity_changes() {
    let mut cache = Cache::default();
    let changed = |metadata: Value| {
        let mut body = serde_json::to_value(set(json!({"template": template()}))).unwrap();
        super::merge(&mut body, &json!({"metadata": metadata}));
        DeserializeGuard(Ok(serde_json::from_value::<crate::api::BackupPodSet>(body).unwrap()))
    };
    let mut seen = |metadata: Value| changed(metadata).seen(&mut cache, at(0));
    assert_eq!(seen(json!({})), [urgent("web")]);
    assert_eq!(seen(json!({"resourceVersion": "6", "labels": {"a": "b"}})), []);
    assert_eq!(seen(json!({"resourceVersion": "7", "generation": 2})), [urgent("web")]);
    let leaving = json!({"resourceVersion": "8", "generation": 2, "deletionTimestamp": super::text(9)});
    assert_eq!(seen(leaving), [urgent("web")]);
    // Deleted and made anew while the watch was away: the generation begins at 1 again.
    let mut cache = Cache::default();
    assert_eq!(changed(json!({})).seen(&mut cache, at(0)), [urgent("web")]);
    let anew = changed(json!({"uid": "other", "resourceVersion": "9"}));
    assert_eq!(anew.seen(&mut cache, at(0)), [urgent("web")]);
    let old = changed(json!({})).lost(&mut cache, at(0));
    assert_eq!((old, cache.set_keys()), (vec![], vec![key("web")]));
    let gone = changed(json!({"uid": "other"})).lost(&mut cache, at(0));
    assert_eq!((gone, cache.set_keys()), (vec![urgent("web")], vec![]));
}

#[test]
fn a_node_is_news_for_the_sets_with_pods_on_it_if_its_health_changes() {
    let mut cache = Cache::default();
    of_set("web", 1).seen(&mut cache, at(0));
    let elsewhere = json!({"metadata": {"name": "api-0", "labels": {(keys::LABEL_SET): "api"}}, "spec": {"nodeName": "n2"}});
    pod(&elsewhere).seen(&mut cache, at(0));
    assert_eq!(node("True", false).seen(&mut cache, at(0)), [urgent("web")]);
    assert_eq!(node("True", false).seen(&mut cache, at(0)), []);
    assert_eq!(node("True", true).seen(&mut cache, at(0)), [urgent("web")]);
    assert_eq!(node("Unknown", true).seen(&mut cache, at(0)), [urgent("web")]);
    assert_eq!(node("True", true).lost(&mut cache, at(0)), [urgent("web")]);
    assert!(cache.nodes.is_empty());
}

#[test]
fn a_storm_is_news_for_every_set_when_it_begins_and_when_it_ends() {
    let mut cache = Cache::default();
    of_set("web", 1).seen(&mut cache, at(0));
    let lost = |name: &str, ready: &str| {
        let mut node = node(ready, false);
        node.metadata.name = Some(name.into());
        node
    };
    assert_eq!(lost("n8", "False").seen(&mut cache, at(0)), []);
    assert_eq!(lost("n9", "False").seen(&mut cache, at(0)), [urgent("web")]);
    assert!(cache.has_storm());
    assert_eq!(lost("n9", "True").seen(&mut cache, at(0)), [urgent("web")]);
    assert!(!cache.has_storm());
}

#[test]
fn a_list_of_nodes_removes_those_that_it_does_not_show() {
    let mut cache = Cache::default();
    of_set("web", 1).seen(&mut cache, at(0));
    node("True", false).seen(&mut cache, at(0));
    cache.begin_list(Kind::Nodes, &Scope(None));
    node("True", false).seen(&mut cache, at(0));
    assert_eq!(cache.end_list(Kind::Nodes, &Scope(None), at(0)), []);
    assert_eq!(cache.nodes.values().map(|node| node.health).collect::<Vec<_>>(), [NodeHealth::Healthy]);
    cache.begin_list(Kind::Nodes, &Scope(None));
    assert_eq!(cache.end_list(Kind::Nodes, &Scope(None), at(0)), [urgent("web")]);
    assert!(cache.nodes.is_empty());
}

#[test]
fn a_cache_is_synced_when_every_watch_has_listed_in_its_scope() {
    let shop = Scope(Some("shop".into()));
    let mut cache = Cache::expecting([(Kind::Pods, shop.clone()), (Kind::Nodes, Scope(None))]);
    let mut synced_after = |kind: Kind, scope: &Scope| {
        cache.begin_list(kind, scope);
        cache.end_list(kind, scope, at(0));
        cache.is_synced()
    };
    assert!(!synced_after(Kind::Nodes, &Scope(None)));
    assert!(!synced_after(Kind::Sets, &shop));
    assert!(!synced_after(Kind::Pods, &Scope(None)));
    assert!(synced_after(Kind::Pods, &shop));
}

#[test]
fn a_list_or_the_deadline_that_removes_a_pod_is_news_for_its_set() {
    let mut cache = Cache::default();
    of_set("web", 1).seen(&mut cache, at(0));
    cache.begin_list(Kind::Pods, &Scope(None));
    assert_eq!(cache.end_list(Kind::Pods, &Scope(None), at(0)), [urgent("web")]);
    assert_eq!(names(&cache, "web"), [""; 0]);
    let mut written = of_set("api", 2);
    written.metadata.uid = Some("u1".into());
    cache.wrote(Written::Pod(Box::new(written)), at(0));
    assert_eq!(names(&cache, "api"), ["web-0"]);
    let due = at(0) + CONFIRMATION_DEADLINE;
    assert_eq!((cache.has_overdue(at(59)), cache.has_overdue(due)), (false, true));
    cache.begin_list(Kind::Pods, &Scope(None));
    assert_eq!(cache.end_list(Kind::Pods, &Scope(None), due), [urgent("api")]);
    assert_eq!(names(&cache, "api"), [""; 0]);
}

#[test]
fn a_set_that_only_our_status_write_has_shown_needs_a_list_in_time() {
    let mut cache = Cache::default();
    cache.wrote(Written::Set(Box::new(set(json!({"template": template()})))), at(0));
    let due = at(0) + CONFIRMATION_DEADLINE;
    assert_eq!((cache.has_overdue(at(59)), cache.has_overdue(due)), (false, true));
    cache.begin_list(Kind::Sets, &Scope(None));
    let dropped = cache.end_list(Kind::Sets, &Scope(None), due);
    assert_eq!((dropped, cache.set_keys()), (vec![urgent("web")], vec![]));
}

#[test]
fn a_list_of_a_sets_pods_removes_older_ones_that_it_does_not_show() {
    let mut cache = Cache::default();
    let other = |name: &str, version: u64| {
        let mut pod = of_set("web", version);
        pod.metadata.name = Some(name.into());
        pod.metadata.uid = Some(format!("u-{name}"));
        pod
    };
    for pod in [of_set("web", 1), other("gone", 19), other("last", 20), other("younger", 21)] {
        pod.seen(&mut cache, at(0));
    }
    let list = |version: &str| serde_json::from_value(json!({"resourceVersion": version})).unwrap();
    assert!(!cache.listed_pods(&key("web"), (vec![], &list("")), at(0)));
    assert_eq!(names(&cache, "web"), ["gone", "last", "web-0", "younger"]);
    assert!(cache.listed_pods(&key("api"), (vec![], &list("99")), at(0)));
    assert_eq!(names(&cache, "web"), ["gone", "last", "web-0", "younger"]);
    let shown = vec![of_set("web", 18), other("new", 17)];
    assert!(cache.listed_pods(&key("web"), (shown, &list("20")), at(0)));
    assert_eq!(names(&cache, "web"), ["new", "web-0", "younger"]);
}

#[test]
fn a_deletion_that_was_answered_as_final_outlives_late_events() {
    let mut cache = Cache::default();
    of_set("web", 1).seen(&mut cache, at(0));
    cache.wrote(Written::PodGone(Box::new(of_set("web", 1))), at(0));
    assert_eq!(of_set("web", 2).seen(&mut cache, at(0)), []);
    assert_eq!(names(&cache, "web"), [""; 0]);
}

#[test]
fn tickets_are_held_until_their_time_and_then_forgotten() {
    let mut cache = Cache::default();
    let uid = |name: &str| crate::model::Uid(name.into());
    cache.hold_tickets(uid("a"), at(2), at(0));
    cache.hold_tickets(uid("b"), at(3), at(1));
    cache.hold_tickets(uid("a"), at(5), at(2));
    assert_eq!(cache.tickets, [(uid("a"), at(5)), (uid("b"), at(3))].into());
    cache.hold_tickets(uid("c"), at(9), at(5));
    assert_eq!(cache.tickets, [(uid("c"), at(9))].into());
}

#[test]
fn a_list_without_any_pod_is_believed_the_second_time_if_there_were_many() {
    let pods = |cache: &mut Cache, count: u64| {
        for number in 0..count {
            let mut pod = of_set("web", number + 1);
            (pod.metadata.name, pod.metadata.uid) =
                (Some(format!("web-{number}")), Some(format!("u{number}")));
            pod.seen(cache, at(0));
        }
    };
    let empty_list = |cache: &mut Cache| {
        cache.begin_list(Kind::Pods, &Scope(None));
        cache.end_list(Kind::Pods, &Scope(None), at(0)).len()
    };
    let mut few = Cache::default();
    pods(&mut few, 9);
    assert_eq!((empty_list(&mut few), few.has_overdue(at(0))), (9, false));
    let mut many = Cache::default();
    pods(&mut many, 10);
    assert_eq!((empty_list(&mut many), many.has_overdue(at(0))), (0, true));
    assert_eq!(names(&many, "web").len(), 10);
    assert_eq!((empty_list(&mut many), many.has_overdue(at(0))), (10, false));

    let mut doubted = Cache::default();
    pods(&mut doubted, 10);
    empty_list(&mut doubted);
    doubted.begin_list(Kind::Pods, &Scope(None));
    pods(&mut doubted, 10);
    doubted.end_list(Kind::Pods, &Scope(None), at(0));
    assert!(!doubted.has_overdue(at(0)), "the next list has shown them");
}

#[test]
fn other_keys_affect_every_set_and_the_same_ones_none() {
    let mut cache = Cache::default();
    set(json!({"template": template()})).seen(&mut cache, at(0));
    let keys = |id: &str| KnownKeys([id.to_owned()].into());
    let affected = [(key("web"), Change::Ordinary)];
    assert_eq!(cache.know_keys(keys("k1")), affected);
    assert_eq!(cache.know_keys(keys("k1")), []);
    assert_eq!(cache.know_keys(keys("k2")), affected);
}
