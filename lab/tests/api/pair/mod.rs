//! Two real agents on the loopback interface, a real API server, and whatever can fail between them.
//!
//! The applications write into one journal when they start and stop, and hold one lock while they run: the kernel
//! gives it back in the instant in which a process ends, so an application that does not get it has found another one.
//! The outages are printed; no verdict depends on them.

mod checks;
mod group;
mod hooks;
mod journal;
mod lifeline;
mod objects;
mod orders;
mod programs;
mod record;
mod relay;
mod replica;
mod seats;
mod stage;
mod stuck;

use std::time::Duration;

use bps_protocol::{Epoch, Hold};
use rustix::process::Signal;

use self::journal::{Start, now, print_outages};
use self::stage::Stage;

/// How often a fault is repeated that costs milliseconds.
const ROUNDS: usize = 20;
/// How often a fault is repeated that costs seconds.
const LONG_ROUNDS: usize = 5;
/// What an agent may grow by in a flood. Unit: pages of 4 KiB. 4 MiB: less than what arrives, so that is not kept.
const FLOOD_PAGES_MAX: u64 = 1_024;

fn epoch(wire: u64) -> Epoch {
    Epoch::from(wire)
}

/// The sender's term: no takeover through the Lease, so no request to the API server was in between.
fn is_delegated(from: Start, to: Start) -> bool {
    epoch(from.epoch).term == epoch(to.epoch).term
}

#[tokio::test(flavor = "multi_thread")]
async fn exactly_one_of_two_acts_and_lease_slice_and_files_say_so() {
    let mut stage = Stage::set("first").await;
    stage.start_agents();
    let active = stage.settled().await;

    let record = stage.lease().await;
    assert_eq!(record.lease.holder, Some(stage.id(active.agent)));
    assert_eq!(u64::from(record.lease.epoch), active.epoch);
    assert_eq!(stage.role(active.agent), "active");
    assert_eq!(stage.role(1 - active.agent), "standby");
    stage.shows(active).await;
    assert_eq!(stage.starts(), [active]);
    assert_eq!(active.peer, Some(stage.address(1 - active.agent)));
    stage.end();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_application_that_is_killed_is_followed_by_the_peer_without_the_api_server() {
    let mut stage = Stage::set("crash").await;
    stage.start_agents();
    let (mut outages, mut delegated) = (Vec::new(), 0);
    for _ in 0..ROUNDS {
        let before = stage.settled().await;
        let killed = before.kill();
        let after = stage.start_after(before).await;
        assert!(after.epoch > before.epoch);
        delegated += usize::from(is_delegated(before, after));
        outages.push(after.at.saturating_sub(killed));
        stage.await_role(after.agent, "active").await;
        stage.await_role(1 - after.agent, "standby").await;
    }
    println!("{delegated} of {ROUNDS} were handed over directly");
    print_outages("application killed", &mut outages);
    // A machine that does not run an agent for 300 ms takes its pings away, and then the Lease decides.
    assert!(delegated > 0);
    stage.end();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_is_killed_takes_its_application_along_and_the_peer_takes_over() {
    let mut stage = Stage::set("lost").await;
    stage.start_agents();
    let mut outages = Vec::new();
    for _ in 0..LONG_ROUNDS {
        let before = stage.settled().await;
        let killed = stage.kill_agent(before.agent);
        let after = stage.start_after(before).await;
        assert_eq!(after.agent, 1 - before.agent);
        assert_eq!(epoch(after.epoch).term, epoch(before.epoch).term + 1);
        outages.push(after.at.saturating_sub(killed));
        // The restarted one stands by: its name may still be in a Lease that it reads.
        stage.start_agent(before.agent);
        stage.await_role(before.agent, "standby").await;
        assert_eq!(stage.starts().last(), Some(&after));
    }
    print_outages("agent killed", &mut outages);
    stage.end();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restarted_agent_does_not_act_in_its_old_tenure() {
    let mut stage = Stage::set("restart").await;
    stage.start_agents();
    let before = stage.settled().await;
    stage.kill_agent(1 - before.agent);
    stage.kill_agent(before.agent);
    // Nobody else is there, and the Lease names it.
    stage.start_agent(before.agent);
    let after = stage.start_after(before).await;
    assert_eq!(after.agent, before.agent);
    assert_eq!(epoch(after.epoch).term, epoch(before.epoch).term + 1);
    stage.end();
}

#[tokio::test(flavor = "multi_thread")]
async fn without_an_api_server_the_peer_acts_all_the_same_and_both_objects_catch_up() {
    let mut stage = Stage::set_alone("silent").await;
    stage.start_agents();
    let mut outages = Vec::new();
    for _ in 0..LONG_ROUNDS {
        let before = stage.settled().await;
        stage.signal_api_server(Signal::STOP);
        let killed = before.kill();
        let after = stage.start_after(before).await;
        assert!(is_delegated(before, after), "{before:?} then {after:?}");
        outages.push(after.at.saturating_sub(killed));
        stage.signal_api_server(Signal::CONT);
        let last = stage.settled().await;
        stage.shows(last).await;
    }
    print_outages("application killed without an API server", &mut outages);
    stage.end();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_is_deleted_hands_over_and_ends() {
    let mut stage = Stage::set("deleted").await;
    stage.start_agents();
    let (mut outages, mut delegated) = (Vec::new(), 0);
    for _ in 0..LONG_ROUNDS {
        let before = stage.settled().await;
        assert_eq!(stage.terminate_agent(before.agent).await, Some(0));
        let after = stage.start_after(before).await;
        assert_eq!(after.agent, 1 - before.agent);
        delegated += usize::from(is_delegated(before, after));
        let stopped = stage.stop_of(before).expect("it was asked to end and did");
        outages.push(after.at.saturating_sub(stopped));
        stage.start_agent(before.agent);
    }
    println!("{delegated} of {LONG_ROUNDS} were handed over directly");
    print_outages("agent terminated", &mut outages);
    assert!(delegated > 0);
    stage.end();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_active_that_reaches_nobody_kills_its_application_in_time_even_if_it_ignores_signals() {
    let mut stage = Stage::set_alone("alone").await;
    stage.is_stubborn = true;
    stage.start_agents();
    let mut spans = Vec::new();
    for _ in 0..LONG_ROUNDS {
        let before = stage.settled().await;
        stage.signal_agent(1 - before.agent, Signal::STOP);
        stage.signal_api_server(Signal::STOP);
        let alone = now();
        spans.push(stage.ended(before).await.saturating_sub(alone));
        stage.signal_agent(1 - before.agent, Signal::CONT);
        stage.signal_api_server(Signal::CONT);
        let after = stage.start_after(before).await;
        assert!(after.epoch > before.epoch);
    }
    print_outages("from the loss of peer and API server to the end of the application", &mut spans);
    stage.end();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_application_of_an_agent_that_is_stuck_is_ended_before_anybody_else_acts() {
    let mut stage = Stage::set("stuck").await;
    stage.start_agents();
    let mut spans = Vec::new();
    for _ in 0..LONG_ROUNDS {
        let before = stage.settled().await;
        let stuck = now();
        stage.signal_agent(before.agent, Signal::STOP);
        assert_eq!(stage.ended_agent(before.agent).await, Some(128 + Signal::KILL.as_raw()));
        let ended = stage.ended(before).await;
        let after = stage.start_after(before).await;
        assert_eq!(after.agent, 1 - before.agent);
        spans.push(ended.saturating_sub(stuck));
        stage.start_agent(before.agent);
        stage.await_role(before.agent, "standby").await;
    }
    print_outages("from the stop of the agent to the end of the application", &mut spans);
    stage.end();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_application_that_ignores_signals_is_killed_before_anybody_else_acts() {
    let mut stage = Stage::set_alone("stubborn").await;
    stage.is_stubborn = true;
    stage.start_agents();
    let mut outages = Vec::new();
    for _ in 0..LONG_ROUNDS {
        let before = stage.settled().await;
        let asked = now();
        assert_eq!(stage.terminate_agent(before.agent).await, Some(0));
        let after = stage.start_after(before).await;
        assert_eq!(after.agent, 1 - before.agent);
        outages.push(after.at.saturating_sub(asked));
        stage.start_agent(before.agent);
    }
    print_outages("agent of a stubborn application terminated", &mut outages);
    stage.end();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flood_of_forged_datagrams_costs_no_memory_and_stops_no_failover() {
    let mut stage = Stage::set_alone("flood").await;
    stage.start_agents();
    let (mut outages, mut delegated) = (Vec::new(), 0);
    for _ in 0..LONG_ROUNDS {
        let before = stage.settled().await;
        let pages = [0, 1].map(|agent| stage.pages(agent));
        let flood = stage.flood();
        tokio::time::sleep(Duration::from_secs(1)).await;
        // The flood itself may have cost messages, and these a tenure.
        let last = stage.starts().pop().expect("one acts");
        let killed = last.kill();
        let after = stage.start_after(last).await;
        drop(flood);
        delegated += usize::from(is_delegated(last, after));
        outages.push(after.at.saturating_sub(killed));
        let grown = [0, 1].map(|agent| stage.pages(agent).saturating_sub(pages[agent]));
        assert!(grown.iter().all(|pages| *pages < FLOOD_PAGES_MAX), "{grown:?}");
        assert!(after.epoch > before.epoch);
    }
    println!("{delegated} of {LONG_ROUNDS} were handed over directly");
    print_outages("application killed in a flood", &mut outages);
    stage.end();
}

#[tokio::test(flavor = "multi_thread")]
async fn peer_mode_writes_the_lease_rarely() {
    let mut stage = Stage::set_alone("idle").await;
    stage.start_agents();
    stage.settled().await;
    let before = stage.lease().await;
    assert_eq!(before.lease.hold, Hold::Peer);
    tokio::time::sleep(Duration::from_secs(10)).await;
    let written = stage.lease().await.lease.writes - before.lease.writes;
    println!("an idle pair wrote its Lease {written} times in 10 s");
    // Twice a minute; one of them may fall into these 10 s.
    assert!(written <= 1);
    stage.end();
}
