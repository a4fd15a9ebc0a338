//! The instant of an event on both clocks that a measurement may be compared with.

use std::time::Duration;

use jiff::Timestamp;
use rustix::time::{ClockId, clock_gettime};
use serde::{Serialize, Serializer};

/// One moment, as both clocks of the machine show it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Instant {
    /// The wall clock, as timestamps in Kubernetes objects and logs use it.
    pub wall: Timestamp,
    /// `CLOCK_MONOTONIC`: never set back, the same for all processes of the machine. Unit: time since boot;
    /// as JSON, nanoseconds.
    #[serde(rename = "monotonicNanoseconds", serialize_with = "as_nanoseconds")]
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

fn as_nanoseconds<S: Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u128(duration.as_nanos())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_clocks_go_forward_together() {
        let (first, second) = (Instant::now(), Instant::now());
        assert!(first.monotonic <= second.monotonic && first.wall <= second.wall);
    }

    #[test]
    fn an_instant_is_written_with_its_units() {
        let instant = Instant { wall: Timestamp::UNIX_EPOCH, monotonic: Duration::from_micros(2) };
        let text = serde_json::to_string(&instant).unwrap();
        assert_eq!(text, r#"{"wall":"1970-01-01T00:00:00Z","monotonicNanoseconds":2000}"#);
    }
}
