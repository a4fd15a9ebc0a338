//! Reads the objects of one set anew, when what its watches have shown contradicts what the server says.
//!
//! The remedy has the size of the doubt: a user who changes the Pods of one set all the time must not have the whole cluster
//! listed again for it. A watch that shows nothing at all any more is found by its deadlines.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

use bps_api::{BackupPodSet, keys};
use bps_core::manifests::slice_name;
use bps_observe::slim::SlimPod;
use bps_observe::{SetKey, Watched};
use bps_runtime::sync::Instant;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::ListParams;
use kube::core::{NamespaceResourceScope, ObjectList};
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;

use super::watch::Sink;

/// Least time between two of them for one set: it is at most four requests.
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

    /// The set is in no doubt, or gone.
    pub(super) fn end(&self, key: &SetKey) {
        self.0.lock().expect("no holder of this lock panics").remove(key);
    }
}

/// Reads a set, its Pods, its Service and its slice from the API server and takes them into the cache.
///
/// # Errors
/// The first error of a request; what was not read stays as it was.
pub(super) async fn refresh(client: &Client, sink: &Sink, key: &SetKey) -> Result<(), kube::Error> {
    let Some(known) = sink.cache().set(key) else { return Ok(()) };
    let service = known.spec.service.as_ref().map(|service| service.name.clone());
    let slice = service.as_deref().map(slice_name);
    let (set, pods, service, slice) = tokio::try_join!(
        one::<BackupPodSet>(client, key, Some(key.name.clone())),
        listed_pods(client, key),
        one::<Service>(client, key, service),
        one::<EndpointSlice>(client, key, slice),
    )?;
    let now = sink.clock.now();
    sink.cache().listed_pods(key, (pods.items, &pods.metadata), now);
    sink.change(|cache| match set {
        Some(set) => set.seen(cache, now),
        None => known.lost(cache, now),
    });
    // What is absent of these is found out by the write that needs it.
    sink.change(|cache| service.map(|service| service.seen(cache, now)).unwrap_or_default());
    sink.change(|cache| slice.map(|slice| slice.seen(cache, now)).unwrap_or_default());
    Ok(())
}

/// The Pods of a set by a consistent list: without a version it is answered from etcd, or from a cache that has caught up.
pub(super) async fn listed_pods(client: &Client, key: &SetKey) -> Result<ObjectList<SlimPod>, kube::Error> {
    let api: Api<SlimPod> = Api::namespaced(client.clone(), &key.namespace);
    api.list(&ListParams::default().labels(&format!("{}={}", keys::LABEL_SET, key.name))).await
}

async fn one<K>(client: &Client, key: &SetKey, name: Option<String>) -> Result<Option<K>, kube::Error>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + DeserializeOwned
        + std::fmt::Debug,
{
    let Some(name) = name else { return Ok(None) };
    Api::<K>::namespaced(client.clone(), &key.namespace).get_opt(&name).await
}
