//! Tests of each write: what is sent, and what the answer comes to.

mod answers;
mod others;
mod patience;
mod requests;
mod standing;
mod tickets;

use bps_core::model::{Action, PodName, PodRef, Reason, Step, Uid};
use bps_observe::readable::Readable;
use bps_observe::{Cache, Kind, Observation, Scope, SetKey, Watched, observe};
use bps_testkit::mock_api::Seen;
use serde_json::{Value, json};

use super::testing::{NOW, pod, set, slim};
use super::{Applied, Applier};

fn key() -> SetKey {
    SetKey { namespace: "shop".into(), name: "web".into() }
}

/// What is seen of the set with these fields, a Pod, and these objects of its exposure.
fn observation(fields: &Value, exposure: &[Value]) -> Observation {
    let mut cache = Cache::default();
    cache.know_agent_image(Some("agent:1".into()));
    set(fields).seen(&mut cache, NOW);
    slim(&pod("web-0", ("primary", 17))).seen(&mut cache, NOW);
    cache.begin_list(Kind::Budgets, &Scope(None));
    for object in exposure {
        let object = object.clone();
        if object["kind"] == "Service" {
            let service: k8s_openapi::api::core::v1::Service = serde_json::from_value(object).unwrap();
            service.seen(&mut cache, NOW);
        } else if object["kind"] == "PodDisruptionBudget" {
            let budget: k8s_openapi::api::policy::v1::PodDisruptionBudget =
                serde_json::from_value(object).unwrap();
            budget.seen(&mut cache, NOW);
        } else if object["kind"] == "HAGroup" {
            let group: bps_api::HAGroup = serde_json::from_value(object).unwrap();
            Readable::from(group).seen(&mut cache, NOW);
        } else {
            let slice: k8s_openapi::api::discovery::v1::EndpointSlice =
                serde_json::from_value(object).unwrap();
            slice.seen(&mut cache, NOW);
        }
    }
    drop(cache.end_list(Kind::Budgets, &Scope(None), NOW));
    observe(&cache, &key(), NOW).expect("the set is there")
}

fn plain() -> Observation {
    observation(&json!({}), &[])
}

fn pod_ref(name: &str, version: u64) -> PodRef {
    PodRef {
        name: PodName(name.into()),
        uid: Uid(format!("uid-{name}")),
        resource_version: version.to_string(),
    }
}

fn step(action: Action) -> Step {
    Step { action, reason: Reason::ScaledOut }
}

/// Whether a request asks for the set itself.
fn is_about_set(seen: &Seen) -> bool {
    seen.method == "GET" && seen.path == "/apis/backup.example.com/v1alpha1/namespaces/shop/backuppodsets/web"
}

/// Takes one step.
async fn take(applier: &Applier, observation: &Observation, action: &Action) -> Applied {
    let mut tried = applier.apply(observation, &[step(action.clone())]).await;
    assert_eq!(tried.len(), 1);
    tried.remove(0)
}
