//! Groups of pairs in the cache: a set with active and standby Pods has one of its own name.

use bps_api::HAGroup;
use jiff::Timestamp;
use kube_core::DeserializeGuard;
use kube_core::ObjectMeta;
use tracing::warn;

use super::super::group::{level_standbys, withheld};
use super::super::store::{ObjectKey, Source};
use super::super::watched::Watched;
use super::{Affected, Cache, Change, SetKey};

impl Cache {
    /// Notes which image the agents in Pods come from; without one no set can have active and standby Pods.
    pub fn know_agent_image(&mut self, image: Option<String>) {
        self.agent_image = image;
    }

    /// A group was seen by its watch.
    fn see_group(&mut self, group: HAGroup, now: Timestamp) -> Option<Affected> {
        // Its status is somebody else's affair, but for what the set tells of it, too.
        let wish = |group: &HAGroup| {
            let ObjectMeta { uid, labels, owner_references, .. } = group.metadata.clone();
            (group.spec.clone(), uid, labels, owner_references)
        };
        let told = |group: &HAGroup| (withheld(group).map(str::to_owned), level_standbys(group));
        let key = ObjectKey::of(&group);
        let (new_wish, newly_told) = (wish(&group), told(&group));
        let old = self.groups.put(group, Source::Watch, now).ok()?;
        let is_same = old.as_deref().is_some_and(|old| wish(old) == new_wish);
        let was_told = old.as_deref().map(told).unwrap_or_default();
        let change = match (is_same, was_told == newly_told) {
            (true, true) => return None,
            (true, false) => Change::Ordinary,
            (false, _) => Change::Contested,
        };
        self.affected_by_group(key, change)
    }

    /// A group is gone.
    fn lose_group(&mut self, group: &HAGroup, now: Timestamp) -> Option<Affected> {
        self.groups.remove(group, now).and_then(|lost| self.lost_group(&lost))
    }

    pub(super) fn lost_group(&self, group: &HAGroup) -> Option<Affected> {
        self.affected_by_group(ObjectKey::of(group), Change::Urgent)
    }

    fn affected_by_group(&self, key: ObjectKey, change: Change) -> Option<Affected> {
        let set = self.sets.get(&key)?;
        let ObjectKey { namespace, name } = key;
        set.spec.active_standby.is_some().then_some((SetKey { namespace, name }, change))
    }
}

/// A group that cannot be read counts as absent; to make it is then refused.
impl Watched for DeserializeGuard<HAGroup> {
    fn seen(self, cache: &mut Cache, now: Timestamp) -> Vec<Affected> {
        match self.0 {
            Ok(group) => cache.see_group(group, now).into_iter().collect(),
            Err(invalid) => {
                let group = invalid.metadata.name.unwrap_or_default();
                warn!(group, error = invalid.error, "Could not read an HAGroup");
                Vec::new()
            }
        }
    }

    fn lost(&self, cache: &mut Cache, now: Timestamp) -> Vec<Affected> {
        self.0.as_ref().ok().and_then(|group| cache.lose_group(group, now)).into_iter().collect()
    }
}
