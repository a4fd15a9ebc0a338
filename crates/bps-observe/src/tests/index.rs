//! Which sets an event affects, and which Pods are found for a set.

use std::ops::Range;

use bps_api::keys;
use bps_core::model::NodeHealth;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube_core::TypeMeta;
use kube_core::object::ObjectList;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::{at, condition, pod, ready_pod, set, template};
use crate::slim::{SlimNode, SlimPod};
use crate::store::CONFIRMATION_DEADLINE;
use crate::{
    Affected, Cache, Change, Kind, KnownKeys, OfSet, Scope, SetKey, Watched, Written, observe, version,
};

fn key(name: &str) -> SetKey {
    SetKey { namespace: "shop".into(), name: name.into() }
}

fn urgent(name: &str) -> Affected {
    (key(name), Change::Urgent)
}

fn wanted(name: &str) -> Affected {
    (key(name), Change::Wanted)
}

/// The ready Pod `web-0` at a version with the label of this set.
fn of_set(name: &str, version: u64) -> SlimPod {
    let mut pod = ready_pod(5);
    pod.metadata.resource_version = Some(version.to_string());
    pod.metadata.labels.as_mut().unwrap().insert(keys::LABEL_SET.to_owned(), name.to_owned());
    pod
}

/// A list of this version.
fn list<K: Clone>(version: &str, items: Vec<K>) -> ObjectList<K> {
    let metadata = serde_json::from_value(json!({"resourceVersion": version})).unwrap();
    ObjectList { types: TypeMeta::default(), metadata, items }
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

/// A node of this name.
fn named(name: &str, ready: &str) -> SlimNode {
    let mut node = node(ready, false);
    node.metadata.name = Some(name.into());
    node
}

/// Takes in a list that shows these nodes.
fn list_nodes(cache: &mut Cache, names: &[String]) -> Vec<Affected> {
    cache.begin_list(Kind::Nodes, &Scope(None));
    for name in names {
        named(name, "True").seen(cache, at(0));
    }
    cache.end_list(Kind::Nodes, &Scope(None), at(0))
}

#[test]
fn nodes_are_told_again_only_if_something_changed_that_groups_ask_for() {
    let mut cache = Cache::default();
    let mut version = |(ready, unschedulable)| {
        node(ready, unschedulable).seen(&mut cache, at(0));
        cache.nodes_noted().version
    };
    let seen = [("True", false), ("False", false), ("True", true), ("True", true), ("False", true)];
    assert_eq!(seen.map(&mut version), [0, 0, 1, 1, 2]);
}

#[test]
fn a_node_leaves_while_it_works_and_is_cordoned() {
    let mut cache = Cache::default();
    let mut leaving = |node: SlimNode| {
        node.seen(&mut cache, at(0));
        cache.nodes_noted().leaving.iter().map(|name| name.0.clone()).collect::<Vec<_>>()
    };
    let seen = [("True", true), ("False", true), ("True", true), ("True", false), ("True", true)];
    let found = seen.map(|(ready, unschedulable)| leaving(node(ready, unschedulable)).len());
    assert_eq!(found, [1, 0, 1, 0, 1]);
    node("True", true).lost(&mut cache, at(1));
    assert_eq!(cache.nodes_noted().leaving.len(), 0);
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
        serde_json::from_value::<bps_api::BackupPodSet>(body).unwrap()
    };
    let mut seen = |metadata: Value| changed(metadata).seen(&mut cache, at(0));
    assert_eq!(seen(json!({})), [wanted("web")]);
    assert_eq!(seen(json!({"resourceVersion": "6", "labels": {"a": "b"}})), []);
    assert_eq!(seen(json!({"resourceVersion": "7", "generation": 2})), [wanted("web")]);
    let leaving = json!({"resourceVersion": "8", "generation": 2, "deletionTimestamp": super::text(9)});
    assert_eq!(seen(leaving), [wanted("web")]);
    // Deleted and made anew while the watch was away: the generation begins at 1 again.
    let mut cache = Cache::default();
    assert_eq!(changed(json!({})).seen(&mut cache, at(0)), [wanted("web")]);
    let anew = changed(json!({"uid": "other", "resourceVersion": "9"}));
    assert_eq!(anew.seen(&mut cache, at(0)), [wanted("web")]);
    let old = changed(json!({})).lost(&mut cache, at(0));
    assert_eq!((old, cache.set_keys()), (vec![], vec![key("web")]));
    let gone = changed(json!({"uid": "other"})).lost(&mut cache, at(0));
    assert_eq!((gone, cache.set_keys()), (vec![wanted("web")], vec![]));
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

/// A ready Pod of the set `web` on this node.
fn on_node(name: &str, node: &str, version: u64) -> SlimPod {
    let metadata = json!({"name": name, "uid": name, "resourceVersion": version.to_string()});
    pod(&json!({"metadata": metadata, "spec": {"nodeName": node}}))
}

#[test]
fn a_storm_is_news_for_every_set_when_it_begins_and_when_it_ends() {
    let mut cache = Cache::default();
    list_nodes(&mut cache, &["n8", "n9"].map(str::to_owned));
    on_node("web-8", "n8", 1).seen(&mut cache, at(0));
    on_node("web-9", "n9", 1).seen(&mut cache, at(0));
    // The brake keeps it from getting its first Pod.
    let mut without_pods = set(json!({"template": template()}));
    without_pods.metadata.name = Some("api".into());
    without_pods.seen(&mut cache, at(0));
    assert_eq!(named("n8", "False").seen(&mut cache, at(0)), [urgent("web")]);
    let every_set = [urgent("api"), urgent("web")];
    assert_eq!(named("n9", "False").seen(&mut cache, at(0)), every_set);
    assert!(cache.storm(at(1)).is_some());
    assert_eq!(named("n9", "True").seen(&mut cache, at(1)), every_set);
    assert!(cache.storm(at(1)).is_none());
}

#[test]
fn a_storm_ends_with_the_pods_on_the_silent_nodes() {
    let mut cache = Cache::default();
    set(json!({"template": template()})).seen(&mut cache, at(0));
    for (pod, node) in [("web-8", "n8"), ("web-9", "n9")] {
        on_node(pod, node, 1).seen(&mut cache, at(0));
        named(node, "False").seen(&mut cache, at(0));
    }
    assert!(cache.storm(at(1)).is_some());
    let affected = on_node("web-9", "n9", 1).lost(&mut cache, at(1));
    assert_eq!(affected, [urgent("web"), urgent("web")], "the Pod is gone, and the brake is off");
    assert!(cache.storm(at(1)).is_none());
}

/// Health of the only Pod's node at a moment, and when it is to be looked at again, in seconds.
fn host(cache: &Cache, second: i64) -> (NodeHealth, Option<i64>) {
    let snapshot = observe(cache, &key("web"), at(second)).expect("the set is there").snapshot;
    let seconds = |moment: jiff::Timestamp| moment.as_second() - at(0).as_second();
    (snapshot.pods[0].node_health(), snapshot.look_by.map(seconds))
}

#[test]
fn a_node_without_an_object_is_doubted_for_40_seconds_whatever_showed_that() {
    let with_pod = || {
        let mut cache = Cache::default();
        set(json!({"template": template()})).seen(&mut cache, at(0));
        list_nodes(&mut cache, &["n1", "n2", "n3"].map(str::to_owned));
        cache
    };
    let by_event = |cache: &mut Cache| {
        of_set("web", 1).seen(cache, at(0));
        named("n1", "True").lost(cache, at(0));
    };
    let by_list = |cache: &mut Cache| {
        of_set("web", 1).seen(cache, at(0));
        list_nodes(cache, &["n2", "n3"].map(str::to_owned));
    };
    let by_pod = |cache: &mut Cache| {
        on_node("web-9", "n9", 1).seen(cache, at(0));
    };
    let routes: [&dyn Fn(&mut Cache); 3] = [&by_event, &by_list, &by_pod];
    for lose in routes {
        let mut cache = with_pod();
        lose(&mut cache);
        assert_eq!(host(&cache, 0), (NodeHealth::NotReady, Some(40)));
        assert_eq!(host(&cache, 39), (NodeHealth::NotReady, Some(40)));
        assert_eq!(host(&cache, 40), (NodeHealth::Gone, None));
        for node in ["n1", "n9"] {
            named(node, "True").seen(&mut cache, at(50));
        }
        assert_eq!(host(&cache, 50), (NodeHealth::Healthy, None));
        // The next time begins anew.
        for node in ["n1", "n9"] {
            named(node, "True").lost(&mut cache, at(60));
        }
        assert_eq!(host(&cache, 99), (NodeHealth::NotReady, Some(100)));
    }
}

#[test]
fn a_missing_node_is_forgotten_with_its_last_pod() {
    let mut cache = Cache::default();
    set(json!({"template": template()})).seen(&mut cache, at(0));
    list_nodes(&mut cache, &["n1", "n2"].map(str::to_owned));
    on_node("web-1", "n1", 1).seen(&mut cache, at(0));
    named("n1", "True").lost(&mut cache, at(0));
    on_node("web-1", "n1", 1).lost(&mut cache, at(10));
    on_node("web-2", "n1", 2).seen(&mut cache, at(50));
    assert_eq!(host(&cache, 50), (NodeHealth::NotReady, Some(90)));
}

#[test]
fn nodes_whose_objects_are_deleted_one_after_the_other_are_a_storm() {
    let mut cache = Cache::default();
    set(json!({"template": template()})).seen(&mut cache, at(0));
    let nodes = ["n1", "n2", "n3"];
    list_nodes(&mut cache, &nodes.map(str::to_owned));
    for (pod, node) in [("web-1", "n1"), ("web-2", "n2"), ("web-3", "n3")] {
        on_node(pod, node, 1).seen(&mut cache, at(0));
    }
    named("n1", "True").lost(&mut cache, at(0));
    assert!(cache.storm(at(0)).is_none(), "one alone is an ordinary failure");
    named("n2", "True").lost(&mut cache, at(1));
    assert_eq!(cache.storm(at(60)).map(|storm| (storm.lost, storm.total)), Some((2, 3)));
    // Believed after 10 min, as silence is.
    assert!(cache.storm(at(600)).is_none());
}

#[test]
fn a_list_of_the_pods_of_a_set_is_news_for_the_others_if_it_ends_a_storm() {
    let mut cache = Cache::default();
    let mut other = set(json!({"template": template()}));
    other.metadata.name = Some("api".into());
    other.seen(&mut cache, at(0));
    set(json!({"template": template()})).seen(&mut cache, at(0));
    for (pod, node) in [("web-8", "n8"), ("web-9", "n9")] {
        on_node(pod, node, 1).seen(&mut cache, at(0));
        named(node, "False").seen(&mut cache, at(0));
    }
    assert!(cache.storm(at(1)).is_some());
    let left = list("9", vec![on_node("web-8", "n8", 1)]);
    assert_eq!(cache.listed(&key("web"), left, at(1)), Some(vec![urgent("api")]));
    assert!(cache.storm(at(1)).is_none());
}

#[test]
fn a_node_that_was_silent_for_long_when_it_was_first_seen_is_believed() {
    let mut cache = Cache::default();
    for (pod, node) in [("web-8", "n8"), ("web-9", "n9")] {
        on_node(pod, node, 1).seen(&mut cache, at(0));
        // By its condition since second 1.
        named(node, "False").seen(&mut cache, at(700));
    }
    assert!(cache.storm(at(700)).is_none());
}

#[test]
fn a_list_of_nodes_removes_those_that_it_does_not_show() {
    let mut cache = Cache::default();
    of_set("web", 1).seen(&mut cache, at(0));
    for name in ["n1", "n2"] {
        named(name, "True").seen(&mut cache, at(0));
    }
    let known = |cache: &Cache| -> Vec<(String, NodeHealth)> {
        cache.nodes.values().map(|node| (node.name.0.clone(), node.health)).collect()
    };
    let [first, second] = ["n1", "n2"].map(str::to_owned);
    let healthy = |name: &String| (name.clone(), NodeHealth::Healthy);
    assert_eq!(list_nodes(&mut cache, &[first.clone(), second.clone()]), []);
    assert_eq!(known(&cache), [healthy(&first), healthy(&second)]);
    assert_eq!(list_nodes(&mut cache, std::slice::from_ref(&second)), [urgent("web")]);
    assert_eq!((known(&cache), cache.has_overdue(at(0))), (vec![healthy(&second)], false));
}

/// Without its node the primary would be given up, and the slice that leads to it emptied.
#[test]
fn a_list_without_any_node_is_believed_the_second_time() {
    for others in [0, 3] {
        let mut cache = Cache::default();
        of_set("web", 1).seen(&mut cache, at(0));
        node("True", false).seen(&mut cache, at(0));
        for other in 0..others {
            named(&format!("other-{other}"), "True").seen(&mut cache, at(0));
        }
        let before = cache.nodes.clone();
        assert_eq!((list_nodes(&mut cache, &[]), cache.has_overdue(at(0))), (vec![], true));
        assert_eq!(cache.nodes, before);
        assert_eq!((list_nodes(&mut cache, &[]), cache.has_overdue(at(0))), (vec![urgent("web")], false));
        assert!(cache.nodes.is_empty());
    }
}

#[test]
fn a_list_with_less_than_45_percent_of_the_nodes_is_believed_the_second_time() {
    let name = |number: usize| format!("n{number:02}");
    let names = |numbers: Range<usize>| -> Vec<String> { numbers.map(name).collect() };
    let cases = [
        // How many are known, which of them and of new ones are shown, whether that is doubted.
        (1, 1..2, false),
        (2, 0..1, false),
        (2, 2..4, true),
        (3, 0..1, true),
        (4, 0..2, false),
        (20, 11..20, false),
        (20, 12..20, true),
        (20, 12..40, true),
    ];
    for (known, shown, is_doubted) in cases {
        let mut cache = Cache::default();
        list_nodes(&mut cache, &names(0..known));
        let shown = names(shown);
        let missing = names(0..known).iter().filter(|name| !shown.contains(name)).count();
        let kept = if is_doubted { missing } else { 0 };
        list_nodes(&mut cache, &shown);
        let seen = (cache.nodes.len() - shown.len(), cache.has_overdue(at(0)));
        assert_eq!(seen, (kept, is_doubted), "{} of {known}", shown.len());
        let mut again = Cache::default();
        list_nodes(&mut again, &names(0..known));
        for _ in 0..2 {
            list_nodes(&mut again, &shown);
        }
        assert_eq!((again.nodes.len(), again.has_overdue(at(0))), (shown.len(), false));
    }
}

#[test]
fn a_doubted_list_of_nodes_is_forgotten_if_the_next_one_shows_them() {
    let mut cache = Cache::default();
    let names = ["n1", "n2", "n3"].map(str::to_owned);
    list_nodes(&mut cache, &names);
    for _ in 0..2 {
        list_nodes(&mut cache, &[]);
        assert_eq!((cache.nodes.len(), cache.has_overdue(at(0))), (3, true));
        list_nodes(&mut cache, &names);
        assert_eq!((cache.nodes.len(), cache.has_overdue(at(0))), (3, false));
    }
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
    cache.wrote(Written::Set(Box::new(set(json!({"template": template()})).into())), at(0));
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
    assert_eq!(cache.listed::<SlimPod>(&key("web"), list("", vec![]), at(0)), None);
    assert_eq!(names(&cache, "web"), ["gone", "last", "web-0", "younger"]);
    assert_eq!(cache.listed::<SlimPod>(&key("api"), list("99", vec![]), at(0)), Some(vec![]));
    assert_eq!(names(&cache, "web"), ["gone", "last", "web-0", "younger"]);
    let shown = vec![of_set("web", 18), other("new", 17)];
    assert_eq!(cache.listed(&key("web"), list("20", shown), at(0)), Some(vec![]));
    assert_eq!(names(&cache, "web"), ["new", "web-0", "younger"]);
}

/// What one kind's list does to the objects that a look at the set finds; each of them has version 5 and this name.
fn left_of<K: OfSet + DeserializeOwned>(api_version: &str, kind: &str) -> [Vec<String>; 3] {
    let object = |name: &str, set: &str, version: u64| -> K {
        let owner = json!({"apiVersion": "backup.example.com/v1alpha1", "kind": "BackupPodSet",
            "name": set, "uid": format!("u-{set}"), "controller": true});
        let metadata = json!({"name": name, "namespace": "shop", "uid": format!("u-{name}"),
            "labels": {(keys::LABEL_SET): set}, "ownerReferences": [owner],
            "resourceVersion": version.to_string()});
        let body = json!({"apiVersion": api_version, "kind": kind, "metadata": metadata,
            "addressType": "IPv4", "endpoints": []});
        serde_json::from_value(body).unwrap()
    };
    let mut cache = Cache::default();
    for known in [object("gone", "web", 5), object("stays", "web", 5), object("foreign", "api", 5)] {
        known.seen(&mut cache, at(0));
    }
    let versions = |cache: &Cache, set: &str| -> Vec<String> {
        let known = K::known(cache, &key(set));
        known
            .iter()
            .map(|one| format!("{} {:?}", one.meta().name.as_ref().unwrap(), version(one.meta())))
            .collect()
    };
    let old = list("4", vec![object("stays", "web", 3)]);
    cache.listed(&key("web"), old, at(0));
    let before = versions(&cache, "web");
    let new = list("9", vec![object("stays", "web", 8), object("new", "web", 7)]);
    cache.listed(&key("web"), new, at(0));
    [before, versions(&cache, "web"), versions(&cache, "api")]
}

#[test]
fn a_list_of_a_sets_objects_of_any_kind_is_believed_as_far_as_it_is_newer() {
    let expected = [
        vec!["gone Some(5)", "stays Some(5)"],
        vec!["new Some(7)", "stays Some(8)"],
        vec!["foreign Some(5)"],
    ];
    assert_eq!(left_of::<Service>("v1", "Service"), expected);
    assert_eq!(left_of::<EndpointSlice>("discovery.k8s.io/v1", "EndpointSlice"), expected);
    assert_eq!(left_of::<PodDisruptionBudget>("policy/v1", "PodDisruptionBudget"), expected);
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
