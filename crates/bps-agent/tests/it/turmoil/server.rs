//! The API server: the simulated one, on a host of turmoil; what it keeps outlives the host.

use std::time::Duration;

use bps_api::keys;
use bps_wire::lease::Record;
use http::{Request, Response};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::sleep;
use tower::BoxError;
use turmoil::net::TcpListener;

use crate::turmoil::api::Hub;
use crate::turmoil::fault::Plan;
use crate::turmoil::kinds::{ENDPOINT_SLICES, Kind, LEASES};
use crate::turmoil::store::DeleteOptions;
use crate::turmoil::world::{Actor, Key, World};

/// Name of its host.
pub(crate) const API: &str = "api";
/// Where it listens.
pub(crate) const PORT: u16 = 6443;
/// How far the terms are apart that the Leases of several pairs begin with; a run has fewer.
const TERMS_APART: u32 = 1_000;
/// Name of the Lease and the slice.
pub(crate) const PAIR: &str = "web";

fn key(kind: &'static Kind) -> Key {
    Key::new(kind, "default", PAIR)
}

/// A cluster with a Lease that nobody holds, and an empty slice.
pub(crate) fn cluster(members: &[Value]) -> Hub {
    cluster_of(&[(PAIR, members)])
}

/// The same with such a Lease and slice for each pair of this name and with these members.
pub(crate) fn cluster_of(pairs: &[(&str, &[Value])]) -> Hub {
    let mut world = World::default();
    for ((pair, members), number) in pairs.iter().zip(0..) {
        // So that no two pairs act with the same epoch.
        add_pair(&mut world, pair, members, TERMS_APART * number);
    }
    Hub::new(world, Plan::default())
}

fn add_pair(world: &mut World, pair: &str, members: &[Value], term: u32) {
    let lease = json!({
        "metadata": {"name": pair, "annotations": {
            (keys::ANNOTATION_HA_SEQUENCE): "0",
            (keys::ANNOTATION_HA_MEMBERS): json!(members).to_string(),
            (keys::ANNOTATION_HA_HOLD): "Api",
            (keys::ANNOTATION_HA_WRITES): "0",
        }},
        "spec": {"leaseTransitions": term},
    });
    world.create(Actor::User, &Key::new(&LEASES, "default", pair), lease).expect("a Lease");
    let slice = json!({"metadata": {"name": pair}, "addressType": "IPv4", "endpoints": []});
    world.create(Actor::User, &Key::new(&ENDPOINT_SLICES, "default", pair), slice).expect("a slice");
}

/// The Lease as it is kept.
pub(crate) fn lease(hub: &Hub) -> Record {
    lease_of(hub, PAIR)
}

/// The Lease of this pair as it is kept.
pub(crate) fn lease_of(hub: &Hub, pair: &str) -> Record {
    let key = Key::new(&LEASES, "default", pair);
    let object = hub.with(|state| Value::clone(state.world.object(&key).expect("the Lease")));
    Record::read(&serde_json::from_value(object).expect("a Lease")).expect("a Lease of a pair")
}

/// What somebody asks by an annotation of the Lease; `None` takes it back.
pub(crate) fn annotate(hub: &Hub, annotation: &str, value: Option<String>) {
    annotate_of(hub, PAIR, annotation, value);
}

/// The same in the Lease of this pair.
pub(crate) fn annotate_of(hub: &Hub, pair: &str, annotation: &str, value: Option<String>) {
    hub.with(|state| {
        let change = |lease: &mut Value| lease["metadata"]["annotations"][annotation] = json!(value);
        state.world.edit(Actor::User, &Key::new(&LEASES, "default", pair), |lease| {
            change(lease);
            let annotations = lease["metadata"]["annotations"].as_object_mut().expect("annotations");
            annotations.retain(|_, value| !value.is_null());
        });
    });
}

/// Deletes the Lease of this pair.
pub(crate) fn delete_of(hub: &Hub, pair: &str) {
    let key = Key::new(&LEASES, "default", pair);
    let deleted = hub.with(|state| state.world.delete(Actor::User, &key, &DeleteOptions::default()).is_ok());
    assert!(deleted, "there was a Lease");
}

/// What the slice shows at the end: the epoch.
pub(crate) fn shown(hub: &Hub) -> Value {
    let slice = hub.with(|state| state.world.object(&key(&ENDPOINT_SLICES)).cloned()).expect("the slice");
    slice["metadata"]["annotations"][keys::ANNOTATION_HA_EPOCH].clone()
}

/// How late the API server answers.
pub(crate) type AnswerDelay = watch::Receiver<Duration>;

/// Serves until the host is stopped.
pub(crate) async fn serve(hub: Hub, lateness: AnswerDelay) -> turmoil::Result {
    let (_, inner) = hub.start();
    let listener = TcpListener::bind(("0.0.0.0", PORT)).await?;
    loop {
        let (stream, _) = listener.accept().await?;
        let (inner, lateness) = (inner.clone(), lateness.clone());
        let service = service_fn(move |request| answer(inner.clone(), request, lateness.clone()));
        // It ends with its client.
        tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
    }
}

async fn answer(
    inner: Client,
    request: Request<Incoming>,
    lateness: AnswerDelay,
) -> Result<Response<Body>, BoxError> {
    let (parts, body) = request.into_parts();
    let body = body.collect().await?.to_bytes().to_vec();
    let answer = inner.send(Request::from_parts(parts, Body::from(body))).await?;
    let lateness = *lateness.borrow();
    sleep(lateness).await;
    Ok(answer)
}
