//! How the work of an observation grows: with the Pods of its set as n, and not at all with other sets.

use bps_api::service::IpFamily;
use bps_core::manifests::{ShownAddresses, endpoint_slice, service};
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use serde_json::{Value, json};

use super::{at, merge, ready_pod, set, template};
use crate::slim::SlimPod;
use crate::{Cache, Kind, Scope, SetKey, Watched, observe};

/// Pods of the smaller of two sets that are compared.
const PODS: usize = 64;
/// Most visits in a set twice as large, as a multiple.
const RATIO_MAX: usize = 3;

/// Shows a set with a Service and so many Pods.
fn show(cache: &mut Cache, name: &str, pods: usize) {
    let spec = json!({
        "template": template(), "replicas": pods,
        "service": {"name": format!("{name}-front"), "ports": [{"port": 80}]},
    });
    let mut shown = set(spec);
    let uid = format!("{name}-uid");
    (shown.metadata.name, shown.metadata.uid) = (Some(name.to_owned()), Some(uid.clone()));
    let wanted = shown.spec.service.clone().unwrap();
    let of_server = |mut object: Value| {
        let uid = format!("u-{}", object["metadata"]["name"]);
        merge(&mut object, &json!({"metadata": {"uid": uid, "resourceVersion": "4"}}));
        object
    };
    let front: Service = serde_json::from_value(of_server(service(&shown, &wanted))).unwrap();
    let slice = of_server(endpoint_slice(
        &shown,
        &wanted,
        &[],
        ShownAddresses { family: IpFamily::IPv4, endpoints: &[] },
    ));
    let slice: EndpointSlice = serde_json::from_value(slice).unwrap();
    shown.seen(cache, at(0));
    front.seen(cache, at(0));
    slice.seen(cache, at(0));
    for index in 0..pods {
        let mut pod = serde_json::to_value(ready_pod(1)).unwrap();
        let changes = json!({"metadata": {
            "name": format!("{name}-{index}"), "uid": format!("{name}-u{index}"),
            "labels": {"backup.example.com/set": name},
            "ownerReferences": [{
                "apiVersion": "backup.example.com/v1alpha1", "kind": "BackupPodSet", "name": name, "uid": uid,
                "controller": true,
            }],
        }});
        merge(&mut pod, &changes);
        serde_json::from_value::<SlimPod>(pod).unwrap().seen(cache, at(1));
    }
}

/// Shows a budget of somebody else for the Pods of a set.
fn show_budget(cache: &mut Cache, name: &str) {
    let budget = json!({
        "metadata": {"name": name, "namespace": "shop", "uid": format!("{name}-budget"), "resourceVersion": "4"},
        "spec": {"maxUnavailable": 1, "selector": {"matchLabels": {"backup.example.com/set": name}}},
    });
    serde_json::from_value::<PodDisruptionBudget>(budget).unwrap().seen(cache, at(0));
}

/// Objects that are looked at when the set `web` is observed.
fn visits(cache: &Cache, pods: usize) -> usize {
    let before = cache.visits();
    let key = SetKey { namespace: "shop".into(), name: "web".into() };
    let observed = observe(cache, &key, at(9)).expect("the set");
    assert_eq!(observed.snapshot.pods.len(), pods);
    assert!(observed.snapshot.exposure.is_some_and(|exposure| exposure.endpoints().next().is_none()));
    cache.visits() - before
}

#[test]
fn the_work_of_an_observation_grows_with_the_pods_of_the_set_and_not_with_their_square() {
    let of = |pods| {
        let mut cache = Cache::default();
        show(&mut cache, "web", pods);
        visits(&cache, pods)
    };
    let (smaller, larger) = (of(PODS), of(2 * PODS));
    assert!(smaller >= PODS, "{smaller} visits of {PODS} Pods: they are not counted");
    assert!(larger <= RATIO_MAX * smaller, "{smaller} visits for {PODS} Pods, {larger} for twice as many");
}

#[test]
fn other_sets_of_the_namespace_cost_an_observation_nothing() {
    let mut cache = Cache::default();
    cache.begin_list(Kind::Budgets, &Scope(None));
    cache.end_list(Kind::Budgets, &Scope(None), at(0));
    show(&mut cache, "web", 2);
    let alone = visits(&cache, 2);
    for index in 0..50 {
        let other = format!("other-{index}");
        show(&mut cache, &other, 2);
        show_budget(&mut cache, &other);
    }
    assert_eq!(visits(&cache, 2), alone);
}
