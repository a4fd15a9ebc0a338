//! How much the standby lacks of the state, as an annotation of the Lease tells it.
//!
//! ```text
//! {"entries":1204,"bytes":73400320,"since":"2026-11-22T03:04:05Z"}
//! {"entries":1,"bytes":0,"since":"2026-11-22T03:04:05Z","reason":"Unreplicable","path":"a/b"}
//! ```
//!
//! Told to people only: nobody decides by it who may act.

use bps_api::StateLag;

/// Longest text that is read. Unit: bytes. Three numbers need less than 128, a reason and a path of 100 bytes as many; a path
/// of which each byte is escaped needs twice as many.
pub const TEXT_MAX_BYTES: usize = 512;

/// What a version of the Lease tells.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Told {
    /// Nothing: the standby is level, or has lacked something for a moment only.
    #[default]
    Nothing,
    /// The standby lacks this.
    Lacks(StateLag),
    /// It cannot be read.
    Unreadable,
}

impl Told {
    /// Reads the annotation. Any text is fine.
    pub fn read(text: Option<&str>) -> Self {
        let Some(text) = text else { return Self::Nothing };
        let read = Some(text).filter(|text| text.len() <= TEXT_MAX_BYTES);
        let read = read.and_then(|text| serde_json::from_str(text).ok());
        match read.filter(is_sound) {
            Some(lag) => Self::Lacks(lag),
            None => Self::Unreadable,
        }
    }

    /// What is told, if anything can be read.
    pub fn lag(self) -> Option<StateLag> {
        match self {
            Self::Lacks(lag) => Some(lag),
            Self::Nothing | Self::Unreadable => None,
        }
    }
}

/// Whether the numbers may be, and the texts stay on their line wherever they are shown.
fn is_sound(StateLag { entries, bytes, since: _, reason, path }: &StateLag) -> bool {
    let has_control =
        |text: &Option<String>| text.as_ref().is_some_and(|text| text.contains(char::is_control));
    *entries >= 0 && *bytes >= 0 && !has_control(reason) && !has_control(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_reason_and_a_path_are_read_unless_they_would_break_a_line() {
        let text = |path: &str| {
            format!(
                r#"{{"entries":1,"bytes":0,"since":"2026-11-22T03:04:05Z","reason":"Unreplicable","path":"{path}"}}"#
            )
        };
        let read = Told::read(Some(&text("a/b"))).lag().expect("a lag");
        assert_eq!((read.reason.as_deref(), read.path.as_deref()), (Some("Unreplicable"), Some("a/b")));
        assert_eq!(Told::read(Some(&text(r"a\nb"))), Told::Unreadable);
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in ".{0,300}") {
            prop_assert_eq!(Told::read(Some(&text)), Told::Unreadable);
        }
    }
}
