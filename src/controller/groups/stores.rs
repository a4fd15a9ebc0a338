//! What the watches have shown of groups, and which group an event belongs to.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::{Arc, Mutex};

use futures::StreamExt as _;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::core::{DeserializeGuard, NamespaceResourceScope};
use kube::runtime::reflector::{self, Lookup, Store};
use kube::runtime::watcher::{self, Event};
use kube::runtime::{WatchStreamExt as _, reflector::store::Writer};
use kube::{Client, Resource, ResourceExt as _};
use serde::de::DeserializeOwned;
use tracing::warn;

use crate::api::{HAGroup, keys};
use crate::controller::queue::Queue;
use crate::controller::watch::api;
use crate::observe::group::{GroupObjects, pair_number};
use crate::observe::slim::SlimPod;
use crate::observe::{Change, Scope, SetKey};
use crate::runtime::shutdown::Shutdown;
use crate::runtime::tasks::Tasks;

/// Most Leases that are kept after their end. 4,096, of some 2 KB each: who does not lead takes none. What is left out ended
/// without being seen, which makes nobody act too early.
const ENDS_MAX: usize = 4_096;

/// Everything that is known of the groups of one scope.
pub(super) struct Stores {
    scope: Scope,
    groups: Store<DeserializeGuard<HAGroup>>,
    pods: Store<SlimPod>,
    leases: Store<Lease>,
    services: Store<Service>,
    slices: Store<EndpointSlice>,
    ends: Ends,
}

/// Leases as they were when their deletion was seen, by group and number of the pair; the last one of each.
type Ends = Arc<Mutex<BTreeMap<(SetKey, u32), Lease>>>;

/// Starts the watches of one scope.
pub(super) fn start(
    tasks: &mut Tasks,
    shutdown: &Shutdown,
    (client, scope): (&Client, &Scope),
    queue: &Arc<Queue>,
) -> Stores {
    let mut feeds = Feeds { tasks, shutdown, client, scope, queue };
    let ends = Ends::default();
    let kept = Arc::clone(&ends);
    Stores {
        scope: scope.clone(),
        groups: feeds.start(watcher::Config::default(), (own_key, Change::Urgent), |_| {}),
        pods: feeds.start(labelled(), (labelled_key, Change::Ordinary), |_| {}),
        // Who acts is what everybody waits for.
        leases: feeds.start(labelled(), (labelled_key, Change::Urgent), move |event| keep_end(&kept, event)),
        services: feeds.start(labelled(), (labelled_key, Change::Ordinary), |_| {}),
        slices: feeds.start(labelled(), (labelled_key, Change::Ordinary), |_| {}),
        ends,
    }
}

#[cfg(test)]
impl Stores {
    /// Of all namespaces, as if the watches had shown this group and these Leases.
    pub(super) fn with(group: HAGroup, pairs: impl IntoIterator<Item = Lease>) -> Self {
        Self {
            scope: Scope(None),
            groups: shown([DeserializeGuard(Ok(group))]),
            pods: shown([]),
            leases: shown(pairs),
            services: shown([]),
            slices: shown([]),
            ends: Ends::default(),
        }
    }

    /// As if the watch had shown the deletion of a Lease.
    pub(super) fn end(&mut self, lease: &Lease) {
        keep_end(&self.ends, &Event::Delete(lease.clone()));
        self.leases = reflector::store().0;
    }

    /// As if the watch had shown these Pods.
    pub(super) fn with_pods(self, pods: impl IntoIterator<Item = SlimPod>) -> Self {
        Self { pods: shown(pods), ..self }
    }
}

/// A store as if the watch had shown these objects.
#[cfg(test)]
fn shown<K>(objects: impl IntoIterator<Item = K>) -> Store<K>
where
    K: Lookup<DynamicType = ()> + Clone + 'static,
{
    let (store, mut writer) = reflector::store();
    objects.into_iter().for_each(|object| writer.apply_watcher_event(&Event::Apply(object)));
    store
}

/// Keeps how a Lease ended, until there is another one for its pair.
fn keep_end(ends: &Ends, event: &Event<Lease>) {
    let (Event::Apply(lease) | Event::InitApply(lease) | Event::Delete(lease)) = event else { return };
    let Some(pair) = labelled_key(&lease.metadata).zip(pair_number(lease)) else { return };
    let mut ends = ends.lock().expect("no holder of this lock panics");
    if matches!(event, Event::Delete(_)) {
        ends.insert(pair, lease.clone());
        if ends.len() > ENDS_MAX {
            ends.pop_first();
        }
    } else {
        ends.remove(&pair);
    }
}

fn labelled() -> watcher::Config {
    watcher::Config::default().labels(keys::LABEL_GROUP)
}

fn own_key(metadata: &kube::core::ObjectMeta) -> Option<SetKey> {
    Some(SetKey { namespace: metadata.namespace.clone()?, name: metadata.name.clone()? })
}

fn labelled_key(metadata: &kube::core::ObjectMeta) -> Option<SetKey> {
    let name = metadata.labels.as_ref()?.get(keys::LABEL_GROUP)?.clone();
    Some(SetKey { namespace: metadata.namespace.clone()?, name })
}

type KeyOf = fn(&kube::core::ObjectMeta) -> Option<SetKey>;

struct Feeds<'a> {
    tasks: &'a mut Tasks,
    shutdown: &'a Shutdown,
    client: &'a Client,
    scope: &'a Scope,
    queue: &'a Arc<Queue>,
}

impl Feeds<'_> {
    /// Watches one kind until shutdown; errors are logged and tried again with growing delay.
    ///
    /// `hear` hears of each event before the store does.
    fn start<K>(
        &mut self,
        config: watcher::Config,
        (key_of, change): (KeyOf, Change),
        hear: impl Fn(&Event<K>) + Send + 'static,
    ) -> Store<K>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Lookup<DynamicType = ()>,
        K: Clone + Debug + DeserializeOwned + Send + Sync + 'static,
    {
        let (store, writer) = reflector::store();
        let events = watcher::watcher(api::<K>(self.client, self.scope), config).default_backoff();
        let (queue, shutdown, known) = (Arc::clone(self.queue), self.shutdown.clone(), store.clone());
        self.tasks.spawn("watch-groups", async move {
            let note = |event| note(&event, (&known, &queue), (key_of, change));
            let feeding = feed(writer, events, (hear, note));
            tokio::select! {
                // The order does not matter: both end this watch.
                () = shutdown.requested() => {}
                () = feeding => {}
            }
            Ok(())
        });
        store
    }
}

async fn feed<K>(
    mut writer: Writer<K>,
    events: impl futures::Stream<Item = watcher::Result<Event<K>>>,
    (hear, mut note): (impl Fn(&Event<K>), impl FnMut(Event<K>)),
) where
    K: Lookup<DynamicType = ()> + Resource<DynamicType = ()> + Clone + 'static,
{
    let mut events = std::pin::pin!(events);
    while let Some(event) = events.next().await {
        match event {
            Ok(mut event) => {
                if let Event::Apply(object) | Event::InitApply(object) = &mut event {
                    object.managed_fields_mut().clear();
                }
                hear(&event);
                writer.apply_watcher_event(&event);
                note(event);
            }
            Err(error) => {
                warn!(error = &error as &dyn std::error::Error, kind = %<K as Resource>::kind(&()), "Lost a watch");
            }
        }
    }
}

/// Queues the group of an event; after a list every group, because it does not tell what is gone.
fn note<K>(event: &Event<K>, (store, queue): (&Store<K>, &Queue), (key_of, change): (KeyOf, Change))
where
    K: Lookup<DynamicType = ()> + Resource<DynamicType = ()> + Clone + 'static,
{
    match event {
        Event::Apply(object) | Event::Delete(object) => {
            if let Some(key) = key_of(object.meta()) {
                queue.note(key, change);
            }
        }
        Event::InitDone => {
            let keys = store.state().into_iter().filter_map(|object| key_of(object.meta()));
            keys.for_each(|key| queue.note(key, Change::Ordinary));
        }
        Event::Init | Event::InitApply(_) => {}
    }
}

impl Stores {
    /// Waits until every watch has listed.
    pub(super) async fn listed(&self) {
        // A watch that ends takes the process with it.
        let _: [Result<(), _>; 5] = [
            self.groups.wait_until_ready().await,
            self.pods.wait_until_ready().await,
            self.leases.wait_until_ready().await,
            self.services.wait_until_ready().await,
            self.slices.wait_until_ready().await,
        ];
    }

    /// Every group.
    pub(super) fn keys(&self) -> Vec<SetKey> {
        self.groups.state().iter().filter_map(|group| own_key(group.meta())).collect()
    }

    /// Whether groups of this namespace are watched here.
    pub(super) fn covers(&self, key: &SetKey) -> bool {
        self.scope.0.as_ref().is_none_or(|namespace| *namespace == key.namespace)
    }

    /// The group as last seen; `None` if it is gone or cannot be read.
    pub(super) fn group(&self, key: &SetKey) -> Option<HAGroup> {
        let reference = reflector::ObjectRef::new(&key.name).within(&key.namespace);
        match &self.groups.get(&reference)?.0 {
            Ok(group) => Some(group.clone()),
            Err(invalid) => {
                warn!(
                    namespace = key.namespace,
                    group = key.name,
                    error = invalid.error,
                    "Could not read an HAGroup"
                );
                None
            }
        }
    }

    /// The Leases of a group whose deletion was seen since the last call. To be called after [`Self::objects`]: what is
    /// missing there without being here is gone without an end that was seen.
    pub(super) fn take_ends(&self, key: &SetKey) -> Vec<Lease> {
        let mut ends = self.ends.lock().expect("no holder of this lock panics");
        let (own, others) = std::mem::take(&mut *ends).into_iter().partition(|((of, _), _)| of == key);
        *ends = others;
        BTreeMap::into_values(own).collect()
    }

    /// The objects of a group as last seen.
    pub(super) fn objects(&self, key: &SetKey) -> GroupObjects {
        GroupObjects {
            pods: of_group(&self.pods, key),
            leases: of_group(&self.leases, key),
            services: of_group(&self.services, key),
            slices: of_group(&self.slices, key),
        }
    }
}

fn of_group<K>(store: &Store<K>, key: &SetKey) -> Vec<Arc<K>>
where
    K: Lookup<DynamicType = ()> + Resource<DynamicType = ()> + Clone + 'static,
{
    let mut objects = store.state();
    objects.retain(|object| labelled_key(object.meta()).is_some_and(|labelled| labelled == *key));
    objects
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_end_of_a_lease_is_kept_until_it_is_taken_or_another_one_is_there() {
        let lease = |uid: &str| -> Lease {
            let metadata = json!({"name": "web-0", "namespace": "shop", "uid": uid,
                "labels": {(keys::LABEL_GROUP): "web"}, "annotations": {(keys::ANNOTATION_HA_PAIR): "0"}});
            serde_json::from_value(json!({"metadata": metadata})).expect("a Lease")
        };
        let key = |name: &str| SetKey { namespace: "shop".into(), name: name.into() };
        let group = serde_json::from_value(json!({
            "apiVersion": "backup.example.com/v1alpha1", "kind": "HAGroup", "metadata": {"name": "web"}, "spec": {},
        }));
        let stores = Stores::with(group.expect("a group"), []);
        let hear = |event| keep_end(&stores.ends, &event);
        hear(Event::Apply(lease("a")));
        assert_eq!(stores.take_ends(&key("web")), []);
        hear(Event::Delete(lease("a")));
        assert_eq!(stores.take_ends(&key("api")), []);
        assert_eq!(stores.take_ends(&key("web")), [lease("a")]);
        assert_eq!(stores.take_ends(&key("web")), []);
        hear(Event::Delete(lease("a")));
        hear(Event::InitApply(lease("b")));
        assert_eq!(stores.take_ends(&key("web")), []);
    }
}
