//! The last failover of a set whose status was not taken.
//!
//! The next look sees a world in which the steps are done already: without this nobody would read who failed over.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};

use bps_api::BackupPodSetStatus;
use bps_api::status::{Conversion, FailoverReport};
use bps_observe::SetKey;

/// What a status would have told of one set.
#[derive(Debug)]
struct Kept {
    /// A set that was made anew under the same name has nothing to tell of its predecessor.
    set_uid: Option<String>,
    failover: FailoverReport,
    /// As many as a status has.
    conversions: Vec<Conversion>,
}

/// What is still to be told, by set.
#[derive(Debug, Default)]
pub(super) struct Unreported(Mutex<BTreeMap<SetKey, Kept>>);

impl Unreported {
    /// The status of a set with this uid as it was seen, with the failover that it does not tell of yet.
    pub(super) fn onto(
        &self,
        (key, uid): (&SetKey, Option<&str>),
        seen: &BackupPodSetStatus,
    ) -> BackupPodSetStatus {
        let kept = self.lock();
        // A later one was told meanwhile, by whoever led then.
        let is_untold = |kept: &&Kept| {
            kept.set_uid.as_deref() == uid
                && seen.last_failover.as_ref().is_none_or(|told| told.time.0 <= kept.failover.time.0)
        };
        match kept.get(key).filter(is_untold) {
            None => seen.clone(),
            Some(Kept { set_uid: _, failover, conversions }) => BackupPodSetStatus {
                last_failover: Some(failover.clone()),
                conversions: conversions.clone(),
                ..seen.clone()
            },
        }
    }

    /// Keeps what a status that was not taken says of a failover, if the one that was seen says something else.
    pub(super) fn keep(
        &self,
        (key, uid): (&SetKey, Option<&str>),
        seen: &BackupPodSetStatus,
        BackupPodSetStatus { last_failover, conversions, .. }: BackupPodSetStatus,
    ) {
        match last_failover {
            Some(failover) if seen.last_failover.as_ref() != Some(&failover) => {
                let kept = Kept { set_uid: uid.map(str::to_owned), failover, conversions };
                self.lock().insert(key.clone(), kept);
            }
            Some(_) | None => self.forget(key),
        }
    }

    /// Everything is told, or the set is gone.
    pub(super) fn forget(&self, key: &SetKey) {
        self.lock().remove(key);
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<SetKey, Kept>> {
        self.0.lock().expect("no holder of this lock panics")
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;

    use super::*;

    fn status(second: i64) -> BackupPodSetStatus {
        let failover = FailoverReport {
            time: MicroTime(Timestamp::from_second(second).unwrap()),
            lost_pod: "a".to_owned(),
            successor: Some("b".to_owned()),
            reason: "NodeLost".to_owned(),
            detected_after_milliseconds: None,
            exposed_after_milliseconds: Some(20),
            ready_after_milliseconds: None,
        };
        BackupPodSetStatus { last_failover: Some(failover), ..BackupPodSetStatus::default() }
    }

    #[test]
    fn a_failover_is_kept_until_it_or_a_later_one_is_told() {
        let (unreported, key) =
            (Unreported::default(), SetKey { namespace: "shop".into(), name: "web".into() });
        let (set, nothing) = ((&key, Some("u1")), BackupPodSetStatus::default());
        unreported.keep(set, &nothing, status(5));
        for seen in [&nothing, &status(4)] {
            assert_eq!(unreported.onto(set, seen), status(5));
        }
        assert_eq!(unreported.onto(set, &status(6)), status(6));
        assert_eq!(unreported.onto((&key, Some("u2")), &nothing), nothing, "another set of that name");
        unreported.keep(set, &status(5), status(5));
        assert_eq!(unreported.onto(set, &nothing), nothing, "it is told");
    }
}
