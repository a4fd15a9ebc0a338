//! The newest known version of each object of one kind, from its watch and from our own writes.
//!
//! Own writes are put in at once, so that the next decision sees them. Three rules keep that honest: an older version
//! never replaces a newer one of the same incarnation; an incarnation that was seen to be gone never comes back; and
//! an object that only our own write has shown for too long is not believed any more: a list has to show it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use kube::Resource;

/// How long an object may live in the store on our own word alone.
///
/// 60 s: far above any healthy watch delay, and the time after which other controllers give up their expectations too
/// (Kubernetes' controller expectations time out after 5 min; we are called to be quicker).
pub(super) const CONFIRMATION_DEADLINE: SignedDuration = SignedDuration::from_secs(60);

/// Most incarnations remembered as gone; the oldest are forgotten first.
const TOMBSTONES_MAX: usize = 10_000;

/// Namespace and name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ObjectKey {
    /// Namespace; empty for cluster-wide kinds.
    pub namespace: String,
    /// Name.
    pub name: String,
}

impl ObjectKey {
    /// Key of an object.
    pub(super) fn of<K: Resource>(object: &K) -> Self {
        let meta = object.meta();
        Self {
            namespace: meta.namespace.clone().unwrap_or_default(),
            name: meta.name.clone().unwrap_or_default(),
        }
    }
}

/// What one watch covers: a namespace, or with `None` the whole cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Scope(pub Option<String>);

impl Scope {
    fn covers(&self, key: &ObjectKey) -> bool {
        self.0.as_ref().is_none_or(|namespace| *namespace == key.namespace)
    }
}

/// Who showed an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// The watch.
    Watch,
    /// The answer to our own write.
    OwnWrite,
}

/// Objects of one kind.
#[derive(Debug)]
pub(super) struct Store<K> {
    objects: BTreeMap<ObjectKey, Arc<K>>,
    unconfirmed: BTreeMap<String, Timestamp>,
    tombstones: BTreeMap<String, Timestamp>,
    listings: BTreeMap<Scope, BTreeSet<ObjectKey>>,
}

impl<K> Default for Store<K> {
    fn default() -> Self {
        Self {
            objects: BTreeMap::new(),
            unconfirmed: BTreeMap::new(),
            tombstones: BTreeMap::new(),
            listings: BTreeMap::new(),
        }
    }
}

impl<K: Resource> Store<K> {
    pub(super) fn get(&self, key: &ObjectKey) -> Option<&Arc<K>> {
        self.objects.get(key)
    }

    pub(super) fn values(&self) -> impl Iterator<Item = &Arc<K>> {
        self.objects.values()
    }

    /// Takes a version in; returns what it replaced, or `Err` if the store knows better.
    pub(super) fn put(
        &mut self,
        object: K,
        source: Source,
        now: Timestamp,
    ) -> Result<Option<Arc<K>>, Outdated> {
        let key = ObjectKey::of(&object);
        let uid = object.meta().uid.clone().unwrap_or_default();
        if source == Source::Watch {
            self.unconfirmed.remove(&uid);
            for (scope, listing) in &mut self.listings {
                if scope.covers(&key) {
                    listing.insert(key.clone());
                }
            }
        } else if self.tombstones.contains_key(&uid) {
            return Err(Outdated);
        }
        if self.objects.get(&key).is_some_and(|known| is_newer(known.meta(), object.meta())) {
            return Err(Outdated);
        }
        if source == Source::OwnWrite && !self.objects.contains_key(&key) {
            self.unconfirmed.insert(uid, now);
        }
        Ok(self.objects.insert(key, Arc::new(object)))
    }

    /// Notes that an incarnation is gone; returns it if it was the one in the store.
    pub(super) fn remove(&mut self, object: &K, now: Timestamp) -> Option<Arc<K>> {
        let key = ObjectKey::of(object);
        let uid = object.meta().uid.clone().unwrap_or_default();
        self.bury(uid.clone(), now);
        let is_same =
            self.objects.get(&key).is_some_and(|known| known.meta().uid.as_deref() == Some(uid.as_str()));
        if is_same { self.objects.remove(&key) } else { None }
    }

    /// A complete list of a scope begins.
    pub(super) fn begin_list(&mut self, scope: Scope) {
        self.listings.insert(scope, BTreeSet::new());
    }

    /// The list is complete: what it did not show is gone, except what we wrote a moment ago.
    pub(super) fn end_list(&mut self, scope: &Scope, now: Timestamp) -> Vec<Arc<K>> {
        let Some(listed) = self.listings.remove(scope) else { return Vec::new() };
        let is_trusted = |object: &Arc<K>| {
            let uid = object.meta().uid.clone().unwrap_or_default();
            self.unconfirmed.get(&uid).is_some_and(|since| now.duration_since(*since) < CONFIRMATION_DEADLINE)
        };
        let is_missing = |(key, object): &(&ObjectKey, &Arc<K>)| {
            scope.covers(key) && !listed.contains(*key) && !is_trusted(object)
        };
        let gone: Vec<ObjectKey> =
            self.objects.iter().filter(is_missing).map(|(key, _)| key.clone()).collect();
        let gone: Vec<Arc<K>> = gone.iter().filter_map(|key| self.objects.remove(key)).collect();
        for object in &gone {
            self.bury(object.meta().uid.clone().unwrap_or_default(), now);
        }
        gone
    }

    /// Whether an object was shown by our own write alone for longer than the deadline.
    pub(super) fn has_overdue(&self, now: Timestamp) -> bool {
        self.unconfirmed.values().any(|since| now.duration_since(*since) >= CONFIRMATION_DEADLINE)
    }

    fn bury(&mut self, uid: String, now: Timestamp) {
        self.unconfirmed.remove(&uid);
        self.tombstones.retain(|_, since| now.duration_since(*since) < CONFIRMATION_DEADLINE);
        if self.tombstones.len() >= TOMBSTONES_MAX
            && let Some(oldest) =
                self.tombstones.iter().min_by_key(|(_, since)| **since).map(|(uid, _)| uid.clone())
        {
            self.tombstones.remove(&oldest);
        }
        self.tombstones.insert(uid, now);
    }
}

/// The store has a newer version, or knows that the incarnation is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Outdated;

/// Whether `known` is a newer version of the same incarnation than `offered`.
///
/// Resource versions are comparable as numbers since Kubernetes 1.35 by contract and before in fact; one that is no
/// number is taken as it comes.
fn is_newer(known: &kube::core::ObjectMeta, offered: &kube::core::ObjectMeta) -> bool {
    let version = |meta: &kube::core::ObjectMeta| meta.resource_version.as_ref()?.parse::<u64>().ok();
    known.uid == offered.uid
        && version(known).zip(version(offered)).is_some_and(|(known, offered)| known > offered)
}
