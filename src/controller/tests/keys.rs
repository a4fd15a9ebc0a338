//! Keys of the cold gates: what reaches a Pod is public.

use std::time::Duration;

use bps_api::keys::OPERATOR_NAMESPACE;
use bps_core::manifests::{PodRequest, pod};
use bps_core::model::{PodName, Role};
use bps_observe::Change;
use bps_runtime::lease::Leadership;
use bps_runtime::shutdown::Shutdown;
use bps_testkit::mock_api::{pair, status};
use serde_json::{Value, json};

use super::{context, key};
use crate::apply::testing::{NOW, ring, set};
use crate::controller::housekeeping::{GateKeys, Housekeeper, known_keys};

#[tokio::test]
async fn a_cold_pod_is_told_public_keys_and_no_private_byte() {
    let (client, _server) = pair();
    let ring = ring();
    let kit = GateKeys::new(&client, OPERATOR_NAMESPACE, "wakeup:1".into()).kit(&ring);
    let request = PodRequest {
        set: &set(&json!({})),
        name: &PodName("web-0".into()),
        role: Role::Cold,
        slot: 0,
        subset: None,
        now: NOW,
        injection: None,
    };
    let cold = pod(&request, &kit.settings).expect("a Pod").to_string();
    for key in ring.public_keys() {
        assert!(cold.contains(&key.to_string()), "<id>:<hex public key> is in the environment");
    }
    for private in ["a7a7", "b8b8", "A7A7", "p6en", "uLi4", "167,167"] {
        assert!(!cold.contains(private), "{private}");
    }
}

#[test]
fn every_key_of_the_ring_is_known_also_former_ones() {
    let fresh = bps_wakeup::signing::SigningKey::from_seed(&[3; 32]);
    let ring = ring().rotated(fresh.clone(), NOW);
    let ids = [&ring.current, &ring.next, &ring.previous[0]].map(|key| key.id().to_string());
    assert_eq!(known_keys(&ring).0, ids.into());
}

/// With fresh keys no cold Pod that waits could be woken any more.
#[tokio::test]
async fn keys_whose_secret_was_deleted_are_written_back_and_sets_are_told_of_other_keys() {
    let (client, server) = pair();
    let (log, serving) = server.serve(|seen| match seen.method.as_str() {
        "GET" => (404, status(404, "NotFound", "secrets \"bps-wakeup-keys\" not found")),
        _ => (201, seen.body.clone()),
    });
    let context = context(&client, &json!({}), &[]);
    let housekeeper = Housekeeper {
        keys: GateKeys::new(&client, OPERATOR_NAMESPACE, "wakeup:1".into()),
        ring: tokio::sync::watch::Sender::new(ring()),
        applier: context.applier.clone(),
        sink: context.sink.clone(),
        metrics: context.metrics.sets.clone(),
    };
    let keeping = tokio::spawn(housekeeper.run(Leadership::won(), Shutdown::new()));
    let job = tokio::time::timeout(Duration::from_secs(10), context.sink.queue.take(true)).await;
    keeping.abort();
    serving.abort();
    let job = job.expect("the cache knew no key before");
    assert_eq!((job.key, job.change), (key(), Change::Ordinary));
    let log = log.lock().unwrap();
    let written: Vec<&Value> =
        log.iter().filter(|seen| seen.method == "POST").map(|seen| &seen.body).collect();
    let current = json!("p6enp6enp6enp6enp6enp6enp6enp6enp6enp6enp6c=");
    assert_eq!(written.iter().map(|secret| &secret["data"]["current"]).collect::<Vec<_>>(), [&current]);
}
