//! Tests of the other actors and of the faults: each does what its name says and no more.

use std::time::Duration;

use kube::{
    Error,
    api::{DeleteParams, ListParams},
};
use serde_json::json;

use crate::simulation::{
    actors::{GATE, add_node, cluster},
    api::Hub,
    fault::Plan,
    kinds::{BACKUP_POD_SETS, PODS},
    monkey::{Monkey, Random},
    oracle::is_healthy,
    run::settle_actors,
    semantics_writes::{create, pods, refused, server},
    store::DeleteOptions,
    toy,
    world::{Actor, Key, World},
};

/// Phase, and whether it is healthy.
fn state(hub: &Hub, name: &str) -> Option<(String, bool)> {
    hub.with(|state| {
        let pod = state.world.object(&Key::pod(name))?;
        Some((crate::simulation::run::text(&pod["status"]["phase"]), is_healthy(pod)))
    })
}

fn settled(hub: &Hub) {
    assert!(hub.with(settle_actors), "the actors never come to rest");
}

fn running_cluster() -> (Hub, kube::Client) {
    let (hub, client) = server();
    hub.with(|state| {
        add_node(&mut state.world, "node-a");
        add_node(&mut state.world, "node-b");
        state.actors = cluster();
    });
    (hub, client)
}

#[tokio::test(start_paused = true)]
async fn a_pod_is_bound_started_terminated_and_removed() {
    let (hub, client) = running_cluster();
    let api = pods(&client);
    create(&api, "a", &json!({})).await;
    create(&api, "b", &json!({})).await;
    settled(&hub);
    let nodes: Vec<_> = api.list(&ListParams::default()).await.expect("a list").items;
    let nodes: Vec<_> = nodes.into_iter().filter_map(|pod| pod.spec?.node_name).collect();
    assert_eq!(nodes, ["node-a", "node-b"]);
    assert_eq!(state(&hub, "a"), Some(("Running".to_owned(), true)));
    api.delete("a", &DeleteParams::default()).await.expect("begun");
    assert_eq!(state(&hub, "a"), Some(("Running".to_owned(), false)));
    settled(&hub);
    assert_eq!(state(&hub, "a"), None);
}

#[tokio::test(start_paused = true)]
async fn a_cold_pod_waits_in_its_gate_until_it_is_woken() {
    let (hub, client) = running_cluster();
    let mut pod = toy::pod("cold", "u", "standby");
    pod["spec"]["initContainers"] = json!([{"name": GATE, "image": "app:1"}]);
    hub.with(|state| state.world.create(Actor::User, &Key::pod("cold"), pod).map(drop)).expect("created");
    // Without its owner the garbage collector would take it.
    hub.with(|state| state.actors.truncate(3));
    settled(&hub);
    assert_eq!(state(&hub, "cold"), Some(("Pending".to_owned(), false)));
    let status = pods(&client).get("cold").await.expect("it is there").status.expect("a status");
    let gate = &status.init_container_statuses.as_ref().expect("a gate")[0];
    assert!(gate.state.as_ref().is_some_and(|state| state.running.is_some()));
    let address = status.pod_ip.expect("an address");
    assert!(hub.wake(1, "198.18.0.0").await.is_err(), "nobody listens there");
    hub.wake(1, &address).await.expect("the gate listens");
    settled(&hub);
    assert_eq!(state(&hub, "cold"), Some(("Running".to_owned(), true)));
    assert!(hub.wake(1, &address).await.is_err(), "the gate is gone");
}

#[tokio::test(start_paused = true)]
async fn a_stopped_node_keeps_its_pods_terminating_until_it_is_back() {
    let (hub, client) = running_cluster();
    let api = pods(&client);
    create(&api, "a", &json!({})).await;
    settled(&hub);
    hub.with(|state| state.world.physical.stopped_nodes.insert("node-a".to_owned()));
    settled(&hub);
    assert_eq!(state(&hub, "a"), Some(("Running".to_owned(), false)));
    create(&api, "b", &json!({})).await;
    api.delete("a", &DeleteParams::default()).await.expect("begun");
    settled(&hub);
    assert!(state(&hub, "a").is_some());
    assert_eq!(state(&hub, "b"), Some(("Running".to_owned(), true)));
    hub.with(|state| state.world.physical.stopped_nodes.clear());
    settled(&hub);
    assert_eq!(state(&hub, "a"), None);
}

#[tokio::test(start_paused = true)]
async fn what_a_process_does_is_reported_by_its_kubelet() {
    let (hub, client) = running_cluster();
    let uid = create(&pods(&client), "a", &json!({})).await.metadata.uid.expect("a uid");
    settled(&hub);
    hub.with(|state| state.world.physical.unready.insert(uid.clone()));
    settled(&hub);
    assert_eq!(state(&hub, "a"), Some(("Running".to_owned(), false)));
    hub.with(|state| state.world.physical.ended.insert(uid, "Failed"));
    settled(&hub);
    assert_eq!(state(&hub, "a"), Some(("Failed".to_owned(), false)));
}

#[tokio::test(start_paused = true)]
async fn the_pods_of_a_set_go_with_it_in_each_of_the_three_ways() {
    for (propagation, pods_left) in [("Background", 0), ("Foreground", 0), ("Orphan", 2)] {
        let (hub, _) = running_cluster();
        let set = Key::new(&BACKUP_POD_SETS, "default", "web");
        hub.with(|state| {
            let uid = toy::add_set(&mut state.world, &json!({}));
            for name in ["a", "b"] {
                let pod = toy::pod(name, &uid, "standby");
                state.world.create(Actor::User, &Key::pod(name), pod).expect("a new Pod");
            }
        });
        settled(&hub);
        let options = DeleteOptions { propagation: propagation.to_owned(), ..DeleteOptions::default() };
        hub.with(|state| state.world.delete(Actor::User, &set, &options).map(drop)).expect("begun");
        settled(&hub);
        let left =
            hub.with(|state| (state.world.object(&set).is_some(), state.world.objects(&PODS, "").count()));
        assert_eq!(left, (false, pods_left), "{propagation}");
    }
}

#[test]
fn the_monkey_strikes_as_often_as_allowed_and_the_same_with_the_same_seed() {
    let strike = |seed| {
        let mut world = World::default();
        add_node(&mut world, "node-a");
        let uid = toy::add_set(&mut world, &json!({}));
        for name in ["a", "b", "c"] {
            world.create(Actor::User, &Key::pod(name), toy::pod(name, &uid, "standby")).expect("a new Pod");
        }
        let mut monkey: Box<dyn crate::simulation::actors::ActorStep> =
            Box::new(Monkey { random: Random(seed), left: 5 });
        let strikes = (0..20).filter(|_| monkey.step(&mut world)).count();
        let log: Vec<_> = world.log().iter().map(|event| (event.key.clone(), event.actor)).collect();
        (strikes, log)
    };
    assert_eq!(strike(7), strike(7));
    assert_ne!(strike(7), strike(8));
    assert!((1..=5).contains(&strike(7).0));
}

#[tokio::test(start_paused = true)]
async fn a_lost_request_and_a_lost_answer_look_alike_and_are_not() {
    for (plan, was_applied) in
        [("w1:lost-before", false), ("w1:lost-after", true), ("w1:timeout-after", true)]
    {
        let (hub, client) = server();
        hub.with(|state| state.plan = plan.parse().expect("a plan"));
        let pod = crate::simulation::semantics_writes::pod("a", &json!({}));
        let result = pods(&client).create(&kube::api::PostParams::default(), &pod).await;
        assert!(result.is_err(), "{plan}");
        assert_eq!(matches!(result, Err(Error::Api(_))), plan == "w1:timeout-after");
        assert_eq!(state(&hub, "a").is_some(), was_applied, "{plan}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_refused_write_is_not_carried_out() {
    let codes = [
        ("409", 409),
        ("403", 403),
        ("404", 404),
        ("410", 410),
        ("422", 422),
        ("429=7", 429),
        ("500", 500),
        ("503", 503),
    ];
    for (fault, code) in codes {
        let (hub, client) = server();
        hub.with(|state| state.plan = format!("w1:{fault}").parse().expect("a plan"));
        let pod = crate::simulation::semantics_writes::pod("a", &json!({}));
        let result = pods(&client).create(&kube::api::PostParams::default(), &pod).await;
        assert_eq!(refused(result).0, code);
        assert_eq!((state(&hub, "a"), hub.with(|state| state.fired.len())), (None, 1));
    }
}

#[tokio::test(start_paused = true)]
async fn a_crashed_operator_is_never_answered_and_never_heard_again() {
    for (plan, was_applied) in [("w1:crash-before", false), ("w1:crash-after", true)] {
        let (hub, client) = server();
        hub.with(|state| state.plan = plan.parse().expect("a plan"));
        let api = pods(&client);
        let pod = crate::simulation::semantics_writes::pod("a", &json!({}));
        let params = kube::api::PostParams::default();
        tokio::select! {
            biased;
            () = hub.crashed() => {}
            result = api.create(&params, &pod) => panic!("answered: {result:?}"),
        }
        assert_eq!(state(&hub, "a").is_some(), was_applied, "{plan}");
        let (incarnation, successor) = hub.start();
        assert_eq!(incarnation, 2);
        let params = DeleteParams::default();
        let ghost = tokio::time::timeout(Duration::from_secs(3600), api.delete("a", &params)).await;
        assert!(ghost.is_err(), "the dead one hangs");
        let list = pods(&successor).list(&ListParams::default()).await.expect("the next one is served");
        assert_eq!(list.items.len(), usize::from(was_applied));
    }
}

#[tokio::test(start_paused = true)]
async fn a_slow_answer_takes_simulated_time() {
    let (hub, client) = server();
    hub.with(|state| state.plan = "r1:slow=1500".parse().expect("a plan"));
    let before = hub.with(|state| state.world.now);
    pods(&client).list(&ListParams::default()).await.expect("late but well");
    let taken = hub.with(|state| state.world.now).duration_since(before);
    assert_eq!(taken, jiff::SignedDuration::from_millis(1500));
}

#[test]
fn a_plan_prints_as_it_is_parsed() {
    let text = "w3:lost-after,r2:slow=1500,e5:lag=4,w9:429=2,e1:drop";
    assert_eq!(text.parse::<Plan>().expect("a plan").to_string(), text);
    for bad in ["w3", "x1:drop", "w1:explode", "w:409", "w1:lag=x"] {
        assert!(bad.parse::<Plan>().is_err(), "{bad}");
    }
}
