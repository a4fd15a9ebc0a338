//! How the application of a pair ends again and again, as an annotation of the Lease tells it.
//!
//! ```text
//! {"pod":"web-1","ends":4,"exitCode":1}
//! ```
//!
//! Told to people only: nobody decides by it who may act.

use bps_api::CrashLoop;

/// Longest text that is read. Unit: bytes. The name of a Pod has 253 at most, the rest less than 64.
const TEXT_MAX_BYTES: usize = 512;

/// Writes the annotation; `None` if it would be longer than what is read.
pub fn text(told: &CrashLoop) -> Option<String> {
    serde_json::to_string(told).ok().filter(|text| text.len() <= TEXT_MAX_BYTES)
}

/// Reads the annotation; `None` if it tells nothing that makes sense.
pub fn read(text: &str) -> Option<CrashLoop> {
    let read = Some(text).filter(|text| text.len() <= TEXT_MAX_BYTES)?;
    let told: CrashLoop = serde_json::from_str(read).ok()?;
    let is_name =
        |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit() || "-.".contains(letter);
    // It is shown to people, and any Pod of the group may have written it.
    let makes_sense = told.ends > 0 && (0..=255).contains(&told.exit_code) && told.pod.chars().all(is_name);
    makes_sense.then_some(told)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_is_written_is_read_and_what_makes_no_sense_is_not() {
        let told = CrashLoop { pod: "web-1".into(), ends: 4, exit_code: 137 };
        assert_eq!(text(&told).as_deref().and_then(read), Some(told.clone()));
        assert_eq!(text(&told).as_deref(), Some(r#"{"pod":"web-1","ends":4,"exitCode":137}"#));
        let wrong = [
            CrashLoop { ends: 0, ..told.clone() },
            CrashLoop { exit_code: 256, ..told.clone() },
            CrashLoop { pod: "run this: x".into(), ..told.clone() },
        ];
        for wrong in wrong {
            assert_eq!(text(&wrong).as_deref().and_then(read), None);
        }
        assert_eq!(text(&CrashLoop { pod: "x".repeat(500), ..told }), None);
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_left_out(text in ".{0,600}") {
            prop_assert_eq!(read(&text), None);
        }
    }
}
