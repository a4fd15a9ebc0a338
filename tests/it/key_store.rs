//! Claims about the key ring's Secret, shown in conversations with a scripted API server.

use std::future::Future;

use backuppodset::tickets::keys::{KeyRing, PREVIOUS_KEYS_MAX};
use backuppodset::tickets::secret::{DEFAULT_ROTATION_PERIOD, Error, KeyStore};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use bps_wakeup::signing::SigningKey;
use http::{Request, Response};
use jiff::Timestamp;
use kube::client::Body;
use kube::{Api, Client};
use serde_json::{Value, json};

const PATH: &str = "/api/v1/namespaces/backuppodset-system/secrets";

/// One request that must come, and the reply to it.
struct Exchange {
    method: &'static str,
    code: u16,
    reply: Value,
}

fn on(method: &'static str, code: u16, reply: Value) -> Exchange {
    Exchange { method, code, reply }
}

fn status(code: u16, reason: &str) -> Value {
    json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason, "message": reason, "code": code})
}

fn start() -> Timestamp {
    "2026-01-01T00:00:00Z".parse().unwrap()
}

fn seed_text(seed: u8) -> String {
    BASE64.encode([seed; 32])
}

fn secret(version: &str, current: u8, next: u8, previous: &[u8]) -> Value {
    let mut data = json!({
        "current": seed_text(current), "next": seed_text(next), "rotated-at": BASE64.encode(start().to_string())
    });
    for (age, seed) in previous.iter().enumerate() {
        data[format!("previous-{age:02}")] = seed_text(*seed).into();
    }
    let metadata =
        json!({"name": "bps-wakeup-keys", "namespace": "backuppodset-system", "resourceVersion": version});
    json!({"kind": "Secret", "apiVersion": "v1", "metadata": metadata, "data": data})
}

fn id(seed: u8) -> String {
    SigningKey::from_seed(&[seed; 32]).id().to_string()
}

/// The ring in memory.
fn known_ring() -> KeyRing {
    let [current, next, previous] = [2, 3, 1].map(|seed| SigningKey::from_seed(&[seed; 32]));
    KeyRing { current, next, previous: vec![previous], rotated_at: start() }
}

fn ids(ring: &KeyRing) -> (String, String, Vec<String>) {
    let previous = ring.previous.iter().map(|key| key.id().to_string()).collect();
    (ring.current.id().to_string(), ring.next.id().to_string(), previous)
}

/// Runs a call against the script; returns its result and the bodies that were sent. Any request more or less
/// than the script has fails the test.
async fn converse<F, Fut>(script: Vec<Exchange>, call: F) -> (Result<KeyRing, Error>, Vec<Value>)
where
    F: FnOnce(KeyStore) -> Fut,
    Fut: Future<Output = Result<KeyRing, Error>>,
{
    let (service, mut handle) = tower_test::mock::pair::<Request<Body>, Response<Body>>();
    let api = Api::namespaced(Client::new(service, "unused"), "backuppodset-system");
    let server = tokio::spawn(async move {
        let mut bodies = Vec::new();
        for Exchange { method, code, reply } in script {
            let (request, send) = handle.next_request().await.expect("the script goes on");
            assert_eq!(request.method(), method);
            let path = request.uri().path();
            assert_eq!(
                path,
                if method == "POST" { PATH.to_owned() } else { format!("{PATH}/bps-wakeup-keys") }
            );
            let body = request.into_body().collect_bytes().await.unwrap();
            if !body.is_empty() {
                bodies.push(serde_json::from_slice(&body).unwrap());
            }
            let reply = serde_json::to_vec(&reply).unwrap();
            send.send_response(Response::builder().status(code).body(Body::from(reply)).unwrap());
        }
        assert!(handle.next_request().await.is_none(), "no request beyond the script");
        bodies
    });
    let result = call(KeyStore { api, rotation_period: DEFAULT_ROTATION_PERIOD }).await;
    (result, server.await.unwrap())
}

#[tokio::test]
async fn a_stored_ring_is_read_and_not_written() {
    let script = vec![on("GET", 200, secret("7", 2, 3, &[1]))];
    let (ring, bodies) = converse(script, |store| async move { store.load_or_create(start()).await }).await;
    let ring = ring.unwrap();
    assert_eq!(ids(&ring), (id(2), id(3), vec![id(1)]));
    assert_eq!(ring.rotated_at, start());
    assert_eq!(bodies, Vec::<Value>::new());
}

#[tokio::test]
async fn a_missing_ring_is_created_with_two_fresh_keys() {
    let script = vec![on("GET", 404, status(404, "NotFound")), on("POST", 201, secret("1", 9, 9, &[]))];
    let (ring, bodies) = converse(script, |store| async move { store.load_or_create(start()).await }).await;
    let ring = ring.unwrap();
    let data = &bodies[0]["data"];
    assert_eq!(data["current"], BASE64.encode(*ring.current.seed()));
    assert_eq!(data["next"], BASE64.encode(*ring.next.seed()));
    assert_eq!(data["rotated-at"], BASE64.encode(start().to_string()));
    assert_eq!(data.as_object().unwrap().len(), 3);
    assert_eq!(bodies[0]["metadata"]["name"], "bps-wakeup-keys");
}

#[tokio::test]
async fn a_deleted_ring_that_is_known_is_written_back_and_not_rotated_at_once() {
    let script = || vec![on("GET", 404, status(404, "NotFound")), on("POST", 201, secret("9", 2, 3, &[1]))];
    let missing =
        || [vec![on("GET", 404, status(404, "NotFound"))], script()].into_iter().flatten().collect();
    let late = start() + DEFAULT_ROTATION_PERIOD;
    let follower =
        converse(script(), |store| async move { store.load_or_restore(&known_ring()).await }).await;
    let leader =
        converse(missing(), |store| async move { store.rotate_if_due(&known_ring(), late).await }).await;
    for (ring, bodies) in [follower, leader] {
        let ring = ring.unwrap();
        assert_eq!((ids(&ring), ring.rotated_at), (ids(&known_ring()), start()));
        assert_eq!(bodies.len(), 1);
        assert_eq!(bodies[0]["data"], secret("9", 2, 3, &[1])["data"]);
    }
}

#[tokio::test]
async fn the_loser_of_the_creation_race_takes_the_winners_ring() {
    let script = vec![
        on("GET", 404, status(404, "NotFound")),
        on("POST", 409, status(409, "AlreadyExists")),
        on("GET", 200, secret("1", 5, 6, &[])),
    ];
    let (ring, _) = converse(script, |store| async move { store.load_or_create(start()).await }).await;
    assert_eq!(ids(&ring.unwrap()), (id(5), id(6), vec![]));
}

#[tokio::test]
async fn a_ring_that_changes_all_the_time_is_given_up_for_now() {
    let race = || [on("GET", 404, status(404, "NotFound")), on("POST", 409, status(409, "AlreadyExists"))];
    let script = [race(), race(), race()].into_iter().flatten().collect();
    let (ring, _) = converse(script, |store| async move { store.load_or_create(start()).await }).await;
    assert!(matches!(&ring, Err(error @ Error::LoseRaces) if error.is_transient()), "{ring:?}");
}

#[tokio::test]
async fn a_young_ring_is_not_rotated() {
    let now = start() + DEFAULT_ROTATION_PERIOD - jiff::SignedDuration::from_secs(1);
    let script = vec![on("GET", 200, secret("7", 2, 3, &[1]))];
    let (ring, bodies) =
        converse(script, |store| async move { store.rotate_if_due(&known_ring(), now).await }).await;
    assert_eq!(ids(&ring.unwrap()), (id(2), id(3), vec![id(1)]));
    assert_eq!(bodies, Vec::<Value>::new());
}

#[tokio::test]
async fn an_old_ring_is_rotated_on_the_version_that_was_read() {
    let now = start() + DEFAULT_ROTATION_PERIOD;
    let script = vec![on("GET", 200, secret("7", 2, 3, &[1])), on("PUT", 200, secret("8", 0, 0, &[]))];
    let (ring, bodies) =
        converse(script, |store| async move { store.rotate_if_due(&known_ring(), now).await }).await;
    let ring = ring.unwrap();
    let (current, next, previous) = ids(&ring);
    assert_eq!((current, previous, ring.rotated_at), (id(3), vec![id(2), id(1)], now));
    assert_ne!(next, id(3));
    assert_eq!(bodies[0]["metadata"]["resourceVersion"], "7");
    let expected = json!({
        "current": seed_text(3), "next": BASE64.encode(*ring.next.seed()), "rotated-at": BASE64.encode(now.to_string()),
        "previous-00": seed_text(2), "previous-01": seed_text(1),
    });
    assert_eq!(bodies[0]["data"], expected);
}

#[tokio::test]
async fn the_loser_of_the_rotation_race_takes_the_winners_ring() {
    let now = start() + DEFAULT_ROTATION_PERIOD;
    let mut winners = secret("8", 3, 4, &[2, 1]);
    winners["data"]["rotated-at"] = BASE64.encode(now.to_string()).into();
    let script = vec![
        on("GET", 200, secret("7", 2, 3, &[1])),
        on("PUT", 409, status(409, "Conflict")),
        on("GET", 200, winners),
    ];
    let (ring, _) =
        converse(script, |store| async move { store.rotate_if_due(&known_ring(), now).await }).await;
    assert_eq!(ids(&ring.unwrap()), (id(3), id(4), vec![id(2), id(1)]));
}

#[tokio::test]
async fn a_full_ring_forgets_its_oldest_key() {
    let now = start() + DEFAULT_ROTATION_PERIOD;
    let previous: Vec<u8> = (100..).take(PREVIOUS_KEYS_MAX).collect();
    let script = vec![on("GET", 200, secret("7", 2, 3, &previous)), on("PUT", 200, secret("8", 0, 0, &[]))];
    let (ring, _) =
        converse(script, |store| async move { store.rotate_if_due(&known_ring(), now).await }).await;
    let expected: Vec<String> = std::iter::once(2).chain(previous).take(PREVIOUS_KEYS_MAX).map(id).collect();
    assert_eq!(ids(&ring.unwrap()).2, expected);
}

#[tokio::test]
async fn a_damaged_ring_is_reported_and_never_written_over() {
    for (entry, value) in [
        ("current", json!(BASE64.encode([1; 31]))),
        ("next", Value::Null),
        ("previous-00", json!("")),
        ("rotated-at", json!(BASE64.encode("yesterday"))),
    ] {
        let mut damaged = secret("7", 2, 3, &[1]);
        damaged["data"][entry] = value.clone();
        if value.is_null() {
            damaged["data"].as_object_mut().unwrap().remove(entry);
        }
        let now = start() + DEFAULT_ROTATION_PERIOD;
        let script = vec![on("GET", 200, damaged)];
        let (ring, bodies) =
            converse(script, |store| async move { store.rotate_if_due(&known_ring(), now).await }).await;
        let error = ring.expect_err("a damaged ring");
        assert!(matches!(&error, Error::ReadEntry { entry: named } if named == entry), "{error:?}");
        assert!(!error.is_transient());
        assert_eq!(bodies, Vec::<Value>::new());
    }
}

#[tokio::test]
async fn a_refusal_of_the_api_server_is_passed_on_without_keys() {
    let script = vec![on("GET", 404, status(404, "NotFound")), on("POST", 403, status(403, "Forbidden"))];
    let (ring, bodies) = converse(script, |store| async move { store.load_or_create(start()).await }).await;
    let error = ring.expect_err("forbidden");
    assert!(matches!(&error, Error::Request { verb: "create", .. }), "{error:?}");
    let shown = format!("{error} {error:?}");
    for entry in ["current", "next"] {
        assert!(!shown.contains(bodies[0]["data"][entry].as_str().unwrap()), "{shown}");
    }
}
