//! Results that no status tells of yet, because the write of their look's status was not taken.
//!
//! The next look sees a world in which the steps are done already: without this nobody would read who failed over.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};

use super::timing::is_promotion_after_loss;
use crate::model::{Action, Outcome, StepResult};
use crate::observe::SetKey;

/// Most results that are kept for a set, the first ones: a promotion comes before what follows from it.
///
/// 32: more than a status tells of.
const KEPT_MAX: usize = 32;

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
    /// These results of a set with this uid, after those that are still to be told. A new failover is told alone: its times
    /// are not those of an earlier one.
    pub(super) fn before(&self, set: (&SetKey, Option<&str>), results: &[StepResult]) -> Vec<StepResult> {
        let (key, uid) = set;
        let kept = self.lock();
        let is_new = results.iter().any(is_promotion_after_loss);
        let earlier = kept.get(key).filter(|kept| !is_new && kept.set_uid.as_deref() == uid);
        earlier.into_iter().flat_map(|kept| &kept.results).chain(results).cloned().collect()
    }

    /// Keeps what could not be told of a failover, instead of what was kept before. What was refused shows again by itself.
    pub(super) fn keep(&self, set: (&SetKey, Option<&str>), mut results: Vec<StepResult>) {
        let (key, uid) = set;
        results.retain(is_told_later);
        results.truncate(KEPT_MAX);
        if !results.iter().any(is_promotion_after_loss) {
            return self.forget(key);
        }
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

/// Whether nothing but its result tells of a step, once it is done.
fn is_told_later(result: &StepResult) -> bool {
    let action = &result.step.action;
    let is_trace = matches!(action, Action::Convert { .. } | Action::Delete { .. } | Action::Expose { .. });
    is_trace && result.outcome == Outcome::Done
}

#[cfg(test)]
mod tests {
    use jiff::{SignedDuration, Timestamp};

    use super::*;
    use crate::model::{PodName, PodRef, Reason, Refusal, Role, Step, Uid};

    fn result(milliseconds: i64, reason: Reason) -> StepResult {
        let pod = PodRef { name: PodName("a".into()), uid: Uid("1".into()), resource_version: "7".into() };
        let action = Action::Convert { pod, from: Role::Hot, to: Role::Primary };
        StepResult {
            step: Step { action, reason },
            outcome: Outcome::Done,
            message: None,
            started: Timestamp::from_millisecond(milliseconds).unwrap(),
            elapsed: SignedDuration::ZERO,
        }
    }

    #[test]
    fn a_failover_that_could_not_be_told_comes_before_what_follows_and_is_bounded() {
        let (unreported, key) =
            (Unreported::default(), SetKey { namespace: "shop".into(), name: "web".into() });
        let set = (&key, Some("u1"));
        let refill = |milliseconds| result(milliseconds, Reason::Refilled);
        let lost = result(0, Reason::PodDeleted);
        let refused = StepResult { outcome: Outcome::Failed(Refusal::QuotaExceeded), ..refill(1) };
        let many: Vec<StepResult> = [lost.clone(), refused].into_iter().chain((2..300).map(refill)).collect();
        unreported.keep(set, many);
        let kept: Vec<StepResult> = [lost].into_iter().chain((2..33).map(refill)).collect();
        let told = unreported.before(set, &[refill(300)]);
        assert_eq!(told, kept.iter().cloned().chain([refill(300)]).collect::<Vec<_>>());
        assert_eq!(
            unreported.before((&key, Some("u2")), &[refill(1)]),
            [refill(1)],
            "another set of that name"
        );
        let again = [result(400, Reason::NodeLost)];
        assert_eq!(unreported.before(set, &again), again, "a failover has its own times");
        unreported.keep(set, vec![refill(500)]);
        assert_eq!(unreported.before(set, &[]), [], "a refill alone is no failover");
    }
}
