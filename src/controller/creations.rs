//! How many Pods of a set are created at once, and when again after the API server refused some.
//!
//! A quota or a policy that refuses one Pod refuses all, so refusals must stay few: first some are tried, then twice as many; after a
//! refusal one, and only once its pause is over, whatever happens to the set meanwhile.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

use bps_observe::SetKey;
use bps_runtime::backoff::backoff;
use bps_runtime::sync::Instant;

use super::streaks::{RETRY_FIRST, RETRY_MAX};

/// Creations that are sent at once while nothing is known of the API server's mind.
///
/// 32: more than the sets that are usual have Pods, so that those lose no time; and of a thousand Pods at most so many are refused.
const FIRST_BATCH: usize = 32;

/// What is known of refused creations, by set.
#[derive(Debug, Default)]
pub(super) struct Creations(Mutex<BTreeMap<SetKey, Refused>>);

/// Creations of a set were refused, and not all that were left out since were taken. An edit of the set ends that: what was refused
/// may be allowed by now.
#[derive(Clone, Copy, Debug)]
struct Refused {
    /// Generation of its specification then.
    generation: Option<i64>,
    /// In so many batches in a row.
    streak: u32,
    /// When the next one is tried.
    until: Instant,
}

impl Creations {
    /// How many Pods may be created at once now for this generation of the set.
    pub(super) fn batch(&self, key: &SetKey, generation: Option<i64>) -> usize {
        match self.refused(key, generation) {
            None => FIRST_BATCH,
            Some(refused) => usize::from(Instant::now() >= refused.until),
        }
    }

    /// How long no creation is tried; `None` if one may be.
    pub(super) fn pause(&self, key: &SetKey, generation: Option<i64>) -> Option<Duration> {
        let left = self.refused(key, generation)?.until.saturating_duration_since(Instant::now());
        (!left.is_zero()).then_some(left)
    }

    /// A creation was refused.
    pub(super) fn were_refused(&self, key: &SetKey, generation: Option<i64>) {
        let known = self.refused(key, generation).map_or(0, |refused| refused.streak);
        let mut sets = self.0.lock().expect("no holder of this lock panics");
        let streak = known.saturating_add(1);
        let until = Instant::now() + backoff(RETRY_FIRST, streak, RETRY_MAX);
        sets.insert(key.clone(), Refused { generation, streak, until });
    }

    /// All that was wanted was created, or the set is gone.
    pub(super) fn forgive(&self, key: &SetKey) {
        self.0.lock().expect("no holder of this lock panics").remove(key);
    }

    fn refused(&self, key: &SetKey, generation: Option<i64>) -> Option<Refused> {
        let known = self.0.lock().expect("no holder of this lock panics").get(key).copied();
        known.filter(|refused| refused.generation == generation)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn after_a_refusal_one_creation_is_tried_when_its_pause_is_over() {
        let (creations, key) =
            (Creations::default(), SetKey { namespace: "shop".into(), name: "web".into() });
        assert_eq!((creations.batch(&key, Some(1)), creations.pause(&key, Some(1))), (FIRST_BATCH, None));
        for pause in [250, 500, 1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 60_000, 60_000] {
            creations.were_refused(&key, Some(1));
            assert_eq!(creations.batch(&key, Some(1)), 0);
            assert_eq!(creations.pause(&key, Some(1)), Some(Duration::from_millis(pause)));
            tokio::time::sleep(Duration::from_millis(pause)).await;
            assert_eq!((creations.batch(&key, Some(1)), creations.pause(&key, Some(1))), (1, None));
        }
        creations.were_refused(&key, Some(1));
        assert_eq!(
            (creations.batch(&key, Some(2)), creations.pause(&key, Some(2))),
            (FIRST_BATCH, None),
            "edited"
        );
        creations.forgive(&key);
        assert_eq!(creations.batch(&key, Some(1)), FIRST_BATCH);
    }
}
