//! One round, event by event: what was seen in the cluster, what the operator logged, what a client noticed.
//!
//! Pure.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use crate::app::sample::Sample;
use crate::machine::clock::Instant;
use crate::stage::Act;
use crate::stage::journal::Line;

/// One event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// When, after the beginning of the act.
    pub after: SignedDuration,
    /// Who says so.
    pub source: &'static str,
    /// What.
    pub text: String,
}

/// Everything that is known of an act, in order.
pub fn of_act(title: &str, act: &Act) -> Vec<Entry> {
    let mut entries = vec![Entry { after: SignedDuration::ZERO, source: "bench", text: title.to_owned() }];
    entries.extend(act.moments.iter().map(|moment| Entry {
        after: since(act.began, moment.at),
        source: "watch",
        text: moment.sight.to_string(),
    }));
    entries.extend(act.log.iter().map(|line| Entry {
        after: line.timestamp.duration_since(act.began.wall),
        source: "operator",
        text: describe(line),
    }));
    entries.sort_by_key(|entry| entry.after);
    entries
}

/// What a client noticed of an act: the requests at the edges of trouble.
pub fn of_client(began: Instant, samples: &[Sample]) -> Vec<Entry> {
    let mut entries = Vec::new();
    let mut last: Option<(bool, &str)> = None;
    let mut samples: Vec<&Sample> = samples.iter().collect();
    samples.sort_by_key(|sample| sample.start_ns);
    for sample in samples {
        let state = (sample.is_ok(), sample.pod.as_str());
        if last == Some(state) {
            continue;
        }
        last = Some(state);
        let at = Timestamp::from_nanosecond(i128::from(sample.start_ns)).unwrap_or_default();
        let text = if sample.is_ok() {
            format!("a request is answered by {}", sample.pod)
        } else {
            format!("a request fails: {}", sample.outcome)
        };
        entries.push(Entry { after: at.duration_since(began.wall), source: "client", text });
    }
    entries
}

/// For people.
pub fn print(entries: &[Entry]) -> String {
    let mut sorted = entries.to_vec();
    sorted.sort_by_key(|entry| entry.after);
    let line = |entry: &Entry| {
        format!("  {:>10.1} ms  {:<9} {}\n", entry.after.as_secs_f64() * 1e3, entry.source, entry.text)
    };
    sorted.iter().map(line).collect()
}

fn since(began: Instant, at: Instant) -> SignedDuration {
    SignedDuration::try_from(at.monotonic).unwrap_or_default()
        - SignedDuration::try_from(began.monotonic).unwrap_or_default()
}

fn describe(line: &Line) -> String {
    if line.is_handled() {
        let (steps, status) = (line.steps_ms, line.elapsed_ms);
        return format!(
            "handled ({}): event arrived {status:.1} ms ago, last of {} steps acknowledged {:.1} ms ago",
            line.action,
            line.steps,
            status - steps
        );
    }
    let role = match (line.from.is_empty(), line.role.is_empty()) {
        (false, _) => format!(" {} -> {}", line.from, line.role),
        (true, false) => format!(" {}", line.role),
        (true, true) => String::new(),
    };
    let error = if line.error.is_empty() { String::new() } else { format!(": {}", line.error) };
    let step = format!("{} {}{role} ({})", line.action, line.pod, line.reason);
    format!("{} {step}, took {:.1} ms{error}", line.message, line.elapsed_ms)
}

/// Shifts entries that count from a later moment.
pub fn shifted(mut entries: Vec<Entry>, by: Duration) -> Vec<Entry> {
    let by = SignedDuration::try_from(by).unwrap_or_default();
    for entry in &mut entries {
        entry.after += by;
    }
    entries
}
