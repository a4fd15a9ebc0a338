//! The clock of the failover protocol, which continues while the machine sleeps.

use bps_protocol::BootTime;
use rustix::time::{ClockId, Timespec, clock_gettime};

const NANOSECONDS: u64 = 1_000_000_000;

/// The present moment.
pub fn now() -> BootTime {
    let Timespec { tv_sec, tv_nsec } = clock_gettime(ClockId::Boottime);
    let part = |value: i64| u64::try_from(value).expect("time since the start is not negative");
    BootTime(part(tv_sec) * NANOSECONDS + part(tv_nsec))
}
