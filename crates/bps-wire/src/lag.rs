//! How much the standby lacks of the state, as an annotation of the Lease tells it.
//!
//! ```text
//! {"entries":1204,"bytes":73400320,"since":"2026-11-22T03:04:05Z"}
//! ```
//!
//! Told to people only: nobody decides by it who may act.

use bps_api::StateLag;

/// Longest text that is read. Unit: bytes. Three numbers need less than 128.
pub const TEXT_MAX_BYTES: usize = 256;

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
        match read.filter(|lag: &StateLag| lag.entries >= 0 && lag.bytes >= 0) {
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in ".{0,300}") {
            prop_assert_eq!(Told::read(Some(&text)), Told::Unreadable);
        }
    }
}
