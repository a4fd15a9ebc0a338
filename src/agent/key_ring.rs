//! The secret keys of a group: one that signs, and at most one more that is accepted while keys are changed.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;
use tokio::sync::watch;
use tokio::time::sleep;
use tracing::warn;
use zeroize::Zeroizing;

use crate::runtime::shutdown::Shutdown;
use crate::runtime::tasks::TaskError;

/// Fewest bytes of a key. Source: the length of the tag that it makes; a longer key adds nothing.
pub const KEY_BYTES_MIN: usize = 32;

/// Most keys at a time: the current one and the next.
pub const KEYS_MAX: usize = 2;

/// Length of what a key makes of a message. Unit: bytes.
pub const TAG_BYTES: usize = 32;

/// How often the file is read again. 10 s: the kubelet itself takes up to a minute to show a changed Secret.
const READ_EVERY: Duration = Duration::from_secs(10);

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
    /// The file cannot be read.
    #[error("read the key file {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the operating system said.
        #[source]
        source: io::Error,
    },
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
    /// Reads the keys from a file, see [`KeyRing::parse`].
    ///
    /// # Errors
    /// See [`enum@Error`].
    pub fn read(path: &Path) -> Result<Self, Error> {
        let text =
            std::fs::read_to_string(path).map_err(|source| Error::Read { path: path.to_owned(), source })?;
        Self::parse(&Zeroizing::new(text))
    }

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

    /// The tag of a message; `domain` separates uses of the same key.
    pub(super) fn tag(&self, domain: &[u8], signed: &[u8]) -> [u8; TAG_BYTES] {
        signing(&self.current, domain, signed).finalize().into_bytes().into()
    }

    /// Whether one of the keys made the tag. In constant time: the time must not tell how much of a guessed tag was
    /// right.
    pub(super) fn is_tagged(&self, domain: &[u8], signed: &[u8], tag: &[u8]) -> bool {
        let is_made_by = |key| signing(key, domain, signed).verify_slice(tag).is_ok();
        is_made_by(&self.current) || self.other.as_ref().is_some_and(is_made_by)
    }
}

fn signing(key: &Hmac<Sha256>, domain: &[u8], signed: &[u8]) -> Hmac<Sha256> {
    key.clone().chain_update(domain).chain_update(signed)
}

/// Reads the file again and again, and keeps the keys that it had while the file is wrong.
///
/// # Errors
/// None: without new keys the old ones still protect what they protected.
pub async fn follow(
    file: PathBuf,
    keys: watch::Sender<KeyRing>,
    shutdown: Shutdown,
) -> Result<(), TaskError> {
    let mut is_wrong = false;
    loop {
        tokio::select! {
            // Nothing is worth reading once the process stops.
            biased;
            () = shutdown.requested() => return Ok(()),
            () = sleep(READ_EVERY) => {}
        }
        let path = file.clone();
        // A disk may be slow, and the agent's loop shares this thread.
        match tokio::task::spawn_blocking(move || KeyRing::read(&path)).await? {
            Ok(read) => {
                is_wrong = false;
                keys.send_replace(read);
            }
            Err(error) if !is_wrong => {
                is_wrong = true;
                warn!(error = &error as &dyn std::error::Error, "Kept the keys: could not read new ones");
            }
            Err(_) => {}
        }
    }
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

    #[tokio::test(start_paused = true)]
    async fn new_keys_are_taken_and_a_broken_file_changes_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("keys");
        let (one, two) = ("0f".repeat(32), "a0".repeat(32));
        let (sender, mut keys) = watch::channel(KeyRing::parse(&one).unwrap());
        let shutdown = Shutdown::new();
        std::fs::write(&file, format!("{one}\n{two}")).unwrap();
        let followed = tokio::spawn(follow(file.clone(), sender, shutdown.clone()));
        keys.changed().await.unwrap();
        assert!(keys.borrow_and_update().other.is_some());

        std::fs::write(&file, "").unwrap();
        sleep(3 * READ_EVERY).await;
        assert!(!keys.has_changed().unwrap());
        shutdown.request();
        followed.await.unwrap().unwrap();
    }

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
