//! What the watches have shown of groups, and which group an event belongs to.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::sync::Arc;

use bps_api::{HAGroup, keys};
use bps_core::model::NodeName;
use bps_observe::group::{GroupObjects, LeaseEnd, LeaseEnds, PodEnd, PodEnds, labelled_key};
use bps_observe::readable::Readable;
use bps_observe::slim::SlimPod;
use bps_observe::{Change, Scope, SetKey};
use bps_runtime::boot_clock;
use bps_runtime::shutdown::Shutdown;
use bps_runtime::tasks::Tasks;
use futures::StreamExt as _;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::core::{NamespaceResourceScope, ObjectMeta};
use kube::runtime::reflector::{self, Lookup, Store};
use kube::runtime::watcher::{self, Event};
use kube::runtime::{WatchStreamExt as _, reflector::store::Writer};
use kube::{Client, Resource};
use serde::de::DeserializeOwned;
use tokio::sync::watch::{Receiver, Sender};
use tracing::warn;

use super::labelled::{Labelled, Names};
use crate::controller::queue::Queue;
use crate::controller::watch::{api, forget_unread};

/// Everything that is known of the groups of one scope.
pub(super) struct Stores {
    scope: Scope,
    groups: Store<Readable<HAGroup>>,
    pods: Labelled<SlimPod>,
    leases: Labelled<Lease>,
    services: Labelled<Service>,
    slices: Labelled<EndpointSlice>,
    roles: Labelled<Role>,
    bindings: Labelled<RoleBinding>,
    ends: LeaseEnds,
    pod_ends: PodEnds,
}

/// How many watches have not listed yet.
///
/// Not asked of their stores: of the tasks that wait for the first list of one store, `kube` 5.0.0 wakes one only.
#[derive(Clone, Debug)]
pub(super) struct Unlisted(Arc<Sender<usize>>);

impl Default for Unlisted {
    fn default() -> Self {
        Self(Arc::new(Sender::new(0)))
    }
}

impl Unlisted {
    /// How it goes on.
    pub(super) fn subscribe(&self) -> Receiver<usize> {
        self.0.subscribe()
    }

    /// One more watch; to be called once it has listed, and once only.
    fn expect(&self) -> impl FnOnce() + Send + Sync + 'static {
        self.0.send_modify(|count| *count += 1);
        let counted = Arc::clone(&self.0);
        move || counted.send_modify(|count| *count -= 1)
    }
}

/// Starts the watches of one scope.
pub(super) fn start(mut feeds: Feeds<'_>) -> Stores {
    let ends = LeaseEnds::default();
    let pod_ends = PodEnds::default();
    let (kept, pods_kept) = (ends.clone(), pod_ends.clone());
    Stores {
        scope: feeds.scope.clone(),
        groups: feeds.start(
            watcher::Config::default(),
            Interest { key_of: own_key, change: Change::Urgent, is_news: |_, _| true },
            (|_| {}, |_, _| Vec::new()),
        ),
        pods: feeds.labelled(ordinary(), move |event| {
            if let Event::Delete(pod) = event {
                pods_kept.deleted(pod, boot_clock::now());
            }
        }),
        // Who acts shows itself to clients; meanwhile what is done here would take processor time from the nodes that follow.
        leases: feeds.labelled(
            Interest { key_of: labelled_key, change: Change::Ordinary, is_news },
            move |event| {
                follow_ends(&kept, event);
            },
        ),
        services: feeds.labelled(ordinary(), |_| {}),
        slices: feeds.labelled(ordinary(), |_| {}),
        roles: feeds.labelled(ordinary(), |_| {}),
        bindings: feeds.labelled(ordinary(), |_| {}),
        ends,
        pod_ends,
    }
}

/// Keeps how a Lease ended, until there is another one for its pair.
fn follow_ends(ends: &LeaseEnds, event: &Event<Lease>) {
    match event {
        Event::Apply(lease) | Event::InitApply(lease) => ends.shown(lease),
        Event::Delete(lease) => ends.deleted(lease, boot_clock::now()),
        Event::Init => ends.listed(),
        Event::InitDone => {}
    }
}

fn own_key(metadata: &ObjectMeta) -> Option<SetKey> {
    Some(SetKey { namespace: metadata.namespace.clone()?, name: metadata.name.clone()? })
}

/// What events of one kind mean.
struct Interest<K> {
    /// Whose group one is about.
    key_of: fn(&ObjectMeta) -> Option<SetKey>,
    change: Change,
    /// Whether an object differs from what it was before in more than nobody asks for.
    is_news: fn(&K, &K) -> bool,
}

/// Of objects that nobody waits for.
fn ordinary<K>() -> Interest<K> {
    Interest { key_of: labelled_key, change: Change::Ordinary, is_news: |_, _| true }
}

/// Whether a Lease says more than that somebody is still there, as those of idle pairs do twice a minute. When one was
/// written last is looked up when it matters.
fn is_news(before: &Lease, now: &Lease) -> bool {
    let said = |lease: &Lease| {
        let mut lease = lease.clone();
        lease.metadata = ObjectMeta { resource_version: None, managed_fields: None, ..lease.metadata };
        if let Some(annotations) = &mut lease.metadata.annotations {
            annotations.remove(keys::ANNOTATION_HA_WRITES);
        }
        if let Some(spec) = &mut lease.spec {
            spec.renew_time = None;
        }
        lease
    };
    said(before) != said(now)
}

/// What the watches of one scope are started with.
pub(super) struct Feeds<'a> {
    pub(super) tasks: &'a mut Tasks,
    pub(super) shutdown: &'a Shutdown,
    pub(super) client: &'a Client,
    pub(super) scope: &'a Scope,
    /// Where they say which group to look at.
    pub(super) queue: &'a Arc<Queue>,
    pub(super) unlisted: &'a Unlisted,
}

impl Feeds<'_> {
    /// Watches the objects of one kind that have the label of a group; `hear` hears of each event before the store does.
    fn labelled<K>(
        &mut self,
        interest: Interest<K>,
        hear: impl Fn(&Event<K>) + Send + Sync + 'static,
    ) -> Labelled<K>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Lookup<DynamicType = ()>,
        K: Clone + Debug + DeserializeOwned + Send + Sync + 'static,
    {
        let names = Names::default();
        let (before, after) = (names.clone(), names.clone());
        let hear = move |event: &Event<K>| {
            hear(event);
            before.expect(event);
        };
        let follow = move |event: &Event<K>, store: &Store<K>| after.follow(event, store);
        let config = watcher::Config::default().labels(keys::LABEL_GROUP);
        Labelled { store: self.start(config, interest, (hear, follow)), names }
    }

    /// Watches one kind until shutdown; errors are logged and tried again with growing delay.
    ///
    /// `hear` hears of each event before the store does, `follow` after it and says which groups to look at besides.
    fn start<K>(
        &mut self,
        config: watcher::Config,
        interest: Interest<K>,
        (hear, follow): (
            impl Fn(&Event<K>) + Send + Sync + 'static,
            impl Fn(&Event<K>, &Store<K>) -> Vec<SetKey> + Send + Sync + 'static,
        ),
    ) -> Store<K>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Lookup<DynamicType = ()>,
        K: Clone + Debug + DeserializeOwned + Send + Sync + 'static,
    {
        let (store, writer) = reflector::store();
        let events = watcher::watcher(api::<K>(self.client, self.scope), config).default_backoff();
        let (queue, shutdown, known) = (Arc::clone(self.queue), self.shutdown.clone(), store.clone());
        let mut listed = Some(self.unlisted.expect());
        self.tasks.spawn("watch-groups", async move {
            let before = |event: &Event<K>| {
                hear(event);
                (is_new(event, &known, interest.is_news), former_key(event, &known, interest.key_of))
            };
            let after = |event, (is_new, former): (bool, Option<SetKey>)| {
                let is_listed = matches!(event, Event::InitDone);
                let losers = follow(&event, &known).into_iter().chain(former);
                if is_new {
                    note(&event, (&known, &queue), &interest);
                }
                for key in losers {
                    queue.note(key, Change::Ordinary);
                }
                if let Some(listed) = listed.take_if(|_| is_listed) {
                    listed();
                }
            };
            let feeding = feed(writer, events, (before, after));
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

/// Whether an event tells something that the store does not say already.
fn is_new<K>(event: &Event<K>, store: &Store<K>, is_news: fn(&K, &K) -> bool) -> bool
where
    K: Lookup<DynamicType = ()> + Clone + 'static,
{
    let Event::Apply(object) = event else { return true };
    let known = store.get(&object.to_object_ref(()));
    known.is_none_or(|known| is_news(&known, object))
}

/// The group that an object belonged to, if it belongs to another one now.
fn former_key<K>(
    event: &Event<K>,
    store: &Store<K>,
    key_of: fn(&ObjectMeta) -> Option<SetKey>,
) -> Option<SetKey>
where
    K: Lookup<DynamicType = ()> + Resource<DynamicType = ()> + Clone + 'static,
{
    let Event::Apply(object) = event else { return None };
    let known = store.get(&object.to_object_ref(()))?;
    key_of(known.meta()).filter(|former| key_of(object.meta()).as_ref() != Some(former))
}

async fn feed<K, Told>(
    mut writer: Writer<K>,
    events: impl futures::Stream<Item = watcher::Result<Event<K>>>,
    (before, mut after): (impl Fn(&Event<K>) -> Told, impl FnMut(Event<K>, Told)),
) where
    K: Lookup<DynamicType = ()> + Resource<DynamicType = ()> + Clone + 'static,
{
    let mut events = std::pin::pin!(events);
    while let Some(event) = events.next().await {
        match event {
            Ok(mut event) => {
                if let Event::Apply(object) | Event::InitApply(object) = &mut event {
                    forget_unread(object);
                }
                let told = before(&event);
                writer.apply_watcher_event(&event);
                after(event, told);
            }
            Err(error) => {
                warn!(error = &error as &dyn std::error::Error, kind = %<K as Resource>::kind(&()), "Lost a watch");
            }
        }
    }
}

/// Queues the group of an event, and after a list every group that has something.
fn note<K>(event: &Event<K>, (store, queue): (&Store<K>, &Queue), interest: &Interest<K>)
where
    K: Lookup<DynamicType = ()> + Resource<DynamicType = ()> + Clone + 'static,
{
    let Interest { key_of, change, is_news: _ } = *interest;
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
    /// Every group.
    pub(super) fn keys(&self) -> Vec<SetKey> {
        self.groups.state().iter().filter_map(|group| own_key(group.meta())).collect()
    }

    /// Groups with Pods on one of these nodes.
    pub(super) fn keys_on(&self, nodes: &BTreeSet<NodeName>) -> BTreeSet<SetKey> {
        let is_there = |pod: &Arc<SlimPod>| {
            let node = pod.spec.node_name.as_ref();
            node.is_some_and(|node| nodes.iter().any(|leaving| leaving.0 == *node))
        };
        let pods = self.pods.store.state().into_iter().filter(is_there);
        pods.filter_map(|pod| labelled_key(&pod.metadata)).collect()
    }

    /// Whether groups of this namespace are watched here.
    pub(super) fn covers(&self, key: &SetKey) -> bool {
        self.scope.0.as_ref().is_none_or(|namespace| *namespace == key.namespace)
    }

    /// The group as last seen; `None` if it is gone.
    pub(super) fn group(&self, key: &SetKey) -> Option<Arc<Readable<HAGroup>>> {
        self.groups.get(&reflector::ObjectRef::new(&key.name).within(&key.namespace))
    }

    /// The Leases of a group whose deletion was seen since the last call. To be called after [`Self::objects`]: what is
    /// missing there without being here is gone without an end that was seen.
    pub(super) fn take_ends(&self, key: &SetKey) -> Vec<LeaseEnd> {
        self.ends.take(key)
    }

    /// How often the watch of Leases has listed.
    pub(super) fn lists(&self) -> u64 {
        self.ends.lists()
    }

    /// The Pods of a group whose deletion was seen since the last call.
    pub(super) fn take_pod_ends(&self, key: &SetKey) -> Vec<PodEnd> {
        self.pod_ends.take(key)
    }

    /// The objects of a group as last seen.
    pub(super) fn objects(&self, key: &SetKey) -> GroupObjects {
        GroupObjects {
            pods: self.pods.of_group(key),
            leases: self.leases.of_group(key),
            services: self.services.of_group(key),
            slices: self.slices.of_group(key),
            roles: self.roles.of_group(key),
            bindings: self.bindings.of_group(key),
        }
    }
}

#[cfg(test)]
mod testing;

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::testing::shown;
    use super::*;

    #[test]
    fn a_group_that_loses_an_object_to_another_one_hears_of_it() {
        let service = |group: &str| -> Service {
            let metadata =
                json!({"name": "shop", "namespace": "one", "labels": {(keys::LABEL_GROUP): group}});
            serde_json::from_value(json!({"metadata": metadata})).expect("a Service")
        };
        let store = shown([service("web")]);
        let former = |event: Event<Service>| former_key(&event, &store, labelled_key).map(|key| key.name);
        assert_eq!(former(Event::Apply(service("api"))), Some("web".to_owned()));
        assert_eq!(former(Event::Apply(service("web"))), None);
        assert_eq!(former(Event::Delete(service("web"))), None, "whose it was hears of that anyway");
    }

    #[test]
    fn a_lease_that_only_lives_on_is_no_news_and_everything_else_is() {
        let lease = |writes: &str, hold: &str, holder: &str, term: u32| -> Lease {
            let annotations = json!({(keys::ANNOTATION_HA_WRITES): writes, (keys::ANNOTATION_HA_HOLD): hold});
            let metadata = json!({"name": "web-0", "resourceVersion": writes, "annotations": annotations});
            let renewed = format!("2026-01-01T00:00:{writes}.000000Z");
            let spec = json!({"holderIdentity": holder, "leaseTransitions": term, "renewTime": renewed});
            serde_json::from_value(json!({"metadata": metadata, "spec": spec})).expect("a Lease")
        };
        let known = lease("10", "Peer", "one", 1);
        assert!(!is_news(&known, &lease("11", "Peer", "one", 1)));
        for other in
            [lease("11", "Api", "one", 1), lease("11", "Peer", "two", 1), lease("11", "Peer", "one", 2)]
        {
            assert!(is_news(&known, &other), "{other:?}");
        }
    }
}
