//! A Kubernetes uid in a fixed amount of memory, so that a ticket needs no allocation.

use std::fmt;

/// Longest uid a ticket carries.
///
/// Unit: bytes. The API server makes UUIDs of 36 characters; the rest is room for other makers of uids.
pub const UID_MAX_BYTES: usize = 48;

/// The uid of a Pod or of a set: 1 to 48 ASCII letters, digits, `-`, `_` or `.`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Uid {
    bytes: [u8; UID_MAX_BYTES],
    length: u8,
}

/// Why a text is not a uid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a uid has 1 to {UID_MAX_BYTES} letters, digits, '-', '_' or '.'")]
pub struct NotAUid;

impl Uid {
    /// Reads the uid of an object's metadata.
    ///
    /// # Errors
    /// [`NotAUid`] if the text is empty, too long or has other characters.
    pub fn parse(text: &str) -> Result<Self, NotAUid> {
        let mut bytes = [0; UID_MAX_BYTES];
        bytes.get_mut(..text.len()).ok_or(NotAUid)?.copy_from_slice(text.as_bytes());
        Self::from_wire(u8::try_from(text.len()).map_err(|_| NotAUid)?, bytes)
    }

    /// Reads a length and a zero-padded field of a frame.
    ///
    /// # Errors
    /// [`NotAUid`] as for [`Uid::parse`], and if the padding is not zero: one uid has one encoding.
    pub fn from_wire(length: u8, bytes: [u8; UID_MAX_BYTES]) -> Result<Self, NotAUid> {
        let (text, padding) = bytes.split_at_checked(usize::from(length)).ok_or(NotAUid)?;
        let is_uid = !text.is_empty() && text.iter().copied().all(is_uid_byte);
        let is_padded = padding.iter().all(|byte| *byte == 0);
        if is_uid && is_padded { Ok(Self { bytes, length }) } else { Err(NotAUid) }
    }

    /// The length and the zero-padded bytes, as a frame carries them.
    pub fn to_wire(&self) -> (u8, [u8; UID_MAX_BYTES]) {
        (self.length, self.bytes)
    }

    /// The uid as text.
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.bytes[..usize::from(self.length)]).expect("a uid is ASCII")
    }
}

impl fmt::Display for Uid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for Uid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Uid({})", self.as_str())
    }
}

const fn is_uid_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uuid_is_read_and_shown_unchanged() {
        let text = "3e0d6f0c-2b57-4b9b-8f43-52a2c6a0f6d1";
        assert_eq!(Uid::parse(text).unwrap().to_string(), text);
    }

    #[test]
    fn empty_long_and_foreign_texts_are_no_uids() {
        for text in ["", "a b", "\u{e4}", "a\n", "a\"b", &"x".repeat(UID_MAX_BYTES + 1), &"x".repeat(300)] {
            assert_eq!(Uid::parse(text), Err(NotAUid), "{text:?}");
        }
        assert!(Uid::parse(&"x".repeat(UID_MAX_BYTES)).is_ok());
    }

    #[test]
    fn padding_that_is_not_zero_is_refused() {
        let (length, mut bytes) = Uid::parse("web-0").unwrap().to_wire();
        bytes[UID_MAX_BYTES - 1] = b'x';
        assert_eq!(Uid::from_wire(length, bytes), Err(NotAUid));
        assert_eq!(Uid::from_wire(u8::MAX, bytes), Err(NotAUid));
    }
}
