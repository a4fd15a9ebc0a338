//! Reads one set and its Pods anew, when what its watches have shown contradicts what the server says.
//!
//! The remedy has the size of the doubt: a user who changes the Pods of one set all the time must not have the whole cluster
//! listed again for it. A watch that shows nothing at all any more is found by its deadlines.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

use bps_api::{BackupPodSet, keys};
use bps_observe::readable::Readable;
use bps_observe::slim::SlimPod;
use bps_observe::{SetKey, Watched, Written};
use bps_runtime::sync::Instant;
use kube::api::ListParams;
use kube::core::ObjectList;
use kube::{Api, Client};

use super::watch::Sink;

/// Least time between two of them for one set: it is two requests.
const REFRESH_PAUSE: Duration = Duration::from_secs(10);

/// When each set was read anew.
#[derive(Debug, Default)]
pub(super) struct Refreshes(Mutex<BTreeMap<SetKey, Instant>>);

impl Refreshes {
    /// Whether a set may be read anew now; from here on it counts as read.
    pub(super) fn begin(&self, key: &SetKey) -> bool {
        let mut known = self.0.lock().expect("no holder of this lock panics");
        let is_due = known.get(key).is_none_or(|last| last.elapsed() >= REFRESH_PAUSE);
        if is_due {
            known.insert(key.clone(), Instant::now());
        }
        is_due
    }

    /// The set is gone.
    pub(super) fn end(&self, key: &SetKey) {
        self.0.lock().expect("no holder of this lock panics").remove(key);
    }
}

/// Reads a set and its Pods from the API server and takes them into the cache.
///
/// What the watches showed meanwhile is newer: it stays.
///
/// # Errors
/// The first error of a request; what the other one showed is taken in.
pub(super) async fn refresh(client: &Client, sink: &Sink, key: &SetKey) -> Result<(), kube::Error> {
    let Some(known) = sink.cache().set(key) else { return Ok(()) };
    let api: Api<Readable<BackupPodSet>> = Api::namespaced(client.clone(), &key.namespace);
    let (set, pods) = tokio::join!(api.get_opt(&key.name), listed_pods(client, key));
    let now = sink.clock.now();
    let listed = pods.map(|pods| {
        sink.change(|cache| cache.listed_pods(key, (pods.items, &pods.metadata), now).unwrap_or_default());
    });
    match set? {
        Some(set) => sink.cache().wrote(Written::Set(Box::new(set)), now),
        None => sink.change(|cache| known.lost(cache, now)),
    }
    listed
}

/// The Pods of a set by a consistent list: without a version it is answered from etcd, or from a cache that has caught up.
pub(super) async fn listed_pods(client: &Client, key: &SetKey) -> Result<ObjectList<SlimPod>, kube::Error> {
    let api: Api<SlimPod> = Api::namespaced(client.clone(), &key.namespace);
    api.list(&ListParams::default().labels(&format!("{}={}", keys::LABEL_SET, key.name))).await
}
