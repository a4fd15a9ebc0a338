//! How many Pods of a set are created at once, and when again after the API server refused some.
//!
//! A quota or a policy that refuses one Pod refuses all, so refusals must stay few: first some are tried, then twice as many; after a
//! refusal one, and only once its pause is over, whatever happens to the set meanwhile. Roles above those that were refused do not wait:
//! a backup that is refused for ever must not delay a primary.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

use bps_api::BackupPodSet;
use bps_core::model::{Action, Role, Step};
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
    /// The most important role among them.
    role: Role,
    /// In so many batches in a row.
    streak: u32,
    /// When the next one is tried.
    until: Instant,
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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Allowed {
    /// How many.
    pub(super) batch: usize,
    /// The most important role that was refused: those above it have a batch of their own.
    refused: Option<Role>,
}

impl Allowed {
    /// Leaves the creations that may be tried; returns whether those are all.
    pub(super) fn choose(self, creations: &mut Vec<Step>) -> bool {
        let all = creations.len();
        let is_above = |step: &Step| match (&step.action, self.refused) {
            (Action::Create { role, .. }, Some(refused)) => *role < refused,
            _ => false,
        };
        let (mut above, mut others): (Vec<Step>, Vec<Step>) = creations.drain(..).partition(is_above);
        above.truncate(FIRST_BATCH);
        others.truncate(self.batch);
        creations.extend(above.into_iter().chain(others));
        creations.len() == all
    }
}

impl Creations {
    /// What may be created now.
    pub(super) fn allowed(&self, key: &SetKey, set: &BackupPodSet) -> Allowed {
        match self.refused(key, set) {
            None => Allowed { batch: FIRST_BATCH, refused: None },
            Some(Refused { role, until, .. }) => {
                Allowed { batch: usize::from(Instant::now() >= until), refused: Some(role) }
            }
        }
    }

    /// How long no refused creation is tried; `None` if one may be.
    pub(super) fn pause(&self, key: &SetKey, set: &BackupPodSet) -> Option<Duration> {
        let left = self.refused(key, set)?.until.duration_since(Instant::now());
        (!left.is_zero()).then_some(left)
    }

    /// Creations were refused; `role` is the most important among them.
    pub(super) fn were_refused(&self, key: &SetKey, set: &BackupPodSet, role: Role) {
        // What is refused of a role above the former ones is news: it may pass by itself.
        let known = self.refused(key, set).filter(|refused| refused.role <= role);
        let streak = known.map_or(0, |refused| refused.streak).saturating_add(1);
        let until = Instant::now() + backoff(RETRY_FIRST, streak, RETRY_MAX);
        let refused = Refused { wish: Wish::of(set), role, streak, until };
        self.0.lock().expect("no holder of this lock panics").insert(key.clone(), refused);
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
    use bps_core::model::{PodName, Reason};
    use serde_json::json;

    use super::*;
    use crate::apply::testing::set;

    fn key() -> SetKey {
        SetKey { namespace: "shop".into(), name: "web".into() }
    }

    #[tokio::test(start_paused = true)]
    async fn after_a_refusal_one_creation_is_tried_when_its_pause_is_over() {
        let (creations, key, wanting) = (Creations::default(), key(), set(&json!({})));
        let free = Allowed { batch: FIRST_BATCH, refused: None };
        assert_eq!((creations.allowed(&key, &wanting), creations.pause(&key, &wanting)), (free, None));
        for pause in [250, 500, 1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 60_000, 60_000] {
            creations.were_refused(&key, &wanting, Role::Primary);
            assert_eq!(creations.allowed(&key, &wanting).batch, 0);
            assert_eq!(creations.pause(&key, &wanting), Some(Duration::from_millis(pause)));
            tokio::time::sleep(Duration::from_millis(pause)).await;
            assert_eq!((creations.allowed(&key, &wanting).batch, creations.pause(&key, &wanting)), (1, None));
        }
        creations.were_refused(&key, &wanting, Role::Primary);
        let (mut edited, mut another) = (wanting.clone(), wanting.clone());
        edited.metadata.generation = Some(99);
        another.metadata.uid = Some("another".into());
        for other in [edited, another] {
            assert_eq!((creations.allowed(&key, &other), creations.pause(&key, &other)), (free, None));
        }
        creations.forgive(&key);
        assert_eq!(creations.allowed(&key, &wanting), free);
    }

    #[tokio::test(start_paused = true)]
    async fn a_role_above_those_that_were_refused_does_not_wait() {
        let (creations, key, wanting) = (Creations::default(), key(), set(&json!({})));
        creations.were_refused(&key, &wanting, Role::Hot);
        let wanted = [Role::Primary, Role::Hot, Role::Cold].map(|role| Step {
            action: Action::Create { name: PodName(role.as_str().into()), role, slot: 0, subset: None },
            reason: Reason::ScaledOut,
        });
        let chosen = || {
            let mut steps = wanted.to_vec();
            let is_all = creations.allowed(&key, &wanting).choose(&mut steps);
            let names = steps.iter().filter_map(|step| step.action.pod_name());
            (names.map(|name| name.0.clone()).collect::<Vec<String>>(), is_all)
        };
        assert_eq!(chosen(), (vec!["primary".to_owned()], false));
        tokio::time::sleep(RETRY_FIRST).await;
        assert_eq!(chosen(), (vec!["primary".to_owned(), "hot".to_owned()], false));
        creations.were_refused(&key, &wanting, Role::Primary);
        assert_eq!(creations.pause(&key, &wanting), Some(RETRY_FIRST), "no matter how long backups wait");
        creations.forgive(&key);
        assert_eq!(chosen().0.len(), 3);
    }
}
