//! The newest known version of each object of one kind, from its watch and from our own writes.
//!
//! Own writes are put in at once, so that the next decision sees them. Three rules keep that honest: an older version
//! never replaces a newer one; an incarnation that is gone never comes back by an answer or event from before its end;
//! and an object that only our own write has shown for too long is not believed any more: a list has to show it.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use kube_core::ObjectMeta;
use kube_core::Resource;

use tombstones::{Tombstone, Tombstones};

mod tombstones;

/// How long an object may live in the store on our own word alone.
///
/// 60 s: far above any healthy watch delay, and the time after which other controllers give up their expectations too
/// (Kubernetes' controller expectations time out after 5 min; we are called to be quicker).
pub(super) const CONFIRMATION_DEADLINE: SignedDuration = SignedDuration::from_secs(60);

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
        Self::of_metadata(object.meta())
    }

    /// Key of the object with this metadata.
    pub(super) fn of_metadata(meta: &ObjectMeta) -> Self {
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

/// A kind of which objects are looked up by more than their names.
pub(super) trait Indexed {
    /// What this one is found by.
    fn found_by(&self) -> Vec<Index> {
        Vec::new()
    }
}

/// A label with its value, in a namespace.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct SelectedLabel {
    /// The namespace.
    pub namespace: String,
    /// Key of the label.
    pub key: String,
    /// Its value.
    pub value: String,
}

/// What objects are found by.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Index {
    /// The uid of their controller.
    Controller(String),
    /// The Service that they lead clients of to their addresses.
    Service(ObjectKey),
    /// A label that every object has which they select.
    Selected(SelectedLabel),
    /// The namespace in which they may select anything: they name no label with one value.
    SelectsIn(String),
}

/// Objects of one kind.
///
/// Each one that is looked at is counted: how the work of an observation grows is asserted by that number.
#[derive(Debug)]
pub(super) struct Store<K> {
    objects: BTreeMap<ObjectKey, Arc<K>>,
    indices: BTreeMap<Index, BTreeSet<ObjectKey>>,
    visits: Cell<usize>,
    unconfirmed: BTreeMap<String, Timestamp>,
    tombstones: Tombstones,
    /// Incarnations that the lists under way have shown.
    listings: BTreeMap<Scope, BTreeSet<String>>,
}

impl<K> Default for Store<K> {
    fn default() -> Self {
        Self {
            objects: BTreeMap::new(),
            indices: BTreeMap::new(),
            visits: Cell::new(0),
            unconfirmed: BTreeMap::new(),
            tombstones: Tombstones::default(),
            listings: BTreeMap::new(),
        }
    }
}

impl<K: Resource + Indexed> Store<K> {
    pub(super) fn get(&self, key: &ObjectKey) -> Option<&Arc<K>> {
        self.objects.get(key).inspect(|_| self.visit())
    }

    /// Objects that are found by this.
    pub(super) fn found_by(&self, index: &Index) -> impl Iterator<Item = &Arc<K>> {
        self.indices.get(index).into_iter().flatten().filter_map(|key| self.get(key))
    }

    /// How many objects were looked at.
    #[cfg(test)]
    pub(super) const fn visits(&self) -> usize {
        self.visits.get()
    }

    fn visit(&self) {
        self.visits.set(self.visits.get() + 1);
    }

    /// Objects of one namespace.
    pub(super) fn in_namespace<'a>(&'a self, namespace: &'a str) -> impl Iterator<Item = &'a Arc<K>> {
        let first = ObjectKey { namespace: namespace.to_owned(), name: String::new() };
        self.objects
            .range(first..)
            .take_while(move |(key, _)| key.namespace == namespace)
            .map(|(_, object)| object)
            .inspect(|_| self.visit())
    }

    pub(super) fn len(&self) -> usize {
        self.objects.len()
    }

    pub(super) fn values(&self) -> impl Iterator<Item = &Arc<K>> {
        self.objects.values().inspect(|_| self.visit())
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
                    listing.insert(uid.clone());
                }
            }
        }
        let is_gone =
            self.tombstones.get(&uid).is_some_and(|known| known.is_final || source == Source::OwnWrite);
        if is_gone || self.knows_better(&key, (object.meta(), source)) {
            return Err(Outdated);
        }
        self.tombstones.remove(&uid);
        let known = self.objects.get(&key).map(|known| known.meta().uid.clone().unwrap_or_default());
        let is_known = known.as_ref() == Some(&uid);
        if let Some(predecessor) = known.filter(|_| !is_known) {
            self.bury(predecessor, Tombstone { since: now, is_final: false });
        }
        if source == Source::OwnWrite && !is_known {
            self.unconfirmed.insert(uid, now);
        }
        let old = self.take(&key);
        for index in object.found_by() {
            self.indices.entry(index).or_default().insert(key.clone());
        }
        self.objects.insert(key, Arc::new(object));
        Ok(old)
    }

    /// Whether what is known under this key is newer than what is offered.
    ///
    /// A watch that shows another incarnation is right, unless it has not yet come to the one that we made.
    fn knows_better(&self, key: &ObjectKey, (offered, source): (&ObjectMeta, Source)) -> bool {
        let Some(known) = self.objects.get(key).map(|known| known.meta()) else { return false };
        let is_ahead = known.uid == offered.uid
            || source == Source::OwnWrite
            || known.uid.as_ref().is_some_and(|uid| self.unconfirmed.contains_key(uid));
        is_ahead && version(known).zip(version(offered)).is_some_and(|(known, offered)| known > offered)
    }

    /// Notes that an incarnation is gone, or out of the watch's sight; returns it if it was the one in the store.
    pub(super) fn remove(&mut self, gone: &ObjectMeta, now: Timestamp) -> Option<Arc<K>> {
        self.take_out(gone, Tombstone { since: now, is_final: false })
    }

    /// Notes that the server has deleted an incarnation; returns it if it was the one in the store.
    ///
    /// Events that the watch brings late do not bring it back.
    pub(super) fn end(&mut self, object: &K, now: Timestamp) -> Option<Arc<K>> {
        self.take_out(object.meta(), Tombstone { since: now, is_final: true })
    }

    fn take_out(&mut self, gone: &ObjectMeta, tombstone: Tombstone) -> Option<Arc<K>> {
        let key = ObjectKey::of_metadata(gone);
        let uid = gone.uid.clone().unwrap_or_default();
        self.bury(uid.clone(), tombstone);
        let is_same =
            self.objects.get(&key).is_some_and(|known| known.meta().uid.as_deref() == Some(uid.as_str()));
        if is_same { self.take(&key) } else { None }
    }

    /// Takes an object out, and out of what it is found by.
    fn take(&mut self, key: &ObjectKey) -> Option<Arc<K>> {
        let object = self.objects.remove(key)?;
        for index in object.found_by() {
            if let Some(keys) = self.indices.get_mut(&index) {
                keys.remove(key);
                if keys.is_empty() {
                    self.indices.remove(&index);
                }
            }
        }
        Some(object)
    }

    /// A complete list of a scope begins.
    pub(super) fn begin_list(&mut self, scope: Scope) {
        self.listings.insert(scope, BTreeSet::new());
    }

    /// How many objects the list under way would end all together; 0 if it has shown one.
    pub(super) fn shows_nothing_of(&self, scope: &Scope) -> usize {
        let is_empty = self.listings.get(scope).is_some_and(BTreeSet::is_empty);
        if is_empty { self.objects.keys().filter(|key| scope.covers(key)).count() } else { 0 }
    }

    /// The list under way is not believed: nothing follows from it.
    pub(super) fn drop_list(&mut self, scope: &Scope) {
        self.listings.remove(scope);
    }

    /// The list is complete: what it did not show is gone, except what we wrote a moment ago.
    pub(super) fn end_list(&mut self, scope: &Scope, now: Timestamp) -> Vec<Arc<K>> {
        let Some(listed) = self.listings.remove(scope) else { return Vec::new() };
        let is_trusted = |uid: &String| {
            self.unconfirmed.get(uid).is_some_and(|since| now.duration_since(*since) < CONFIRMATION_DEADLINE)
        };
        let is_missing = |(key, object): &(&ObjectKey, &Arc<K>)| {
            let uid = object.meta().uid.as_ref();
            scope.covers(key) && !uid.is_some_and(|uid| listed.contains(uid) || is_trusted(uid))
        };
        let gone: Vec<ObjectKey> =
            self.objects.iter().filter(is_missing).map(|(key, _)| key.clone()).collect();
        let gone: Vec<Arc<K>> = gone.iter().filter_map(|key| self.take(key)).collect();
        for object in &gone {
            let tombstone = Tombstone { since: now, is_final: false };
            self.bury(object.meta().uid.clone().unwrap_or_default(), tombstone);
        }
        gone
    }

    /// Whether an object was shown by our own write alone for longer than the deadline.
    pub(super) fn has_overdue(&self, now: Timestamp) -> bool {
        self.unconfirmed.values().any(|since| now.duration_since(*since) >= CONFIRMATION_DEADLINE)
    }

    fn bury(&mut self, uid: String, tombstone: Tombstone) {
        self.unconfirmed.remove(&uid);
        self.tombstones.add(uid, tombstone);
    }
}

/// The store has a newer version, or knows that the incarnation is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Outdated;

/// An object's version as a number.
///
/// Resource versions are comparable as numbers since Kubernetes 1.35 by contract and before in fact, also between
/// incarnations; one that is no number is taken as it comes.
pub fn version(meta: &ObjectMeta) -> Option<u64> {
    meta.resource_version.as_ref()?.parse().ok()
}
