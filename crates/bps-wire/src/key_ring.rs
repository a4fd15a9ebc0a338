//! The secret keys of a group: one that signs, and at most one more that is accepted while keys are changed.

use std::fmt;

use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;
use zeroize::Zeroizing;

/// Fewest bytes of a key. Source: the length of the tag that it makes; a longer key adds nothing.
pub const KEY_BYTES_MIN: usize = 32;

/// Most keys at a time: the current one and the next.
pub const KEYS_MAX: usize = 2;

/// Length of what a key makes of a message. Unit: bytes.
pub const TAG_BYTES: usize = 32;

/// Keys of a group.
#[derive(Clone)]
pub struct KeyRing {
    /// The one that signs.
    current: Hmac<Sha256>,
    /// Another one that is accepted.
    other: Option<Hmac<Sha256>>,
}

/// Why there are no keys.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file has no key, or too many.
    #[error("{keys} keys; expected one line for the key that signs, and at most one more for the next key")]
    Count {
        /// How many there are.
        keys: usize,
    },
    /// A line is no key.
    #[error(
        "line {line} is no key; expected at least 64 hexadecimal digits, as `openssl rand -hex 32` prints"
    )]
    Line {
        /// Number of the line among those that are not empty.
        line: usize,
    },
}

impl KeyRing {
    /// One key in each line, hexadecimal: the one that signs, then another one that is accepted.
    ///
    /// To change keys: add the new one as the second line, swap the lines, remove the old one, and let each change reach
    /// every agent before the next.
    ///
    /// # Errors
    /// `Count` or `Line`; no error shows a part of a key.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
        let keys = lines.enumerate().map(|(index, line)| key(line).ok_or(Error::Line { line: index + 1 }));
        let mut keys = keys.collect::<Result<Vec<_>, Error>>()?.into_iter();
        let count = keys.len();
        let current = keys.next().filter(|_| count <= KEYS_MAX).ok_or(Error::Count { keys: count })?;
        Ok(Self { current, other: keys.next() })
    }

    /// Whether a second key is accepted beside the one that signs.
    pub fn has_next(&self) -> bool {
        self.other.is_some()
    }

    /// The tag of a message; `domain` separates uses of the same key.
    pub fn tag(&self, domain: &[u8], signed: &[u8]) -> [u8; TAG_BYTES] {
        signing(&self.current, domain, signed).finalize().into_bytes().into()
    }

    /// Whether one of the keys made the tag. In constant time: the time must not tell how much of a guessed tag was
    /// right.
    pub fn is_tagged(&self, domain: &[u8], signed: &[u8], tag: &[u8]) -> bool {
        let is_made_by = |key| signing(key, domain, signed).verify_slice(tag).is_ok();
        is_made_by(&self.current) || self.other.as_ref().is_some_and(is_made_by)
    }
}

fn signing(key: &Hmac<Sha256>, domain: &[u8], signed: &[u8]) -> Hmac<Sha256> {
    key.clone().chain_update(domain).chain_update(signed)
}

fn key(line: &str) -> Option<Hmac<Sha256>> {
    let digits = line.as_bytes();
    if digits.len() < 2 * KEY_BYTES_MIN || !digits.len().is_multiple_of(2) {
        return None;
    }
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let bytes = digits.chunks_exact(2).map(|pair| Some(digit(pair[0])? << 4 | digit(pair[1])?));
    let bytes = Zeroizing::new(bytes.collect::<Option<Vec<u8>>>()?);
    Hmac::new_from_slice(&bytes).ok()
}

impl fmt::Debug for KeyRing {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("KeyRing")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_or_two_keys_are_taken() {
        let (one, two) = ("0f".repeat(32), "A0".repeat(40));
        assert!(KeyRing::parse(&format!("{one}\n")).unwrap().other.is_none());
        assert!(KeyRing::parse(&format!("\n{one}\r\n {two} \n")).unwrap().other.is_some());
    }

    #[test]
    fn anything_else_is_refused_with_what_is_expected() {
        let key = "0f".repeat(32);
        let table = [
            (String::new(), "0 keys; expected one line"),
            (format!("{key}\n{key}\n{key}"), "3 keys; expected one line"),
            (
                format!("{key}\n{}", "0f".repeat(31)),
                "line 2 is no key; expected at least 64 hexadecimal digits",
            ),
            ("xy".repeat(32), "line 1 is no key"),
            (format!("{key}0"), "line 1 is no key"),
        ];
        for (text, expected) in table {
            let error = KeyRing::parse(&text).expect_err(expected).to_string();
            assert!(error.starts_with(expected), "{error}");
        }
    }
}
