//! Agents that are told their group, and belong to whichever Lease names them.

use bps_api::keys;
use serde_json::json;

use super::epoch;
use super::stage::Stage;

#[tokio::test(flavor = "multi_thread")]
async fn agents_of_a_group_find_their_lease_leave_it_when_it_is_gone_and_act_by_the_next_one() {
    let mut stage = Stage::set("group").await;
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
async fn who_is_not_needed_for_any_pair_is_a_spare_and_ready() {
    let mut stage = Stage::set("spare").await;
    stage.is_grouped = true;
    stage.delete_lease().await;
    let stranger = |uid: u32, pod: &str| {
        let uid = format!("a9e00000-0000-4000-8000-ffffffffff{uid}");
        json!({"uid": uid, "pod": pod, "address": "127.0.0.9:1"})
    };
    let whole = json!([stranger(10, "web-8"), stranger(11, "web-9")]);
    stage.create_lease_of(0, whole.clone()).await;
    stage.start_agent(0);
    stage.await_role(0, "unassigned").await;
    assert!(!stage.is_ready(0));
    let pending =
        json!({"leaving": stranger(11, "web-9")["uid"], "joining": stranger(12, "web-7")}).to_string();
    let followed = json!([stranger(10, "web-8"), stranger(13, "web-0")]).to_string();
    let steps = [
        (keys::ANNOTATION_HA_HOLD, Some("Peer"), true),
        (keys::ANNOTATION_HA_PENDING, Some(&pending), false),
        (keys::ANNOTATION_HA_PENDING, None, true),
        (keys::ANNOTATION_HA_IN_SYNC, Some("1"), false),
        (keys::ANNOTATION_HA_IN_SYNC, Some("1,2"), true),
        (keys::ANNOTATION_HA_MEMBERS, Some(&followed), false),
        (keys::ANNOTATION_HA_MEMBERS, Some(&whole.to_string()), true),
        (keys::ANNOTATION_HA_HOLD, Some("Api"), false),
        (keys::ANNOTATION_HA_HOLD, Some("Peer"), true),
    ];
    for (key, value, is_ready) in steps {
        stage.annotate(key, value.map(str::to_owned)).await;
        let what = format!("ready {is_ready} after {key}={value:?}");
        stage.until(&what, async || (stage.is_ready(0) == is_ready).then_some(())).await;
    }
    stage.delete_lease().await;
    stage.until("not ready without a pair", async || (!stage.is_ready(0)).then_some(())).await;

    stage.start_agent(1);
    stage.create_lease(3).await;
    stage.settled().await;
    assert_eq!([0, 1].map(|agent| stage.is_ready(agent)), [true; 2]);
    stage.end();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_standby_that_the_lease_does_not_name_any_more_looks_for_another_one_and_ends_at_once() {
    let mut stage = Stage::set("replaced").await;
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
