//! Decides what a candidate does about the Lease it last saw.
//!
//! Never asks a clock or the API server: everything needed is in the arguments.

use std::time::Duration;

use jiff::Timestamp;
use tokio::time::Instant;

/// What a Lease says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Identity of the holder; empty when released.
    pub holder: String,
    /// How long others wait after the last change.
    pub duration: Duration,
    /// When the holder acquired it, by the holder's wall clock; for people only.
    pub acquired: Option<Timestamp>,
    /// When the holder renewed it, by the holder's wall clock; only whether it changes matters.
    pub renewed: Option<Timestamp>,
    /// How often the holder changed.
    pub transitions: i32,
}

/// What a candidate knows about the Lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Observation {
    /// The last record seen; kept when the object is deleted, because its holder may still lead.
    pub record: Option<Record>,
    /// Whether the object existed when last looked at.
    pub exists: bool,
    /// When the record was first seen as it is now, by the local monotonic clock.
    pub since: Instant,
}

/// What a candidate does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Create the Lease.
    Create,
    /// Replace the Lease: we hold it already.
    Renew,
    /// Replace the Lease: it is released or expired.
    TakeOver,
    /// Leave it alone: somebody else may lead until then, and longer if the record changes.
    Wait {
        /// The earliest time at which it can be taken.
        until: Instant,
    },
}

impl Observation {
    /// Nothing has been seen yet.
    pub fn nothing(now: Instant) -> Self {
        Self { record: None, exists: false, since: now }
    }

    /// Takes in what was just read; `now` must be taken after the answer arrived.
    pub fn update(&mut self, read: Option<Record>, now: Instant) {
        self.exists = read.is_some();
        // A deleted Lease ends nobody's leadership: what its holder was promised still counts.
        if read.is_some() && read != self.record {
            self.record = read;
            self.since = now;
        }
    }
}

/// What the candidate `identity` does about `seen` at `now`.
pub fn decide(seen: &Observation, identity: &str, now: Instant) -> Decision {
    if let Some(record) = &seen.record {
        let until = seen.since + record.duration;
        let is_other = !record.holder.is_empty() && record.holder != identity;
        if is_other && now < until {
            return Decision::Wait { until };
        }
    }
    let is_ours = seen.record.as_ref().is_some_and(|record| record.holder == identity);
    match (seen.exists, is_ours) {
        (false, _) => Decision::Create,
        (true, true) => Decision::Renew,
        (true, false) => Decision::TakeOver,
    }
}

/// The record that `identity` writes for `duration` when it creates, renews or takes over; `now` is wall-clock time.
///
/// The number of transitions never falls, not even when the Lease was deleted in between.
pub fn claim(before: Option<&Record>, now: Timestamp, (identity, duration): (&str, Duration)) -> Record {
    let (acquired, transitions) = match before {
        Some(record) if record.holder == identity => (record.acquired.or(Some(now)), record.transitions),
        Some(record) => (Some(now), record.transitions.saturating_add(1)),
        None => (Some(now), 0),
    };
    Record { holder: identity.to_owned(), duration, acquired, renewed: Some(now), transitions }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TERM: Duration = Duration::from_secs(15);

    fn held_by(holder: &str) -> Record {
        let time = Some(Timestamp::UNIX_EPOCH);
        Record { holder: holder.to_owned(), duration: TERM, acquired: time, renewed: time, transitions: 3 }
    }

    #[tokio::test(start_paused = true)]
    async fn decisions_follow_the_table() {
        let since = Instant::now();
        let seconds = |seconds: u64| since + Duration::from_secs(seconds);
        let wait = Decision::Wait { until: seconds(15) };
        let almost = seconds(15) - Duration::from_nanos(1);
        // record, exists, now, decision, why
        let table = [
            (None, false, seconds(0), Decision::Create, "the first ever creates it"),
            (Some("me"), true, seconds(1), Decision::Renew, "ours is renewed"),
            (
                Some("me"),
                true,
                seconds(99),
                Decision::Renew,
                "ours, even when late: the write is what decides",
            ),
            (Some("me"), false, seconds(1), Decision::Create, "ours was deleted"),
            (Some("other"), true, seconds(0), wait, "held"),
            (Some("other"), true, almost, wait, "held to the last moment"),
            (Some("other"), true, seconds(15), Decision::TakeOver, "expired"),
            (Some("other"), false, almost, wait, "deleted, but its holder may still lead"),
            (Some("other"), false, seconds(15), Decision::Create, "deleted and expired"),
            (Some(""), true, seconds(0), Decision::TakeOver, "released"),
            (Some(""), false, seconds(0), Decision::Create, "released and deleted"),
        ];
        for (holder, exists, now, expected, why) in table {
            let seen = Observation { record: holder.map(held_by), exists, since };
            assert_eq!(decide(&seen, "me", now), expected, "{why}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn only_a_changed_record_restarts_the_wait() {
        let start = Instant::now();
        let later = start + Duration::from_secs(5);
        let mut seen = Observation::nothing(start);

        seen.update(Some(held_by("other")), start);
        seen.update(Some(held_by("other")), later);
        assert_eq!(seen, Observation { record: Some(held_by("other")), exists: true, since: start });

        seen.update(None, later);
        assert_eq!(seen, Observation { record: Some(held_by("other")), exists: false, since: start });

        let renewed = Record { renewed: Some(Timestamp::MAX), ..held_by("other") };
        seen.update(Some(renewed.clone()), later);
        assert_eq!(seen, Observation { record: Some(renewed), exists: true, since: later });
    }

    #[test]
    fn a_claim_counts_changes_of_the_holder_and_nothing_else() {
        let now = Timestamp::from_second(1_000).unwrap();
        let claim = |before: Option<Record>| claim(before.as_ref(), now, ("me", TERM));
        let ours = |acquired, transitions| Record {
            holder: "me".to_owned(),
            duration: TERM,
            acquired: Some(acquired),
            renewed: Some(now),
            transitions,
        };
        assert_eq!(claim(None), ours(now, 0));
        assert_eq!(claim(Some(held_by("me"))), ours(Timestamp::UNIX_EPOCH, 3));
        assert_eq!(claim(Some(held_by("other"))), ours(now, 4));
        assert_eq!(claim(Some(held_by(""))), ours(now, 4));
    }
}
