//! How often something may be done: a fixed rate with a small burst, in the memory of one instant.
//!
//! Never reads a clock; `now` is an argument.

use std::time::{Duration, Instant};

/// Allows `per_second` uses a second on average, and `burst` at once after a quiet time.
#[derive(Debug)]
pub(super) struct Budget {
    interval: Duration,
    credit: Duration,
    // The instant at which all that was taken so far is paid for.
    paid_at: Instant,
}

impl Budget {
    pub(super) fn new(per_second: u32, burst: u32, now: Instant) -> Self {
        let interval = Duration::from_secs(1) / per_second;
        Self { interval, credit: interval * (burst - 1), paid_at: now }
    }

    /// When the next use is allowed; an instant that has passed means at once.
    pub(super) fn ready_at(&self) -> Instant {
        self.paid_at.checked_sub(self.credit).unwrap_or(self.paid_at)
    }

    pub(super) fn is_ready(&self, now: Instant) -> bool {
        self.ready_at() <= now
    }

    /// Uses one, if one is there.
    pub(super) fn take(&mut self, now: Instant) -> bool {
        let is_ready = self.is_ready(now);
        if is_ready {
            self.paid_at = self.paid_at.max(now) + self.interval;
        }
        is_ready
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "a test needs an instant to begin with")]
mod tests {
    use super::*;

    fn taken(budget: &mut Budget, now: Instant) -> usize {
        (0..1000).take_while(|_| budget.take(now)).count()
    }

    #[test]
    fn a_burst_is_allowed_and_then_the_rate() {
        let start = Instant::now() + Duration::from_secs(3600);
        let mut budget = Budget::new(10, 4, start);
        assert_eq!(taken(&mut budget, start), 4);
        assert_eq!(budget.ready_at(), start + Duration::from_millis(100));
        assert_eq!(taken(&mut budget, start + Duration::from_millis(99)), 0);
        assert_eq!(taken(&mut budget, start + Duration::from_millis(100)), 1);
        assert_eq!(taken(&mut budget, start + Duration::from_secs(60)), 4);
    }
}
