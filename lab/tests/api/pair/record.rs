//! What the Lease tells about a takeover, and what that costs.

use bps_protocol::{Cause, TakeoverRecord};

use super::journal::Start;
use super::stage::Stage;

/// The record of a tenure, once its active has told all of it.
async fn told(stage: &Stage, start: Start) -> TakeoverRecord {
    let record = stage
        .until("the whole record of a takeover", async || {
            let record = stage.lease().await.takeover?;
            let is_whole = u64::from(record.epoch) == start.epoch && record.published.is_some();
            is_whole.then_some(record)
        })
        .await;
    let TakeoverRecord { detected, fenced, granted, promoted, published, .. } = record;
    let phases = [Some(detected), Some(fenced), granted, promoted];
    println!("{}: {phases:?}, published {published:?}", record.cause.as_str());
    assert!(granted.is_some() && promoted.is_some() && phases.is_sorted(), "{phases:?}");
    // Who inherits by a certificate is shown while it still claims.
    let earliest = if record.cause == Cause::CertificateOfDeath { Some(fenced) } else { granted };
    assert!(earliest <= published, "{phases:?} {published:?}");
    record
}

#[tokio::test(flavor = "multi_thread")]
async fn the_lease_tells_why_another_acts_and_when_each_phase_was_over() {
    let mut stage = Stage::set_alone("record").await;
    stage.lifeline = "held";
    stage.start_agents();
    let first = stage.settled().await;
    let writes = stage.lease().await.lease.writes;
    first.kill();
    let second = stage.start_after(first).await;
    let record = told(&stage, second).await;
    // A machine that does not run an agent for 300 ms takes its pings away; the account is there all the same.
    assert_eq!(record.cause, Cause::ApplicationEnded);
    let written = stage.lease().await.lease.writes - writes;
    println!("the Lease was written {written} times");

    let second = stage.settled().await;
    assert_eq!(stage.terminate_agent(second.agent).await, Some(0));
    let third = stage.start_after(second).await;
    assert_eq!(told(&stage, third).await.cause, Cause::PodDeleted);
    stage.start_agent(second.agent);

    let third = stage.settled().await;
    stage.kill_agent(third.agent);
    let fourth = stage.start_after(third).await;
    let cause = told(&stage, fourth).await.cause;
    assert!([Cause::CertificateOfDeath, Cause::LeaseExpired].contains(&cause), "{cause:?}");
    stage.end();
}
