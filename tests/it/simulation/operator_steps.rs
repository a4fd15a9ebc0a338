//! What people and machines do to a set: the steps that scripts are made of.

use serde_json::{Value, json};

use crate::simulation::{
    actors::{add_node, node_of},
    admission::{quota, without_label},
    kinds::{BACKUP_POD_SETS, ENDPOINT_SLICES, LEASES, NODES, PODS, SERVICES},
    operator::{NAMESPACE, rules},
    oracle::{ROLE_LABEL, SET_LABEL, is_healthy, label},
    patch,
    physical::GateFault,
    refusal::Refusal,
    store::DeleteOptions,
    world::{Actor, Key, Object, World},
};

/// Image that an admission hook refuses.
const POISON: &str = "app:poison";

/// The set that most scripts are about.
pub fn web() -> Key {
    Key::new(&BACKUP_POD_SETS, "default", "web")
}

/// Three nodes and the operator's permissions.
pub fn empty(world: &mut World) {
    for node in ["node-a", "node-b", "node-c"] {
        add_node(world, node);
    }
    world.admission.rules = Some(rules());
}

/// A spec with these numbers of Pods and an exposed Service of this name.
pub fn spec((replicas, hot, cold): (u32, u32, u32), service: &str) -> Value {
    json!({
        "replicas": replicas, "hotBackups": hot, "coldBackups": cold, "unreadyDeadlineSeconds": 0,
        "template": {"spec": {"containers": [{"name": "app", "image": "app:1"}]}},
        "service": {"name": service, "ports": [{"port": 80}]},
    })
}

/// Adds a set.
pub fn add_set(world: &mut World, name: &str, spec: &Value) {
    let key = Key::new(&BACKUP_POD_SETS, "default", name);
    let body = json!({"metadata": {"name": name}, "spec": spec});
    world.create(Actor::User, &key, body).expect("a new set");
}

fn build(world: &mut World, counts: (u32, u32, u32)) {
    empty(world);
    add_set(world, "web", &spec(counts, "web"));
}

pub fn two_of_each(world: &mut World) {
    build(world, (2, 2, 2));
}

pub fn only_primaries(world: &mut World) {
    build(world, (2, 0, 0));
}

pub fn one_primary(world: &mut World) {
    build(world, (1, 0, 0));
}

/// Keeps one template besides the present one.
pub fn one_primary_and_one_former_template(world: &mut World) {
    build(world, (1, 0, 0));
    edit(world, &json!({"revisionHistoryLimit": 1}));
}

pub fn one_and_cold(world: &mut World) {
    build(world, (1, 0, 2));
}

pub fn one_of_each(world: &mut World) {
    build(world, (1, 1, 1));
}

pub fn under_quota(world: &mut World) {
    build(world, (2, 1, 1));
    world.admission.hooks.push(quota(&PODS, 2));
}

/// A policy takes the label from the first Pods by which the watch of their set finds them.
pub fn under_label_policy(world: &mut World) {
    build(world, (2, 1, 0));
    world.admission.hooks.push(without_label(&PODS, SET_LABEL, 5));
}

/// A policy takes the label from all Pods by which plans know what to do with them; the watch shows them.
pub fn under_lasting_label_policy(world: &mut World) {
    build(world, (2, 1, 0));
    world.admission.hooks.push(without_label(&PODS, ROLE_LABEL, usize::MAX));
}

/// Two sets, and the template of one is refused.
pub fn poisoned(world: &mut World) {
    build(world, (1, 1, 1));
    world.admission.hooks.push(std::sync::Arc::new(|_, key, body| {
        if key.kind == &PODS && body["spec"]["containers"][0]["image"] == POISON {
            return Err(Refusal::invalid(key, "spec.containers[0].image", "Invalid value: poison"));
        }
        Ok(())
    }));
    let mut poison = spec((1, 1, 1), "sick");
    poison["template"]["spec"]["containers"][0]["image"] = json!(POISON);
    add_set(world, "sick", &poison);
}

/// A person edits the spec.
pub fn edit(world: &mut World, change: &Value) {
    world.edit(Actor::User, &web(), |set| patch::merge(set, &json!({"spec": change})));
}

fn scale(world: &mut World, (replicas, hot, cold): (u32, u32, u32)) {
    edit(world, &json!({"replicas": replicas, "hotBackups": hot, "coldBackups": cold}));
}

pub fn scale_to_three(world: &mut World) {
    scale(world, (3, 3, 3));
}

pub fn scale_to_two(world: &mut World) {
    scale(world, (2, 2, 2));
}

pub fn scale_to_one(world: &mut World) {
    scale(world, (1, 1, 1));
}

pub fn scale_to_hot(world: &mut World) {
    scale(world, (1, 3, 0));
}

pub fn scale_to_none(world: &mut World) {
    scale(world, (0, 0, 0));
}

fn image(world: &mut World, image: &str) {
    edit(world, &json!({"template": {"spec": {"containers": [{"name": "app", "image": image}]}}}));
}

pub fn new_image(world: &mut World) {
    image(world, "app:2");
}

pub fn newer_image(world: &mut World) {
    image(world, "app:3");
}

pub fn old_image(world: &mut World) {
    image(world, "app:1");
}

pub fn broken_image(world: &mut World) {
    image(world, "app:broken");
}

pub fn pause(world: &mut World) {
    edit(world, &json!({"paused": true}));
}

pub fn resume(world: &mut World) {
    edit(world, &json!({"paused": false}));
}

/// As if the CRD of a newer version had allowed it.
pub fn say_what_is_unknown(world: &mut World) {
    edit(world, &json!({"scaleInPolicy": "Someday"}));
}

pub fn say_what_is_known(world: &mut World) {
    edit(world, &json!({"scaleInPolicy": "Delete"}));
}

/// Pods of the set with a role, by name.
pub fn pods_of(world: &World, role: &str) -> Vec<(Key, Object)> {
    let of_set = |pod: &Object| label(pod, SET_LABEL) == "web" && label(pod, ROLE_LABEL) == role;
    let is_there = |pod: &Object| pod["metadata"]["deletionTimestamp"].is_null();
    let all = world.objects(&PODS, "default").filter(|(_, pod)| of_set(pod) && is_there(pod));
    all.map(|(key, pod)| (key.clone(), pod.clone())).collect()
}

fn first(world: &World, role: &str) -> (Key, Object) {
    let mut pods = pods_of(world, role);
    pods.sort_by_key(|(_, pod)| !is_healthy(pod));
    pods.swap_remove(0)
}

fn uid(object: &Value) -> String {
    crate::simulation::run::text(&object["metadata"]["uid"])
}

pub fn delete_primary(world: &mut World) {
    let (key, _) = first(world, "primary");
    world.delete(Actor::User, &key, &DeleteOptions::default()).expect("it is there");
}

pub fn delete_hot(world: &mut World) {
    let (key, _) = first(world, "hot");
    world.delete(Actor::User, &key, &DeleteOptions::default()).expect("it is there");
}

pub fn crash_primary(world: &mut World) {
    let (_, pod) = first(world, "primary");
    world.physical.unready.insert(uid(&pod));
}

pub fn recover(world: &mut World) {
    world.physical.unready.clear();
}

pub fn evict_primary(world: &mut World) {
    let (_, pod) = first(world, "primary");
    world.physical.ended.insert(uid(&pod), "Failed");
}

pub fn lose_node(world: &mut World) {
    let (_, pod) = first(world, "primary");
    world.physical.stopped_nodes.insert(node_of(&pod).to_owned());
}

pub fn regain_node(world: &mut World) {
    world.physical.stopped_nodes.clear();
}

pub fn lose_all_nodes_but_one(world: &mut World) {
    let kept = node_of(&first(world, "hot").1).to_owned();
    let nodes: Vec<String> = world.objects(&NODES, "").map(|(key, _)| key.name.clone()).collect();
    world.physical.stopped_nodes.extend(nodes.into_iter().filter(|node| *node != kept));
}

/// The machine is gone, and somebody says so.
pub fn delete_node(world: &mut World) {
    let (_, pod) = first(world, "primary");
    world.physical.stopped_nodes.insert(node_of(&pod).to_owned());
    world.delete(Actor::User, &Key::node(node_of(&pod)), &DeleteOptions::default()).expect("it is there");
}

/// What the Pod garbage collector does 40 s after a Node was deleted.
pub fn collect_pods_without_node(world: &mut World) {
    let has_node = |pod: &Object| node_of(pod).is_empty() || world.object(&Key::node(node_of(pod))).is_some();
    let lost = world.objects(&PODS, "default").filter(|(_, pod)| !has_node(pod));
    let lost: Vec<Key> = lost.map(|(key, _)| key.clone()).collect();
    let forced = DeleteOptions { grace_seconds: Some(0), ..DeleteOptions::default() };
    for key in lost {
        world.delete(Actor::GarbageCollector, &key, &forced).expect("it is there");
    }
}

pub fn cordon_node(world: &mut World) {
    let (_, pod) = first(world, "primary");
    let key = Key::node(node_of(&pod));
    world.edit(Actor::User, &key, |node| node["spec"]["unschedulable"] = json!(true));
}

pub fn uncordon(world: &mut World) {
    let nodes: Vec<Key> = world.objects(&NODES, "").map(|(key, _)| key.clone()).collect();
    for key in nodes {
        world.edit(Actor::User, &key, |node| {
            node["spec"].as_object_mut().expect("a spec").remove("unschedulable");
        });
    }
}

pub fn delete_service(world: &mut World) {
    let key = Key::new(&SERVICES, "default", "web");
    world.delete(Actor::User, &key, &DeleteOptions::default()).expect("it is there");
}

pub fn delete_slice(world: &mut World) {
    let key = Key::new(&ENDPOINT_SLICES, "default", "web-bps");
    world.delete(Actor::User, &key, &DeleteOptions::default()).expect("it is there");
}

pub fn change_ports(world: &mut World) {
    edit(world, &json!({"service": {"ports": [{"port": 81}]}}));
}

pub fn rename_service(world: &mut World) {
    edit(world, &json!({"service": {"name": "front"}}));
}

pub fn remove_service(world: &mut World) {
    edit(world, &json!({"service": null}));
}

fn relabel(world: &mut World, (key, _): (Key, Object), role: &Value) {
    world.edit(Actor::User, &key, |pod| {
        pod["metadata"]["labels"][ROLE_LABEL] = role.clone();
    });
}

pub fn demote_by_hand(world: &mut World) {
    let pod = first(world, "primary");
    relabel(world, pod, &json!("hot"));
}

pub fn promote_by_hand(world: &mut World) {
    let pod = first(world, "hot");
    relabel(world, pod, &json!("primary"));
}

pub fn promote_cold_by_hand(world: &mut World) {
    let pod = first(world, "cold");
    relabel(world, pod, &json!("primary"));
}

/// Plants a Pod of somebody else under the first name that the operator once used, and asks for Pods again.
pub fn take_name(world: &mut World) {
    let made_by_operator = |event: &&crate::simulation::world::Event| {
        matches!(event.actor, Actor::Operator(_)) && event.key.kind == &PODS && event.old.is_none()
    };
    let key = world.log().iter().find(made_by_operator).expect("it made Pods").key.clone();
    let foreign = json!({
        "metadata": {"name": key.name}, "spec": {"containers": [{"name": "app", "image": "other:1"}]},
    });
    world.create(Actor::User, &key, foreign).expect("the name is free");
    scale(world, (2, 2, 2));
}

pub fn lift_quota(world: &mut World) {
    world.admission.hooks.clear();
}

/// Somebody takes the owner references away, as `kubectl delete --cascade=orphan` of a former set does.
pub fn orphan_pods(world: &mut World) {
    let keys: Vec<Key> = world.objects(&PODS, "default").map(|(key, _)| key.clone()).collect();
    for key in keys {
        world.edit(Actor::User, &key, |pod| {
            pod["metadata"].as_object_mut().expect("metadata").remove("ownerReferences");
        });
    }
}

/// Deletes the set; its Pods hang in termination, as on a dead node.
pub fn delete_set_slowly(world: &mut World) {
    let uids: Vec<String> = world.objects(&PODS, "default").map(|(_, pod)| uid(pod)).collect();
    world.physical.stuck.extend(uids);
    world.delete(Actor::User, &web(), &DeleteOptions::default()).expect("it is there");
}

pub fn create_set_again(world: &mut World) {
    add_set(world, "web", &spec((1, 1, 1), "web"));
}

pub fn unstick(world: &mut World) {
    world.physical.stuck.clear();
}

fn break_gate(world: &mut World, fault: GateFault) {
    let cold = pods_of(world, "cold");
    // Which one is taken first is the operator's choice: all but one are out of order.
    for (_, pod) in &cold[..cold.len() - 1] {
        world.physical.broken_gates.insert(uid(pod), fault);
    }
    delete_primary(world);
}

pub fn lose_primary_with_refusing_gate(world: &mut World) {
    break_gate(world, GateFault::Refuses);
}

pub fn lose_primary_with_silent_gate(world: &mut World) {
    break_gate(world, GateFault::Silent);
}

pub fn lose_primary_with_deaf_gate(world: &mut World) {
    break_gate(world, GateFault::Deaf);
}

pub fn grow_while_cold(world: &mut World) {
    scale(world, (2, 0, 1));
}

/// Somebody deletes the Lease while its holder leads.
pub fn delete_lease(world: &mut World) {
    let key = Key::new(&LEASES, NAMESPACE, "bps-operator");
    world.delete(Actor::User, &key, &DeleteOptions::default()).expect("it is there");
    delete_primary(world);
}

/// Somebody writes another holder into the Lease.
pub fn give_lease_away(world: &mut World) {
    let key = Key::new(&LEASES, NAMESPACE, "bps-operator");
    world.edit(Actor::User, &key, |lease| lease["spec"]["holderIdentity"] = json!("nobody"));
    crash_primary(world);
}
