//! How long to wait after the same thing has happened several times in a row.

use std::time::Duration;

/// `first` after the first time, twice as long after each further one, at most `max`.
pub fn backoff(first: Duration, times: u32, max: Duration) -> Duration {
    first.saturating_mul(2_u32.saturating_pow(times.saturating_sub(1))).min(max)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_doubles_up_to_its_maximum_and_never_overflows() {
        let after = |times| backoff(Duration::from_millis(50), times, Duration::from_secs(30)).as_millis();
        assert_eq!([0, 1, 2, 3, 10, 11, u32::MAX].map(after), [50, 50, 100, 200, 25_600, 30_000, 30_000]);
    }
}
