//! The gate's log: one JSON line on the standard error for each thing that an operator of a cluster may ask about.
//!
//! No ticket, signature or foreign text is written: every value is a number, an address, a checked uid or a word
//! of this crate, so nothing needs escaping.

use std::fmt;
use std::io::Write as _;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use super::budget::Budget;
use super::protocol::{Refusal, Ticket};
use super::uid::Uid;

/// Lines about refusals. A flood must not fill the node's disk.
const REFUSALS_PER_SECOND: u32 = 1;
const REFUSALS_BURST: u32 = 5;

/// Writes the lines of one gate.
#[derive(Debug)]
pub(super) struct Journal {
    pod: Uid,
    refusals: Budget,
    suppressed: u64,
}

impl Journal {
    pub(super) fn new(pod: Uid, now: Instant) -> Self {
        Self { pod, refusals: Budget::new(REFUSALS_PER_SECOND, REFUSALS_BURST, now), suppressed: 0 }
    }

    pub(super) fn started_waiting(&self, address: SocketAddr) {
        self.write("info", "Started waiting", format_args!(r#""address":"{address}""#));
    }

    pub(super) fn passed(&self) {
        self.write("info", "Passed, woken before", format_args!(r#""outcome":"woken""#));
    }

    pub(super) fn woken(&self, ticket: &Ticket, waited: Duration) {
        let Ticket { pod: _, set, epoch, expiry: _, key } = ticket;
        let elapsed = waited.as_millis();
        let fields = format_args!(r#""set":"{set}","attempt":{epoch},"key":"{key}","elapsed_ms":{elapsed}"#);
        self.write("info", "Woken", fields);
    }

    pub(super) fn refused(&mut self, source: SocketAddr, refusal: Refusal, now: Instant) {
        if self.refusals.take(now) {
            let (reason, suppressed) = (refusal.as_str(), self.suppressed);
            let fields =
                format_args!(r#""reason":"{reason}","address":"{source}","suppressed":{suppressed}"#);
            self.write("warn", "Refused a wake-up", fields);
            self.suppressed = 0;
        } else {
            self.suppressed = self.suppressed.saturating_add(1);
        }
    }

    fn write(&self, level: &str, message: &str, fields: fmt::Arguments<'_>) {
        let line = line(self.pod, level, message, fields);
        // A gate whose log cannot be written must still open.
        let _ = std::io::stderr().write_all(line.as_bytes());
    }
}

fn line(pod: Uid, level: &str, message: &str, fields: fmt::Arguments<'_>) -> String {
    format!("{{\"level\":\"{level}\",\"message\":\"{message}\",\"pod\":\"{pod}\",{fields}}}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_one_json_object() {
        let pod = Uid::parse("pod").unwrap();
        let line = line(pod, "warn", "Refused a wake-up", format_args!(r#""reason":"Busy","suppressed":7"#));
        assert!(line.ends_with("}\n") && line.matches('\n').count() == 1);
        let value: serde_json::Value = serde_json::from_str(&line).unwrap();
        let expected = serde_json::json!({
            "level": "warn", "message": "Refused a wake-up", "pod": "pod", "reason": "Busy", "suppressed": 7
        });
        assert_eq!(value, expected);
    }
}
