//! Proof that each invariant of the operator can fail.

use serde_json::json;

use crate::simulation::{
    kinds::{ENDPOINT_SLICES, PODS, SECRETS},
    operator::NAMESPACE,
    operator_oracle::all,
    operator_steps::{add_set, empty, spec, web},
    oracle::{ROLE_LABEL, SET_LABEL},
    store::DeleteOptions,
    world::{Actor, Key, World},
};

const OPERATOR: Actor = Actor::Operator(1);

/// A world with a set that wants two primaries and has them, ready.
fn world() -> World {
    let mut world = World::default();
    empty(&mut world);
    add_set(&mut world, "web", &spec((2, 0, 0), "web"));
    for name in ["web-a", "web-b"] {
        add_pod(&mut world, Actor::User, name);
        world.edit(Actor::Kubelet, &Key::pod(name), |pod| {
            pod["status"]["conditions"] = json!([{"type": "Ready", "status": "True"}]);
        });
    }
    world.oracle = all();
    world
}

fn add_pod(world: &mut World, actor: Actor, name: &str) {
    let set = world.object(&web()).expect("it is there");
    let body = json!({
        "metadata": {
            "name": name, "labels": {SET_LABEL: "web", ROLE_LABEL: "primary"},
            "ownerReferences": [{
                "apiVersion": "backup.example.com/v1alpha1", "kind": "BackupPodSet", "name": "web",
                "uid": set["metadata"]["uid"], "controller": true,
            }],
        },
        "spec": {"containers": [{"name": "app", "image": "app:1"}]},
    });
    world.create(actor, &Key::pod(name), body).expect("a new Pod");
}

/// Names of the invariants that a deed breaks, at once or at rest.
fn broken_by(deed: impl FnOnce(&mut World)) -> Vec<&'static str> {
    let mut world = world();
    deed(&mut world);
    world.judge(|world, invariant| invariant.at_rest(world));
    world.violations.iter().map(|found| found.invariant).collect()
}

/// A status and a slice that are true, so that only the deed is judged.
fn settle(world: &mut World) {
    let uid = |name: &str| {
        world.object(&Key::pod(name)).expect("there").get("metadata").expect("a Pod")["uid"].clone()
    };
    let endpoint = |name: &str| json!({"conditions": {"ready": true}, "targetRef": {"uid": uid(name)}});
    let endpoints = json!([endpoint("web-a"), endpoint("web-b")]);
    let slice = json!({"metadata": {"name": "web-bps"}, "addressType": "IPv4", "endpoints": endpoints});
    let key = Key::new(&ENDPOINT_SLICES, "default", "web-bps");
    world.create(Actor::User, &key, slice).expect("a new slice");
    world.edit(Actor::User, &web(), |set| {
        set["status"] =
            json!({"observedGeneration": 1, "readyReplicas": 2, "pods": {"primaries": ["web-a"]}});
    });
}

#[test]
fn a_true_world_breaks_nothing() {
    assert_eq!(broken_by(settle), [""; 0]);
}

#[test]
fn a_primary_that_is_needed_and_taken_away_is_caught() {
    let deed = |world: &mut World| {
        settle(world);
        world.delete(OPERATOR, &Key::pod("web-b"), &DeleteOptions::default()).expect("deleted");
    };
    assert_eq!(broken_by(deed), ["CAPACITY", "STATUS-OF-WORLD", "EXPOSED-IN-STEP"]);
}

#[test]
fn one_pod_beyond_the_wish_is_allowed_and_two_are_caught() {
    let deed = |count: usize| {
        move |world: &mut World| {
            settle(world);
            (0..count).for_each(|extra| add_pod(world, OPERATOR, &format!("web-extra-{extra}")));
        }
    };
    assert_eq!(broken_by(deed(1)), [""; 0]);
    assert_eq!(broken_by(deed(2)), ["BOUNDED"]);
}

#[test]
fn a_status_and_a_slice_that_are_not_true_are_caught_at_rest() {
    assert_eq!(broken_by(|_| {}), ["STATUS-OF-WORLD", "EXPOSED-IN-STEP"]);
    let gone = |world: &mut World| {
        settle(world);
        world.edit(Actor::User, &web(), |set| set["status"]["pods"] = json!({"primaries": ["web-gone"]}));
    };
    assert_eq!(broken_by(gone), ["STATUS-OF-WORLD"]);
}

#[test]
fn the_bytes_of_a_key_in_an_object_are_caught() {
    let deed = |world: &mut World| {
        settle(world);
        let key = Key::new(&SECRETS, NAMESPACE, "bps-wakeup-keys");
        // "AQIDBA==" is 01 02 03 04.
        let secret = json!({"metadata": {"name": "bps-wakeup-keys"}, "data": {"current": "AQIDBA=="}});
        world.create(OPERATOR, &key, secret).expect("a new Secret");
        let changed = world.edit(OPERATOR, &Key::new(&PODS, "default", "web-a"), |pod| {
            pod["metadata"]["annotations"] = json!({"leak": "key 01020304"});
        });
        assert!(changed);
    };
    assert_eq!(broken_by(deed), ["NO-LEAK"]);
}
