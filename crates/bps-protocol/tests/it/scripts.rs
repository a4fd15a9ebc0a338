//! What the simulated pair goes through: random faults, after which exactly one acts again, and failures that are timed.

use std::collections::BTreeSet;
use std::time::Duration;

use bps_protocol::testing::{fast_and_short, short};
use bps_protocol::{Hold, Order, Timing};
use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::TestRunner;

use crate::arena::Arena;
use crate::mutations::Mutation;
use crate::simulation::{Fault, MILLISECOND, SECOND, Simulation, Time};
use crate::trail::Trail;

/// Until when faults happen and are mended.
const FAULTS_END: Time = 20 * SECOND;
/// Until when exactly one must act again: a restart's wait T, the operator's wait W, and a few attempts.
const SETTLED: Time = FAULTS_END + 15 * SECOND;

fn fault() -> impl Strategy<Value = Fault> {
    let node = || 0..3_usize;
    prop_oneof![
        3 => node().prop_map(Fault::ApplicationCrashes),
        3 => node().prop_map(Fault::ContainerDies),
        2 => node().prop_map(|node| Fault::NodeDies { node, is_for_ever: false }),
        3 => (node(), node()).prop_map(|(a, b)| Fault::Partition(a, b)),
        3 => node().prop_map(Fault::ApiUnreachable),
        2 => Just(Fault::Storm),
        2 => node().prop_map(|node| Fault::Order(node, Order::SwitchOver)),
        1 => node().prop_map(|node| Fault::Order(node, Order::Fence)),
        1 => Just(Fault::Annotate),
        1 => (0..2_usize).prop_map(Fault::Replace),
        1 => (0..2_usize).prop_map(Fault::Vacate),
    ]
}

fn script() -> impl Strategy<Value = Vec<(Time, Fault, Time)>> {
    let entry = (0..10_000_u64, fault(), 1..9_000_u64);
    let scaled = entry.prop_map(|(at, fault, lasts)| (at * MILLISECOND, fault, lasts * MILLISECOND));
    prop::collection::vec(scaled, 0..12)
}

proptest! {
    #[test]
    fn whatever_happens_one_acts_at_most_and_afterwards_exactly_one(
        seed: u64,
        timing in prop::sample::select(vec![short(), fast_and_short()]),
        script in script(),
        (stops_in, patience) in prop_oneof![Just((0, 0)), (0..6_000_u64, 0..6_000_u64)],
    ) {
        let mut simulation = Simulation::new(&timing, seed);
        (simulation.stops_in, simulation.patience) = (stops_in * MILLISECOND, Duration::from_millis(patience));
        for (at, fault, lasts) in script {
            simulation.plan(at, fault, lasts);
        }
        // The simulation checks I1, I2 and I3 whenever somebody begins to act.
        simulation.run_until(SETTLED);
        let settled = simulation.acting();
        prop_assert_eq!(settled.len(), 1);
        simulation.run_until(SETTLED + 20 * SECOND);
        prop_assert_eq!(simulation.acting(), settled);
    }
}

/// What comes of so many random scripts, judged by the rules of this arena; the same scripts each time.
fn trail(scripts: u64, arena: &Arena) -> Trail {
    let mut trail = Trail::new(arena, &short());
    let mut runner = TestRunner::deterministic();
    for seed in 0..scripts {
        let mut simulation = Simulation::new(&short(), seed);
        for (at, fault, lasts) in script().new_tree(&mut runner).expect("there are faults").current() {
            simulation.plan(at, fault, lasts);
        }
        if seed % 2 == 1 {
            // Twice as long as most applications need here, and longer than a hold.
            (simulation.stops_in, simulation.patience) = (3 * SECOND / 2, Duration::from_secs(3));
        }
        simulation.trail = Some(trail);
        simulation.run_until(SETTLED);
        trail = simulation.trail.take().expect("nobody else takes it");
    }
    println!("{} steps judged", trail.judged);
    trail
}

#[test]
fn whole_agents_go_no_way_that_the_model_does_not_know() {
    let trail = trail(200, &Arena::trio());
    assert!(trail.difference.is_none(), "{}", trail.difference.unwrap_or_default());
    assert!(trail.judged > 10_000, "only {} steps were judged", trail.judged);
    let all = [
        "act",
        "ask",
        "enter Peer mode",
        "hand over",
        "promise",
        "release",
        "stand by",
        "stop",
        "stop later",
        "write",
    ];
    assert_eq!(trail.decided, BTreeSet::from(all));
}

/// The judge can find fault: by other rules than those of the agents, whatever they are about.
#[test]
fn the_way_of_whole_agents_is_not_that_of_a_model_with_other_rules() {
    let others = [
        Mutation::ApiHoldFromAnswer,
        Mutation::PeerHoldFromAnswer,
        Mutation::PromiseBindsNobody,
        Mutation::PromiseLastsHold,
        Mutation::TakeoverRaisesSequence,
        Mutation::HandoverIsNoPromise,
        Mutation::HoldFromReceipt,
        Mutation::FreshGrace,
        Mutation::AdmissionKeepsOldPeer,
        Mutation::RestartIsNoPromise,
    ];
    let unnoticed = others.into_iter().filter(|other| {
        let trail = trail(60, &Arena::trio().mutated(*other));
        trail.difference.is_none()
    });
    assert_eq!(unnoticed.collect::<Vec<_>>(), []);
}

/// A pair that lives in Peer mode; node numbers of the active and its standby.
pub(crate) fn idle_pair(seed: u64) -> (Simulation, usize, usize) {
    idle_pair_with(&Timing::default(), seed)
}

fn idle_pair_with(timing: &Timing, seed: u64) -> (Simulation, usize, usize) {
    let mut simulation = Simulation::new(timing, seed);
    simulation.run_until(5 * SECOND);
    let acting = simulation.acting();
    assert_eq!((acting.len(), simulation.hold()), (1, Hold::Peer));
    (simulation, acting[0], 1 - acting[0])
}

/// From the end of one application to the start of the other, after this fault to the active; the longest of 20.
fn longest_gap(fault: impl Fn(usize) -> Fault) -> Duration {
    longest_gap_with(&Timing::default(), fault)
}

fn longest_gap_with(timing: &Timing, fault: impl Fn(usize) -> Fault) -> Duration {
    let gap = |seed| {
        let (mut simulation, active, standby) = idle_pair_with(timing, seed);
        let at = 5 * SECOND + seed * 7 * MILLISECOND;
        simulation.plan(at, fault(active), 100 * SECOND);
        simulation.run_until(at + 5 * SECOND);
        assert_eq!(simulation.acting(), [standby]);
        let began = simulation.began.last().expect("it acts").0;
        Duration::from_nanos(began - simulation.ended.last().expect("it ended").0)
    };
    (0..20).map(gap).max().expect("there are some")
}

/// The simulation can fail: with a watch that ends before the hold it replaces, two act at once.
#[test]
#[should_panic(expected = "I1")]
fn a_watch_shorter_than_the_hold_is_found_out() {
    let watch = Duration::from_millis(300);
    let timing = Timing { watch, api_watch: watch, ..Timing::default() };
    assert!(timing.check().is_err());
    let mut simulation = Simulation::new(&timing, 1);
    simulation.plan(5 * SECOND, Fault::Partition(0, 1), 10 * SECOND);
    simulation.run_until(20 * SECOND);
}

#[test]
fn a_crash_while_the_api_server_is_away_takes_one_hop_and_is_written_down_later() {
    let (mut simulation, _, standby) = idle_pair(3);
    (0..2).for_each(|node| simulation.plan(5 * SECOND, Fault::ApiUnreachable(node), 30 * SECOND));
    simulation.plan(15 * SECOND, Fault::ApplicationCrashes(1 - standby), SECOND);
    simulation.run_until(15 * SECOND + 2 * MILLISECOND);
    assert_eq!(simulation.acting(), [standby]);
    simulation.run_until(60 * SECOND);
    assert_eq!(simulation.acting(), [standby]);
}

#[test]
fn the_survivor_gets_a_new_partner_and_hands_over_to_it() {
    let (mut simulation, active, standby) = idle_pair(4);
    simulation.plan(5 * SECOND, Fault::NodeDies { node: active, is_for_ever: true }, SECOND);
    simulation.plan(10 * SECOND, Fault::Replace(active), SECOND);
    simulation.plan(15 * SECOND, Fault::ApplicationCrashes(standby), SECOND);
    simulation.run_until(15 * SECOND + 2 * MILLISECOND);
    assert_eq!(simulation.acting(), [2]);
}

/// Else it would live on writes that last for Ha each, for the sake of a member that is dead.
#[test]
fn an_active_without_a_standby_acts_on_without_the_api_server_once_the_place_is_vacant() {
    let (mut simulation, active, standby) = idle_pair(6);
    simulation.plan(5 * SECOND, Fault::NodeDies { node: standby, is_for_ever: true }, SECOND);
    simulation.plan(8 * SECOND, Fault::Vacate(standby), SECOND);
    simulation.plan(10 * SECOND, Fault::ApiUnreachable(active), 40 * SECOND);
    let mut writes = simulation.writes;
    for second in 10..60 {
        simulation.run_until(second * SECOND);
        assert_eq!(simulation.acting(), [active], "after {second} s");
        if second == 10 {
            writes = simulation.writes;
        }
    }
    assert!(simulation.writes - writes <= 20, "{} writes in 50 s", simulation.writes - writes);
}

#[test]
fn the_operator_brings_in_a_new_partner_when_both_members_are_dead() {
    let (mut simulation, ..) = idle_pair(5);
    (0..2).for_each(|node| simulation.plan(5 * SECOND, Fault::NodeDies { node, is_for_ever: true }, SECOND));
    simulation.plan(10 * SECOND, Fault::Replace(0), SECOND);
    simulation.run_until(70 * SECOND);
    assert_eq!(simulation.acting(), [0; 0], "W has not passed");
    simulation.run_until(75 * SECOND);
    assert_eq!(simulation.acting(), [2]);
}

#[test]
fn an_idle_pair_writes_at_most_twice_a_minute() {
    let (mut simulation, active, _) = idle_pair(1);
    let before = simulation.writes;
    simulation.run_until(605 * SECOND);
    println!("idle pair: {} writes in 10 minutes", simulation.writes - before);
    assert!(simulation.writes - before <= 20);
    assert_eq!(simulation.acting(), [active]);
}

#[test]
fn a_crash_takes_one_hop() {
    let gap = longest_gap(Fault::ApplicationCrashes);
    println!("application crash: {gap:?}");
    assert!(gap <= Duration::from_millis(2));
}

#[test]
fn a_planned_switchover_takes_one_hop_after_the_stop() {
    let gap = longest_gap(|node| Fault::Order(node, Order::SwitchOver));
    println!("switchover: {gap:?}");
    assert!(gap <= Duration::from_millis(2));
}

#[test]
fn a_dead_container_takes_a_short_wait_and_a_claim() {
    let gap = longest_gap(Fault::ContainerDies);
    println!("container dies: {gap:?}");
    assert!(gap <= Timing::default().certificate_wait + Duration::from_millis(25));
}

#[test]
fn a_dead_node_takes_the_watch_and_a_claim() {
    for timing in [Timing::default(), fast_and_short()] {
        let gap = longest_gap_with(&timing, |node| Fault::NodeDies { node, is_for_ever: true });
        println!("node dies with a watch of {:?}: {gap:?}", timing.watch);
        assert!(gap <= timing.watch + Duration::from_millis(100));
    }
}

/// What a fast pair does whose machine is too late for it: it has the times of the API server, and their price.
#[test]
fn an_active_that_is_to_live_on_writes_does_so_until_it_is_not() {
    let (mut simulation, active, standby) = idle_pair_with(&fast_and_short(), 2);
    let live_on_writes = |simulation: &mut Simulation, is_wanted| {
        simulation.nodes[active].protocol.as_mut().expect("it lives").live_on_writes(is_wanted);
    };
    live_on_writes(&mut simulation, true);
    simulation.run_until(6 * SECOND);
    let before = simulation.writes;
    // Longer than a promise binds its peer.
    simulation.plan(6 * SECOND, Fault::Partition(active, standby), SECOND);
    simulation.run_until(16 * SECOND);
    assert_eq!((simulation.acting(), simulation.hold()), (vec![active], Hold::Api));
    assert!(simulation.writes - before <= 21, "{} writes in 10 s", simulation.writes - before);

    live_on_writes(&mut simulation, false);
    simulation.run_until(17 * SECOND);
    assert_eq!((simulation.acting(), simulation.hold()), (vec![active], Hold::Peer));
}
