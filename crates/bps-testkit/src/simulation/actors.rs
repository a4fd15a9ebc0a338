//! The rest of the cluster, each actor a step on the world: kubelet, scheduler, node controller, garbage collector.
//!
//! A step changes at most one object, so that steps can be interleaved with requests in any order.

use serde_json::{Value, json};

use crate::simulation::kinds::KINDS;
use crate::simulation::kinds::NODES;
use crate::simulation::kinds::PODS;
use crate::simulation::physical::GateFault;
use crate::simulation::store::DeleteOptions;
use crate::simulation::world::Actor;
use crate::simulation::world::Key;
use crate::simulation::world::Object;
use crate::simulation::world::World;

/// An actor that is driven from outside.
pub trait ActorStep: Send {
    /// Changes at most one object; false when there is nothing to do.
    fn step(&mut self, world: &mut World) -> bool;
}

/// The actors of a healthy cluster, in the order in which they are asked.
pub fn cluster() -> Vec<Box<dyn ActorStep>> {
    vec![Box::new(NodeController), Box::new(Scheduler), Box::new(Kubelet), Box::new(GarbageCollector)]
}

/// The init container that keeps a Pod cold.
pub const GATE: &str = "bps-gate";

fn pods(world: &World) -> Vec<(Key, Object)> {
    world.objects(&PODS, "").map(|(key, pod)| (key.clone(), pod.clone())).collect()
}

fn uid(object: &Value) -> &str {
    object["metadata"]["uid"].as_str().unwrap_or_default()
}

/// The node a Pod is bound to; empty when it is not.
pub fn node_of(pod: &Value) -> &str {
    pod["spec"]["nodeName"].as_str().unwrap_or_default()
}

/// Sets one condition; its time moves only when its status does.
pub fn set_condition(object: &mut Value, (kind, status, reason): (&str, &str, &str), now: &Value) {
    let conditions = &mut object["status"]["conditions"];
    if conditions.is_null() {
        *conditions = json!([]);
    }
    let conditions = conditions.as_array_mut().expect("conditions are a list");
    let condition = json!({"type": kind, "status": status, "reason": reason, "lastTransitionTime": now});
    match conditions.iter_mut().find(|one| one["type"] == kind) {
        Some(old) if old["status"] == status && old["reason"] == reason => {}
        Some(old) => *old = condition,
        None => conditions.push(condition),
    }
}

/// Adds a Ready node that takes Pods.
pub fn add_node(world: &mut World, name: &str) {
    let zone = json!({"metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}}, "spec": {}});
    let key = Key::node(name);
    world.create(Actor::User, &key, zone).expect("a new node");
    let now = world.time();
    world.edit(Actor::Kubelet, &key, |node| set_condition(node, ("Ready", "True", "KubeletReady"), &now));
}

/// Gives a valid ticket to the gate that listens at an address; false when none does.
pub fn open_gate(world: &mut World, address: &str) -> bool {
    let found =
        pods(world).into_iter().find(|(_, pod)| pod["status"]["podIP"] == address && !address.is_empty());
    let Some((_, pod)) = found else { return false };
    if !is_cold(world, &pod) || world.physical.stopped_nodes.contains(node_of(&pod)) {
        return false;
    }
    match world.physical.broken_gates.get(uid(&pod)) {
        Some(GateFault::Refuses | GateFault::Silent) => return false,
        Some(GateFault::Deaf) => return true,
        None => {}
    }
    world.physical.woken.insert(uid(&pod).to_owned())
}

fn has_gate(pod: &Value) -> bool {
    pod["spec"]["initContainers"].as_array().is_some_and(|all| all.iter().any(|one| one["name"] == GATE))
}

/// Tag of an image whose application never answers its probe.
pub const BROKEN_TAG: &str = ":broken";

fn has_broken_image(pod: &Value) -> bool {
    let is_broken = |one: &Value| one["image"].as_str().is_some_and(|image| image.ends_with(BROKEN_TAG));
    pod["spec"]["containers"].as_array().is_some_and(|all| all.iter().any(is_broken))
}

fn is_cold(world: &World, pod: &Value) -> bool {
    has_gate(pod) && !world.physical.woken.contains(uid(pod))
}

/// Binds Pods to the Ready, schedulable node with the fewest Pods; ties by name.
pub struct Scheduler;

impl ActorStep for Scheduler {
    fn step(&mut self, world: &mut World) -> bool {
        let now = world.time();
        let all = pods(world);
        let load = |node: &str| all.iter().filter(|(_, pod)| node_of(pod) == node).count();
        let best = world
            .objects(&NODES, "")
            .filter(|(_, node)| takes_pods(node))
            .map(|(key, _)| key.name.clone())
            .min_by_key(|name| (load(name), name.clone()));
        let waiting = |pod: &Value| node_of(pod).is_empty() && pod["metadata"]["deletionTimestamp"].is_null();
        all.iter().filter(|(_, pod)| waiting(pod)).any(|(key, _)| {
            world.edit(Actor::Scheduler, key, |pod| match &best {
                Some(node) => {
                    pod["spec"]["nodeName"] = json!(node);
                    set_condition(pod, ("PodScheduled", "True", "Scheduled"), &now);
                }
                None => set_condition(pod, ("PodScheduled", "False", "Unschedulable"), &now),
            })
        })
    }
}

fn takes_pods(node: &Value) -> bool {
    let is_ready = |one: &Value| one["type"] == "Ready" && one["status"] == "True";
    let is_tainted = node["spec"]["taints"].as_array().is_some_and(|all| !all.is_empty());
    node["status"]["conditions"].as_array().is_some_and(|all| all.iter().any(is_ready))
        && node["spec"]["unschedulable"] != true
        && !is_tainted
}

/// Starts bound Pods, reports what the processes do, finishes terminating Pods; on every node that runs.
pub struct Kubelet;

impl ActorStep for Kubelet {
    fn step(&mut self, world: &mut World) -> bool {
        let now = world.time();
        let on_air = |world: &World, pod: &Value| {
            !node_of(pod).is_empty() && !world.physical.stopped_nodes.contains(node_of(pod))
        };
        pods(world).into_iter().filter(|(_, pod)| on_air(world, pod)).collect::<Vec<_>>().iter().any(
            |(key, pod)| {
                if !pod["metadata"]["deletionTimestamp"].is_null() {
                    return terminate(world, key, pod);
                }
                let reported = Report::of(world, pod);
                let address = format!("198.18.{}.{}", key_octet(key, 0), key_octet(key, 1));
                world.edit(Actor::Kubelet, key, |pod| reported.write(pod, &address, &now))
            },
        )
    }
}

/// An address that depends on the Pod's name only.
fn key_octet(key: &Key, which: usize) -> u64 {
    let hash = key.name.bytes().fold(7_u64, |hash, byte| hash.wrapping_mul(31).wrapping_add(byte.into()));
    hash.to_le_bytes()[which].into()
}

/// First the Pod stops being ready, then it is gone: two events, as observers see them.
fn terminate(world: &mut World, key: &Key, pod: &Object) -> bool {
    let now = world.time();
    let stopped =
        world.edit(Actor::Kubelet, key, |pod| set_condition(pod, ("Ready", "False", "PodCompleted"), &now));
    if stopped || world.physical.stuck.contains(uid(pod)) {
        return stopped;
    }
    let before = world.revision();
    // Finalizers may hold the object; then nothing is committed twice.
    let _ = world.delete(Actor::Kubelet, key, &DeleteOptions::force(pod));
    world.revision() != before
}

/// What the kubelet reports of a Pod.
enum Report {
    Cold,
    Running { is_ready: bool },
    Ended(&'static str),
}

impl Report {
    fn of(world: &World, pod: &Value) -> Self {
        let uid = uid(pod);
        match world.physical.ended.get(uid) {
            Some(phase) => Self::Ended(phase),
            None if is_cold(world, pod) => Self::Cold,
            None => {
                Self::Running { is_ready: !world.physical.unready.contains(uid) && !has_broken_image(pod) }
            }
        }
    }

    fn write(&self, pod: &mut Value, address: &str, now: &Value) {
        let (phase, is_initialised, is_ready) = match self {
            Self::Cold => ("Pending", false, false),
            Self::Running { is_ready } => ("Running", true, *is_ready),
            Self::Ended(phase) => (*phase, true, false),
        };
        let word = |yes: bool| if yes { "True" } else { "False" };
        pod["status"]["phase"] = json!(phase);
        if pod["status"]["startTime"].is_null() {
            pod["status"]["startTime"] = now.clone();
            pod["status"]["podIP"] = json!(address);
            pod["status"]["podIPs"] = json!([{"ip": address}]);
        }
        set_condition(pod, ("Initialized", word(is_initialised), "Kubelet"), now);
        set_condition(pod, ("ContainersReady", word(is_ready), "Kubelet"), now);
        set_condition(pod, ("Ready", word(is_ready), "Kubelet"), now);
        let is_running = matches!(self, Self::Running { .. });
        containers(pod, ("initContainers", "initContainerStatuses"), (!is_initialised, false), now);
        containers(pod, ("containers", "containerStatuses"), (is_running, is_ready), now);
    }
}

/// Writes the container statuses that observers read: name, started, ready, and the state in one word.
fn containers(pod: &mut Value, (from, to): (&str, &str), (is_running, is_ready): (bool, bool), now: &Value) {
    let Some(all) = pod["spec"][from].as_array() else { return };
    let waiting = pod["status"]["phase"] == "Pending" && from == "containers";
    let statuses: Vec<Value> = all
        .iter()
        .map(|container| {
            // Of the init containers only the gate runs while the Pod is cold; those before it are done.
            let is_running = is_running && (from == "containers" || container["name"] == GATE);
            let before = pod["status"][to]
                .as_array()
                .and_then(|all| all.iter().find(|status| status["name"] == container["name"]))
                .map_or(&Value::Null, |status| &status["state"]);
            // A state keeps its time.
            let since = |known: &Value| if known.is_null() { now.clone() } else { known.clone() };
            let state = match (is_running, waiting) {
                (true, _) => json!({"running": {"startedAt": since(&before["running"]["startedAt"])}}),
                (false, true) => json!({"waiting": {"reason": "PodInitializing"}}),
                (false, false) => json!({"terminated": {
                    "exitCode": 0, "reason": "Completed", "finishedAt": since(&before["terminated"]["finishedAt"]),
                }}),
            };
            json!({
                "name": container["name"], "image": container["image"], "imageID": "", "restartCount": 0,
                "started": is_running, "ready": is_ready || (from != "containers" && !is_running), "state": state,
            })
        })
        .collect();
    pod["status"][to] = json!(statuses);
}

/// Reports nodes that fell silent or came back, taints them, and marks their Pods not ready.
pub struct NodeController;

impl ActorStep for NodeController {
    fn step(&mut self, world: &mut World) -> bool {
        let now = world.time();
        let nodes: Vec<Key> = world.objects(&NODES, "").map(|(key, _)| key.clone()).collect();
        nodes.iter().any(|key| {
            let is_stopped = world.physical.stopped_nodes.contains(&key.name);
            let (status, reason) =
                if is_stopped { ("Unknown", "NodeStatusUnknown") } else { ("True", "KubeletReady") };
            let taints = json!([{"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"}]);
            world.edit(Actor::NodeController, key, |node| {
                set_condition(node, ("Ready", status, reason), &now);
                if is_stopped {
                    node["spec"]["taints"] = taints;
                } else if node["spec"]["taints"] == taints {
                    node["spec"].as_object_mut().expect("a spec").remove("taints");
                }
            }) || (is_stopped && silence_pods(world, &key.name))
        })
    }
}

fn silence_pods(world: &mut World, node: &str) -> bool {
    let now = world.time();
    pods(world).iter().filter(|(_, pod)| node_of(pod) == node).any(|(key, _)| {
        world.edit(Actor::NodeController, key, |pod| set_condition(pod, ("Ready", "False", "NodeLost"), &now))
    })
}

/// Removes what lost its owner, and serves foreground and orphan deletion; one object a step, so always late.
pub struct GarbageCollector;

impl ActorStep for GarbageCollector {
    fn step(&mut self, world: &mut World) -> bool {
        let all: Vec<(Key, Object)> = KINDS
            .into_iter()
            .flat_map(|kind| world.objects(kind, "").map(|(key, object)| (key.clone(), object.clone())))
            .collect();
        let finalizer = |object: &Value, name: &str| {
            object["metadata"]["finalizers"].as_array().is_some_and(|all| all.iter().any(|one| one == name))
        };
        let lives = |owner: &Value| {
            all.iter().any(|(_, object)| {
                object["metadata"]["uid"] == owner["uid"] && !finalizer(object, "foregroundDeletion")
            })
        };
        let owners =
            |object: &Value| object["metadata"]["ownerReferences"].as_array().cloned().unwrap_or_default();
        for (key, object) in &all {
            let dependents = || {
                all.iter().filter(|(_, other)| owners(other).iter().any(|owner| owner["uid"] == uid(object)))
            };
            if finalizer(object, "orphan") {
                return dependents().any(|(other, _)| disown(world, other, uid(object)))
                    || release(world, key, "orphan");
            }
            if finalizer(object, "foregroundDeletion") && dependents().next().is_none() {
                return release(world, key, "foregroundDeletion");
            }
            let is_orphan = !owners(object).is_empty() && !owners(object).iter().any(lives);
            if is_orphan && object["metadata"]["deletionTimestamp"].is_null() {
                let options = DeleteOptions { uid: Some(uid(object).to_owned()), ..DeleteOptions::default() };
                return world.delete(Actor::GarbageCollector, key, &options).is_ok();
            }
        }
        false
    }
}

fn release(world: &mut World, key: &Key, finalizer: &str) -> bool {
    world.edit(Actor::GarbageCollector, key, |object| {
        let finalizers = object["metadata"]["finalizers"].as_array_mut().expect("it was found there");
        finalizers.retain(|one| one != finalizer);
    })
}

fn disown(world: &mut World, key: &Key, owner: &str) -> bool {
    world.edit(Actor::GarbageCollector, key, |object| {
        if let Some(owners) = object["metadata"]["ownerReferences"].as_array_mut() {
            owners.retain(|one| one["uid"] != owner);
        }
    })
}
