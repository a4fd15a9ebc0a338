//! Orders in annotations of the Lease.

use bps_api::keys;
use bps_wire::uid::format_uid;

use super::journal::{now, print_outages};
use super::stage::Stage;
use super::{LONG_ROUNDS, ROUNDS, is_delegated};

#[tokio::test(flavor = "multi_thread")]
async fn a_tenure_that_is_told_to_switch_over_ends_by_a_handover() {
    let mut stage = Stage::set("ordered").await;
    stage.start_agents();
    let (mut outages, mut orders, mut delegated) = (Vec::new(), Vec::new(), 0);
    for _ in 0..ROUNDS {
        let before = stage.settled().await;
        let ordered = now();
        stage.annotate(keys::ANNOTATION_HA_SWITCH_OVER, Some(before.epoch.to_string())).await;
        let after = stage.start_after(before).await;
        assert_eq!(after.agent, 1 - before.agent);
        let stopped = stage.stop_of(before).expect("it was asked to end and did");
        outages.push(after.at.saturating_sub(stopped));
        orders.push(after.at.saturating_sub(ordered));
        delegated += usize::from(is_delegated(before, after));
    }
    println!("{delegated} of {ROUNDS} were handed over directly");
    print_outages("switchover by annotation, from the end of the application", &mut outages);
    print_outages("switchover by annotation, from the order", &mut orders);
    assert!(delegated > 0);

    // Orders to another tenure, and no orders.
    let last = stage.settled().await;
    for order in ["now", "", "1"] {
        stage.annotate(keys::ANNOTATION_HA_SWITCH_OVER, Some(order.to_owned())).await;
    }
    assert_eq!(stage.settled().await, last);
    stage.end();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fenced_agent_does_not_act_until_it_is_unfenced() {
    let mut stage = Stage::set("fenced").await;
    stage.start_agents();
    let mut outages = Vec::new();
    for _ in 0..LONG_ROUNDS {
        let before = stage.settled().await;
        let fenced = format_uid(stage.id(before.agent).0);
        stage.annotate(keys::ANNOTATION_HA_FENCED, Some(fenced)).await;
        let other = stage.start_after(before).await;
        assert_eq!(other.agent, 1 - before.agent);
        stage.settled().await;

        // Nobody else may act, so that it acts again itself.
        let killed = other.kill();
        let again = stage.start_after(other).await;
        assert_eq!(again.agent, other.agent);
        outages.push(again.at.saturating_sub(killed));

        let last = stage.settled().await;
        stage.annotate(keys::ANNOTATION_HA_FENCED, None).await;
        // The first ping after it shows that it is back.
        stage.settled().await;
        last.kill();
        assert_eq!(stage.start_after(last).await.agent, before.agent);
    }
    print_outages("application killed, peer fenced", &mut outages);
    stage.end();
}
