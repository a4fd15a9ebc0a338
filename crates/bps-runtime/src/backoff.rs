//! How long to wait after the same thing has happened several times in a row.

use std::collections::BTreeMap;
use std::time::Duration;

use super::sync::{Instant, Mutex, MutexGuard};

/// `first` after the first time, twice as long after each further one, at most `max`.
pub fn backoff(first: Duration, times: u32, max: Duration) -> Duration {
    first.saturating_mul(2_u32.saturating_pow(times.saturating_sub(1))).min(max)
}

/// Pauses that grow with each time that the same thing happens again to the same object.
///
/// Holds one entry for each object that it happened to, until [`KeyedBackoff::end`]; of those whose memory is over, no more than of
/// others, but for 64.
#[derive(Debug)]
pub struct KeyedBackoff<K> {
    /// Pause after the first time.
    first: Duration,
    /// Longest pause.
    max: Duration,
    /// After this time without another one the next one counts as the first; `None`: never.
    memory: Option<Duration>,
    streaks: Mutex<Streaks<K>>,
}

#[derive(Debug)]
struct Streaks<K> {
    by_key: BTreeMap<K, Streak>,
    /// How many there may be before those that are over are taken out: twice as many as were left the last time, so that each
    /// count costs two steps of that walk at most.
    until_pruned: usize,
}

/// Fewest streaks that are walked over.
const PRUNED_FROM: usize = 64;

/// How often in a row something happened.
#[derive(Clone, Copy, Debug)]
struct Streak {
    times: u32,
    last: Instant,
}

impl<K: Ord + Clone> KeyedBackoff<K> {
    /// Pauses of `first`, twice that, and so on, at most `max`.
    pub fn new(first: Duration, max: Duration) -> Self {
        let streaks = Streaks { by_key: BTreeMap::new(), until_pruned: PRUNED_FROM };
        Self { first, max, memory: None, streaks: Mutex::new(streaks) }
    }

    /// Forgets an object to which nothing happens for that long.
    #[must_use]
    pub fn forgetting_after(mut self, memory: Duration) -> Self {
        self.memory = Some(memory);
        self
    }

    /// Counts once more; the pause that follows.
    pub fn again(&self, key: &K) -> Duration {
        let now = Instant::now();
        let mut streaks = self.lock();
        if streaks.by_key.len() >= streaks.until_pruned {
            streaks.by_key.retain(|_, streak| self.is_remembered(streak, now));
            streaks.until_pruned = (2 * streaks.by_key.len()).max(PRUNED_FROM);
        }
        let before = streaks.by_key.get(key).filter(|streak| self.is_remembered(streak, now));
        let times = before.map_or(0, |streak| streak.times).saturating_add(1);
        streaks.by_key.insert(key.clone(), Streak { times, last: now });
        backoff(self.first, times, self.max)
    }

    /// How often in a row it happened so far.
    pub fn times(&self, key: &K) -> u32 {
        let now = Instant::now();
        let streaks = self.lock();
        let streak = streaks.by_key.get(key).filter(|streak| self.is_remembered(streak, now));
        streak.map_or(0, |streak| streak.times)
    }

    /// It did not happen this time, or the object is gone.
    pub fn end(&self, key: &K) {
        self.lock().by_key.remove(key);
    }

    fn is_remembered(&self, streak: &Streak, now: Instant) -> bool {
        self.memory.is_none_or(|memory| now.duration_since(streak.last) < memory)
    }

    fn lock(&self) -> MutexGuard<'_, Streaks<K>> {
        self.streaks.lock().expect("no holder of this lock panics")
    }
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use super::*;

    #[test]
    fn a_pause_doubles_up_to_its_maximum_and_never_overflows() {
        let after = |times| backoff(Duration::from_millis(50), times, Duration::from_secs(30)).as_millis();
        assert_eq!([0, 1, 2, 3, 10, 11, u32::MAX].map(after), [50, 50, 100, 200, 25_600, 30_000, 30_000]);
    }

    #[test]
    fn each_object_has_pauses_of_its_own_until_it_is_forgiven() {
        let pauses = KeyedBackoff::new(Duration::from_millis(250), Duration::from_secs(1));
        let next = |key| pauses.again(&key).as_millis();
        assert_eq!([next("a"), next("a"), next("b"), next("a"), next("a")], [250, 500, 250, 1_000, 1_000]);
        assert_eq!([pauses.times(&"a"), pauses.times(&"b"), pauses.times(&"c")], [4, 1, 0]);
        pauses.end(&"a");
        assert_eq!((pauses.times(&"a"), next("a"), next("b")), (0, 250, 500));
    }

    #[tokio::test(start_paused = true)]
    async fn what_has_not_happened_for_long_begins_anew_and_is_kept_no_more() {
        let memory = Duration::from_secs(120);
        let pauses = KeyedBackoff::new(Duration::from_millis(50), Duration::from_secs(30));
        let pauses = pauses.forgetting_after(memory);
        assert_eq!([pauses.again(&1), pauses.again(&1)].map(|pause| pause.as_millis()), [50, 100]);
        tokio::time::advance(memory).await;
        assert_eq!(pauses.times(&1), 0);
        let next = [1, 2, 2].map(|key| pauses.again(&key).as_millis());
        assert_eq!(next, [50, 50, 100]);
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_forgotten_takes_no_room_for_long() {
        let memory = Duration::from_secs(120);
        let pauses = KeyedBackoff::new(Duration::from_millis(50), Duration::from_secs(30));
        let pauses = pauses.forgetting_after(memory);
        for key in 0..1_000 {
            pauses.again(&key);
        }
        tokio::time::advance(memory).await;
        for key in 1_000..3_000 {
            pauses.again(&key);
        }
        assert_eq!(pauses.lock().by_key.len(), 2_000);
    }
}
