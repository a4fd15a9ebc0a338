//! Reads one set and its objects anew, when what its watches have shown contradicts what the server says.
//!
//! The remedy has the size of the doubt: whoever changes the objects of one set all the time must not have the whole cluster
//! listed again for it. A watch that shows nothing at all any more is found by its deadlines.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Mutex;
use std::time::Duration;

use bps_api::{BackupPodSet, HAGroup, keys};
use bps_observe::readable::Readable;
use bps_observe::slim::SlimPod;
use bps_observe::{OfSet, SetKey, Watched, Written};
use bps_runtime::sync::Instant;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::ListParams;
use kube::core::{NamespaceResourceScope, ObjectList};
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;

use super::watch::Sink;

/// Least time between two of them for one set: it is up to six requests.
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

/// Reads a set and its objects from the API server and takes them into the cache.
///
/// What the watches showed meanwhile is newer: it stays.
///
/// # Errors
/// The first error of a request; what the others showed is taken in.
pub(super) async fn refresh(client: &Client, sink: &Sink, key: &SetKey) -> Result<(), kube::Error> {
    let Some(known) = sink.cache().set(key) else { return Ok(()) };
    let read = tokio::join!(
        read_set(client, sink, key, &known),
        read_group(client, sink, key, &known),
        relist::<SlimPod>(client, sink, key),
        relist::<Service>(client, sink, key),
        relist::<EndpointSlice>(client, sink, key),
        relist::<PodDisruptionBudget>(client, sink, key),
    );
    let (set, group, pods, services, slices, budgets) = read;
    set.and(group).and(pods).and(services).and(slices).and(budgets)
}

async fn read_set(
    client: &Client,
    sink: &Sink,
    key: &SetKey,
    known: &BackupPodSet,
) -> Result<(), kube::Error> {
    let api: Api<Readable<BackupPodSet>> = Api::namespaced(client.clone(), &key.namespace);
    let read = api.get_opt(&key.name).await?;
    let now = sink.clock.now();
    match read {
        Some(set) => sink.cache().wrote(Written::Set(Box::new(set)), now),
        None => sink.change(|cache| known.lost(cache, now)),
    }
    Ok(())
}

/// The group of a set with pairs, which has its name.
async fn read_group(
    client: &Client,
    sink: &Sink,
    key: &SetKey,
    known: &BackupPodSet,
) -> Result<(), kube::Error> {
    if known.spec.active_standby.is_none() {
        return Ok(());
    }
    let api: Api<Readable<HAGroup>> = Api::namespaced(client.clone(), &key.namespace);
    // One that cannot be read, or is gone, is left to its watch.
    if let Some(Readable::Object { object, unread: None }) = api.get_opt(&key.name).await? {
        sink.cache().wrote(Written::Group(object), sink.clock.now());
    }
    Ok(())
}

async fn relist<K>(client: &Client, sink: &Sink, key: &SetKey) -> Result<(), kube::Error>
where
    K: OfSet + Resource<DynamicType = (), Scope = NamespaceResourceScope> + Debug + DeserializeOwned,
{
    let listed = list::<K>(client, key).await?;
    let now = sink.clock.now();
    sink.change(|cache| cache.listed(key, listed, now).unwrap_or_default());
    Ok(())
}

/// A set's objects of one kind by a consistent list: without a version it is answered from etcd, or from a cache that has caught up.
pub(super) async fn list<K>(client: &Client, key: &SetKey) -> Result<ObjectList<K>, kube::Error>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + DeserializeOwned,
{
    let api: Api<K> = Api::namespaced(client.clone(), &key.namespace);
    api.list(&ListParams::default().labels(&format!("{}={}", keys::LABEL_SET, key.name))).await
}
