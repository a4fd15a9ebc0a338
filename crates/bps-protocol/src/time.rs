//! Time as the protocol sees it: moments of one machine's own clock, always given and never read.

use std::ops::Add;
use std::time::Duration;

use super::Timing;

/// A moment on a machine's own clock that goes on during suspend and is not slewed (`CLOCK_MONOTONIC_RAW` and the time asleep).
///
/// Unit: nanoseconds since that machine started. Moments of different machines cannot be compared. The default is the
/// beginning of time: an end that is over, whenever it is looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BootTime(pub u64);

impl BootTime {
    /// Time from `earlier` to this moment; zero if it is not earlier.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// The moment that lies this long before it; at the earliest the beginning of time.
    #[must_use]
    pub fn before(self, duration: Duration) -> Self {
        Self(self.0.saturating_sub(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)))
    }
}

impl Add<Duration> for BootTime {
    type Output = Self;

    /// Ends at the last moment there is instead of overflowing, 584 years after the start.
    fn add(self, duration: Duration) -> Self {
        let nanoseconds = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        Self(self.0.saturating_add(nanoseconds))
    }
}

/// When a rule is asked, and by which times.
#[derive(Clone, Copy, Debug)]
pub struct Moment<'a> {
    /// The asker's own clock.
    pub now: BootTime,
    /// The times that all agents and the operator of a group share.
    pub timing: &'a Timing,
}
