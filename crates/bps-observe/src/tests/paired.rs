//! Sets with active and standby Pods: their group as the server keeps it, and what keeps them from being acted on.

use bps_api::{HAGroup, keys};
use bps_core::manifests::{set_group, set_group_spec};
use bps_core::model::{ObjectState, Part, PodName};
use bps_protocol::BootTime;
use serde_json::{Value, json};

use super::{at, merge, pod, set, text};
use crate::group::{GroupObjects, see_group};
use crate::readable::Readable;
use crate::{Cache, Change, Observation, SetKey, Watched, observe};

fn spec() -> Value {
    let container = json!({"name": "web", "image": "web:1", "command": ["/web"]});
    json!({"replicas": 2, "activeStandby": {}, "template": {"spec": {"containers": [container]}}})
}

fn key() -> SetKey {
    SetKey { namespace: "shop".into(), name: "web".into() }
}

/// The set's group, changed like this.
fn group(changes: &Value) -> HAGroup {
    let set = set(spec());
    let mut body = set_group(&set, &set_group_spec(&set).unwrap().unwrap());
    merge(&mut body, &json!({"metadata": {"uid": "g", "resourceVersion": "7"}}));
    merge(&mut body, changes);
    serde_json::from_value(body).expect("a group")
}

fn seen(spec: Value, image: Option<&str>, group: Option<HAGroup>) -> Observation {
    let mut cache = Cache::default();
    cache.know_agent_image(image.map(str::to_owned));
    set(spec).seen(&mut cache, at(0));
    if let Some(group) = group {
        Readable::from(group).seen(&mut cache, at(0));
    }
    observe(&cache, &key(), at(0)).expect("the set is there")
}

#[test]
fn a_group_is_absent_current_outdated_or_somebody_else_s() {
    let state = |group| seen(spec(), Some("agent:1"), group).snapshot.group;
    let owner = json!([{"apiVersion": "v1", "kind": "X", "name": "x", "uid": "other", "controller": true}]);
    assert_eq!(state(None), Some(ObjectState::Absent));
    assert_eq!(state(Some(group(&json!({})))), Some(ObjectState::Current));
    assert_eq!(state(Some(group(&json!({"spec": {"pairs": 3}})))), Some(ObjectState::Outdated));
    assert_eq!(
        state(Some(group(&json!({"metadata": {"ownerReferences": owner}})))),
        Some(ObjectState::Foreign)
    );
    assert_eq!(
        state(Some(group(&json!({"metadata": {"ownerReferences": null}})))),
        Some(ObjectState::Outdated),
        "an earlier set of this name has left it behind"
    );
}

/// Status of a group that says this of pairs in which nobody may act.
fn told(status: &str, message: &str) -> Value {
    json!({"status": {"conditions": [{
        "type": "Withheld", "status": status, "reason": "NoLevelCopy", "message": message,
        "lastTransitionTime": text(0),
    }]}})
}

#[test]
fn what_the_group_says_of_pairs_in_which_nobody_may_act_is_known_of_its_set() {
    let withheld = |changes: Value| seen(spec(), Some("agent:1"), Some(group(&changes))).withheld;
    let message = "nobody may act in web-0; bring the lost Pod back";
    assert_eq!(withheld(told("True", message)), Some(message.to_owned()));
    assert_eq!(withheld(told("False", "no pair lacks a copy")), None);
    assert_eq!(withheld(json!({})), None);
    let mut foreign = told("True", message);
    foreign["metadata"]["ownerReferences"] =
        json!([{"apiVersion": "v1", "kind": "X", "name": "x", "uid": "other", "controller": true}]);
    assert_eq!(withheld(foreign), None);
    assert_eq!(seen(spec(), Some("agent:1"), None).withheld, None);
}

#[test]
fn the_service_of_a_paired_set_is_not_its_own() {
    let mut exposed = spec();
    exposed["service"] = json!({"name": "front", "ports": [{"port": 80}]});
    let seen = seen(exposed, Some("agent:1"), None);
    assert_eq!(seen.snapshot.exposure, None);
    assert_eq!(
        seen.group_spec.and_then(|spec| spec.service).map(|service| service.name),
        Some("front".into())
    );
}

#[test]
fn a_set_is_not_acted_on_without_an_agent_or_a_command() {
    let invalid = |spec, image| seen(spec, image, None).invalid.map(|error| error.to_string());
    assert_eq!(invalid(spec(), Some("agent:1")), None);
    let message = invalid(spec(), None).expect("there is no image");
    assert!(message.contains("start it with --agent-image"), "{message}");
    let mut built_in = spec();
    built_in["activeStandby"] = json!({"agentSource": "Image"});
    assert_eq!(invalid(built_in, None), None);
    let mut silent = spec();
    silent["template"]["spec"]["containers"][0]["command"] = Value::Null;
    let message = invalid(silent, Some("agent:1")).expect("there is no command");
    assert!(message.contains("also in a BackupPodSet"), "{message}");
}

#[test]
fn a_set_is_looked_at_when_its_group_changes_but_of_its_status_only_for_pairs_in_which_nobody_may_act() {
    let mut cache = Cache::default();
    set(spec()).seen(&mut cache, at(0));
    let mut show = |changes: Value| Readable::from(group(&changes)).seen(&mut cache, at(0));
    let affected = vec![(key(), Change::Contested)];
    assert_eq!(show(json!({})), affected);
    assert_eq!(show(json!({"metadata": {"resourceVersion": "8"}, "status": {"state": "Ready"}})), []);
    assert_eq!(show(json!({"metadata": {"resourceVersion": "9"}, "spec": {"pairs": 7}})), affected);
    let mut show_told = |version: &str, told: Value| {
        let mut changes = json!({"metadata": {"resourceVersion": version}, "spec": {"pairs": 7}});
        merge(&mut changes, &told);
        show(changes)
    };
    let is_told = vec![(key(), Change::Ordinary)];
    assert_eq!(show_told("10", told("False", "no pair lacks a copy")), []);
    assert_eq!(show_told("11", told("True", "nobody may act in web-0")), is_told);
    assert_eq!(show_told("12", told("True", "nobody may act in web-0")), []);
    assert_eq!(show_told("13", told("True", "nobody may act in web-0, web-1")), is_told);
    assert_eq!(show_told("14", json!({})), is_told);
    let other = group(&json!({"metadata": {"name": "other"}}));
    assert_eq!(Readable::from(other).seen(&mut cache, at(0)), []);
    let lost = Readable::from(group(&json!({}))).lost(&mut cache, at(1));
    assert_eq!(lost, [(key(), Change::Urgent)]);
}

#[test]
fn labels_tell_who_acts_and_a_cold_backup_is_no_member() {
    let labelled = |labels: Value| pod(&json!({"metadata": {"labels": labels}}));
    let part = |labels| super::super::pod::part(&labelled(labels));
    let of = |pair: &dyn std::fmt::Display| format!("{}{pair}", keys::LABEL_STANDBY_OF);
    let [one, two] = ["web-1", "web-2"].map(|name| PodName(name.into()));
    let active = Part::Active { peer: Some(one.clone()) };
    assert_eq!(part(json!({"HAState": "active", "peer": "web-1"})), active);
    let standby = Part::Standby { peers: vec![one.clone()] };
    assert_eq!(part(json!({"HAState": "standby", "peer": "web-1"})), standby);
    let shared = json!({"HAState": "standby", (of(&3)): "web-2", (of(&0)): "web-1", (of(&"?")): "web-9"});
    assert_eq!(part(shared), Part::Standby { peers: vec![one, two] });
    assert_eq!(part(json!({"HAState": "lead"})), Part::None);

    let uid = "0a1b2c3d-0000-4000-8000-0123456789ab";
    let members = |role: &str| {
        let labels = json!({"backup.example.com/role": role});
        let pod = pod(&json!({"metadata": {"uid": uid, "labels": labels}}));
        let objects = GroupObjects { pods: vec![std::sync::Arc::new(pod)], ..GroupObjects::default() };
        see_group(&group(&json!({})), &objects, BootTime::default()).group.pods.len()
    };
    assert_eq!(["primary", "hot", "cold"].map(members), [1, 1, 0]);
}

#[test]
fn labels_that_do_not_say_the_same_twice_are_contradictory() {
    let is_contradictory = |labels: Value| {
        let uid = "0a1b2c3d-0000-4000-8000-0123456789ab";
        let pod = pod(&json!({"metadata": {"uid": uid, "labels": labels}}));
        let objects = GroupObjects { pods: vec![std::sync::Arc::new(pod)], ..GroupObjects::default() };
        see_group(&group(&json!({})), &objects, BootTime::default()).group.pods[0].shown.is_contradictory
    };
    let [state, peer] = [keys::LABEL_PAIR_STATE, keys::LABEL_PAIR_PEER];
    let both = json!({"HAState": "active", "peer": "web-1", state: "active", peer: "web-1"});
    assert!(!is_contradictory(json!({})));
    assert!(!is_contradictory(both.clone()));
    for (key, value) in [("HAState", "standby"), ("peer", "web-2"), (state, "standby"), (peer, "web-2")] {
        let mut changed = both.clone();
        changed[key] = json!(value);
        assert!(is_contradictory(changed.clone()), "{changed}");
        changed.as_object_mut().unwrap().remove(key);
        assert!(is_contradictory(changed.clone()), "{changed}");
    }
}

/// The group was deleted with its status, and its Leases are gone: all that is known is what the Pods say.
#[test]
fn a_standby_of_several_belongs_to_the_former_pair_of_each_of_its_actives() {
    let labelled = |number: u32, name: &str, labels: Value| {
        let uid = format!("0a1b2c3d-0000-4000-8000-{number:012}");
        std::sync::Arc::new(pod(&json!({"metadata": {"name": name, "uid": uid, "labels": labels}})))
    };
    let of = |pair: u32| format!("{}{pair}", keys::LABEL_STANDBY_OF);
    let active = json!({"HAState": "active", "peer": "web-c"});
    let standby = json!({"HAState": "standby", of(0): "web-a", of(1): "web-b", of(2): "web-gone"});
    let pods = vec![
        labelled(1, "web-a", active.clone()),
        labelled(2, "web-b", active),
        labelled(3, "web-c", standby),
    ];
    let objects = GroupObjects { pods, ..GroupObjects::default() };
    let told = see_group(&group(&json!({})), &objects, BootTime::default()).told;
    let pairs: Vec<Vec<&str>> =
        told.values().map(|lost| lost.pods.iter().map(String::as_str).collect()).collect();
    assert_eq!(pairs, [["web-a", "web-c"], ["web-b", "web-c"], ["web-gone", "web-c"]]);
}

#[test]
fn a_standby_of_a_set_with_replicated_state_counts_once_it_has_all_of_it() {
    // One Pod stands by for the first two, and has the state of one of them.
    let pair = |active: &str, standby: &str, sync: &str| json!({"name": "web-0", "active": active, "standby": standby, "sync": sync});
    let all =
        [pair("web-a", "web-d", "InSync"), pair("web-b", "web-d", "CatchingUp"), pair("web-c", "", "Alone")];
    let level = |replicated: Value, pairs: &[Value]| {
        let mut spec = spec();
        for (key, value) in replicated.as_object().expect("fields") {
            spec["activeStandby"][key] = value.clone();
        }
        let told = json!({"status": {"pairs": pairs}});
        seen(spec, Some("agent:1"), Some(group(&told))).snapshot.level
    };
    assert_eq!(level(json!({}), &all), None);
    assert_eq!(level(json!({"stateDir": "/state"}), &all), Some([PodName("web-a".into())].into()));
    assert_eq!(level(json!({"stateDir": "/state", "promoteWhen": "Always"}), &all), None);
    // An active that has the only copy of another pair's state is not to be deleted, whoever could follow it.
    let busy = |keeper: &str| json!({"name": "web-1", "state": "KeeperBusy", "pods": [keeper, "web-x"]});
    let beside = |keeper: &str| level(json!({"stateDir": "/state"}), &[all[0].clone(), busy(keeper)]);
    assert_eq!(beside("web-a"), Some([].into()));
    assert_eq!(beside("web-y"), Some([PodName("web-a".into())].into()));
}

/// Labels are written before the status that says who is in sync.
#[test]
fn an_active_with_another_standby_than_the_status_names_is_not_followed() {
    let mut replicated = spec();
    replicated["activeStandby"]["stateDir"] = json!("/state");
    let pair = json!({"name": "web-0", "active": "web-a", "standby": "web-b", "sync": "InSync"});
    let level = |standby: &str| {
        let mut cache = Cache::default();
        set(replicated.clone()).seen(&mut cache, at(0));
        Readable::from(group(&json!({"status": {"pairs": [pair]}}))).seen(&mut cache, at(0));
        let labels = json!({"HAState": "active", "peer": standby, "backup.example.com/role": "primary"});
        pod(&json!({"metadata": {"name": "web-a", "labels": labels}})).seen(&mut cache, at(0));
        observe(&cache, &key(), at(0)).expect("the set is there").snapshot.level.expect("it is replicated")
    };
    assert_eq!(level("web-b"), [PodName("web-a".into())].into());
    assert_eq!(level("web-c"), [].into());
}
