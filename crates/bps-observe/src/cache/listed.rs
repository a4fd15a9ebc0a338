//! Complete lists of one set's objects of one kind, asked for beside the watches.

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube_core::Resource;
use kube_core::object::ObjectList;

use super::super::slim::SlimPod;
use super::super::store::{self, Indexed, ObjectKey, Source, Store};
use super::super::watched::Watched;
use super::{Affected, Cache, SetKey, Written, budgets, set_of};

/// A kind of which a set has objects that carry its label.
pub trait OfSet: Watched + Resource + Clone {
    /// Those that are known.
    fn known(cache: &Cache, set: &SetKey) -> Vec<Arc<Self>>;

    /// Takes in a version that was read; returns the sets that are affected.
    fn read(self, cache: &mut Cache, now: Timestamp) -> Vec<Affected>;
}

impl Cache {
    /// A complete list of a set's objects of one kind, with its version: what it did not show although it is older is gone.
    ///
    /// Returns the other sets that are affected, such as by a storm that is over; `None`, and takes nothing in, if the list has no
    /// version that can be compared.
    pub fn listed<K: OfSet>(
        &mut self,
        set: &SetKey,
        list: ObjectList<K>,
        now: Timestamp,
    ) -> Option<Vec<Affected>> {
        let list_version = list.metadata.resource_version.as_ref()?.parse::<u64>().ok()?;
        let shown: BTreeSet<ObjectKey> = list.items.iter().map(ObjectKey::of).collect();
        let is_gone = |known: &Arc<K>| {
            !shown.contains(&ObjectKey::of(known.as_ref()))
                && store::version(known.meta()).is_some_and(|version| version <= list_version)
        };
        let gone: Vec<Arc<K>> = K::known(self, set).into_iter().filter(is_gone).collect();
        let mut affected = Vec::new();
        for object in gone {
            affected.extend(object.lost(self, now));
        }
        for object in list.items {
            affected.extend(object.read(self, now));
        }
        affected.retain(|(other, _)| other != set);
        Some(affected)
    }
}

/// Those of a set among all of its namespace.
fn labelled<K: Resource + Indexed>(store: &Store<K>, set: &SetKey) -> Vec<Arc<K>> {
    let is_of_set = |object: &&Arc<K>| set_of(object.as_ref()).as_ref() == Some(set);
    store.in_namespace(&set.namespace).filter(is_of_set).cloned().collect()
}

impl OfSet for SlimPod {
    fn known(cache: &Cache, set: &SetKey) -> Vec<Arc<Self>> {
        cache.pods_of(set).cloned().collect()
    }

    fn read(self, cache: &mut Cache, now: Timestamp) -> Vec<Affected> {
        cache.put_pod(self, Source::OwnWrite, now)
    }
}

impl OfSet for Service {
    fn known(cache: &Cache, set: &SetKey) -> Vec<Arc<Self>> {
        labelled(&cache.services, set)
    }

    fn read(self, cache: &mut Cache, now: Timestamp) -> Vec<Affected> {
        cache.wrote(Written::Service(Box::new(self)), now);
        Vec::new()
    }
}

impl OfSet for EndpointSlice {
    fn known(cache: &Cache, set: &SetKey) -> Vec<Arc<Self>> {
        labelled(&cache.slices, set)
    }

    fn read(self, cache: &mut Cache, now: Timestamp) -> Vec<Affected> {
        cache.wrote(Written::Slice(Box::new(self)), now);
        Vec::new()
    }
}

impl OfSet for PodDisruptionBudget {
    fn known(cache: &Cache, set: &SetKey) -> Vec<Arc<Self>> {
        labelled(&cache.budgets, set)
    }

    /// One that no set controls is left to its watch.
    fn read(self, cache: &mut Cache, now: Timestamp) -> Vec<Affected> {
        if budgets::set_of(&self).is_some() {
            cache.wrote(Written::Budget(Box::new(self)), now);
        }
        Vec::new()
    }
}
