//! Ed25519 keys of the cold gate: what signs a ticket, what checks it, and the short id that names a key.
//!
//! Makes no randomness and keeps no keys; see `keys`.

use std::fmt::{self, Write as _};

use ed25519_dalek::Signer as _;
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;
use zeroize::Zeroizing;

/// Length of a private seed and of a public key. Unit: bytes. Source: RFC 8032, section 5.1.5.
pub const KEY_BYTES: usize = 32;

/// Length of a signature. Unit: bytes. Source: RFC 8032, section 5.1.6.
pub const SIGNATURE_BYTES: usize = 64;

/// Length of a key's id. Unit: bytes.
pub const KEY_ID_BYTES: usize = 8;

/// Separates derived keys from everything else that a seed might ever be used for.
const DERIVED_DOMAIN: &[u8] = b"backup.example.com/bps-derived/v1\0";

/// Names a public key: its first eight bytes, written as 16 hex digits.
///
/// An id only selects a key; the signature is what proves anything.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyId(pub [u8; KEY_ID_BYTES]);

/// Why a text is not a key or not the id of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// The text is not the expected number of hex digits.
    #[error("expected {0} hex digits")]
    NotHex(usize),
    /// The bytes are not a point that a sound key can have.
    #[error("not a usable Ed25519 public key")]
    UnusableKey,
    /// The id does not belong to the key beside it.
    #[error("the id does not belong to the key")]
    OtherId,
    /// The text is not `<id>:<public key>`.
    #[error("expected <id>:<public key>")]
    NotAnEntry,
}

impl KeyId {
    /// Reads 16 hex digits.
    ///
    /// # Errors
    /// [`KeyError::NotHex`] for any other text.
    pub fn parse(text: &str) -> Result<Self, KeyError> {
        let mut bytes = [0; KEY_ID_BYTES];
        from_hex(text, &mut bytes)?;
        Ok(Self(bytes))
    }
}

impl fmt::Display for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_hex(f, &self.0)
    }
}

impl fmt::Debug for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KeyId({self})")
    }
}

/// Checks tickets. Public: it is handed to Pods in an environment variable.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct PublicKey(ed25519_dalek::VerifyingKey);

impl PublicKey {
    /// Takes a public key's bytes.
    ///
    /// # Errors
    /// [`KeyError::UnusableKey`] if the bytes are no point of the curve, or one of small order: with such a key
    /// a signature can be made without the private part.
    pub fn from_bytes(bytes: &[u8; KEY_BYTES]) -> Result<Self, KeyError> {
        let key = ed25519_dalek::VerifyingKey::from_bytes(bytes).map_err(|_| KeyError::UnusableKey)?;
        if key.is_weak() { Err(KeyError::UnusableKey) } else { Ok(Self(key)) }
    }

    /// Reads `<id>:<hex public key>`, the form of [`PublicKey`]'s `Display`.
    ///
    /// # Errors
    /// [`KeyError`] says which part is wrong.
    pub fn parse(entry: &str) -> Result<Self, KeyError> {
        let (id, key) = entry.split_once(':').ok_or(KeyError::NotAnEntry)?;
        let id = KeyId::parse(id)?;
        let mut bytes = [0; KEY_BYTES];
        from_hex(key, &mut bytes)?;
        let key = Self::from_bytes(&bytes)?;
        if key.id() == id { Ok(key) } else { Err(KeyError::OtherId) }
    }

    /// The id that names this key in tickets, annotations and logs.
    pub fn id(&self) -> KeyId {
        let mut id = [0; KEY_ID_BYTES];
        id.copy_from_slice(&self.0.as_bytes()[..KEY_ID_BYTES]);
        KeyId(id)
    }

    /// Whether the signature is this key's over the message, by the strict rules: a signature that only some
    /// implementations accept (small order, not reduced) is refused.
    pub fn has_signed(&self, message: &[u8], signature: &[u8; SIGNATURE_BYTES]) -> bool {
        self.0.verify_strict(message, &ed25519_dalek::Signature::from_bytes(signature)).is_ok()
    }
}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.id())?;
        write_hex(f, self.0.as_bytes())
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PublicKey({})", self.id())
    }
}

/// Signs tickets. The private part is wiped when the key is dropped, and is never printed.
#[derive(Clone)]
pub struct SigningKey {
    key: ed25519_dalek::SigningKey,
}

impl SigningKey {
    /// Makes the key of a private seed, 32 bytes from a good source of randomness.
    pub fn from_seed(seed: &[u8; KEY_BYTES]) -> Self {
        Self { key: ed25519_dalek::SigningKey::from_bytes(seed) }
    }

    /// The private seed, to be stored and nothing else; the copy is wiped when it is dropped.
    pub fn seed(&self) -> Zeroizing<[u8; KEY_BYTES]> {
        Zeroizing::new(self.key.to_bytes())
    }

    /// The public part.
    pub fn public(&self) -> PublicKey {
        PublicKey(self.key.verifying_key())
    }

    /// The id of the public part.
    pub fn id(&self) -> KeyId {
        self.public().id()
    }

    /// A key for another purpose as 64 hexadecimal digits: HMAC-SHA256 of the purpose with the private seed.
    ///
    /// It tells nothing about this key, nor about the keys of other purposes.
    pub fn derived(&self, purpose: &[u8]) -> Zeroizing<String> {
        let mac = Hmac::<Sha256>::new_from_slice(&*self.seed()).expect("HMAC takes keys of any length");
        let tag = mac.chain_update(DERIVED_DOMAIN).chain_update(purpose).finalize().into_bytes();
        let mut text = Zeroizing::new(String::with_capacity(2 * tag.len()));
        for byte in tag {
            write!(text, "{byte:02x}").expect("a string takes all");
        }
        text
    }

    /// Signs a message.
    pub fn sign(&self, message: &[u8]) -> [u8; SIGNATURE_BYTES] {
        self.key.sign(message).to_bytes()
    }
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SigningKey({}, private part hidden)", self.id())
    }
}

/// Writes two digits for each byte.
pub(super) fn write_hex(text: &mut impl fmt::Write, bytes: &[u8]) -> fmt::Result {
    bytes.iter().try_for_each(|byte| write!(text, "{byte:02x}"))
}

fn from_hex(text: &str, bytes: &mut [u8]) -> Result<(), KeyError> {
    let wrong = KeyError::NotHex(bytes.len() * 2);
    if text.len() == bytes.len() * 2 { read_hex(text.as_bytes(), bytes).ok_or(wrong) } else { Err(wrong) }
}

/// Reads two digits for each byte; `None` if one is none.
pub(super) fn read_hex(text: &[u8], bytes: &mut [u8]) -> Option<()> {
    for (byte, digits) in bytes.iter_mut().zip(text.chunks_exact(2)) {
        *byte = hex_value(digits[0])? << 4 | hex_value(digits[1])?;
    }
    Some(())
}

/// Lower case only: one key has one text.
const fn hex_value(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_public_key_is_read_back_from_its_text() {
        let key = SigningKey::from_seed(&[7; KEY_BYTES]).public();
        assert_eq!(PublicKey::parse(&key.to_string()), Ok(key));
    }

    #[test]
    fn a_wrong_entry_says_what_is_wrong() {
        let text = SigningKey::from_seed(&[7; KEY_BYTES]).public().to_string();
        let other_id = format!("{}:{}", "0".repeat(16), &text[17..]);
        assert_eq!(PublicKey::parse(&other_id), Err(KeyError::OtherId));
        assert_eq!(PublicKey::parse(&text[..16]), Err(KeyError::NotAnEntry));
        assert_eq!(PublicKey::parse(&text[..60]), Err(KeyError::NotHex(64)));
        assert_eq!(PublicKey::parse(&text[1..]), Err(KeyError::NotHex(16)));
        assert_eq!(PublicKey::parse(&text.to_uppercase()), Err(KeyError::NotHex(16)));
    }

    #[test]
    fn a_key_of_small_order_is_refused() {
        // The neutral element: y = 1. Every message would have a signature.
        let mut neutral = [0; KEY_BYTES];
        neutral[0] = 1;
        assert_eq!(PublicKey::from_bytes(&neutral), Err(KeyError::UnusableKey));
    }

    #[test]
    fn derived_keys_differ_by_purpose_and_by_seed() {
        let derived = |seed, purpose: &str| {
            SigningKey::from_seed(&[seed; KEY_BYTES]).derived(purpose.as_bytes()).to_string()
        };
        let all = [derived(1, "a"), derived(1, "b"), derived(2, "a")];
        assert!(all.iter().all(|key| key.len() == 64 && key.bytes().all(|digit| digit.is_ascii_hexdigit())));
        assert_eq!(all.iter().collect::<std::collections::BTreeSet<_>>().len(), 3);
        assert_eq!(derived(1, "a"), all[0]);
    }

    #[test]
    fn debug_shows_no_private_byte() {
        let seed = [0xa7; KEY_BYTES];
        let shown = format!("{:?}", SigningKey::from_seed(&seed));
        assert!(!shown.contains("a7a7") && !shown.contains("167"), "{shown}");
        assert!(shown.contains("hidden"), "{shown}");
    }
}
