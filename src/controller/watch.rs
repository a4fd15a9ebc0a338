//! Watch events into the cache, keys of affected sets into the queue.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bps_api::{BackupPodSet, HAGroup, keys};
use bps_observe::readable::Readable;
use bps_observe::slim::{SlimNode, SlimPod};
use bps_observe::{Affected, Cache, Kind, NotedNodes, Scope, Watched};
use bps_runtime::clock::Clock;
use bps_runtime::shutdown::Shutdown;
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event};
use kube::{Api, Client, Resource, ResourceExt as _};
use serde::de::DeserializeOwned;
use tokio::sync::watch as signal;
use tracing::{debug, warn};

use super::queue::Queue;

/// Objects asked for in one request of a list.
const PAGE_OBJECTS: u32 = 500;

/// How long a watch is trusted before everything is listed again.
///
/// 10 min: a watch loses nothing by contract, so this is for faults of servers, proxies and our own; the lists cost an
/// API server less than a hundredth of what its watches do.
pub(super) const RELIST_PERIOD: Duration = Duration::from_secs(600);

/// Least time between a complete list and the next: doubt about a watch must not become a load.
const RELIST_PAUSE: Duration = Duration::from_secs(10);

/// Asks every watch to list again.
#[derive(Clone, Debug)]
pub(super) struct Relist(signal::Sender<()>);

impl Default for Relist {
    fn default() -> Self {
        Self(signal::Sender::new(()))
    }
}

impl Relist {
    /// Lists everything again, soon: what the watches have shown contradicts what the server says.
    pub(super) fn ask(&self) {
        self.0.send_replace(());
    }

    /// Says whether a list was asked for from here on.
    #[cfg(test)]
    pub(super) fn asked(&self) -> signal::Receiver<()> {
        self.0.subscribe()
    }

    /// Waits from the end of one list until the next is due.
    async fn due(&self, mut asked: signal::Receiver<()>) {
        tokio::time::sleep(RELIST_PAUSE).await;
        tokio::select! {
            // The order does not matter: both mean the same.
            // The sender lives in self.
            _ = asked.changed() => {}
            () = tokio::time::sleep(RELIST_PERIOD.saturating_sub(RELIST_PAUSE)) => {}
        }
    }
}

/// Where the events of all watches go.
#[derive(Clone)]
pub(super) struct Sink {
    pub(super) cache: Arc<Mutex<Cache>>,
    pub(super) queue: Arc<Queue>,
    pub(super) clock: Clock,
    pub(super) relist: Relist,
    /// Nodes that whoever looks at groups is concerned with.
    pub(super) nodes_noted: signal::Sender<NotedNodes>,
}

impl Sink {
    pub(super) fn cache(&self) -> MutexGuard<'_, Cache> {
        self.cache.lock().expect("no holder of this lock panics")
    }

    /// Changes the cache and queues the sets that are affected.
    pub(super) fn change<Affects>(&self, change: impl FnOnce(&mut Cache) -> Affects)
    where
        Affects: IntoIterator<Item = Affected>,
    {
        let affected = {
            let mut cache = self.cache();
            let affected = change(&mut cache);
            self.nodes_noted.send_if_modified(|known| {
                let is_other = known.version != cache.nodes_noted().version;
                if is_other {
                    known.clone_from(cache.nodes_noted());
                }
                is_other
            });
            affected
        };
        for (key, urgency) in affected {
            self.queue.note(key, urgency);
        }
    }
}

/// Every watch that the operator needs for these scopes.
pub(super) fn watches(scopes: &[Scope]) -> Vec<(Kind, Scope)> {
    let namespaced = [Kind::Sets, Kind::Pods, Kind::Services, Kind::Slices, Kind::Groups, Kind::Budgets];
    let mut watches: Vec<(Kind, Scope)> =
        scopes.iter().flat_map(|scope| namespaced.map(|kind| (kind, scope.clone()))).collect();
    watches.push((Kind::Nodes, Scope(None)));
    watches
}

/// Watches one kind in one scope until shutdown.
pub(super) async fn watch(client: Client, (kind, scope): (Kind, Scope), sink: Sink, shutdown: Shutdown) {
    let all = watcher::Config::default().page_size(PAGE_OBJECTS);
    let labelled = all.clone().labels(keys::LABEL_SET);
    let target = (kind, &scope);
    let watching = async {
        match kind {
            Kind::Sets => {
                feed(api::<Readable<BackupPodSet>>(&client, &scope), all, target, &sink).await;
            }
            Kind::Pods => feed(api::<SlimPod>(&client, &scope), labelled, target, &sink).await,
            Kind::Services => feed(api::<Service>(&client, &scope), labelled, target, &sink).await,
            Kind::Slices => feed(api::<EndpointSlice>(&client, &scope), labelled, target, &sink).await,
            // Also those of somebody else: a set whose name is taken must not touch them.
            Kind::Groups => feed(api::<Readable<HAGroup>>(&client, &scope), all, target, &sink).await,
            // Also those of others: two for one Pod would keep it from being evicted.
            Kind::Budgets => feed(api::<PodDisruptionBudget>(&client, &scope), all, target, &sink).await,
            Kind::Nodes => feed(Api::<SlimNode>::all(client), all, target, &sink).await,
        }
    };
    tokio::select! {
        // The order does not matter: both end this watch.
        () = shutdown.requested() => {}
        () = watching => {}
    }
}

pub(super) fn api<K>(client: &Client, scope: &Scope) -> Api<K>
where
    K: Resource<DynamicType = (), Scope = kube::core::NamespaceResourceScope>,
{
    match &scope.0 {
        Some(namespace) => Api::namespaced(client.clone(), namespace),
        None => Api::all(client.clone()),
    }
}

/// Takes out of an object what no decision reads and what is as large as the rest of it.
pub(super) fn forget_unread<K: Resource>(object: &mut K) {
    object.managed_fields_mut().clear();
    // Unless the operator wrote it itself, because a set names it.
    if !object.annotations().contains_key(keys::ANNOTATION_WRITTEN_KEYS) {
        object.annotations_mut().remove(keys::ANNOTATION_LAST_APPLIED);
    }
}

/// Feeds the cache from one watch for ever, listing anew now and then.
async fn feed<K>(api: Api<K>, config: watcher::Config, (kind, scope): (Kind, &Scope), sink: &Sink)
where
    K: Watched + Resource<DynamicType = ()> + Clone + DeserializeOwned + std::fmt::Debug + Send + 'static,
{
    loop {
        feed_until_due(api.clone(), config.clone(), (kind, scope), sink).await;
        debug!(kind = ?kind, "Began to list again");
    }
}

/// One list and the watch that follows it; errors are logged and tried again with growing delay.
async fn feed_until_due<K>(api: Api<K>, config: watcher::Config, (kind, scope): (Kind, &Scope), sink: &Sink)
where
    K: Watched + Resource<DynamicType = ()> + Clone + DeserializeOwned + std::fmt::Debug + Send + 'static,
{
    let events = kube::runtime::watcher(api, config).default_backoff();
    let mut events = std::pin::pin!(events);
    // Only what is asked from here on is news to this list.
    let mut due = std::pin::pin!(sink.relist.due(sink.relist.0.subscribe()));
    // A list that takes long is not cut short: it would never end.
    let mut is_listed = false;
    loop {
        let event = tokio::select! {
            // Events first: what is at hand is cheaper than a list.
            biased;
            event = events.next() => event,
            () = &mut due, if is_listed => return,
        };
        let Some(event) = event else { return };
        let now = sink.clock.now();
        match event {
            Ok(Event::Apply(mut object) | Event::InitApply(mut object)) => {
                forget_unread(&mut object);
                sink.change(|cache| object.seen(cache, now));
            }
            Ok(Event::Delete(object)) => sink.change(|cache| object.lost(cache, now)),
            Ok(Event::Init) => {
                is_listed = false;
                sink.cache().begin_list(kind, scope);
            }
            Ok(Event::InitDone) => {
                is_listed = true;
                sink.change(|cache| cache.end_list(kind, scope, now));
            }
            Err(error) => warn!(error = &error as &dyn std::error::Error, kind = ?kind, "Lost a watch"),
        }
    }
}
