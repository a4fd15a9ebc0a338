//! What whole agents do about orders, and just after a change of roles.

use std::time::Duration;

use backuppodset::ha::{
    Agent, AgentId, BootTime, Effect, Epoch, Event, Hold, Incarnation, Lease, Order, Protocol, Role, Timing,
    Version,
};

use crate::scripts::idle_pair;
use crate::simulation::{Fault, MILLISECOND, SECOND};

#[test]
fn an_active_goes_on_by_itself_while_its_peer_is_fenced() {
    let (mut simulation, active, standby) = idle_pair(6);
    simulation.plan(5 * SECOND, Fault::Order(standby, Order::Fence), 100 * SECOND);
    simulation.plan(6 * SECOND, Fault::ApplicationCrashes(active), SECOND);
    // A release and a claim.
    simulation.run_until(6 * SECOND + 60 * MILLISECOND);
    assert_eq!(simulation.acting(), [active]);
}

#[test]
fn nobody_hands_over_to_a_peer_that_was_fenced_just_before() {
    let (mut simulation, active, standby) = idle_pair(6);
    simulation.plan(5 * SECOND, Fault::Order(standby, Order::Fence), 100 * SECOND);
    // Its last ping is not missing yet.
    simulation.plan(5 * SECOND + 20 * MILLISECOND, Fault::ApplicationCrashes(active), SECOND);
    simulation.run_until(5 * SECOND + 80 * MILLISECOND);
    assert_eq!(simulation.acting(), [active]);
}

#[test]
fn a_release_that_meets_a_change_by_others_is_repeated_on_it() {
    let (mut simulation, active, standby) = idle_pair(9);
    // The standby has promised, and is not heard any more: so the Lease is released.
    simulation.plan(5 * SECOND, Fault::Partition(active, standby), 100 * SECOND);
    let ended = 5 * SECOND + 500 * MILLISECOND;
    simulation.plan(ended - 1, Fault::Order(active, Order::Fence), 100 * SECOND);
    simulation.plan(ended, Fault::ApplicationCrashes(active), SECOND);
    // A request takes 2 ms at least.
    simulation.plan(ended + MILLISECOND, Fault::Annotate, SECOND);
    simulation.run_until(ended + 100 * MILLISECOND);
    assert_eq!(simulation.acting(), [standby]);
}

#[test]
fn a_fenced_standby_promises_all_the_same() {
    let (mut simulation, active, standby) = idle_pair(7);
    simulation.plan(5 * SECOND, Fault::Order(standby, Order::Fence), 100 * SECOND);
    (0..2).for_each(|node| simulation.plan(6 * SECOND, Fault::ApiUnreachable(node), 30 * SECOND));
    simulation.run_until(30 * SECOND);
    assert_eq!(simulation.acting(), [active]);
}

#[test]
fn a_new_active_can_hand_back_after_a_round_trip() {
    let (mut simulation, active, standby) = idle_pair(8);
    simulation.plan(5 * SECOND, Fault::ApplicationCrashes(active), SECOND);
    // The handover, the first request for a promise, and the ping with the promise: 1.2 ms each at most.
    simulation.plan(5 * SECOND + 4 * MILLISECOND, Fault::ApplicationCrashes(standby), SECOND);
    simulation.run_until(5 * SECOND + 6 * MILLISECOND);
    assert_eq!(simulation.acting(), [active]);
}

#[test]
fn changes_of_the_lease_by_others_in_a_row_cost_no_tenure() {
    let (mut simulation, active, _) = idle_pair(9);
    let began = simulation.began.clone();
    for time in 0..10_000 {
        simulation.plan(5 * SECOND + time * 7 * MILLISECOND, Fault::Annotate, SECOND);
    }
    simulation.run_until(80 * SECOND);
    assert_eq!((simulation.acting(), &simulation.began), (vec![active], &began));
}

#[test]
fn a_claim_that_is_answered_after_a_fence_starts_nothing_and_is_released() {
    let id = AgentId(1);
    let mut protocol = Protocol::new(Agent::new(id, Incarnation(1)), Timing::default());
    let lease = Lease {
        epoch: Epoch::default(),
        holder: None,
        members: [id, AgentId(2)],
        pending: None,
        hold: Hold::Api,
        writes: 0,
    };
    let version = Version(1);
    let claimed = protocol.step(BootTime(1), Event::LeaseRead { lease, version });
    assert!(claimed.iter().any(|effect| matches!(effect, Effect::WriteLease(_))), "{claimed:?}");
    protocol.step(BootTime(2), Event::Ordered(Order::Fence));

    let later = BootTime(2) + Duration::from_millis(5);
    let effects = protocol.step(later, Event::WriteApplied { number: 1, version: Version(2) });
    let released = effects.iter().find_map(|effect| {
        let Effect::WriteLease(write) = effect else { return None };
        Some((write.base, write.lease.holder))
    });
    assert_eq!(released, Some((Version(2), None)));
    assert!(!effects.iter().any(|effect| matches!(effect, Effect::Activate { .. })), "{effects:?}");
    assert_eq!(protocol.agent().role, Role::Standby);
}
