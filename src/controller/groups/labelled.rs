//! Objects by the group that their label names: who looks at one group does not go through those of all others.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};

use bps_observe::SetKey;
use bps_observe::group::labelled_key;
use kube::core::{NamespaceResourceScope, ObjectMeta};
use kube::runtime::reflector::{Lookup, ObjectRef, Store};
use kube::runtime::watcher::Event;
use kube::{Resource, ResourceExt as _};

type ByGroup = BTreeMap<SetKey, BTreeSet<String>>;

/// Names of the objects of each group, and maybe of some that were: never fewer than the store has.
#[derive(Clone, Debug, Default)]
pub(super) struct Names(Arc<Mutex<ByGroup>>);

impl Names {
    /// To be told before the store is, so that what the store shows is found.
    pub(super) fn expect<K: Resource<DynamicType = ()>>(&self, event: &Event<K>) {
        if let Event::Apply(object) | Event::InitApply(object) = event {
            insert(&mut self.lock(), object);
        }
    }

    /// To be told after the store was: names of what it does not show any more are forgotten. Returns the groups that may have
    /// lost something without an event that tells: what was deleted while nobody watched.
    pub(super) fn follow<K>(&self, event: &Event<K>, store: &Store<K>) -> Vec<SetKey>
    where
        K: Lookup<DynamicType = ()> + Resource<DynamicType = ()> + Clone + 'static,
    {
        match event {
            Event::Delete(object) => self.forget(object.meta()),
            Event::InitDone => {
                let mut listed = ByGroup::new();
                store.state().iter().for_each(|object| insert(&mut listed, &**object));
                return std::mem::replace(&mut *self.lock(), listed).into_keys().collect();
            }
            Event::Init | Event::InitApply(_) | Event::Apply(_) => {}
        }
        Vec::new()
    }

    fn forget(&self, metadata: &ObjectMeta) {
        let Some((key, name)) = labelled_key(metadata).zip(metadata.name.as_deref()) else { return };
        let mut names = self.lock();
        if let Some(of_group) = names.get_mut(&key) {
            of_group.remove(name);
            if of_group.is_empty() {
                names.remove(&key);
            }
        }
    }

    fn of(&self, key: &SetKey) -> BTreeSet<String> {
        self.lock().get(key).cloned().unwrap_or_default()
    }

    fn lock(&self) -> MutexGuard<'_, ByGroup> {
        self.0.lock().expect("no holder of this lock panics")
    }
}

fn insert(names: &mut ByGroup, object: &impl Resource) {
    if let Some(key) = labelled_key(object.meta()) {
        names.entry(key).or_default().insert(object.name_any());
    }
}

/// Objects of one kind that have the label of a group.
pub(super) struct Labelled<K: Lookup<DynamicType = ()> + Clone + 'static> {
    pub(super) store: Store<K>,
    pub(super) names: Names,
}

impl<K> Labelled<K>
where
    K: Lookup<DynamicType = ()>
        + Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + 'static,
{
    /// Those of one group, as last seen.
    pub(super) fn of_group(&self, key: &SetKey) -> Vec<Arc<K>> {
        let named = self.names.of(key);
        let object = |name: String| self.store.get(&ObjectRef::new(&name).within(&key.namespace));
        // One may have got another label meanwhile.
        let is_of_group =
            |object: &Arc<K>| labelled_key(object.meta()).is_some_and(|labelled| labelled == *key);
        named.into_iter().filter_map(object).filter(is_of_group).collect()
    }
}

#[cfg(test)]
mod tests {
    use bps_api::keys;
    use k8s_openapi::api::coordination::v1::Lease;
    use kube::runtime::reflector;
    use serde_json::json;

    use super::*;

    fn lease(name: &str, group: &str) -> Lease {
        let metadata = json!({"name": name, "namespace": "shop", "labels": {(keys::LABEL_GROUP): group}});
        serde_json::from_value(json!({"metadata": metadata})).expect("a Lease")
    }

    fn key(name: &str) -> SetKey {
        SetKey { namespace: "shop".into(), name: name.into() }
    }

    #[test]
    fn each_group_has_what_the_store_shows_with_its_label() {
        let (store, mut writer) = reflector::store();
        let leases = Labelled { store, names: Names::default() };
        let mut tell = |event: Event<Lease>| {
            leases.names.expect(&event);
            writer.apply_watcher_event(&event);
            leases.names.follow(&event, &leases.store)
        };
        let of = |group: &str| -> Vec<String> {
            leases.of_group(&key(group)).iter().map(|lease| lease.name_any()).collect()
        };
        tell(Event::Init);
        tell(Event::InitApply(lease("web-0", "web")));
        tell(Event::InitApply(lease("api-0", "api")));
        tell(Event::InitDone);
        tell(Event::Apply(lease("web-1", "web")));
        assert_eq!((of("web"), of("api")), (vec!["web-0".into(), "web-1".into()], vec!["api-0".into()]));
        tell(Event::Apply(lease("api-0", "web")));
        tell(Event::Delete(lease("web-0", "web")));
        assert_eq!((of("web"), of("api")), (vec!["api-0".to_owned(), "web-1".into()], vec![]));

        // While a watch lists again, what was there before is there still.
        tell(Event::Init);
        tell(Event::InitApply(lease("web-2", "web")));
        assert_eq!(of("web"), ["api-0", "web-1"]);
        assert_eq!(tell(Event::InitDone), [key("api"), key("web")], "both may have lost something");
        assert_eq!(of("web"), ["web-2"]);
        assert_eq!(leases.names.of(&key("web")), BTreeSet::from(["web-2".to_owned()]));
    }
}
