//! How the application of a pair ends again and again, as an annotation of the Lease tells it.
//!
//! ```text
//! {"epoch":8589934593,"pod":"web-1","ends":4,"exitCode":1,"lastLines":["no such file: /etc/web"]}
//! ```
//!
//! Told to people only: nobody decides by it who may act. It counts for the tenure of its epoch, as agents of an earlier version
//! do not take it away.

use bps_api::CrashLoop;
use bps_protocol::Epoch;
use serde::{Deserialize, Serialize};

/// Longest text that is read. Unit: bytes. The name of a Pod has 253 at most, three lines of letters of up to 4 bytes 1,440, and the
/// rest less than 128.
const TEXT_MAX_BYTES: usize = 2_048;

/// Most lines of an application's output that are told.
pub const LINES_MAX: usize = 3;
/// Most characters of such a line.
pub const LINE_CHARS_MAX: usize = 120;

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
    let CrashLoop { pod, ends, exit_code, last_lines } = &told.crash_loop;
    let is_name =
        |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit() || "-.".contains(letter);
    // It is shown to people, and any Pod of the group may have written it.
    let is_line = |line: &String| line.chars().count() <= LINE_CHARS_MAX && line.chars().all(is_shown);
    let makes_sense = *ends > 0
        && (0..=255).contains(exit_code)
        && pod.chars().all(is_name)
        && last_lines.len() <= LINES_MAX
        && last_lines.iter().all(is_line);
    makes_sense.then_some(told)
}

/// Whether a character of an application's output may be shown as it is: signs of ASCII, letters and digits.
pub fn is_shown(character: char) -> bool {
    matches!(character, ' '..='~') || character.is_alphanumeric()
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
            crash_loop: CrashLoop { pod: pod.into(), ends, exit_code, last_lines: Vec::new() },
        };
        let good = told("web-1", 4, 137);
        assert_eq!(text(&good).as_deref().and_then(read), Some(good.clone()));
        let written = r#"{"epoch":8589934593,"pod":"web-1","ends":4,"exitCode":137}"#;
        assert_eq!(text(&good).as_deref(), Some(written));
        for wrong in [told("web-1", 0, 1), told("web-1", 4, 256), told("run this: x", 4, 1)] {
            assert_eq!(text(&wrong).as_deref().and_then(read), None);
        }
        assert_eq!(text(&told(&"x".repeat(2_000), 4, 1)), None);
        let saying = |lines: &[&str]| {
            let mut told = told("web-1", 4, 1);
            told.crash_loop.last_lines = lines.iter().map(|line| (*line).to_owned()).collect();
            told
        };
        let longest = "\u{1d400}".repeat(LINE_CHARS_MAX);
        for good in [saying(&["no such file: /etc/web", "ends"]), saying(&[longest.as_str(); LINES_MAX])] {
            assert_eq!(text(&good).as_deref().and_then(read), Some(good));
        }
        for wrong in
            [saying(&["1"; 4]), saying(&["\u{202e}"]), saying(&["a\nb"]), saying(&["x".repeat(121).as_str()])]
        {
            assert_eq!(text(&wrong).as_deref().and_then(read), None);
        }
        assert_eq!(good.clone().of(epoch), Some(good.crash_loop.clone()));
        assert_eq!(good.of(Epoch { term: 3, sequence: 0 }), None, "of another tenure");
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_left_out(text in ".{0,2100}") {
            prop_assert_eq!(read(&text), None);
        }
    }
}
