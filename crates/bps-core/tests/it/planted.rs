//! Faults that the operator once had, planted again one by one: an oracle catches each, and none fires without it.
//!
//! A fault is planted around the planner, not in it: what it sees is distorted, or its plan is spoilt. Oracles look at the world as it
//! is.

use std::collections::BTreeSet;

use bps_core::manifests::{GateSettings, PodRequest, pod};
use bps_core::model::{
    Action, Desired, Gate, Lifecycle, NodeHealth, ObjectState, Others, Plan, PodName, PodView, Reason, Role,
    RoleLabels, Snapshot, Step,
};
use bps_core::plan::plan;
use jiff::SignedDuration;
use serde_json::{Value, json};

use crate::cluster::{Cluster, Obstacle, Start};
use crate::given;
use crate::oracles::{led_to_nobody, standing, unlike_the_wish, unlike_the_wish_but_for_cold};
use crate::world::absent_service;

/// Passes before anything happens: the set is whole then.
const PASSES_BEFORE: usize = 12;
/// Passes after the cause of each scene, one a second: the minute in which a set has to serve again.
const PASSES_AFTER: usize = 60;
/// Passes until what a cause asks for must have been written: one to see it, one to do it.
const PASSES_TO_ACT: usize = 2;
/// Most Pods that are made in [`PASSES_AFTER`], beyond those that are wanted. Source: the promise for rejected Pods, ten in the first
/// minute.
const CREATIONS_MAX: usize = 10;

/// What an oracle is called.
type Oracle = &'static str;

/// As many primaries serve as are wanted, a minute after the cause.
const SERVES: Oracle = "SERVES";
/// Everything that runs is as wished a minute after the cause; all of it, unless gates do not start.
const WISHED: Oracle = "WISHED";
/// No Pod whose record shows that it is at work is given up.
const PATIENT: Oracle = "PATIENT";
/// Creations in a minute stay under a budget.
const BUDGETED: Oracle = "BUDGETED";
/// No client is led to a Pod that is gone.
const LED: Oracle = "LED";
/// Labels and objects that the operator keeps are as they are to be.
const KEPT: Oracle = "KEPT";
/// A primary leaves a node that is about to be drained if it can.
const LEAVES: Oracle = "LEAVES";
/// Volumes of the operator's own keep no node from being removed.
const EVICTABLE: Oracle = "EVICTABLE";

/// A fault, and a scene in which it does harm.
struct Planted {
    fault: &'static str,
    wish: [usize; 3],
    start: Start,
    cause: fn(&mut Cluster),
    /// What the planner sees in place of what is.
    distort: fn(&mut Snapshot),
    /// What becomes of its plan.
    spoil: fn(&Snapshot, &mut Plan),
}

/// A scene without a fault.
const SCENE: Planted = Planted {
    fault: "",
    wish: [1, 1, 1],
    start: Start { ticks: 0, is_at_work: false, obstacle: Obstacle::None },
    cause: |_| {},
    distort: |_| {},
    spoil: |_, _| {},
};

fn all_planted() -> Vec<Planted> {
    vec![
        Planted {
            fault: "a deadline gives up Pods that are at work",
            wish: [1, 0, 1],
            start: Start { ticks: 15, is_at_work: true, ..SCENE.start },
            cause: delete_primary,
            spoil: give_up_what_is_at_work,
            ..SCENE
        },
        Planted {
            fault: "rejected Pods are made again at once",
            wish: [1, 0, 0],
            cause: |cluster| {
                cluster.start.obstacle = Obstacle::Rejection;
                delete_primary(cluster);
            },
            distort: |seen| seen.recent.early_ends = None,
            ..SCENE
        },
        Planted {
            fault: "a wrong edit stops everything",
            cause: |cluster| {
                cluster.snapshot.desired.can_create = false;
                delete_primary(cluster);
            },
            spoil: |seen, plan| keep(plan, |_| seen.desired.can_create),
            ..SCENE
        },
        Planted {
            fault: "a pause keeps dead addresses",
            cause: |cluster| {
                cluster.snapshot.desired.paused = true;
                delete_primary(cluster);
            },
            spoil: |seen, plan| {
                keep(plan, |action| !(seen.desired.paused && matches!(action, Action::Expose { .. })));
            },
            ..SCENE
        },
        Planted {
            fault: "addresses of others stay behind the Service",
            cause: |cluster| {
                cluster.snapshot.exposure.as_mut().expect("a Service").others = Others::Unknown;
            },
            spoil: |_, plan| keep(plan, |action| !matches!(action, Action::ClearAddresses)),
            ..SCENE
        },
        Planted {
            fault: "a changed label stays",
            cause: |cluster| cluster.snapshot.pods[0].labels = RoleLabels::Wrong,
            spoil: |_, plan| keep(plan, |action| !matches!(action, Action::Relabel { .. })),
            ..SCENE
        },
        Planted {
            fault: "nodes without Pods put the storm brake on",
            wish: [1, 0, 0],
            cause: delete_primary,
            distort: |seen| seen.storm = Some(given::storm(4, 7)),
            spoil: |seen, plan| {
                keep(plan, |action| seen.storm.is_none() || !matches!(action, Action::Create { .. }));
            },
            ..SCENE
        },
        Planted {
            fault: "a taint that announces the end of a node is not read",
            cause: |cluster| {
                // The backup is elsewhere.
                let elsewhere = cluster.nodes[1].clone();
                let hot = cluster.snapshot.pods.iter_mut().find(|view| view.role == Role::Hot);
                hot.expect("a hot backup").node = Some(elsewhere);
                cluster.nodes[0].health = NodeHealth::Cordoned;
            },
            distort: |seen| {
                for node in seen.pods.iter_mut().filter_map(|view| view.node.as_mut()) {
                    node.health = NodeHealth::Healthy;
                }
            },
            ..SCENE
        },
        Planted {
            fault: "a budget that is wrong for the tiers stays",
            cause: |cluster| cluster.snapshot.budget = Some(ObjectState::Outdated),
            spoil: |_, plan| keep(plan, |action| !matches!(action, Action::PublishBudget)),
            ..SCENE
        },
        Planted {
            fault: "cold Pods that no ticket opens are kept",
            cause: |cluster| {
                let cold = cluster.snapshot.pods.iter_mut().find(|view| view.role == Role::Cold);
                cold.expect("a cold backup").has_known_key = false;
            },
            distort: |seen| seen.pods.iter_mut().for_each(|view| view.has_known_key = true),
            ..SCENE
        },
        Planted {
            fault: "gates that do not start are counted on",
            wish: [1, 0, 1],
            start: Start { obstacle: Obstacle::ShutGates, ..SCENE.start },
            cause: delete_primary,
            distort: |seen| seen.pods.iter_mut().for_each(|view| view.gate_trouble = None),
            ..SCENE
        },
    ]
}

fn delete_primary(cluster: &mut Cluster) {
    let primary = cluster.snapshot.pods.iter_mut().find(|view| view.role == Role::Primary);
    primary.expect("a primary").lifecycle = Lifecycle::Terminating;
}

/// Leaves the steps of a plan whose actions are good.
fn keep(plan: &mut Plan, is_good: impl Fn(&Action) -> bool) {
    plan.steps.retain(|step| is_good(&step.action));
}

fn give_up_what_is_at_work(seen: &Snapshot, plan: &mut Plan) {
    let is_late = |view: &&PodView| {
        let awake = seen.now.duration_since(view.role_since);
        view.role != Role::Cold
            && matches!(view.gate, Gate::Passed { .. })
            && !view.is_running
            && view.lifecycle == Lifecycle::Starting
            && awake >= seen.desired.wakeup_timeout
    };
    let deletions = seen.pods.iter().filter(is_late).map(|view| Step {
        action: Action::Delete { pod: view.pod.clone(), role: view.role, is_ready: view.is_ready() },
        reason: Reason::WakeTimedOut,
    });
    plan.steps.extend(deletions);
}

/// Plays the scene; returns the oracles that fired.
fn fired(planted: &Planted, is_active: bool) -> BTreeSet<Oracle> {
    let mut fired = BTreeSet::new();
    let mut cluster = whole(planted);
    (planted.cause)(&mut cluster);
    let mut created = 0;
    for pass in 0..PASSES_AFTER {
        let mut seen = cluster.snapshot.clone();
        if is_active {
            (planted.distort)(&mut seen);
        }
        let mut spoilt = plan(&seen);
        if is_active {
            (planted.spoil)(&seen, &mut spoilt);
        }
        for step in &spoilt.steps {
            if let Action::Delete { pod, .. } = &step.action
                && cluster.snapshot.pods.iter().any(|view| view.pod == *pod && view.signs.is_at_work)
            {
                fired.insert(PATIENT);
            }
            created += usize::from(matches!(step.action, Action::Create { .. }));
            cluster.apply(step);
        }
        cluster.tick();
        if pass >= PASSES_TO_ACT && led_to_nobody(&cluster.snapshot).is_some() {
            fired.insert(LED);
        }
    }
    if created > planted.wish.iter().sum::<usize>() + CREATIONS_MAX {
        fired.insert(BUDGETED);
    }
    fired.extend(at_the_end(&cluster));
    fired
}

/// A set that has what it wants, with a Service and a budget.
fn whole(planted: &Planted) -> Cluster {
    let nodes = (0..4).map(|index| given::node(&format!("n{index}"), NodeHealth::Healthy)).collect();
    let desired = Desired { unready_deadline: SignedDuration::from_secs(20), ..given::desired(planted.wish) };
    let mut snapshot = given::snapshot(desired, Vec::new());
    snapshot.exposure = Some(absent_service());
    snapshot.budget = Some(ObjectState::Absent);
    let mut cluster = Cluster::new(snapshot, nodes);
    for _ in 0..PASSES_BEFORE {
        plan(&cluster.snapshot).steps.iter().for_each(|step| cluster.apply(step));
        cluster.tick();
    }
    assert_eq!(unlike_the_wish(&cluster.snapshot), None, "{}", planted.fault);
    cluster.start = planted.start;
    if cluster.start.obstacle == Obstacle::ShutGates {
        let cold = cluster.snapshot.pods.iter_mut().filter(|view| view.role == Role::Cold);
        cold.for_each(|view| view.gate = Gate::Ahead);
    }
    cluster
}

fn at_the_end(cluster: &Cluster) -> BTreeSet<Oracle> {
    let snapshot = &cluster.snapshot;
    let mut fired = BTreeSet::new();
    let is_rejected = cluster.start.obstacle == Obstacle::Rejection;
    let is_held = snapshot.desired.paused || !snapshot.desired.can_create || is_rejected;
    let is_unserved = standing(snapshot) < snapshot.desired.replicas;
    if is_unserved && !snapshot.desired.paused && !is_rejected {
        fired.insert(SERVES);
    }
    let wrong = if cluster.start.obstacle == Obstacle::ShutGates {
        unlike_the_wish_but_for_cold
    } else {
        unlike_the_wish
    };
    if !is_held && wrong(snapshot).is_some() {
        fired.insert(WISHED);
    }
    let has_wrong_label = snapshot.pods.iter().any(|view| view.labels == RoleLabels::Wrong);
    let has_others = snapshot.exposure.as_ref().is_some_and(|exposure| exposure.others != Others::None);
    if has_wrong_label || has_others || snapshot.budget != Some(ObjectState::Current) {
        fired.insert(KEPT);
    }
    let is_left_on =
        |view: &&PodView| view.role == Role::Primary && view.node_health() == NodeHealth::Cordoned;
    if snapshot.pods.iter().filter(is_left_on).any(PodView::is_ready) {
        fired.insert(LEAVES);
    }
    fired
}

#[test]
fn every_fault_that_is_planted_is_caught_by_an_oracle_and_none_fires_without_it() {
    for planted in all_planted() {
        assert_eq!(fired(&planted, false), BTreeSet::new(), "without the fault: {}", planted.fault);
        let caught = fired(&planted, true);
        println!("{}: {}", planted.fault, caught.iter().copied().collect::<Vec<_>>().join(", "));
        assert_ne!(caught, BTreeSet::new(), "nothing catches: {}", planted.fault);
    }
}

/// The volumes of the operator in a Pod that would keep the cluster autoscaler from removing its node.
fn unevictable(pod: &Value) -> Vec<&str> {
    let named = pod["metadata"]["annotations"][bps_api::keys::ANNOTATION_EVICTABLE_VOLUMES].as_str();
    let named: BTreeSet<&str> = named.unwrap_or_default().split(',').collect();
    let volumes = pod["spec"]["volumes"].as_array().into_iter().flatten();
    let own = volumes
        .filter(|volume| volume.get("emptyDir").is_some())
        .filter_map(|volume| volume["name"].as_str());
    own.filter(|name| name.starts_with("bps-") && !named.contains(name)).collect()
}

#[test]
fn a_volume_that_keeps_a_node_is_caught_by_an_oracle() {
    let set = serde_json::from_value(json!({
        "apiVersion": "backup.example.com/v1alpha1", "kind": "BackupPodSet", "metadata": {"name": "web"},
        "spec": {"template": {"spec": {"containers": [{"name": "web", "image": "web:1"}]}}},
    }));
    let gate = GateSettings { image: "gate:1".into(), public_keys: Vec::new() };
    let name = PodName("web-0".into());
    let request = PodRequest {
        set: &set.expect("a set"),
        name: &name,
        role: Role::Cold,
        slot: 0,
        subset: None,
        now: given::now(),
        injection: None,
    };
    let mut made = pod(&request, &gate).expect("a Pod");
    assert_eq!(unevictable(&made), Vec::<&str>::new());
    made["metadata"]["annotations"] = json!({});
    assert_eq!(unevictable(&made), ["bps-gate"]);
    println!("a Pod that was cold once keeps its node: {EVICTABLE}");
}
