//! Results that no status tells of yet, because the write of their look's status was not taken.
//!
//! The next look sees a world in which the steps are done already: without this nobody would read who failed over.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};

use crate::model::StepResult;
use crate::observe::SetKey;

/// Most results that are kept for a set; the oldest go first.
///
/// 256: more than the look at a failover of a large set brings, and some hundred kilobytes at the most, because a set
/// whose status is refused for ever goes on failing.
const KEPT_MAX: usize = 256;

/// The results of one set.
#[derive(Debug, Default)]
struct Kept {
    /// A set that was made anew under the same name has nothing to tell of its predecessor.
    set_uid: Option<String>,
    results: Vec<StepResult>,
}

/// What is still to be told, by set.
#[derive(Debug, Default)]
pub(super) struct Unreported(Mutex<BTreeMap<SetKey, Kept>>);

impl Unreported {
    /// These results of a set with this uid, after those that are still to be told.
    pub(super) fn before(&self, set: (&SetKey, Option<&str>), results: &[StepResult]) -> Vec<StepResult> {
        let (key, uid) = set;
        let kept = self.lock();
        let earlier = kept.get(key).filter(|kept| kept.set_uid.as_deref() == uid);
        earlier.into_iter().flat_map(|kept| &kept.results).chain(results).cloned().collect()
    }

    /// Keeps what could not be told instead of what was kept before.
    pub(super) fn keep(&self, set: (&SetKey, Option<&str>), mut results: Vec<StepResult>) {
        let (key, uid) = set;
        if results.is_empty() {
            return;
        }
        results.drain(..results.len().saturating_sub(KEPT_MAX));
        self.lock().insert(key.clone(), Kept { set_uid: uid.map(str::to_owned), results });
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
    use jiff::{SignedDuration, Timestamp};

    use super::*;
    use crate::model::{Action, Outcome, Reason, Step};

    fn result(milliseconds: i64) -> StepResult {
        StepResult {
            step: Step { action: Action::PublishService, reason: Reason::ServiceChanged },
            outcome: Outcome::Done,
            message: None,
            started: Timestamp::from_millisecond(milliseconds).unwrap(),
            elapsed: SignedDuration::ZERO,
        }
    }

    #[test]
    fn what_could_not_be_told_comes_before_what_is_new_and_is_bounded() {
        let (unreported, key) =
            (Unreported::default(), SetKey { namespace: "shop".into(), name: "web".into() });
        let set = (&key, Some("u1"));
        let many: Vec<StepResult> = (0..300).map(result).collect();
        unreported.keep(set, many.clone());
        let told = unreported.before(set, &[result(300)]);
        assert_eq!(told, many[44..].iter().cloned().chain([result(300)]).collect::<Vec<_>>());
        assert_eq!(
            unreported.before((&key, Some("u2")), &[result(1)]),
            [result(1)],
            "another set of that name"
        );
        unreported.forget(&key);
        assert_eq!(unreported.before(set, &[]), []);
    }
}
