//! Keys of the cold gates: what reaches a Pod is public.

use serde_json::json;

use crate::api::keys::OPERATOR_NAMESPACE;
use crate::apply::testing::{NOW, pair, ring, set};
use crate::controller::housekeeping::{GateKeys, known_keys};
use crate::manifests::{PodRequest, pod};
use crate::model::{PodName, Role};

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
    let fresh = crate::wakeup::signing::SigningKey::from_seed(&[3; 32]);
    let ring = ring().rotated(fresh.clone(), NOW);
    let ids = [&ring.current, &ring.next, &ring.previous[0]].map(|key| key.id().to_string());
    assert_eq!(known_keys(&ring).0, ids.into());
}
