//! When the loop is woken next, and whether the machine wakes it as soon as fast times need it.
//!
//! Pure.

use std::time::Duration;

use bps_protocol::{BootTime, Timing};

/// How long a late wake counts. 60 s: a machine that is busy now and then is late again.
const COUNTS_FOR: Duration = Duration::from_secs(60);
/// A wake is late for fast times by one part of a hold of so many. 4: half of a hold is left for a promise
/// that is lost as well.
const PARTS: u32 = 4;
/// An alarm that is late by one part of the watch of so many is logged and counted. 4, which is 500 ms by
/// default: longer than the time between two requests for a promise, and less than what makes a standby take
/// over.
const LATE_PART: u32 = 4;

/// When the loop is woken, and how late it was.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Timetable {
    /// When the protocol has something to do next.
    wake_at: BootTime,
    /// What the alarm is set to.
    rings_at: BootTime,
    /// Until then a late wake counts.
    counts_until: BootTime,
}

impl Timetable {
    /// Notes when the protocol has something to do next.
    pub(super) fn wake_at(&mut self, at: BootTime) {
        self.wake_at = at;
    }

    /// Sets the alarm to the first moment at which the protocol or one of the others has something to do, and
    /// not to the past. Returns it.
    pub(super) fn next_ring(&mut self, now: BootTime, others: [Option<BootTime>; 2]) -> BootTime {
        self.rings_at = others.into_iter().flatten().fold(self.wake_at, BootTime::min).max(now);
        self.rings_at
    }

    /// Notes that the alarm rang. Returns how late it was, if that is to be logged.
    pub(super) fn rung(&mut self, now: BootTime, timing: &Timing) -> Option<Duration> {
        let late = now.since(self.rings_at);
        if is_fast(timing) && late >= timing.hold / PARTS {
            self.counts_until = now + COUNTS_FOR;
        }
        Some(late).filter(|late| *late >= timing.watch / LATE_PART)
    }

    /// Whether promises between the agents come too late; never where they have as long as writes.
    pub(super) fn is_too_late(&self, now: BootTime) -> bool {
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

    /// A timetable whose alarm rang this many milliseconds late, and the report of that.
    fn late_by(milliseconds: u64, timing: &Timing) -> (Timetable, Option<Duration>) {
        let mut timetable = Timetable::default();
        let rings_at = timetable.next_ring(BootTime(7), [None; 2]);
        let told = timetable.rung(rings_at + Duration::from_millis(milliseconds), timing);
        (timetable, told)
    }

    #[test]
    fn a_wake_counts_for_a_minute_if_it_is_late_for_fast_times() {
        let fast = Timing::fast();
        let noted = |late, timing: &Timing| {
            let (timetable, _) = late_by(late, timing);
            let now = BootTime(7) + Duration::from_millis(late);
            [now, now + COUNTS_FOR].map(|at| timetable.is_too_late(at))
        };
        assert_eq!(noted(112, &fast), [false, false]);
        assert_eq!(noted(113, &fast), [true, false]);
        assert_eq!(noted(60_000, &Timing::default()), [false, false]);
    }

    #[test]
    fn a_wake_is_reported_if_it_is_late_by_a_part_of_the_watch() {
        let timing = Timing::default();
        let least = u64::try_from((timing.watch / LATE_PART).as_millis()).unwrap();
        assert_eq!(late_by(least - 1, &timing).1, None);
        assert_eq!(late_by(least, &timing).1, Some(Duration::from_millis(least)));
    }

    #[test]
    fn the_alarm_rings_for_what_is_due_first_and_never_in_the_past() {
        let mut timetable = Timetable::default();
        timetable.wake_at(BootTime(20));
        let mut next = |now, others: [Option<u64>; 2]| {
            timetable.next_ring(BootTime(now), others.map(|at| at.map(BootTime))).0
        };
        assert_eq!(next(5, [None, None]), 20);
        assert_eq!(next(5, [Some(30), None]), 20);
        assert_eq!(next(5, [Some(30), Some(10)]), 10);
        assert_eq!([next(15, [Some(10), None]), next(25, [None, None])], [15, 25], "it is past");
    }
}
