//! Agents that are told their group, and belong to whichever Lease names them.

use backuppodset::api::keys;
use serde_json::json;

use super::epoch;
use super::stage::Stage;

#[tokio::test(flavor = "multi_thread")]
async fn agents_of_a_group_find_their_lease_leave_it_when_it_is_gone_and_act_by_the_next_one() {
    let mut stage = Stage::set("group", 10).await;
    stage.is_grouped = true;
    stage.delete_lease().await;
    stage.start_agents();
    for agent in [0, 1] {
        stage.await_role(agent, "unassigned").await;
        assert!(!stage.is_ready(agent));
    }
    assert_eq!(stage.starts(), []);

    stage.create_lease(3).await;
    let first = stage.settled().await;
    assert!(epoch(first.epoch).term > 3);
    stage.shows(first).await;
    assert_eq!([0, 1].map(|agent| stage.is_ready(agent)), [true; 2]);

    // Nobody promises any more, so that the test need not wait for the end of the grace.
    stage.delete_lease().await;
    stage.kill_agent(1 - first.agent);
    stage.start_agent(1 - first.agent);
    stage.ended(first).await;
    for agent in [0, 1] {
        stage.await_role(agent, "unassigned").await;
    }
    let term = epoch(first.epoch).term + 1;
    stage.create_lease(term).await;
    let second = stage.settled().await;
    assert!(epoch(second.epoch).term > term);
    stage.shows(second).await;
    stage.end();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_standby_that_the_lease_does_not_name_any_more_looks_for_another_one_and_ends_at_once() {
    let mut stage = Stage::set("replaced", 11).await;
    stage.is_grouped = true;
    stage.start_agents();
    let active = stage.settled().await;
    let standby = 1 - active.agent;
    let members = |other: &str| {
        let stranger = json!({"uid": other, "pod": "web-9", "address": "127.0.0.9:1"});
        json!([stage.member(active.agent), stranger]).to_string()
    };
    let uid = "a9e00000-0000-4000-8000-ffffffffffff";
    // Only an active admits somebody else; what the standby sees is the same.
    stage.annotate(keys::ANNOTATION_HA_MEMBERS, Some(members(uid))).await;
    stage.await_role(standby, "unassigned").await;
    assert_eq!(stage.terminate_agent(standby).await, Some(0));
    assert_eq!(stage.starts().len(), 1);
    stage.end();
}
