//! The instant of an event on both clocks that a measurement may be compared with.

use std::time::Duration;

use jiff::Timestamp;
use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;

/// One moment, as both clocks of the machine show it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Instant {
    /// The wall clock, as timestamps in Kubernetes objects and logs use it.
    pub wall: Timestamp,
    /// `CLOCK_MONOTONIC`: never set back, the same for all processes of the machine. Unit: since boot.
    pub monotonic: Duration,
}

impl Instant {
    /// The current moment; the two clocks are read within a microsecond of each other.
    pub fn now() -> Self {
        let wall = Timestamp::now();
        let monotonic = clock_gettime(ClockId::Monotonic);
        let monotonic = Duration::try_from(monotonic).expect("CLOCK_MONOTONIC is never negative");
        Self { wall, monotonic }
    }
}
