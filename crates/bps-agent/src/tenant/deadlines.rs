//! Decides when the application of a pair is promoted, and when it is killed.
//!
//! Pure: a function of requests and moments. See `tenant` for the signals that ask it to end.

use std::time::Duration;

use bps_protocol::BootTime;

use super::lingering::KILLED_BEFORE_MAX;
use crate::application::KILL_PERIOD;

/// One part of the time to stop is for an application that obeys, one for the kernel with one that does not.
const STOP_PARTS: u32 = 2;

/// The deadlines of an application.
#[derive(Debug)]
pub(super) struct Deadlines {
    /// How long before the given end SIGKILL follows the signal that asks the application to end.
    kill_before: Duration,
    /// When the application is killed; `None`: it is not to end.
    kill_at: Option<BootTime>,
    /// When the application was to be killed for another reason before it was asked to end with a tenure.
    killed_anyway_at: Option<BootTime>,
    /// When the application was killed first.
    killed_since: Option<BootTime>,
    /// No application of a tenure is started or promoted before.
    not_before: BootTime,
    /// When an application that runs already is promoted; `None`: it was, or is not to be.
    promote_at: Option<BootTime>,
}

/// The beginning of a tenure.
impl Deadlines {
    /// Begins with an application that does not run; `stop` is how long stopping it may take.
    pub(super) fn new(stop: Duration) -> Self {
        Self {
            kill_before: stop / STOP_PARTS,
            kill_at: None,
            killed_anyway_at: None,
            killed_since: None,
            not_before: BootTime::default(),
            promote_at: None,
        }
    }

    /// Sets how long stopping the application may take.
    pub(super) fn set_stop(&mut self, stop: Duration) {
        self.kill_before = stop / STOP_PARTS;
    }

    /// Sets when the next tenure may begin.
    pub(super) fn wait_until(&mut self, not_before: BootTime) {
        self.not_before = not_before;
    }

    /// When the application may be started that could be started at `next` otherwise.
    pub(super) fn earliest_start(&self, next: BootTime) -> BootTime {
        self.not_before.max(next)
    }

    /// Has the application promoted as soon as its tenure may begin.
    pub(super) fn promote(&mut self) {
        self.promote_at = Some(self.not_before);
    }

    /// Whether to promote the application now; true once.
    pub(super) fn takes_promotion(&mut self, now: BootTime) -> bool {
        self.promote_at.take_if(|at| *at <= now).is_some()
    }

    /// Whether the promotion is still to come.
    pub(super) fn awaits_promotion(&self) -> bool {
        self.promote_at.is_some()
    }
}

/// Requests to end.
impl Deadlines {
    /// Takes all earlier requests back: the application is to run.
    pub(super) fn spare(&mut self) {
        self.kill_at = None;
    }

    /// Ends the tenure: no process may be left at this time. An application that is being killed gets no more
    /// time by that.
    pub(super) fn stop(&mut self, by: BootTime) {
        self.killed_anyway_at = self.kill_at;
        self.kill_no_later_than(self.with_hold(by));
        self.promote_at = None;
    }

    /// Ends the tenure at once.
    pub(super) fn kill(&mut self, now: BootTime) {
        (self.kill_at, self.promote_at) = (Some(now), None);
    }

    /// Moves the end of a tenure that ends to this time. A kill that is due already, or sooner for another
    /// reason, stays so.
    pub(super) fn stop_by(&mut self, now: BootTime, by: BootTime) {
        if self.kill_at.is_some_and(|at| now < at) {
            let with_hold = self.with_hold(by);
            self.kill_at = Some(self.killed_anyway_at.map_or(with_hold, |at| at.min(with_hold)));
        }
    }

    /// Ends a standby: no process may be left at this time.
    pub(super) fn retire(&mut self, by: BootTime) {
        self.kill_at = Some(self.with_hold(by));
    }

    /// Ends an earlier application that was asked to make room for that of a tenure.
    pub(super) fn make_room(&mut self, now: BootTime) {
        self.kill_no_later_than(now + self.kill_before);
    }

    /// Ends an application whose tenure has passed to the peer: no process may be left at this time.
    pub(super) fn end_lingering(&mut self, lingers_until: BootTime) {
        self.kill_no_later_than(lingers_until.before(self.kill_before.min(KILLED_BEFORE_MAX)));
    }

    /// Has the application killed as soon as possible: it is of no use.
    pub(super) fn kill_at_once(&mut self) {
        self.kill_at = Some(BootTime::default());
    }

    fn kill_no_later_than(&mut self, at: BootTime) {
        self.kill_at = Some(self.kill_at.map_or(at, |known| known.min(at)));
    }

    fn with_hold(&self, by: BootTime) -> BootTime {
        by.before(self.kill_before)
    }
}

/// What is due.
impl Deadlines {
    /// Whether the application is to end.
    pub(super) fn is_ending(&self) -> bool {
        self.kill_at.is_some()
    }

    /// When the application is killed; `None`: it is not to end.
    pub(super) fn kill_at(&self) -> Option<BootTime> {
        self.kill_at
    }

    /// Whether the application is to be killed now.
    pub(super) fn is_kill_due(&self, now: BootTime) -> bool {
        self.kill_at.is_some_and(|at| at <= now)
    }

    /// When the application is killed or promoted next.
    pub(super) fn next(&self) -> Option<BootTime> {
        self.kill_at.into_iter().chain(self.promote_at).min()
    }

    /// Notes that all its processes were killed. The kill is repeated: an application may have started more
    /// meanwhile.
    pub(super) fn killed(&mut self, now: BootTime) {
        self.killed_since.get_or_insert(now);
        self.kill_at = Some(now + KILL_PERIOD);
    }

    /// Since when no process is meant to live: they were killed, or `end_seen`, the end of the command, was
    /// detected before.
    pub(super) fn killed_since(&self, end_seen: Option<BootTime>) -> Option<BootTime> {
        self.killed_since.into_iter().chain(end_seen).min()
    }

    /// Whether a process that is not meant to live since then has lived for as long as stopping may take as a
    /// whole.
    pub(super) fn is_overdue(&self, since: BootTime, now: BootTime) -> bool {
        since + STOP_PARTS * self.kill_before <= now
    }

    /// Forgets the application: no process of it is left.
    pub(super) fn end(&mut self) {
        (self.kill_at, self.killed_since, self.promote_at) = (None, None, None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STOP: Duration = Duration::from_millis(200);

    fn at(milliseconds: u64) -> BootTime {
        BootTime(milliseconds * 1_000_000)
    }

    fn killed_at(known: Option<u64>) -> Deadlines {
        Deadlines { kill_at: known.map(at), ..Deadlines::new(STOP) }
    }

    #[test]
    fn what_was_asked_to_end_is_killed_when_its_hold_ends_but_not_later_than_for_another_reason() {
        let moved = |known: Option<u64>, anyway: Option<u64>, by: u64| {
            let mut deadlines = Deadlines { killed_anyway_at: anyway.map(at), ..killed_at(known) };
            deadlines.stop_by(at(500), at(by));
            deadlines.kill_at()
        };
        // Half of what stopping may take comes before the end of the hold.
        assert_eq!(moved(Some(1_000), None, 2_000), Some(at(1_900)), "longer");
        assert_eq!(moved(Some(1_000), None, 900), Some(at(800)), "shorter");
        assert_eq!(moved(Some(500), None, 2_000), Some(at(500)), "it is due");
        assert_eq!(moved(Some(0), None, 2_000), Some(at(0)), "it was to be killed at once");
        assert_eq!(moved(Some(700), Some(700), 2_000), Some(at(700)), "it was to make room");
        assert_eq!(moved(Some(700), Some(900), 2_000), Some(at(900)));
        assert_eq!(moved(None, None, 2_000), None, "it was not asked to end");
    }

    #[test]
    fn a_request_to_end_never_moves_the_kill_back() {
        let asked = |known, ask: fn(&mut Deadlines)| {
            let mut deadlines = killed_at(known);
            ask(&mut deadlines);
            deadlines.kill_at()
        };
        let stop = |deadlines: &mut Deadlines| deadlines.stop(at(2_000));
        assert_eq!([None, Some(1_000)].map(|known| asked(known, stop)), [Some(at(1_900)), Some(at(1_000))]);
        let make_room = |deadlines: &mut Deadlines| deadlines.make_room(at(500));
        assert_eq!([None, Some(550)].map(|known| asked(known, make_room)), [Some(at(600)), Some(at(550))]);
        let end = |deadlines: &mut Deadlines| deadlines.end_lingering(at(9_000));
        assert_eq!([None, Some(7_000)].map(|known| asked(known, end)), [Some(at(8_900)), Some(at(7_000))]);
        assert_eq!(asked(Some(9_000), Deadlines::kill_at_once), Some(at(0)));
        assert_eq!(asked(Some(9_000), Deadlines::spare), None);
    }

    #[test]
    fn what_lingers_has_most_of_its_time_however_long_stopping_may_take() {
        let mut deadlines = Deadlines::new(Duration::from_secs(20));
        deadlines.end_lingering(at(9_000));
        assert_eq!(deadlines.kill_at(), Some(at(8_000)));
    }

    #[test]
    fn a_promotion_is_due_once_and_not_before_its_time_and_never_in_a_tenure_that_ends() {
        let mut deadlines = Deadlines::new(STOP);
        deadlines.wait_until(at(20));
        assert_eq!([10, 30].map(|next| deadlines.earliest_start(at(next))), [at(20), at(30)]);
        deadlines.promote();
        assert_eq!((deadlines.next(), deadlines.awaits_promotion()), (Some(at(20)), true));
        assert_eq!([19, 20, 21].map(|now| deadlines.takes_promotion(at(now))), [false, true, false]);

        for is_killed in [false, true] {
            deadlines.promote();
            if is_killed {
                deadlines.kill(at(5));
            } else {
                deadlines.stop(at(900));
            }
            assert!(!deadlines.takes_promotion(at(20)));
            deadlines.end();
            assert_eq!(deadlines.next(), None);
        }
    }

    #[test]
    fn what_is_killed_is_killed_again_and_is_overdue_after_the_whole_time_to_stop() {
        let mut deadlines = killed_at(Some(100));
        assert_eq!([99, 100].map(|now| deadlines.is_kill_due(at(now))), [false, true]);
        deadlines.killed(at(100));
        deadlines.killed(at(150));
        assert_eq!(deadlines.kill_at(), Some(at(150) + KILL_PERIOD));
        assert_eq!(deadlines.killed_since(None), Some(at(100)));
        assert_eq!(deadlines.killed_since(Some(at(90))), Some(at(90)), "its command had ended before");
        assert_eq!([299, 300].map(|now| deadlines.is_overdue(at(100), at(now))), [false, true]);
        deadlines.end();
        assert_eq!((deadlines.killed_since(None), deadlines.is_ending()), (None, false));
    }
}
