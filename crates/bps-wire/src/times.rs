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

/// What the annotation about absences of the API server must hold.
pub(crate) const OUTAGE: &str = "nothing, or a number of seconds from 0 to 3600";
/// The longest absence of the API server that anybody may choose to outlive.
const OUTAGE_MAX: Duration = Duration::from_secs(3_600);

/// The absence of the API server that is outlived, as text for its annotation.
pub fn written_outage(timing: &Timing) -> String {
    timing.outage().as_secs().to_string()
}

/// The absence that the annotation names; `None` if it cannot be read, or nobody may choose it.
pub(crate) fn read_outage(text: &str) -> Option<Duration> {
    let outage = Duration::from_secs(text.parse().ok()?);
    (outage <= OUTAGE_MAX).then_some(outage)
}

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
    fn an_absence_of_the_api_server_is_read_as_it_was_written_and_others_are_refused() {
        for seconds in [0, 90, 3_600] {
            let outage = Duration::from_secs(seconds);
            assert_eq!(read_outage(&written_outage(&Timing::default().outliving(outage))), Some(outage));
        }
        for text in ["", "-1", "3601", "1.5", "60s"] {
            assert_eq!(read_outage(text), None, "{text}");
        }
    }

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
