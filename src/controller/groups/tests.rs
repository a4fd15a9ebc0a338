//! Looks at one group, with an API server that tests answer for.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use kube::Client;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::Instant;

use super::look::look;
use super::stores::Stores;
use super::{Context, Surroundings};
use crate::api::HAGroup;
use crate::apply::testing::{Seen, clock, pair, ring, status};
use crate::controller::events;
use crate::controller::queue::Job;
use crate::controller::reconcile::Look;
use crate::controller::streaks::Streaks;
use crate::observe::{Change, SetKey};
use crate::runtime::lease::Leadership;
use crate::runtime::metrics::Metrics;

fn key() -> SetKey {
    SetKey { namespace: "shop".into(), name: "web".into() }
}

fn group() -> HAGroup {
    let group = json!({
        "apiVersion": "backup.example.com/v1alpha1", "kind": "HAGroup",
        "metadata": {"name": "web", "namespace": "shop", "uid": "group-uid", "resourceVersion": "5"},
        "spec": {},
    });
    serde_json::from_value(group).expect("a group")
}

/// What a leading operator needs, with this group in its stores.
fn context(client: &Client, stores: Stores) -> Context {
    let surroundings = Surroundings {
        client: client.clone(),
        clock: clock(),
        leadership: Leadership::won(),
        metrics: Metrics::new("test"),
        events: events::channel(client.clone(), clock(), "bps-operator-0".into()).0,
        keys: watch::channel(ring()).1,
    };
    let (memories, refusals) = (Mutex::default(), Streaks::default());
    Context { surroundings, stores: vec![stores], memories, refusals }
}

fn job() -> Job {
    Job { key: key(), change: Change::Urgent, since: Instant::now() }
}

/// Takes every write.
fn answered(seen: &Seen) -> (u16, Value) {
    let is_status = seen.path.ends_with("/status");
    (200, if is_status { serde_json::to_value(group()).unwrap() } else { seen.body.clone() })
}

async fn delays(context: &Context, count: usize) -> Vec<u128> {
    let mut delays = Vec::new();
    for _ in 0..count {
        match look(context, &job()).await {
            Look::Refused(delay) => delays.push(delay.as_millis()),
            settled @ Look::Settled(_) => panic!("{settled:?}"),
        }
    }
    delays
}

#[tokio::test]
async fn the_delay_after_refusals_doubles_up_to_a_minute_and_is_forgiven_by_success() {
    let (client, server) = pair();
    let is_refusing = Arc::new(AtomicBool::new(true));
    let switch = Arc::clone(&is_refusing);
    let answer = move |seen: &Seen| {
        let is_refused = switch.load(Ordering::Relaxed) && !seen.path.ends_with("/status");
        if is_refused { (403, status(403, "Forbidden", "no")) } else { answered(seen) }
    };
    let (_, serving) = server.serve(answer);
    let context = context(&client, Stores::with(group()));
    let grown = [250, 500, 1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 60_000, 60_000];
    assert_eq!(delays(&context, 10).await, grown);

    is_refusing.store(false, Ordering::Relaxed);
    assert!(matches!(look(&context, &job()).await, Look::Settled(_)));
    assert!(context.refusals.0.lock().unwrap().is_empty());
    serving.abort();
}

#[tokio::test]
async fn keys_and_permissions_are_written_once_for_each_version_of_what_they_are_made_from() {
    let (client, server) = pair();
    let (log, serving) = server.serve(answered);
    let context = context(&client, Stores::with(group()));
    for _ in 0..2 {
        assert!(matches!(look(&context, &job()).await, Look::Settled(_)));
    }
    serving.abort();
    let log = log.lock().unwrap();
    let written = log.iter().filter(|seen| seen.path.ends_with("/secrets/web-ha-keys")).count();
    assert_eq!(written, 1, "{log:?}");
}
