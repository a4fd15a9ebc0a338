//! What the watches and our own writes have shown, by set.
//!
//! Never decides and never talks: the watches call it, `observe` reads it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use bps_api::{BackupPodSet, BackupPodSetSpec, HAGroup, keys};
use bps_core::manifests::written_annotations;
use bps_core::model::{ExposedKind, NodeName, NodeView, Revision, Storm};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube_core::ObjectMeta;
use kube_core::Resource;
use tracing::warn;

use super::budget;
use super::change::{self, Change};
use super::owner::controller_of;
use super::readable::Readable;
use super::slim::SlimPod;
use super::store::{Index, Indexed, ObjectKey, Outdated, Scope, Source, Store};
use super::storm::StormThreshold;
use super::wish::{self, Compiled};

mod budgets;
mod doubt;
mod groups;
mod listed;
mod nodes;
mod noted;
mod others;
mod taken;
mod written;

pub use listed::OfSet;
pub(crate) use nodes::Hosts;
use nodes::NodeList;
pub use nodes::NotedNodes;
pub use noted::Deleted;
pub(super) use noted::Noted;
use others::Behind;
pub use others::Cleared;
pub use taken::TakenName;
pub use written::{TakenBack, Written};

/// Namespace and name of a set: the key of the work queue.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SetKey {
    /// Namespace of the set.
    pub namespace: String,
    /// Name of the set.
    pub name: String,
}

impl fmt::Display for SetKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}", self.namespace, self.name)
    }
}

/// Identifiers of the keys that the operator can still sign with.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KnownKeys(pub BTreeSet<String>);

impl KnownKeys {
    /// Whether one of these comma-separated identifiers is known.
    pub(super) fn knows_any(&self, ids: &str) -> bool {
        ids.split(',').any(|id| self.0.contains(id))
    }
}

/// A set whose situation may have changed.
pub type Affected = (SetKey, Change);

impl Indexed for BackupPodSet {}
impl Indexed for SlimPod {}
impl Indexed for HAGroup {}

impl Indexed for PodDisruptionBudget {
    fn found_by(&self) -> Vec<Index> {
        vec![budget::selected_by(self)]
    }
}

impl Indexed for Service {
    fn found_by(&self) -> Vec<Index> {
        controlled_by(&self.metadata).into_iter().collect()
    }
}

impl Indexed for EndpointSlice {
    fn found_by(&self) -> Vec<Index> {
        let namespace = self.metadata.namespace.clone().unwrap_or_default();
        let labels = self.metadata.labels.as_ref();
        let name = labels.and_then(|labels| labels.get(keys::LABEL_SERVICE_NAME)).cloned();
        let service = name.map(|name| Index::Service(ObjectKey { namespace, name }));
        controlled_by(&self.metadata).into_iter().chain(service).collect()
    }
}

fn controlled_by(metadata: &ObjectMeta) -> Option<Index> {
    controller_of(metadata).map(|owner| Index::Controller(owner.uid.clone()))
}

/// A set with a spec that can be used.
#[derive(Clone, Debug)]
pub(super) struct Usable {
    /// The set.
    pub set: Arc<BackupPodSet>,
    /// Name of its template.
    pub revision: Revision,
}

/// Everything that is known of the cluster.
#[derive(Debug, Default)]
pub struct Cache {
    pub(super) sets: Store<BackupPodSet>,
    pub(super) pods: Store<SlimPod>,
    pub(super) services: Store<Service>,
    pub(super) slices: Store<EndpointSlice>,
    pub(super) groups: Store<HAGroup>,
    /// Groups of which not all could be read.
    pub(super) unread_groups: BTreeSet<ObjectKey>,
    /// Those that sets control.
    pub(super) budgets: Store<PodDisruptionBudget>,
    /// All others.
    pub(super) foreign_budgets: Store<PodDisruptionBudget>,
    /// Where it is known which budgets there are.
    budget_scopes: BTreeSet<Scope>,
    pub(super) nodes: BTreeMap<NodeName, NodeView>,
    node_labels: BTreeMap<NodeName, BTreeMap<String, String>>,
    nodes_noted: NotedNodes,
    /// What the newest spec of each set says.
    compiled: BTreeMap<SetKey, Compiled>,
    /// Sets whose newest spec cannot be used, each as it was when that could be done last.
    usable: BTreeMap<SetKey, Usable>,
    pub(super) agent_image: Option<String>,
    pub(super) keys: KnownKeys,
    pub(super) noted: Noted,
    storm: Option<Storm>,
    storm_threshold: StormThreshold,
    /// Since when each node that does not answer is known not to.
    silent_since: BTreeMap<NodeName, Timestamp>,
    /// Since when each node with Pods is known to have no object.
    missing_since: BTreeMap<NodeName, Timestamp>,
    pods_on_node: BTreeMap<NodeName, BTreeSet<ObjectKey>>,
    /// What others wrote behind Services of ours.
    behind: BTreeMap<ObjectKey, Behind>,
    /// Names that are taken, and until when that is believed.
    taken: BTreeMap<TakenName, Timestamp>,
    pods_of_set: BTreeMap<SetKey, BTreeSet<ObjectKey>>,
    node_list: Option<NodeList>,
    unlisted: BTreeSet<(Kind, Scope)>,
    /// Watches whose last list showed much less than was known: the next one decides.
    doubted: BTreeSet<(Kind, Scope)>,
}

impl Cache {
    /// A cache that is synced once each of these watches has listed, but for those of budgets: no failover waits for them.
    pub fn expecting(watches: impl IntoIterator<Item = (Kind, Scope)>) -> Self {
        let needed = watches.into_iter().filter(|(kind, _)| *kind != Kind::Budgets);
        Self { unlisted: needed.collect(), ..Self::default() }
    }

    /// Whether every watch has listed at least once; before that nothing is decided.
    pub fn is_synced(&self) -> bool {
        self.unlisted.is_empty()
    }

    /// Why the storm brake is on; `None` if it is not.
    pub fn storm(&self, now: Timestamp) -> Option<&Storm> {
        self.storm.as_ref().filter(|storm| now < storm.until)
    }

    /// Every set.
    pub fn set_keys(&self) -> Vec<SetKey> {
        self.sets.values().map(|set| key_of(&set.metadata)).collect()
    }

    /// The set as last seen.
    pub fn set(&self, key: &SetKey) -> Option<Arc<BackupPodSet>> {
        self.sets.get(&object_key(key)).cloned()
    }

    /// The set with the last spec that could be used, if one was seen; whether it is paused is asked of the newest.
    pub(super) fn usable_form(&self, key: &SetKey, newest: &BackupPodSet) -> Option<Usable> {
        let Usable { set: last, revision } =
            self.usable.get(key).filter(|last| last.set.metadata.uid == newest.metadata.uid)?;
        let spec = BackupPodSetSpec { paused: newest.spec.paused, ..last.spec.clone() };
        let (metadata, status) = (newest.metadata.clone(), newest.status.clone());
        let set = Arc::new(BackupPodSet { metadata, spec, status });
        Some(Usable { set, revision: revision.clone() })
    }

    fn forget_set(&mut self, key: &SetKey) {
        self.compiled.remove(key);
        self.usable.remove(key);
        self.noted.forget_set(key);
    }

    /// What the newest spec of a set that is known says.
    pub(super) fn compiled(&self, key: &SetKey) -> Option<&Compiled> {
        self.compiled.get(key)
    }

    /// Takes a version of a set in; while the newest cannot be used the last one that could is kept.
    fn put_set(
        &mut self,
        read: Readable<BackupPodSet>,
        source: Source,
        now: Timestamp,
    ) -> Result<Option<Arc<BackupPodSet>>, Outdated> {
        let key = key_of(read.meta());
        let known = self.set(&key).filter(|known| known.metadata.uid == read.meta().uid);
        let is_same = known.as_ref().is_some_and(|known| known.metadata.generation == read.meta().generation);
        if let Some(unread) = read.unread().filter(|_| !is_same) {
            let (namespace, set, error) = (&key.namespace, &key.name, unread as &dyn std::error::Error);
            warn!(namespace, set, error, "Could not read all of a BackupPodSet");
        }
        let (set, unread) = match read {
            Readable::Object { object, unread } => (*object, unread),
            Readable::Opaque { metadata, unread } => {
                // Nothing is known of what it should be like: its Pods stay as they are.
                let known = known.ok_or(Outdated)?;
                (BackupPodSet { metadata: *metadata, ..known.as_ref().clone() }, Some(unread))
            }
        };
        if is_same {
            return self.sets.put(set, source, now);
        }
        let compiled = wish::compile(&set, unread, self.agent_image.as_deref());
        let is_right = compiled.error.is_none();
        let uid = set.metadata.uid.clone();
        let old = self.sets.put(set, source, now)?;
        let before = self.compiled.insert(key.clone(), compiled);
        // What made Pods end early, or too late, may be mended.
        self.noted.try_again(&key);
        let before = before.filter(|before| before.error.is_none());
        let former = old.as_ref().zip(before).filter(|(old, _)| old.metadata.uid == uid);
        match former {
            _ if is_right => drop(self.usable.remove(&key)),
            Some((old, Compiled { revision, .. })) => {
                self.usable.insert(key, Usable { set: Arc::clone(old), revision });
            }
            None => {}
        }
        Ok(old)
    }

    /// How many objects were looked at, of all kinds.
    #[cfg(test)]
    pub(super) fn visits(&self) -> usize {
        let budgets = self.budgets.visits() + self.foreign_budgets.visits();
        let exposed = self.services.visits() + self.slices.visits();
        self.sets.visits() + self.pods.visits() + self.groups.visits() + exposed + budgets
    }

    /// Pods that carry the set's label.
    pub(super) fn pods_of(&self, key: &SetKey) -> impl Iterator<Item = &Arc<SlimPod>> {
        self.pods_of_set.get(key).into_iter().flatten().filter_map(|pod| self.pods.get(pod))
    }

    /// Replaces what the operator can sign with; other keys affect every set.
    pub fn know_keys(&mut self, keys: KnownKeys) -> Vec<Affected> {
        if self.keys == keys {
            return Vec::new();
        }
        self.keys = keys;
        self.set_keys().into_iter().map(|set| (set, Change::Ordinary)).collect()
    }

    /// A set was seen by its watch.
    pub(super) fn see_set(&mut self, set: Readable<BackupPodSet>, now: Timestamp) -> Option<Affected> {
        let key = key_of(set.meta());
        // With the uid: a set that was made anew begins again with generation 1.
        let wish = |meta: &ObjectMeta| (meta.uid.clone(), meta.generation, meta.deletion_timestamp.is_some());
        let new_wish = wish(set.meta());
        let old = self.put_set(set, Source::Watch, now).ok()?;
        let is_same = old.is_some_and(|old| wish(&old.metadata) == new_wish);
        (!is_same).then_some((key, Change::Wanted))
    }

    /// A set is gone.
    pub(super) fn lose_set(&mut self, set: &ObjectMeta, now: Timestamp) -> Option<Affected> {
        let key = key_of(&self.sets.remove(set, now)?.metadata);
        self.forget_set(&key);
        Some((key, Change::Wanted))
    }

    /// A Pod was seen by its watch.
    pub(super) fn see_pod(&mut self, pod: SlimPod, now: Timestamp) -> Vec<Affected> {
        self.put_pod(pod, Source::Watch, now)
    }

    /// Our own write was answered with this Pod.
    pub(super) fn wrote_pod(&mut self, pod: SlimPod, now: Timestamp) {
        self.put_pod(pod, Source::OwnWrite, now);
    }

    fn put_pod(&mut self, pod: SlimPod, source: Source, now: Timestamp) -> Vec<Affected> {
        let Some(set) = set_of(&pod) else { return Vec::new() };
        let key = ObjectKey::of(&pod);
        let new_facts = Some(change::facts(&pod));
        let to = node_of(&pod);
        let Ok(old) = self.pods.put(pod, source, now) else { return Vec::new() };
        if let Some(new) = self.pods.get(&key) {
            self.noted.see(new, old.as_deref(), now);
        }
        let turned = self.pod_moved(&key, [old.as_deref().and_then(node_of), to], now);
        self.pods_of_set.entry(set.clone()).or_default().insert(key.clone());
        let old_facts = old.as_deref().map(change::facts);
        let changes = match old.as_deref().and_then(set_of) {
            Some(old_set) if old_set != set => {
                self.unlink(&old_set, &key);
                // One set lost the Pod, and the other one got it.
                let [got, lost] = [change::between(None, new_facts), change::between(old_facts, None)];
                vec![(set, got), (old_set, lost)]
            }
            Some(_) | None => vec![(set, change::between(old_facts, new_facts))],
        };
        changes.into_iter().filter_map(|(set, change)| Some((set, change?))).chain(turned).collect()
    }

    /// A Pod is gone, or does not carry our label any more.
    pub(super) fn lose_pod(&mut self, pod: &SlimPod, now: Timestamp) -> Vec<Affected> {
        let lost = self.pods.remove(&pod.metadata, now);
        lost.map(|lost| self.lost_pod(&lost, now)).unwrap_or_default()
    }

    fn lost_pod(&mut self, pod: &SlimPod, now: Timestamp) -> Vec<Affected> {
        self.noted.forget(pod);
        let key = ObjectKey::of(pod);
        let turned = self.pod_moved(&key, [node_of(pod), None], now);
        let set = set_of(pod);
        if let Some(set) = &set {
            self.unlink(set, &key);
        }
        let change = change::between(Some(change::facts(pod)), None);
        set.zip(change).into_iter().chain(turned).collect()
    }

    fn unlink(&mut self, set: &SetKey, pod: &ObjectKey) {
        if let Some(pods) = self.pods_of_set.get_mut(set) {
            pods.remove(pod);
            if pods.is_empty() {
                self.pods_of_set.remove(set);
            }
        }
    }

    /// A Service of ours was seen.
    pub(super) fn see_service(&mut self, service: Service, now: Timestamp) -> Option<Affected> {
        let set = set_of(&service)?;
        let old = self.services.put(service.clone(), Source::Watch, now).ok()?;
        if has_selector(&service) {
            self.see_selector(ObjectKey::of(&service), now);
        }
        let is_same = old
            .is_some_and(|old| old.spec == service.spec && is_marked_alike(&old.metadata, &service.metadata));
        (!is_same).then_some((set, Change::Contested))
    }

    /// A slice of ours was seen.
    pub(super) fn see_slice(&mut self, slice: EndpointSlice, now: Timestamp) -> Option<Affected> {
        let set = set_of(&slice)?;
        let old = self.slices.put(slice.clone(), Source::Watch, now).ok()?;
        let is_same = old.is_some_and(|old| {
            old.endpoints == slice.endpoints
                && old.ports == slice.ports
                && old.metadata.labels == slice.metadata.labels
        });
        (!is_same).then_some((set, Change::Contested))
    }

    /// A Service of ours is gone.
    pub(super) fn lose_service(&mut self, service: &Service, now: Timestamp) -> Vec<Affected> {
        let lost = self.services.remove(&service.metadata, now);
        let key = ObjectKey::of(service);
        if lost.is_some() {
            self.behind.remove(&key);
        }
        let owner = lost.and_then(|lost| set_of(lost.as_ref()));
        self.freed(ExposedKind::Service, key, owner)
    }

    /// A slice of ours is gone.
    pub(super) fn lose_slice(&mut self, slice: &EndpointSlice, now: Timestamp) -> Vec<Affected> {
        let owner = self.slices.remove(&slice.metadata, now).and_then(|lost| set_of(lost.as_ref()));
        self.freed(ExposedKind::Slice, ObjectKey::of(slice), owner)
    }

    /// The set whose object is gone, and those that may have its name now.
    fn freed(&mut self, kind: ExposedKind, key: ObjectKey, owner: Option<SetKey>) -> Vec<Affected> {
        let ObjectKey { namespace, name } = key;
        let mut affected = self.find_free(&TakenName { kind, namespace, name });
        affected.retain(|(set, _)| Some(set) != owner.as_ref());
        affected.extend(owner.map(|set| (set, Change::Urgent)));
        affected
    }

    /// Our own write was answered with this set, Service or slice.
    pub fn wrote(&mut self, object: Written, now: Timestamp) {
        let _: Result<(), Outdated> = match object {
            Written::Pod(pod) => {
                self.wrote_pod(*pod, now);
                Ok(())
            }
            Written::TakenBack(TakenBack { set, words }) => {
                self.noted.ended_early(&set, words, now);
                Ok(())
            }
            Written::Set(set) => self.put_set(*set, Source::OwnWrite, now).map(drop),
            Written::NameTaken(name) => {
                self.find_taken(name, now);
                Ok(())
            }
            Written::Budget(budget) => self.budgets.put(*budget, Source::OwnWrite, now).map(drop),
            Written::BudgetGone(budget) => {
                self.budgets.end(&budget, now);
                Ok(())
            }
            Written::Cleared(cleared) => {
                self.cleared(*cleared, now);
                Ok(())
            }
            Written::ServiceGone(service) => {
                self.services.end(&service, now);
                self.behind.remove(&ObjectKey::of(service.as_ref()));
                Ok(())
            }
            Written::SliceGone(slice) => {
                self.slices.end(&slice, now);
                Ok(())
            }
            Written::Service(service) => self.services.put(*service, Source::OwnWrite, now).map(drop),
            Written::Group(group) => {
                // All of the answer could be read.
                self.unread_groups.remove(&ObjectKey::of(group.as_ref()));
                self.groups.put(*group, Source::OwnWrite, now).map(drop)
            }
            Written::Slice(slice) => self.slices.put(*slice, Source::OwnWrite, now).map(drop),
            Written::PodGone(pod) => {
                if let Some(ended) = self.pods.end(&pod, now) {
                    self.lost_pod(&ended, now);
                }
                Ok(())
            }
        };
    }

    /// A complete list begins.
    pub fn begin_list(&mut self, kind: Kind, scope: &Scope) {
        match kind {
            Kind::Sets => self.sets.begin_list(scope.clone()),
            Kind::Pods => self.pods.begin_list(scope.clone()),
            Kind::Services => self.services.begin_list(scope.clone()),
            Kind::Slices => self.slices.begin_list(scope.clone()),
            Kind::Groups => self.groups.begin_list(scope.clone()),
            Kind::Budgets => self.begin_budget_list(scope),
            Kind::Nodes => self.begin_node_list(),
        }
    }

    /// A complete list ended: what it did not show is gone.
    pub fn end_list(&mut self, kind: Kind, scope: &Scope, now: Timestamp) -> Vec<Affected> {
        self.unlisted.remove(&(kind, scope.clone()));
        match kind {
            Kind::Sets => {
                let gone = self.sets.end_list(scope, now);
                for set in &gone {
                    self.forget_set(&key_of(&set.metadata));
                }
                affected(&gone, |set| Some(key_of(&set.metadata)))
            }
            Kind::Pods if self.doubts_pods(scope) => Vec::new(),
            Kind::Pods => {
                let gone = self.pods.end_list(scope, now);
                gone.iter().flat_map(|pod| self.lost_pod(pod, now)).collect()
            }
            Kind::Services => {
                let gone = self.services.end_list(scope, now);
                for service in &gone {
                    self.behind.remove(&ObjectKey::of(service.as_ref()));
                }
                affected(&gone, set_of)
            }
            Kind::Slices => affected(&self.slices.end_list(scope, now), set_of),
            Kind::Groups => {
                let gone = self.groups.end_list(scope, now);
                gone.iter().filter_map(|group| self.lost_group(group)).collect()
            }
            Kind::Budgets => self.end_budget_list(scope, now),
            Kind::Nodes => self.end_node_list(scope, now),
        }
    }

    /// Whether something can be told by another list alone: what our own writes have shown and no watch has confirmed
    /// for too long, and a list that was not believed.
    pub fn has_overdue(&self, now: Timestamp) -> bool {
        !self.doubted.is_empty()
            || self.pods.has_overdue(now)
            || self.sets.has_overdue(now)
            || self.services.has_overdue(now)
            || self.slices.has_overdue(now)
            || self.groups.has_overdue(now)
            || self.budgets.has_overdue(now)
            || self.foreign_budgets.has_overdue(now)
    }
}

/// Whether two versions of a Service have the same labels, and the same annotations as far as the operator wrote them: others,
/// such as those of a cloud provider, may change all the time.
fn is_marked_alike(one: &ObjectMeta, other: &ObjectMeta) -> bool {
    let [mine, theirs] = [one, other].map(|metadata| written_annotations(metadata.annotations.as_ref()));
    one.labels == other.labels && mine == theirs
}

/// A kind that is watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// `BackupPodSet`.
    Sets,
    /// `Pod`.
    Pods,
    /// `Node`.
    Nodes,
    /// `Service`.
    Services,
    /// `EndpointSlice`.
    Slices,
    /// `HAGroup`.
    Groups,
    /// `PodDisruptionBudget`.
    Budgets,
}

fn affected<K>(gone: &[Arc<K>], set: impl Fn(&K) -> Option<SetKey>) -> Vec<Affected> {
    gone.iter().filter_map(|object| Some((set(object.as_ref())?, Change::Urgent))).collect()
}

fn key_of(set: &ObjectMeta) -> SetKey {
    let ObjectKey { namespace, name } = ObjectKey::of_metadata(set);
    SetKey { namespace, name }
}

pub(super) fn object_key(key: &SetKey) -> ObjectKey {
    ObjectKey { namespace: key.namespace.clone(), name: key.name.clone() }
}

/// The node that a Pod is bound to.
fn node_of(pod: &SlimPod) -> Option<NodeName> {
    pod.spec.node_name.clone().map(NodeName)
}

/// Whether Kubernetes' own controllers write addresses for a Service.
pub(super) fn has_selector(service: &Service) -> bool {
    let selector = service.spec.as_ref().and_then(|spec| spec.selector.as_ref());
    selector.is_some_and(|selector| !selector.is_empty())
}

/// The set that an object's label names.
fn set_of<K: Resource>(object: &K) -> Option<SetKey> {
    let name = object.meta().labels.as_ref()?.get(keys::LABEL_SET)?.clone();
    Some(SetKey { namespace: object.meta().namespace.clone().unwrap_or_default(), name })
}
