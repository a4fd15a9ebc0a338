//! Folds events that repeat: one object whose `series` counts, in place of one object each time.
//!
//! The rules are those of Kubernetes' own recorder (client-go 0.36, `tools/events`), but for two: an event is the same one only if
//! its sentence is, because the sentence names what people look for; and a count that grew is written once a minute.

use std::collections::HashMap;

use bps_core::status::EventText;
use jiff::{SignedDuration, Timestamp};

/// How long after the last one an event that comes again is a new one. 6 min, as in client-go.
const ENDS_AFTER: SignedDuration = SignedDuration::from_mins(6);

/// How often the count of a series is written at most. 60 s: as often as a refused write is tried at least.
const WRITTEN_EVERY: SignedDuration = SignedDuration::from_secs(60);

/// Most events whose repetitions are counted; further ones are written one by one. 1,024 take 1.5 MiB at most with sentences of ordinary length.
const EVENTS_MAX: usize = 1_024;

/// What tells an event from others.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct EventKey {
    /// Namespace of the object that it is about.
    pub(super) namespace: Option<String>,
    /// Its uid.
    pub(super) uid: Option<String>,
    /// What it says.
    pub(super) text: EventText,
}

/// What is to be written of an event.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Writing {
    /// An object of this name.
    Object(String),
    /// The count of a series.
    Count(Tally),
    /// Nothing yet.
    Nothing,
}

/// How often an event came.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Tally {
    /// Name of its object.
    pub(super) name: String,
    /// Since the object was made, and once for that.
    pub(super) times: i32,
    /// When it last came.
    pub(super) last: Timestamp,
}

/// Events of the last minutes.
#[derive(Debug, Default)]
pub(super) struct Series(HashMap<EventKey, Entry>);

#[derive(Debug)]
struct Entry {
    name: String,
    count: i32,
    seen: Timestamp,
    /// When the count was last written, and what it was.
    written: Timestamp,
    written_count: i32,
}

impl Entry {
    fn write(&mut self, now: Timestamp) -> Tally {
        (self.written, self.written_count) = (now, self.count);
        Tally { name: self.name.clone(), times: self.count, last: self.seen }
    }
}

impl Series {
    /// Counts an event; `name` is for its object if it is a new one.
    pub(super) fn count(&mut self, key: &EventKey, now: Timestamp, name: String) -> Writing {
        self.0.retain(|_, entry| now.duration_since(entry.seen) < ENDS_AFTER);
        let Some(entry) = self.0.get_mut(key) else {
            if self.0.len() < EVENTS_MAX {
                let entry = Entry { name: name.clone(), count: 1, seen: now, written: now, written_count: 1 };
                self.0.insert(key.clone(), entry);
            }
            return Writing::Object(name);
        };
        entry.count = entry.count.saturating_add(1);
        entry.seen = now;
        // The first repetition is news.
        if entry.count > 2 && now.duration_since(entry.written) < WRITTEN_EVERY {
            return Writing::Nothing;
        }
        Writing::Count(entry.write(now))
    }

    /// Counts that grew after they were last written, a minute or longer ago.
    pub(super) fn due(&mut self, now: Timestamp) -> Vec<(EventKey, Tally)> {
        let is_due = |entry: &Entry| {
            entry.count > entry.written_count && now.duration_since(entry.written) >= WRITTEN_EVERY
        };
        let due = self.0.iter_mut().filter(|(_, entry)| is_due(entry));
        due.map(|(key, entry)| (key.clone(), entry.write(now))).collect()
    }

    /// The object is not there: the next event of this kind is a new one.
    pub(super) fn forget(&mut self, key: &EventKey) {
        self.0.remove(key);
    }
}

#[cfg(test)]
mod tests {
    use bps_core::status::EventType;

    use super::*;

    fn key(note: &str) -> EventKey {
        let text = EventText {
            type_: EventType::Warning,
            reason: "QuotaExceeded",
            action: "Create web-1".into(),
            note: note.into(),
        };
        EventKey { namespace: Some("shop".into()), uid: Some("set-uid".into()), text }
    }

    fn at(seconds: i64) -> Timestamp {
        Timestamp::UNIX_EPOCH + SignedDuration::from_secs(seconds)
    }

    #[test]
    fn what_repeats_is_counted_and_the_count_is_written_once_a_minute() {
        let mut series = Series::default();
        let mut told = |note, seconds| match series.count(&key(note), at(seconds), format!("at-{seconds}")) {
            Writing::Object(name) => name,
            Writing::Count(Tally { name, times, .. }) => format!("{name} x{times}"),
            Writing::Nothing => String::new(),
        };
        let said = [0, 1, 2, 60, 61, 120, 479].map(|seconds| told("full", seconds));
        assert_eq!(said, ["at-0", "at-0 x2", "", "", "at-0 x5", "", "at-0 x7"]);
        assert_eq!(told("another sentence", 480), "at-480");
        assert_eq!(told("full", 479 + 360), "at-839", "the series is over");
    }

    #[test]
    fn the_last_count_of_a_burst_is_written_a_minute_later() {
        let mut series = Series::default();
        for second in 0..10 {
            drop(series.count(&key("full"), at(second), "one".into()));
        }
        let mut due =
            |seconds| series.due(at(seconds)).into_iter().map(|(_, count)| count).collect::<Vec<_>>();
        assert_eq!(due(60), [], "the second one was written a minute ago less a second");
        assert_eq!(due(61), [Tally { name: "one".into(), times: 10, last: at(9) }]);
        assert_eq!(due(600), [], "it is written");
    }

    #[test]
    fn what_is_not_there_any_more_is_written_anew() {
        let mut series = Series::default();
        let mut count = |name: &str| series.count(&key("full"), at(0), name.into());
        assert_eq!(count("one"), Writing::Object("one".into()));
        assert_eq!(count("two"), Writing::Count(Tally { name: "one".into(), times: 2, last: at(0) }));
        series.forget(&key("full"));
        assert_eq!(series.count(&key("full"), at(1), "three".into()), Writing::Object("three".into()));
    }

    #[test]
    fn no_more_events_are_remembered_than_fit() {
        let mut series = Series::default();
        for number in 0..2 * EVENTS_MAX {
            let name = number.to_string();
            assert_eq!(series.count(&key(&name), at(0), name.clone()), Writing::Object(name));
        }
        assert_eq!(series.0.len(), EVENTS_MAX);
        let last = (2 * EVENTS_MAX - 1).to_string();
        assert_eq!(series.count(&key(&last), at(1), "again".into()), Writing::Object("again".into()));
    }
}
