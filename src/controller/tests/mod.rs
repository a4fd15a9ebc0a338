//! Tests of the queue, of one look at a set, and of what confirms a deletion.

mod confirm;
mod dispatch;
mod keys;
mod queue;
mod reconcile;
mod report;
mod steps;

use std::sync::{Arc, Mutex};

use bps_api::{BackupPodSet, BackupPodSetStatus};
use bps_core::manifests::revision;
use bps_observe::slim::SlimNode;
use bps_observe::{Cache, Change, SetKey, Watched};
use bps_runtime::backoff::KeyedBackoff;
use bps_runtime::lease::Leadership;
use bps_runtime::metrics::Metrics;
use bps_runtime::sync::Instant;
use kube::Client;
use serde_json::Value;
use tokio::sync::watch;

use super::creations::Creations;
use super::events;
use super::queue::{Job, Queue};
use super::reconcile::{Context, RETRY_MAX, STALE_FIRST, after_refusals};
use super::refresh::Refreshes;
use super::report::Reporter;
use super::watch::{Relist, Sink};
use crate::apply::testing::{NOW, applier, clock, pod, set, slim};

fn key() -> SetKey {
    SetKey { namespace: "shop".into(), name: "web".into() }
}

/// What a leading operator needs, with these Pods and the set with these fields in its cache.
fn context(client: &Client, fields: &Value, pods: &[Value]) -> Context {
    let mut cache = Cache::default();
    known_set(fields).seen(&mut cache, NOW);
    let node = serde_json::json!({
        "metadata": {"name": "n1"}, "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    });
    serde_json::from_value::<SlimNode>(node).unwrap().seen(&mut cache, NOW);
    for pod in pods {
        slim(pod).seen(&mut cache, NOW);
    }
    let sink = Sink {
        cache: Arc::new(Mutex::new(cache)),
        queue: Arc::new(Queue::default()),
        clock: clock(),
        relist: Relist::default(),
        nodes_noted: watch::Sender::default(),
    };
    let metrics = Metrics::new("test");
    let (sender, _) = events::channel(client.clone(), clock(), "bps-operator-0".into(), &metrics.sets);
    Context {
        client: client.clone(),
        sink,
        applier: applier(client),
        reporter: Reporter::new(client.clone(), sender, metrics.sets.clone()),
        leadership: Leadership::won(),
        metrics,
        refusals: after_refusals(),
        creations: Creations::default(),
        stale: KeyedBackoff::new(STALE_FIRST, RETRY_MAX),
        refreshes: Refreshes::default(),
    }
}

/// A set whose template is in the history already, with all its Pods.
fn known_set(fields: &Value) -> BackupPodSet {
    let mut set = set(fields);
    let update_revision = revision(&set.spec).0;
    let current_revision = update_revision.clone();
    set.status =
        Some(BackupPodSetStatus { current_revision, update_revision, ..BackupPodSetStatus::default() });
    set
}

fn job() -> Job {
    Job { key: key(), change: Change::Urgent, since: Instant::now(), urgent: watch::channel(()).1 }
}

/// A ready primary of this name.
fn primary(name: &str) -> Value {
    pod(name, ("primary", 17))
}

/// A primary of this name that stopped being ready just now.
fn unready_primary(name: &str) -> Value {
    let mut lost = primary(name);
    lost["status"]["conditions"] =
        serde_json::json!([{"type": "Ready", "status": "False", "lastTransitionTime": NOW}]);
    lost["status"]["containerStatuses"][0]["ready"] = serde_json::json!(false);
    lost
}
