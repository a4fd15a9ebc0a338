//! The times of a pair in its Lease: whoever made the pair wrote them, and nobody changes them.

use std::time::Duration;

use bps_protocol::Timing;
use serde::{Deserialize, Serialize};

/// Times in the annotation. Unit: milliseconds.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct TimesWire {
    hold: u32,
    watch: u32,
    stop: u32,
}

/// What the annotation must hold.
pub(crate) const TIMES: &str = r#"nothing, or JSON such as {"hold":1900,"watch":2000,"stop":200} that keeps the inequalities of the protocol"#;

/// The times as text for the annotation.
pub fn written(timing: &Timing) -> String {
    let milliseconds = |time: Duration| u32::try_from(time.as_millis()).unwrap_or(u32::MAX);
    let wire = TimesWire {
        hold: milliseconds(timing.hold),
        watch: milliseconds(timing.watch),
        stop: milliseconds(timing.stop),
    };
    serde_json::json!(wire).to_string()
}

/// The times that an annotation names; `None` if it cannot be read or they are not safe.
pub(crate) fn read(text: &str) -> Option<Timing> {
    let TimesWire { hold, watch, stop } = serde_json::from_str(text).ok()?;
    let [hold, watch, stop] = [hold, watch, stop].map(|time| Duration::from_millis(time.into()));
    let timing = Timing::with(hold, watch, stop);
    timing.check().is_ok().then_some(timing)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_as_they_were_written_and_unsafe_ones_are_refused() {
        let milliseconds = Duration::from_millis;
        let chosen = Timing::with(milliseconds(5_000), milliseconds(6_000), milliseconds(2_000));
        for timing in [Timing::default(), chosen] {
            assert_eq!(read(&written(&timing)), Some(timing));
        }
        for text in
            ["", "{}", r#"{"hold":2000,"watch":2000,"stop":200}"#, r#"{"hold":1900,"watch":-1,"stop":200}"#]
        {
            assert_eq!(read(text), None, "{text}");
        }
    }
}
