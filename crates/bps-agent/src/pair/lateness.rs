//! Whether the machine wakes the agent as soon as fast times need it.

use std::time::Duration;

use bps_protocol::{BootTime, Timing};

/// How long a late wake counts. 60 s: a machine that is busy now and then is late again.
const COUNTS_FOR: Duration = Duration::from_secs(60);
/// A wake is late for fast times by one part of a hold of so many. 4: half of a hold is left for a promise that is lost as well.
const PARTS: u32 = 4;

/// Remembers late wakes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Lateness {
    counts_until: BootTime,
}

impl Lateness {
    /// The agent was woken so late.
    pub(super) fn note(&mut self, late: Duration, now: BootTime, timing: &Timing) {
        if is_fast(timing) && late >= timing.hold / PARTS {
            self.counts_until = now + COUNTS_FOR;
        }
    }

    /// Whether promises between the agents come too late by now; never where they have as long as writes.
    pub(super) fn is_too_late(self, now: BootTime) -> bool {
        now < self.counts_until
    }
}

/// Whether writes give a longer hold than promises.
fn is_fast(timing: &Timing) -> bool {
    timing.hold < timing.api_hold
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wake_counts_for_a_minute_if_it_is_late_for_fast_times() {
        let fast = Timing::fast();
        let now = BootTime(7);
        let noted = |late, timing: &Timing| {
            let mut lateness = Lateness::default();
            lateness.note(Duration::from_millis(late), now, timing);
            [now, now + COUNTS_FOR].map(|at| lateness.is_too_late(at))
        };
        assert_eq!(noted(112, &fast), [false, false]);
        assert_eq!(noted(113, &fast), [true, false]);
        assert_eq!(noted(60_000, &Timing::default()), [false, false]);
    }
}
