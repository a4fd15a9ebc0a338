//! How many Pods of a set are created at once, and when again after the API server refused some.
//!
//! A quota or a policy that refuses one Pod refuses all, so refusals must stay few: first some are tried, then twice as many; after a
//! refusal one, and only once its pause is over, whatever happens to the set meanwhile. What was not refused does not wait for it: a
//! backup that is refused for ever must not delay a primary, nor a Pod of one subset those of the others, as their nodes, tolerations
//! and so the policies about them differ.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

use bps_api::BackupPodSet;
use bps_core::model::{Action, Outcome, Role, Step, StepResult, SubsetName};
use bps_observe::SetKey;
use bps_runtime::backoff::backoff;
use bps_runtime::sync::Instant;

use super::reconcile::{RETRY_FIRST, RETRY_MAX};

/// Creations that are sent at once while nothing is known of the API server's mind.
///
/// 32: more than the sets that are usual have Pods, so that those lose no time; and of a thousand Pods at most so many are refused.
const FIRST_BATCH: usize = 32;

/// What is known of refused creations, by set.
#[derive(Debug, Default)]
pub(super) struct Creations(Mutex<BTreeMap<SetKey, Refused>>);

/// Creations of a set were refused, and not all that were left out since were taken. An edit of the set ends that: what was refused
/// may be allowed by now.
#[derive(Clone, Debug)]
struct Refused {
    /// Whose they were, and which generation of its specification wanted them.
    wish: Wish,
    /// What they were, the one whose turn to be tried comes first.
    places: Vec<RefusedPlace>,
    /// In so many batches in a row.
    streak: u32,
    /// When the next one is tried.
    until: Instant,
}

/// A subset of which creations were refused.
#[derive(Clone, Debug, PartialEq, Eq)]
struct RefusedPlace {
    /// The subset; `None` in a set without any.
    subset: Option<SubsetName>,
    /// The most important role among them.
    role: Role,
}

impl RefusedPlace {
    /// Whether this creation may be refused for the same reason.
    fn concerns(&self, made: &Created<'_>) -> bool {
        self.subset.as_ref() == made.subset && self.role <= made.role
    }
}

/// The most important role that was refused anywhere.
fn highest(places: &[RefusedPlace]) -> Option<Role> {
    places.iter().map(|place| place.role).min()
}

/// One incarnation of a set with one specification.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Wish {
    uid: Option<String>,
    generation: Option<i64>,
}

impl Wish {
    fn of(set: &BackupPodSet) -> Self {
        Self { uid: set.metadata.uid.clone(), generation: set.metadata.generation }
    }
}

/// Creations that may be tried now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Allowed {
    /// How many of those that nothing speaks against.
    batch: usize,
    /// What was refused, if anything was.
    refused: Option<Retries>,
}

/// Creations that were refused and are to be tried again.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Retries {
    /// How many may be tried.
    batch: usize,
    /// What was refused, the one whose turn it is first. Roles above all of these have a batch of their own.
    places: Vec<RefusedPlace>,
}

impl Allowed {
    /// Leaves the creations that may be tried; returns whether those are all.
    pub(super) fn choose(&self, creations: &mut Vec<Step>) -> bool {
        let all = creations.len();
        let Some(Retries { batch, places }) = &self.refused else {
            creations.truncate(self.batch);
            return creations.len() == all;
        };
        let turn = |step: &Step| {
            let made = created(step)?;
            places.iter().position(|place| place.concerns(&made))
        };
        let highest = highest(places);
        let is_above = |step: &Step| {
            created(step).is_some_and(|made| highest.is_some_and(|highest| made.role < highest))
        };
        let (mut above, others): (Vec<Step>, Vec<Step>) = creations.drain(..).partition(is_above);
        let (mut again, mut fresh): (Vec<Step>, Vec<Step>) =
            others.into_iter().partition(|step| turn(step).is_some());
        above.truncate(FIRST_BATCH);
        fresh.truncate(self.batch);
        again.sort_by_key(turn);
        // A refusal ends the look, so it comes last.
        again.truncate(if fresh.is_empty() { *batch } else { 0 });
        creations.extend(above.into_iter().chain(fresh).chain(again));
        creations.len() == all
    }
}

/// What a step creates.
struct Created<'a> {
    role: Role,
    subset: Option<&'a SubsetName>,
}

fn created(step: &Step) -> Option<Created<'_>> {
    let Action::Create { role, subset, .. } = &step.action else { return None };
    Some(Created { role: *role, subset: subset.as_ref() })
}

impl Creations {
    /// What may be created now.
    pub(super) fn allowed(&self, key: &SetKey, set: &BackupPodSet) -> Allowed {
        match self.refused(key, set) {
            None => Allowed { batch: FIRST_BATCH, refused: None },
            Some(Refused { places, until, .. }) => {
                let batch = usize::from(Instant::now() >= until);
                Allowed { batch: 1, refused: Some(Retries { batch, places }) }
            }
        }
    }

    /// How long no refused creation is tried; `None` if one may be.
    pub(super) fn pause(&self, key: &SetKey, set: &BackupPodSet) -> Option<Duration> {
        let left = self.refused(key, set)?.until.duration_since(Instant::now());
        (!left.is_zero()).then_some(left)
    }

    /// Takes note of what became of a batch, and changes what is allowed in this look accordingly; returns whether some were made and none
    /// was refused.
    pub(super) fn ended(
        &self,
        key: &SetKey,
        set: &BackupPodSet,
        results: &[StepResult],
        allowed: &mut Allowed,
    ) -> bool {
        let of = |is_wanted: fn(Outcome) -> bool| {
            let wanted = results.iter().filter(move |result| is_wanted(result.outcome));
            wanted.filter_map(|result| created(&result.step))
        };
        let done: Vec<Created<'_>> = of(|outcome| outcome == Outcome::Done).collect();
        let refused: Vec<Created<'_>> = of(|outcome| matches!(outcome, Outcome::Failed(_))).collect();
        self.were_taken(key, &done);
        if !refused.is_empty() {
            self.were_refused(key, set, &refused);
            *allowed = self.allowed(key, set);
        } else if !done.is_empty() {
            // What was taken after all is not to be tried again, and more of it may follow.
            let next = self.allowed(key, set);
            *allowed = Allowed { batch: allowed.batch * 2, refused: next.refused };
        }
        refused.is_empty() && !done.is_empty()
    }

    fn were_refused(&self, key: &SetKey, set: &BackupPodSet, creations: &[Created<'_>]) {
        let known = self.refused(key, set);
        let mut places = known.as_ref().map(|refused| refused.places.clone()).unwrap_or_default();
        for made in creations {
            let former = places.iter().position(|place| place.subset.as_ref() == made.subset);
            let former = former.map(|index| places.remove(index).role);
            let role = former.map_or(made.role, |former| former.min(made.role));
            places.push(RefusedPlace { subset: made.subset.cloned(), role });
        }
        // What is refused of a role above the former ones is news: it may pass by itself.
        let is_news = |refused: &Refused| highest(&places) < highest(&refused.places);
        let streak = known.filter(|refused| !is_news(refused)).map_or(0, |refused| refused.streak);
        let streak = streak.saturating_add(1);
        let until = Instant::now() + backoff(RETRY_FIRST, streak, RETRY_MAX);
        let refused = Refused { wish: Wish::of(set), places, streak, until };
        self.0.lock().expect("no holder of this lock panics").insert(key.clone(), refused);
    }

    /// That a Pod of a higher role or of another subset was created says nothing about those that were refused.
    fn were_taken(&self, key: &SetKey, creations: &[Created<'_>]) {
        if let Some(refused) = self.0.lock().expect("no holder of this lock panics").get_mut(key) {
            refused.places.retain(|place| !creations.iter().any(|made| place.concerns(made)));
        }
    }

    /// All that is wanted is there, or the set is gone.
    pub(super) fn forgive(&self, key: &SetKey) {
        self.0.lock().expect("no holder of this lock panics").remove(key);
    }

    fn refused(&self, key: &SetKey, set: &BackupPodSet) -> Option<Refused> {
        let known = self.0.lock().expect("no holder of this lock panics").get(key).cloned();
        known.filter(|refused| refused.wish == Wish::of(set))
    }
}

#[cfg(test)]
mod tests {
    use bps_core::model::{PodName, Reason, Refusal};
    use jiff::{SignedDuration, Timestamp};
    use serde_json::json;

    use super::*;
    use crate::apply::testing::set;

    fn key() -> SetKey {
        SetKey { namespace: "shop".into(), name: "web".into() }
    }

    fn refuse(creations: &Creations, set: &BackupPodSet, role: Role) {
        creations.were_refused(&key(), set, &[Created { role, subset: None }]);
    }

    /// How many of the refused ones may be tried.
    fn again(allowed: &Allowed) -> usize {
        allowed.refused.as_ref().map_or(0, |again| again.batch)
    }

    fn creation(name: &str, role: Role, subset: Option<&str>) -> Step {
        let subset = subset.map(|subset| SubsetName(subset.into()));
        let action = Action::Create { name: PodName(name.into()), role, slot: 0, subset };
        Step { action, reason: Reason::ScaledOut }
    }

    fn ended(step: &Step, outcome: Outcome) -> StepResult {
        let (message, started, elapsed) = (None, Timestamp::UNIX_EPOCH, SignedDuration::ZERO);
        StepResult { step: step.clone(), outcome, message, started, elapsed }
    }

    #[tokio::test(start_paused = true)]
    async fn after_a_refusal_one_creation_is_tried_when_its_pause_is_over() {
        let (creations, key, wanting) = (Creations::default(), key(), set(&json!({})));
        let free = Allowed { batch: FIRST_BATCH, refused: None };
        assert_eq!(
            (creations.allowed(&key, &wanting), creations.pause(&key, &wanting)),
            (free.clone(), None)
        );
        for pause in [250, 500, 1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 60_000, 60_000] {
            refuse(&creations, &wanting, Role::Primary);
            assert_eq!(again(&creations.allowed(&key, &wanting)), 0);
            assert_eq!(creations.pause(&key, &wanting), Some(Duration::from_millis(pause)));
            tokio::time::sleep(Duration::from_millis(pause)).await;
            assert_eq!(
                (again(&creations.allowed(&key, &wanting)), creations.pause(&key, &wanting)),
                (1, None)
            );
        }
        refuse(&creations, &wanting, Role::Primary);
        let (mut edited, mut another) = (wanting.clone(), wanting.clone());
        edited.metadata.generation = Some(99);
        another.metadata.uid = Some("another".into());
        for other in [edited, another] {
            assert_eq!(
                (creations.allowed(&key, &other), creations.pause(&key, &other)),
                (free.clone(), None)
            );
        }
        creations.forgive(&key);
        assert_eq!(creations.allowed(&key, &wanting), free);
    }

    #[tokio::test(start_paused = true)]
    async fn a_role_above_those_that_were_refused_does_not_wait() {
        let (creations, key, wanting) = (Creations::default(), key(), set(&json!({})));
        refuse(&creations, &wanting, Role::Hot);
        let wanted = [Role::Primary, Role::Hot, Role::Cold].map(|role| creation(role.as_str(), role, None));
        let chosen = || {
            let mut steps = wanted.to_vec();
            let is_all = creations.allowed(&key, &wanting).choose(&mut steps);
            let names = steps.iter().filter_map(|step| step.action.pod_name());
            (names.map(|name| name.0.clone()).collect::<Vec<String>>(), is_all)
        };
        assert_eq!(chosen(), (vec!["primary".to_owned()], false));
        tokio::time::sleep(RETRY_FIRST).await;
        assert_eq!(chosen(), (vec!["primary".to_owned(), "hot".to_owned()], false));
        refuse(&creations, &wanting, Role::Primary);
        assert_eq!(creations.pause(&key, &wanting), Some(RETRY_FIRST), "no matter how long backups wait");
        creations.forgive(&key);
        assert_eq!(chosen().0.len(), 3);
    }

    #[tokio::test(start_paused = true)]
    async fn subsets_of_which_no_pod_was_refused_do_not_wait() {
        let (creations, key, wanting) = (Creations::default(), key(), set(&json!({})));
        let [a, b, c, d] = [("a", "east"), ("b", "west"), ("c", "north"), ("d", "north")]
            .map(|(name, subset)| creation(name, Role::Primary, Some(subset)));
        let mut allowed = creations.allowed(&key, &wanting);
        let refused = [a, b].map(|step| (ended(&step, Outcome::Failed(Refusal::Forbidden)), step));
        let [(refused_a, a), (refused_b, b)] = refused;
        creations.ended(&key, &wanting, &[refused_a.clone(), refused_b], &mut allowed);
        let chosen = |allowed: &Allowed, steps: &[&Step]| {
            let mut steps: Vec<Step> = steps.iter().copied().cloned().collect();
            allowed.choose(&mut steps);
            steps
        };
        assert_eq!(chosen(&allowed, &[&a, &b]), []);
        assert_eq!(
            chosen(&allowed, &[&a, &b, &c, &d]),
            std::slice::from_ref(&c),
            "one, as the next may be refused, too"
        );
        creations.ended(&key, &wanting, &[ended(&c, Outcome::Done)], &mut allowed);
        assert_eq!(chosen(&allowed, &[&a, &b, &c, &d]), [c.clone(), d.clone()]);

        tokio::time::sleep(RETRY_FIRST).await;
        let mut allowed = creations.allowed(&key, &wanting);
        assert_eq!(
            chosen(&allowed, &[&a, &b, &c]),
            std::slice::from_ref(&c),
            "a refusal ends a look, so it comes last"
        );
        assert_eq!(chosen(&allowed, &[&b, &a]), std::slice::from_ref(&a));
        creations.ended(&key, &wanting, &[refused_a], &mut allowed);
        tokio::time::sleep(RETRY_FIRST * 2).await;
        let mut allowed = creations.allowed(&key, &wanting);
        assert_eq!(chosen(&allowed, &[&a, &b]), std::slice::from_ref(&b), "it is its turn");
        assert!(creations.ended(&key, &wanting, &[ended(&b, Outcome::Done)], &mut allowed));
        let allowed = creations.allowed(&key, &wanting);
        assert_eq!(chosen(&allowed, &[&a, &b]), [b], "it was taken, so it does not wait for the other one");
    }

    #[tokio::test(start_paused = true)]
    async fn a_refused_backup_of_one_subset_brings_no_refused_primary_of_another_forward() {
        let (creations, key, wanting) = (Creations::default(), key(), set(&json!({})));
        let primary = creation("a", Role::Primary, Some("east"));
        let hot = creation("b", Role::Hot, Some("west"));
        let refuse = |step: &Step| {
            let mut allowed = creations.allowed(&key, &wanting);
            let mut steps = vec![primary.clone(), hot.clone()];
            allowed.choose(&mut steps);
            let refused: Vec<StepResult> =
                steps.iter().map(|step| ended(step, Outcome::Failed(Refusal::QuotaExceeded))).collect();
            creations.ended(&key, &wanting, &refused, &mut allowed);
            assert!(steps.contains(step), "{steps:?}");
            steps.len()
        };
        assert_eq!(refuse(&primary), 2);
        for (turn, pause) in [&primary, &hot, &primary, &hot].into_iter().zip([250, 500, 1_000, 2_000]) {
            let mut steps = vec![primary.clone(), hot.clone()];
            creations.allowed(&key, &wanting).choose(&mut steps);
            assert_eq!(steps, [], "they wait");
            assert_eq!(creations.pause(&key, &wanting), Some(Duration::from_millis(pause)));
            tokio::time::sleep(Duration::from_millis(pause)).await;
            assert_eq!(refuse(turn), 1);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_taken_of_other_subsets_makes_no_more_of_the_refused_one_tried() {
        let (creations, key, wanting) = (Creations::default(), key(), set(&json!({})));
        let refused = ["a", "b", "c"].map(|name| creation(name, Role::Primary, Some("east")));
        let fresh = ["d", "e", "f"].map(|name| creation(name, Role::Primary, Some("west")));
        let mut allowed = creations.allowed(&key, &wanting);
        creations.ended(
            &key,
            &wanting,
            &[ended(&refused[0], Outcome::Failed(Refusal::Forbidden))],
            &mut allowed,
        );
        tokio::time::sleep(RETRY_FIRST).await;
        let mut allowed = creations.allowed(&key, &wanting);
        let chosen = |allowed: &Allowed, fresh: &[Step]| {
            let mut steps: Vec<Step> = refused.iter().chain(fresh).cloned().collect();
            allowed.choose(&mut steps);
            steps
        };
        for taken in [&fresh[..1], &fresh[1..]] {
            let steps = chosen(&allowed, taken);
            assert_eq!(steps, taken);
            let done: Vec<StepResult> = steps.iter().map(|step| ended(step, Outcome::Done)).collect();
            creations.ended(&key, &wanting, &done, &mut allowed);
        }
        assert_eq!(chosen(&allowed, &[]), refused[..1], "one of them");
    }
}
