//! The clock of the failover protocol: it continues while the machine sleeps, and no time service changes its rate.
//!
//! `CLOCK_BOOTTIME` and `CLOCK_MONOTONIC` are slewed by up to 10 % (`tick` of `adjtimex(2)`), and chrony does so by up to 8.3 % by
//! default (`maxslewrate`) on a machine whose time is wrong. A hold that is measured so may outlast the watch that excludes it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bps_protocol::BootTime;
use rustix::time::{ClockId, Timespec, clock_gettime};

const NANOSECONDS: u64 = 1_000_000_000;
/// One part of the time of so many is more than what a usual correction makes of it.
const CORRECTED_PART: u32 = 1_000;

/// How long the machine has slept, as far as it is known. Unit: nanoseconds.
static ASLEEP: AtomicU64 = AtomicU64::new(0);

/// The present moment: the time that the oscillator has counted (`CLOCK_MONOTONIC_RAW`), and the time asleep.
///
/// Never goes back. It has no fixed relation to a clock of the kernel: see [`on_kernel_clock`].
pub fn now() -> BootTime {
    // In this order the difference is never longer than the sleep, however late the second reading is.
    let with_sleep = nanoseconds(ClockId::Boottime);
    let asleep = with_sleep.saturating_sub(nanoseconds(ClockId::Monotonic));
    let asleep = ASLEEP.fetch_max(asleep, Ordering::Relaxed).max(asleep);
    BootTime(nanoseconds(ClockId::MonotonicRaw) + asleep)
}

/// The moment on `CLOCK_BOOTTIME`, for timers of the kernel, as that clock goes now; a moment that has passed is the present one.
///
/// A timer that is set to it is late by as much as the clock is slow meanwhile, 10 % of the time at most. It is a thousandth later in
/// any case: a clock whose frequency is corrected as usual, by 500 millionths at most, would ring just too early each time, and
/// each wake would cost a second one.
pub fn on_kernel_clock(at: BootTime) -> Duration {
    // Read first: whatever delays the second reading makes the timer go off earlier, and not later.
    let kernel = Duration::from_nanos(nanoseconds(ClockId::Boottime));
    let left = at.since(now());
    kernel + left + left / CORRECTED_PART
}

fn nanoseconds(clock: ClockId) -> u64 {
    let Timespec { tv_sec, tv_nsec } = clock_gettime(clock);
    let part = |value: i64| u64::try_from(value).expect("time since the start is not negative");
    part(tv_sec) * NANOSECONDS + part(tv_nsec)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_never_goes_back_and_counts_as_fast_as_the_oscillator() {
        // The first readings find out how long the machine slept, to within what they take.
        for _ in 0..1_000 {
            now();
        }
        let (raw, began) = (nanoseconds(ClockId::MonotonicRaw), now());
        let mut last = began;
        for _ in 0..100_000 {
            let moment = now();
            assert!(last <= moment);
            last = moment;
        }
        let passed = nanoseconds(ClockId::MonotonicRaw) - raw;
        let most = Duration::from_nanos(passed) + Duration::from_millis(1);
        assert!(last.since(began) <= most, "{last:?} {began:?}");
    }

    #[test]
    fn a_moment_lies_as_far_ahead_on_the_kernels_clock() {
        let ahead = Duration::from_secs(1);
        let at = on_kernel_clock(now() + ahead);
        let kernel = Duration::from_nanos(nanoseconds(ClockId::Boottime));
        assert!(at <= kernel + ahead + ahead / CORRECTED_PART, "{at:?} {kernel:?}");
        assert!(on_kernel_clock(BootTime(0)) <= Duration::from_nanos(nanoseconds(ClockId::Boottime)));
    }
}
