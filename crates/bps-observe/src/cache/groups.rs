//! Groups of pairs in the cache: a set with active and standby Pods has one of its own name.

use bps_api::HAGroup;
use jiff::Timestamp;
use kube_core::{ObjectMeta, Resource};
use tracing::warn;

use super::super::group::{level_standbys, withheld};
use super::super::readable::Readable;
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
    fn lose_group(&mut self, group: &ObjectMeta, now: Timestamp) -> Option<Affected> {
        self.unread_groups.remove(&ObjectKey::of_metadata(group));
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

/// Of a group whose spec cannot be read at all the last version that could be stays; one that never could counts as absent: to
/// make it is then refused.
impl Watched for Readable<HAGroup> {
    fn seen(self, cache: &mut Cache, now: Timestamp) -> Vec<Affected> {
        if let Some(unread) = self.unread() {
            let ObjectMeta { namespace, name: group, .. } = self.meta();
            warn!(
                namespace,
                group,
                error = unread as &dyn std::error::Error,
                "Could not read all of an HAGroup"
            );
        }
        let key = ObjectKey::of_metadata(self.meta());
        let is_news = if self.unread().is_some() {
            cache.unread_groups.insert(key.clone())
        } else {
            cache.unread_groups.remove(&key)
        };
        let seen = match self {
            Self::Object { object, .. } => cache.see_group(*object, now),
            Self::Opaque { .. } => None,
        };
        seen.or_else(|| cache.affected_by_group(key, Change::Ordinary).filter(|_| is_news))
            .into_iter()
            .collect()
    }

    fn lost(&self, cache: &mut Cache, now: Timestamp) -> Vec<Affected> {
        cache.lose_group(self.meta(), now).into_iter().collect()
    }
}
