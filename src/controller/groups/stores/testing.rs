//! Stores for tests, as if the watches had shown something.

use kube::runtime::reflector::Lookup;

use super::super::labelled::Names;
use super::*;

impl Stores {
    /// Of all namespaces, as if the watches had shown this group and these Leases.
    pub(in super::super) fn with(group: HAGroup, pairs: impl IntoIterator<Item = Lease>) -> Self {
        Self {
            scope: Scope(None),
            groups: shown([Readable::from(group)]),
            pods: labelled([]),
            leases: labelled(pairs),
            services: labelled([]),
            slices: labelled([]),
            roles: labelled([]),
            bindings: labelled([]),
            ends: LeaseEnds::default(),
            pod_ends: PodEnds::default(),
        }
    }

    /// As if the watches had listed again after everything was deleted.
    pub(in super::super) fn emptied(self) -> Self {
        Self { groups: shown([]), leases: labelled([]), pods: labelled([]), ..self }
    }

    /// As if the watch had shown the deletion of a Lease.
    pub(in super::super) fn end(&mut self, lease: &Lease) {
        follow_ends(&self.ends, &Event::Delete(lease.clone()));
        self.leases = labelled([]);
    }

    /// As if the watch had shown these Pods.
    pub(in super::super) fn with_pods(self, pods: impl IntoIterator<Item = SlimPod>) -> Self {
        Self { pods: labelled(pods), ..self }
    }

    /// As if the watch had shown these slices.
    pub(in super::super) fn with_slices(self, slices: impl IntoIterator<Item = EndpointSlice>) -> Self {
        Self { slices: labelled(slices), ..self }
    }

    /// As if the watch had shown this Service.
    pub(in super::super) fn with_service(self, service: Service) -> Self {
        Self { services: labelled([service]), ..self }
    }

    /// As if the watches had shown what permits agents to do their work.
    pub(in super::super) fn with_permissions(self, role: Role, binding: RoleBinding) -> Self {
        Self { roles: labelled([role]), bindings: labelled([binding]), ..self }
    }
}

/// A store as if the watch had shown these objects.
pub(super) fn shown<K>(objects: impl IntoIterator<Item = K>) -> Store<K>
where
    K: Lookup<DynamicType = ()> + Clone + 'static,
{
    let (store, mut writer) = reflector::store();
    objects.into_iter().for_each(|object| writer.apply_watcher_event(&Event::Apply(object)));
    store
}

/// The same of objects with the label of a group.
fn labelled<K>(objects: impl IntoIterator<Item = K>) -> Labelled<K>
where
    K: Lookup<DynamicType = ()> + Resource<DynamicType = ()> + Clone + 'static,
{
    let objects: Vec<K> = objects.into_iter().collect();
    let names = Names::default();
    for object in &objects {
        names.expect(&Event::Apply(object.clone()));
    }
    Labelled { store: shown(objects), names }
}
