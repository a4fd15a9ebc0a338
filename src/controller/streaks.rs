//! How often in a row something happened to an object, and the pause that follows when its writes are refused.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

use bps_observe::SetKey;
use bps_runtime::backoff::backoff;

/// First delay after a refused step; doubles with each further one.
pub(super) const RETRY_FIRST: Duration = Duration::from_millis(250);

/// Longest delay after refused steps: a quota that was raised is noticed within a minute.
pub(super) const RETRY_MAX: Duration = Duration::from_secs(60);

/// How often in a row something happened to a set or a group.
#[derive(Debug, Default)]
pub(super) struct Streaks(pub(super) Mutex<BTreeMap<SetKey, u32>>);

impl Streaks {
    /// Counts once more.
    pub(super) fn lengthen(&self, key: &SetKey) -> u32 {
        let mut streaks = self.0.lock().expect("no holder of this lock panics");
        let count = streaks.entry(key.clone()).or_insert(0);
        *count = count.saturating_add(1);
        *count
    }

    /// How often in a row it happened so far.
    pub(super) fn length(&self, key: &SetKey) -> u32 {
        self.0.lock().expect("no holder of this lock panics").get(key).copied().unwrap_or(0)
    }

    /// It did not happen, or the object is gone.
    pub(super) fn end(&self, key: &SetKey) {
        self.0.lock().expect("no holder of this lock panics").remove(key);
    }

    /// Counts a refusal; how long to wait before the next attempt.
    pub(super) fn refused(&self, key: &SetKey) -> Duration {
        backoff(RETRY_FIRST, self.lengthen(key), RETRY_MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_delay_after_refusals_doubles_up_to_a_minute_and_is_forgiven() {
        let (streaks, key) = (Streaks::default(), SetKey { namespace: "shop".into(), name: "web".into() });
        let delays = || std::array::from_fn::<_, 10, _>(|_| streaks.refused(&key).as_millis());
        let grown = [250, 500, 1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 60_000, 60_000];
        assert_eq!(delays(), grown);
        // Far beyond the exponent that a number can hold.
        streaks.0.lock().unwrap().insert(key.clone(), u32::MAX);
        assert_eq!(streaks.refused(&key), RETRY_MAX);
        streaks.end(&key);
        assert_eq!(delays(), grown);
    }
}
