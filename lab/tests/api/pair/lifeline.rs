//! Death certificates: an agent that is killed, with an application that keeps its lifeline or does not.

use std::time::Duration;

use bps_protocol::Timing;

use super::journal::print_outages;
use super::stage::Stage;
use super::{LONG_ROUNDS, ROUNDS, epoch};

/// Time for a lifeline: the pauses before a pair of lines, and before a look at the processes.
const PASSED_WITHIN: Duration = Duration::from_millis(1_500);

/// Kills the agent of the active again and again; how long it took until the other one acted.
async fn kill_agents(stage: &mut Stage, rounds: usize) -> Vec<Duration> {
    let mut outages = Vec::new();
    for _ in 0..rounds {
        let before = stage.settled().await;
        tokio::time::sleep(PASSED_WITHIN).await;
        let killed = stage.kill_agent(before.agent);
        let after = stage.start_after(before).await;
        assert_eq!(after.agent, 1 - before.agent);
        assert_eq!(epoch(after.epoch).term, epoch(before.epoch).term + 1);
        outages.push(after.at.saturating_sub(killed));
        stage.start_agent(before.agent);
        stage.await_role(before.agent, "standby").await;
    }
    outages
}

#[tokio::test(flavor = "multi_thread")]
async fn an_application_that_certainly_ended_with_its_agent_is_followed_at_once() {
    let mut stage = Stage::set("certain").await;
    stage.lifeline = "held";
    stage.start_agents();
    let mut outages = kill_agents(&mut stage, ROUNDS).await;
    print_outages("agent and application killed, with a certificate", &mut outages);
    let certified = outages.iter().filter(|outage| **outage < Timing::default().watch / 2).count();
    println!("{certified} of {ROUNDS} by certificate");
    // A machine that does not run an agent for a while may take a lifeline away, and then the Lease decides.
    assert!(certified > 0);
    stage.end();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_application_that_let_go_of_its_lifeline_is_followed_by_the_lease() {
    let mut stage = Stage::set("uncertain").await;
    stage.lifeline = "closed";
    stage.start_agents();
    let mut outages = kill_agents(&mut stage, LONG_ROUNDS).await;
    print_outages("agent and application killed, without a certificate", &mut outages);
    // The promises that the peer gave before: less than a period and the delay of a machine short of T.
    let least = Timing::default().watch / 2;
    assert!(outages.iter().all(|outage| *outage > least), "{outages:?}");
    stage.end();
}
