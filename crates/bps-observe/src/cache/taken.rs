//! Names of Services and slices that a write found to be somebody else's: no watch of ours shows those objects.

use bps_api::BackupPodSet;
use bps_core::manifests::is_slice_name;
use bps_core::model::ExposedKind;
use jiff::{SignedDuration, Timestamp};

use super::{Affected, Cache, Change, key_of};

/// How long a name that was found taken counts as taken: nobody tells when it is free, so a write has to find out.
///
/// 60 s: as long as the longest delay after a refused write; see `FOREIGN_LOOK_PERIOD` of the plan.
const TAKEN_FOR: SignedDuration = SignedDuration::from_secs(60);

/// A name that an object of somebody else bears.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TakenName {
    /// What bears it.
    pub kind: ExposedKind,
    /// Namespace of the object.
    pub namespace: String,
    /// The name.
    pub name: String,
}

impl Cache {
    /// A write found this name taken.
    pub(super) fn find_taken(&mut self, name: TakenName, now: Timestamp) {
        self.taken.retain(|_, until| *until > now);
        self.taken.insert(name, now.saturating_add(TAKEN_FOR).unwrap_or(Timestamp::MAX));
    }

    /// The object with this name is gone: every set of the namespace that wants to have one of that name may.
    pub(super) fn find_free(&mut self, name: &TakenName) -> Vec<Affected> {
        self.taken.remove(name);
        let wants = |set: &BackupPodSet| {
            set.spec.service.as_ref().is_some_and(|service| match name.kind {
                ExposedKind::Service => service.name == name.name,
                ExposedKind::Slice => is_slice_name(&service.name, &name.name),
                ExposedKind::Budget => false,
            })
        };
        let sets = self.sets.in_namespace(&name.namespace).filter(|set| wants(set));
        sets.map(|set| (key_of(&set.metadata), Change::Urgent)).collect()
    }

    /// Whether a write found this name taken a moment ago.
    pub(crate) fn is_taken(&self, name: &TakenName, now: Timestamp) -> bool {
        self.taken.get(name).is_some_and(|until| *until > now)
    }
}
