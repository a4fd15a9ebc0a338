//! What the API server says about the times of a group: the rules of the schema are those of the protocol.

use std::time::Duration;

use bps_api::HAGroup;
use bps_protocol::Timing;
use kube::api::{Api, Patch, PatchParams};
use serde_json::{Value, json};

use crate::plugin::scene::Scene;

fn params() -> PatchParams {
    PatchParams { dry_run: true, ..PatchParams::apply("groups-test").force() }
}

/// What the API server answers to a group with this specification.
async fn answer(groups: &Api<HAGroup>, name: &str, spec: Value) -> Result<(), String> {
    let group = json!({"apiVersion": "backup.example.com/v1alpha1", "kind": "HAGroup",
        "metadata": {"name": name}, "spec": spec});
    groups.patch(name, &params(), &Patch::Apply(group)).await.map(drop).map_err(|error| error.to_string())
}

#[tokio::test]
async fn times_are_accepted_that_the_protocol_accepts() {
    let scene = Scene::set("groups-times").await;
    let groups = scene.cluster.api::<HAGroup>();
    let mut accepted = 0;
    for hold in [1_101_u32, 1_900, 2_500, 30_000] {
        for above in [0, 49, 51, 52, 53, 80, 100] {
            for stop in [50_u32, 51, 200, 900, 1_500, 20_000] {
                let watch = hold + above;
                let [held, watched, stopped] =
                    [hold, watch, stop].map(|time| Duration::from_millis(time.into()));
                let is_allowed = (1_153..=30_100).contains(&watch);
                let is_safe = is_allowed && Timing::with(held, watched, stopped).check().is_ok();
                let timing =
                    json!({"holdMilliseconds": hold, "watchMilliseconds": watch, "stopMilliseconds": stop});
                let said = answer(&groups, "tried", json!({"timing": timing})).await;
                assert_eq!(said.is_ok(), is_safe, "hold {hold}, watch {watch}, stop {stop}: {said:?}");
                accepted += usize::from(is_safe);
            }
        }
    }
    assert!(accepted > 10, "{accepted}");
}

#[tokio::test]
async fn times_cannot_be_changed() {
    let scene = Scene::set("groups-changed").await;
    let groups = scene.cluster.api::<HAGroup>();
    let group = json!({"apiVersion": "backup.example.com/v1alpha1", "kind": "HAGroup",
        "metadata": {"name": "slow"}, "spec": {"timing": {"watchMilliseconds": 5_000}}});
    scene.create::<HAGroup>(group).await;
    let same = json!({"timing": {"watchMilliseconds": 5_000, "holdMilliseconds": 1_900}, "paused": true});
    assert_eq!(answer(&groups, "slow", same).await, Ok(()));
    let other = answer(&groups, "slow", json!({"timing": {"watchMilliseconds": 6_000}})).await;
    assert!(other.unwrap_err().contains("make a new group with other times"));
    let added = answer(&groups, crate::plugin::scene::GROUP, json!({"timing": {}})).await;
    assert!(added.unwrap_err().contains("make a new group with other times"));
}
