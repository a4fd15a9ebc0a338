//! How often in a row the application ended by itself soon after its start, and when it may be started again.
//!
//! A kubelet that starts a container again and again waits longer each time; of an application under an agent it sees no end.
//! Each agent counts for itself: where the application ends on both sides, both wait, and the pair as a whole waits as long.
//! Why one that acts keeps the role then: `docs/adr/0039-the-role-stays-in-a-crash-loop.md`.

use std::time::Duration;

use bps_protocol::BootTime;
use bps_runtime::backoff::backoff;

use super::CrashLoopSeen;

/// Shortest time between two starts by the same agent, and the pause after the first short life. 1 s: an application that was killed
/// once is started again as soon as that.
pub(super) const PAUSE_MIN: Duration = Duration::from_secs(1);
/// Longest pause, unless the settings say otherwise. 60 s: a dependency that is back is found within that; a kubelet waits up to 300 s.
pub(crate) const PAUSE_MAX: Duration = Duration::from_secs(60);
/// A life that is shorter than this is short. 60 s: the longest pause, so that what lives for longer is never waited for.
const SHORT_LIFE: Duration = Duration::from_secs(60);
/// Beside two of the longest pauses, how long a short life counts. 30 s: where both agents wait in turn, each starts the application
/// after the pauses of both, and it lives for a moment.
const COUNTS_FOR_BESIDE: Duration = Duration::from_secs(30);
/// A life that is shorter than this served no client. 1 s: an application that listens has mostly begun to by then, and one that has
/// served is better followed by the other Pod's at once.
const VAIN_LIFE: Duration = Duration::from_secs(1);
/// So many short lives in a row are a loop. 3: more than a kill and an unlucky start.
const LOOP_FROM: u32 = 3;

/// See the module.
#[derive(Debug)]
pub(super) struct Crashes {
    pause_max: Duration,
    /// When the application was started last.
    last_start: Option<BootTime>,
    /// When what runs was started.
    started: Option<BootTime>,
    /// It was found to work no more, so that its end is its own although it was killed.
    is_dead: bool,
    /// Short lives in a row.
    count: u32,
    /// How many of them, the last ones in a row, were in vain.
    vain: u32,
    /// When the last of them ended.
    last: BootTime,
    /// What it ended with, as a shell reports it; `None` if it could not be started.
    exit_code: Option<u8>,
    /// It has paused in this tenure without a successor: one that is there now may not have tried.
    was_alone: bool,
    /// A loop has gone on, and that was not told yet.
    is_untold: bool,
}

impl Default for Crashes {
    fn default() -> Self {
        let last = BootTime::default();
        Self {
            pause_max: PAUSE_MAX,
            last_start: None,
            started: None,
            is_dead: false,
            count: 0,
            vain: 0,
            last,
            exit_code: None,
            was_alone: false,
            is_untold: false,
        }
    }
}

impl Crashes {
    /// Waits at most so long from then on.
    pub(super) fn limit(&mut self, pause_max: Duration) {
        self.pause_max = pause_max;
    }

    pub(super) fn started(&mut self, now: BootTime) {
        (self.last_start, self.started, self.is_dead) = (Some(now), Some(now), false);
    }

    pub(super) fn found_dead(&mut self) {
        self.is_dead = true;
    }

    /// It has ended, with this code, if it ran; whether it was asked to. Returns whether that was a short life that it ended itself.
    /// What was never started counts for nothing.
    pub(super) fn ended(&mut self, now: BootTime, was_asked: bool, exit_code: Option<u8>) -> bool {
        let Some(started) = self.started.take() else { return false };
        let is_own = !was_asked || self.is_dead;
        if started + SHORT_LIFE <= now {
            (self.count, self.vain) = (0, 0);
            return false;
        }
        if is_own {
            (self.count, self.last) = (self.recent(now).saturating_add(1), now);
            let is_vain = now < started + VAIN_LIFE;
            self.vain = if is_vain { self.vain.saturating_add(1) } else { 0 };
            self.exit_code = exit_code;
            self.is_untold = self.is_loop(now);
        }
        is_own
    }

    /// Whether this side is to start the application again itself instead of the other one. In a loop of lives in vain both have
    /// failed, and each handover costs the API server some ten writes; once pauses are as long as they get, the sides take turns again.
    pub(super) fn stays(&self, now: BootTime) -> bool {
        self.is_loop(now) && self.vain >= LOOP_FROM && self.pause(now) < self.pause_max
    }

    /// Whether a loop has gone on since this was asked last.
    pub(super) fn take_news(&mut self) -> bool {
        std::mem::take(&mut self.is_untold)
    }

    fn recent(&self, now: BootTime) -> u32 {
        if now < self.last + 2 * self.pause_max + COUNTS_FOR_BESIDE { self.count } else { 0 }
    }

    /// Whether a start was ever tried.
    pub(super) fn was_started(&self) -> bool {
        self.last_start.is_some()
    }

    /// When the application may be started again.
    pub(super) fn next_start(&self, now: BootTime) -> BootTime {
        self.last_start.map_or(now, |last| last + self.pause(now))
    }

    /// From the last start to the next one.
    pub(super) fn pause(&self, now: BootTime) -> Duration {
        backoff(PAUSE_MIN, self.recent(now), self.pause_max.max(PAUSE_MIN))
    }

    /// A tenure begins: a successor that is there all the time has tried as well.
    pub(super) fn begin_tenure(&mut self) {
        self.was_alone = false;
    }

    /// Whether a pause is over because there is a successor that was not there in this pause or an earlier one of the tenure. With one
    /// that was there all the time, the two would hand the role to and fro.
    pub(super) fn is_relieved(&mut self, is_pausing: bool, has_successor: bool) -> bool {
        self.was_alone |= is_pausing && !has_successor;
        let is_relieved = is_pausing && has_successor && self.was_alone;
        self.was_alone &= !is_relieved;
        is_relieved
    }

    /// How often in a row it ended soon after its start, if it does so again and again, and what it ended with last.
    pub(super) fn seen(&self, now: BootTime) -> Option<CrashLoopSeen> {
        let Self { exit_code, .. } = *self;
        self.is_loop(now).then(|| CrashLoopSeen { ends: self.recent(now), exit_code })
    }

    /// Whether one more short life is a loop.
    pub(super) fn is_near_loop(&self, now: BootTime) -> bool {
        self.recent(now) + 1 >= LOOP_FROM
    }

    /// Whether it ends again and again soon after its start; not any more once it lives for long.
    pub(super) fn is_loop(&self, now: BootTime) -> bool {
        let lives = self.started.is_some_and(|started| started + SHORT_LIFE <= now);
        !lives && self.recent(now) >= LOOP_FROM
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn at(seconds: u32) -> BootTime {
        BootTime::default() + seconds * SECOND
    }

    /// After lives that began and ended at these seconds.
    fn after(lives: &[[u32; 2]]) -> Crashes {
        let mut crashes = Crashes::default();
        for [start, end] in lives {
            crashes.started(at(*start));
            crashes.ended(at(*end), false, Some(1));
        }
        crashes
    }

    #[test]
    fn pauses_double_with_each_short_life_up_to_a_limit() {
        let lives: Vec<[u32; 2]> = (0..10).map(|second| [second, second]).collect();
        let pauses = |count: usize| after(&lives[..count]).pause(at(10)).as_secs();
        assert_eq!([0, 1, 2, 3, 6, 7, 10].map(pauses), [1, 1, 2, 4, 32, 60, 60]);
        let mut limited = after(&lives);
        limited.limit(SECOND);
        assert_eq!(limited.pause(at(10)), SECOND);
    }

    #[test]
    fn a_start_waits_for_the_pause_since_the_last_one_and_the_first_does_not_wait() {
        let crashes = Crashes::default();
        assert_eq!((crashes.was_started(), crashes.next_start(at(7))), (false, at(7)));
        let crashes = after(&[[0, 1], [5, 6]]);
        assert_eq!((crashes.was_started(), crashes.next_start(at(6))), (true, at(7)));
        assert_eq!(after(&[[5, 70]]).next_start(at(70)), at(6), "it has passed");
    }

    #[test]
    fn the_longest_pause_lasts_however_long_it_is() {
        for seconds in [60, 300] {
            let mut crashes = Crashes::default();
            crashes.limit(seconds * SECOND);
            let mut now = 0;
            // The other agent waits as long in between.
            for _ in 0..20 {
                crashes.started(at(now));
                crashes.ended(at(now + 1), false, Some(1));
                now += 2 * u32::try_from(crashes.pause(at(now)).as_secs()).expect("a short pause");
            }
            assert_eq!(crashes.pause(at(now)), seconds * SECOND);
            assert!(crashes.is_loop(at(now)));
        }
    }

    #[test]
    fn a_loop_is_over_once_a_life_is_long_or_nothing_ended_for_long() {
        let mut crashes = after(&[[0, 1], [2, 3], [6, 7]]);
        assert!(crashes.is_loop(at(7)) && !after(&[[0, 1], [2, 3]]).is_loop(at(7)));
        assert!(after(&[[0, 1], [2, 3]]).is_near_loop(at(7)) && !after(&[[0, 1]]).is_near_loop(at(7)));
        assert_eq!([156, 157].map(|second| crashes.is_loop(at(second))), [true, false]);
        crashes.started(at(20));
        assert_eq!([79, 80].map(|second| crashes.is_loop(at(second))), [true, false]);
        crashes.ended(at(80), false, Some(1));
        assert_eq!((crashes.is_loop(at(81)), crashes.pause(at(81))), (false, SECOND));
    }

    #[test]
    fn a_loop_is_told_with_the_code_of_the_last_end_that_counted() {
        let mut crashes = after(&[[0, 1], [2, 3]]);
        assert_eq!(crashes.seen(at(3)), None);
        crashes.started(at(6));
        crashes.ended(at(7), false, Some(137));
        assert_eq!(crashes.seen(at(7)), Some(CrashLoopSeen { ends: 3, exit_code: Some(137) }));
        crashes.started(at(8));
        crashes.ended(at(9), true, Some(0));
        assert_eq!(
            crashes.seen(at(9)),
            Some(CrashLoopSeen { ends: 3, exit_code: Some(137) }),
            "it was asked"
        );
        crashes.started(at(10));
        crashes.ended(at(10), false, None);
        assert_eq!(crashes.seen(at(10)), Some(CrashLoopSeen { ends: 4, exit_code: None }), "not started");
    }

    #[test]
    fn a_side_in_a_loop_starts_the_application_itself_until_pauses_are_as_long_as_they_get() {
        let lives: Vec<[u32; 2]> = (0..8).map(|second| [second, second]).collect();
        let stays = |count: usize| after(&lives[..count]).stays(at(8));
        assert_eq!([1, 2, 3, 6, 7, 8].map(stays), [false, false, true, true, false, false]);
        let mut limited = after(&lives[..3]);
        limited.limit(4 * SECOND);
        assert!(!limited.stays(at(8)));
        // The other side's begins at once, without a pause.
        assert!(!after(&[[0, 0], [1, 1], [2, 3]]).stays(at(8)), "it may have served");
        assert!(!after(&[[0, 1], [2, 2], [3, 3]]).stays(at(8)));
        assert!(after(&[[0, 1], [2, 2], [3, 3], [4, 4]]).stays(at(8)));
    }

    #[test]
    fn each_further_end_of_a_loop_is_news_once() {
        let mut crashes = after(&[[0, 1], [2, 3]]);
        assert!(!crashes.take_news());
        for life in [[6, 7], [10, 11]] {
            crashes.started(at(life[0]));
            assert!(crashes.ended(at(life[1]), false, Some(1)));
            assert_eq!([crashes.take_news(), crashes.take_news()], [true, false]);
        }
        crashes.started(at(20));
        assert!(!crashes.ended(at(21), true, Some(0)), "it was asked");
        crashes.started(at(30));
        assert!(!crashes.ended(at(90), false, Some(1)), "it has lived for long");
        assert!(!crashes.take_news());
    }

    #[test]
    fn only_a_successor_that_came_in_the_tenure_ends_a_pause() {
        let mut crashes = Crashes::default();
        let mut relieved = |is_pausing, has_successor| crashes.is_relieved(is_pausing, has_successor);
        assert!(!relieved(true, true), "it was there");
        assert!(!relieved(true, false) && relieved(true, true));
        assert!(!relieved(true, true), "once");
        let came_in_between = !relieved(true, false) && !relieved(false, true) && relieved(true, true);
        assert!(came_in_between, "while the application ran");
        crashes.is_relieved(true, false);
        crashes.begin_tenure();
        assert!(!crashes.is_relieved(true, true), "it acted before");
    }

    #[test]
    fn an_end_that_was_asked_for_is_nobody_s_fault_unless_it_was_dead_before() {
        let ended = |was_asked, is_dead| {
            let mut crashes = after(&[[0, 1]]);
            crashes.started(at(2));
            if is_dead {
                crashes.found_dead();
            }
            crashes.ended(at(3), was_asked, Some(1));
            // What was never started.
            crashes.ended(at(4), false, Some(1));
            crashes.pause(at(4)).as_secs()
        };
        assert_eq!([ended(false, false), ended(true, false), ended(true, true)], [2, 1, 2]);
    }
}
