//! How the application of a pair ends again and again, as an annotation of the Lease tells it.
//!
//! ```text
//! {"epoch":8589934593,"pod":"web-1","ends":4,"exitCode":1}
//! ```
//!
//! Told to people only: nobody decides by it who may act. It counts for the tenure of its epoch, as agents of an earlier version
//! do not take it away.

use bps_api::CrashLoop;
use bps_protocol::Epoch;
use serde::{Deserialize, Serialize};

/// Longest text that is read. Unit: bytes. The name of a Pod has 253 at most, the rest less than 64.
const TEXT_MAX_BYTES: usize = 512;

/// What an annotation tells.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToldCrashLoop {
    /// The tenure in which that was so, as a number.
    pub epoch: u64,
    /// How it was.
    #[serde(flatten)]
    pub crash_loop: CrashLoop,
}

impl ToldCrashLoop {
    /// What is told of the tenure of this epoch.
    pub fn of(self, epoch: Epoch) -> Option<CrashLoop> {
        (self.epoch == u64::from(epoch)).then_some(self.crash_loop)
    }
}

/// Writes the annotation; `None` if it would be longer than what is read.
pub fn text(told: &ToldCrashLoop) -> Option<String> {
    serde_json::to_string(told).ok().filter(|text| text.len() <= TEXT_MAX_BYTES)
}

/// Reads the annotation; `None` if it tells nothing that makes sense.
pub fn read(text: &str) -> Option<ToldCrashLoop> {
    let read = Some(text).filter(|text| text.len() <= TEXT_MAX_BYTES)?;
    let told: ToldCrashLoop = serde_json::from_str(read).ok()?;
    let CrashLoop { pod, ends, exit_code } = &told.crash_loop;
    let is_name =
        |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit() || "-.".contains(letter);
    // It is shown to people, and any Pod of the group may have written it.
    let makes_sense = *ends > 0 && (0..=255).contains(exit_code) && pod.chars().all(is_name);
    makes_sense.then_some(told)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_is_written_is_read_and_what_makes_no_sense_is_not() {
        let epoch = Epoch { term: 2, sequence: 1 };
        let told = |pod: &str, ends, exit_code| ToldCrashLoop {
            epoch: epoch.into(),
            crash_loop: CrashLoop { pod: pod.into(), ends, exit_code },
        };
        let good = told("web-1", 4, 137);
        assert_eq!(text(&good).as_deref().and_then(read), Some(good.clone()));
        let written = r#"{"epoch":8589934593,"pod":"web-1","ends":4,"exitCode":137}"#;
        assert_eq!(text(&good).as_deref(), Some(written));
        for wrong in [told("web-1", 0, 1), told("web-1", 4, 256), told("run this: x", 4, 1)] {
            assert_eq!(text(&wrong).as_deref().and_then(read), None);
        }
        assert_eq!(text(&told(&"x".repeat(500), 4, 1)), None);
        assert_eq!(good.clone().of(epoch), Some(good.crash_loop.clone()));
        assert_eq!(good.of(Epoch { term: 3, sequence: 0 }), None, "of another tenure");
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_left_out(text in ".{0,600}") {
            prop_assert_eq!(read(&text), None);
        }
    }
}
