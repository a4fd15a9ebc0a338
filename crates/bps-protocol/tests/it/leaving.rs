//! What is left of a pair whose members leave or are fenced: a Lease that nobody holds.

use bps_protocol::{AgentId, BootTime, Event, Hold, Order, Role, Timing, Version};

use crate::orders::{standby, written};
use crate::scripts::idle_pair;
use crate::simulation::{Fault, MILLISECOND, SECOND};

/// Else nobody could act before the hold of the delegated tenure is over, nor anybody replace them before W.
#[test]
fn who_is_handed_over_to_while_it_leaves_releases_the_lease() {
    let (mut simulation, active, standby) = idle_pair(6);
    simulation.plan(5 * SECOND, Fault::Order(active, Order::Fence), 100 * SECOND);
    simulation.plan(5 * SECOND, Fault::ApplicationCrashes(active), SECOND);
    // The handover is on its way, and so is the farewell then: a message takes a millisecond.
    simulation.plan(5 * SECOND + MILLISECOND / 2, Fault::Order(standby, Order::Fence), 100 * SECOND);
    simulation.run_until(5 * SECOND + 100 * MILLISECOND);
    assert_eq!((simulation.acting(), simulation.holder()), (vec![], None));
}

#[test]
fn a_pair_that_is_fenced_as_a_whole_releases_its_lease() {
    let (mut simulation, active, standby) = idle_pair(6);
    simulation.plan(5 * SECOND, Fault::Order(active, Order::PeerFenced(true)), 100 * SECOND);
    for member in [active, standby] {
        simulation.plan(5 * SECOND, Fault::Order(member, Order::Fence), 100 * SECOND);
    }
    simulation.plan(5 * SECOND, Fault::ApplicationCrashes(active), SECOND);
    simulation.run_until(5 * SECOND + 50 * MILLISECOND);
    assert_eq!((simulation.acting(), simulation.holder()), (vec![], None));
}

/// The promises of a peer that leaves end with its agent; those of a peer that is fenced go on.
#[test]
fn an_active_lives_on_writes_before_its_leaving_peer_has_ended() {
    let holds = [(Order::Leave, Hold::Api), (Order::Fence, Hold::Peer)].map(|(order, hold)| {
        let (mut simulation, active, standby) = idle_pair(6);
        let is_fenced = Order::PeerFenced(order == Order::Fence);
        simulation.plan(5 * SECOND, Fault::Order(active, is_fenced), 100 * SECOND);
        simulation.plan(5 * SECOND, Fault::Order(standby, order), 100 * SECOND);
        simulation.run_until(5 * SECOND + 50 * MILLISECOND);
        assert_eq!((simulation.acting(), simulation.hold()), (vec![active], hold), "soon");
        simulation.run_until(8 * SECOND);
        assert_eq!(simulation.acting(), [active]);
        (simulation.hold(), hold)
    });
    assert!(holds.iter().all(|(is, expected)| is == expected), "{holds:?}");
}

/// The API server did not answer in time.
#[test]
fn who_leaves_and_lapses_claims_once_more_to_release() {
    let (mut protocol, read) = standby();
    protocol.step(BootTime(1), read);
    protocol.step(BootTime(2), Event::WriteApplied { number: 1, version: Version(2) });
    protocol.step(BootTime(3), Event::Ordered(Order::Leave));

    let lapsed = BootTime(3) + Timing::default().hold;
    assert_eq!(written(&protocol.step(lapsed, Event::ApplicationEnded)), [Some(AgentId(1))]);
    assert!(protocol.is_to_clear());
    let number = protocol.agent().last_write;
    let effects = protocol.step(lapsed, Event::WriteApplied { number, version: Version(3) });
    assert_eq!(written(&effects), [None]);
    assert_eq!(protocol.agent().role, Role::Standby);
    assert!(!protocol.is_to_clear());
}
