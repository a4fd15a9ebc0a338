//! The operator's key ring: which key signs for which Pod, and which keys a new cold Pod is told to trust.
//!
//! A Pod learns its keys once, when it is created, and may stay cold for months. So a key is handed out as
//! `next` for a whole period before it signs, and stays as `previous` for years after. Keeps no clock and talks
//! to nobody; see `secret`.

use std::fmt;

use bps_wakeup::signing::{KEY_BYTES, KeyError, KeyId, PublicKey, SigningKey};
use jiff::Timestamp;
use zeroize::Zeroizing;

/// Most keys that are kept after their time.
///
/// With the default period of 30 days a cold Pod can be woken for two years; an older one has to be replaced.
pub const PREVIOUS_KEYS_MAX: usize = 24;

/// Most key ids that are read from a Pod's annotation; as many as a gate takes.
pub const POD_KEYS_MAX: usize = bps_wakeup::settings::KEYS_MAX;

/// The keys of one operator. `Debug` and every other text shows ids only.
#[derive(Clone)]
pub struct KeyRing {
    /// Signs.
    pub current: SigningKey,
    /// Is handed out already and signs after the next rotation.
    pub next: SigningKey,
    /// Signed before, newest first; at most [`PREVIOUS_KEYS_MAX`].
    pub previous: Vec<SigningKey>,
    /// When `current` became current.
    pub rotated_at: Timestamp,
}

/// The system has no randomness to give.
#[derive(Debug, thiserror::Error)]
#[error("generate a key")]
pub struct GenerateError(#[source] getrandom::Error);

impl KeyRing {
    /// A ring of two fresh keys.
    ///
    /// # Errors
    /// [`GenerateError`].
    pub fn generate(now: Timestamp) -> Result<Self, GenerateError> {
        Ok(Self { current: generate_key()?, next: generate_key()?, previous: Vec::new(), rotated_at: now })
    }

    /// The keys that a new cold Pod trusts: current and next.
    pub fn public_keys(&self) -> [PublicKey; 2] {
        [self.current.public(), self.next.public()]
    }

    /// What tells the ring from every other one without a private byte: the ids of its keys, newest first, and when it was rotated.
    pub fn fingerprint(&self) -> (Vec<KeyId>, Timestamp) {
        let keys = [&self.next, &self.current].into_iter().chain(&self.previous);
        (keys.map(SigningKey::id).collect(), self.rotated_at)
    }

    /// The best key that a Pod with these key ids trusts: the current one, else the newest previous one.
    ///
    /// The next key comes last: before its time it signs only for a Pod that knows no other, as happens when
    /// the Secret was restored from a backup. `None` means that no ticket can wake this Pod any more.
    pub fn signing_key_for(&self, pod_keys: &[KeyId]) -> Option<&SigningKey> {
        std::iter::once(&self.current)
            .chain(&self.previous)
            .chain(std::iter::once(&self.next))
            .find(|key| pod_keys.contains(&key.id()))
    }

    /// The ring after a rotation: next becomes current, current the newest previous, `fresh` next. The oldest
    /// key beyond [`PREVIOUS_KEYS_MAX`] is forgotten.
    #[must_use]
    pub fn rotated(self, fresh: SigningKey, now: Timestamp) -> Self {
        let Self { current, next, mut previous, rotated_at: _ } = self;
        previous.insert(0, current);
        previous.truncate(PREVIOUS_KEYS_MAX);
        Self { current: next, next: fresh, previous, rotated_at: now }
    }
}

impl fmt::Debug for KeyRing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { current, next, previous, rotated_at } = self;
        f.debug_struct("KeyRing")
            .field("current", &current.id())
            .field("next", &next.id())
            .field("previous", &previous.iter().map(SigningKey::id).collect::<Vec<_>>())
            .field("rotated_at", rotated_at)
            .finish()
    }
}

/// A fresh key from the system's randomness.
///
/// # Errors
/// [`GenerateError`].
pub fn generate_key() -> Result<SigningKey, GenerateError> {
    let mut seed = Zeroizing::new([0; KEY_BYTES]);
    getrandom::fill(seed.as_mut_slice()).map_err(GenerateError)?;
    Ok(SigningKey::from_seed(&seed))
}

/// The value of a gate's variable `BPS_WAKE_KEYS`: `<id>:<hex public key>`, comma separated.
pub fn environment_value(keys: &[PublicKey]) -> String {
    keys.iter().map(PublicKey::to_string).collect::<Vec<_>>().join(",")
}

/// The value of a Pod's annotation `wake-keys`: the ids, comma separated.
pub fn annotation_value(keys: &[PublicKey]) -> String {
    keys.iter().map(|key| key.id().to_string()).collect::<Vec<_>>().join(",")
}

/// Reads a Pod's annotation `wake-keys`; ids beyond [`POD_KEYS_MAX`] are not looked at.
///
/// # Errors
/// [`KeyError::NotHex`] if an id is not one: somebody else has written the annotation.
pub fn parse_annotation(value: &str) -> Result<Vec<KeyId>, KeyError> {
    value.split(',').take(POD_KEYS_MAX).map(KeyId::parse).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(seed: u8) -> SigningKey {
        SigningKey::from_seed(&[seed; KEY_BYTES])
    }

    fn ring() -> KeyRing {
        KeyRing { current: key(2), next: key(3), previous: vec![key(1)], rotated_at: Timestamp::UNIX_EPOCH }
    }

    fn chosen(ring: &KeyRing, pod_keys: &[&SigningKey]) -> Option<KeyId> {
        let ids: Vec<KeyId> = pod_keys.iter().map(|key| key.id()).collect();
        ring.signing_key_for(&ids).map(SigningKey::id)
    }

    #[test]
    fn the_newest_key_that_is_in_use_and_known_signs() {
        let ring = ring();
        assert_eq!(chosen(&ring, &[&key(2), &key(3)]), Some(key(2).id()));
        assert_eq!(chosen(&ring, &[&key(1), &key(2)]), Some(key(2).id()));
        assert_eq!(chosen(&ring, &[&key(0), &key(1)]), Some(key(1).id()));
        assert_eq!(chosen(&ring, &[&key(3)]), Some(key(3).id()));
        assert_eq!(chosen(&ring, &[&key(0)]), None);
        assert_eq!(chosen(&ring, &[]), None);
    }

    #[test]
    fn a_rotation_moves_each_key_one_place() {
        let now = Timestamp::from_second(86_400).unwrap();
        let KeyRing { current, next, previous, rotated_at } = ring().rotated(key(4), now);
        let previous: Vec<KeyId> = previous.iter().map(SigningKey::id).collect();
        assert_eq!((current.id(), next.id(), rotated_at), (key(3).id(), key(4).id(), now));
        assert_eq!(previous, [key(2).id(), key(1).id()]);
    }

    #[test]
    fn a_pod_can_be_woken_until_both_of_its_keys_are_forgotten() {
        let pod_keys = ring().public_keys().map(|key| key.id());
        let mut ring = ring();
        let mut rotations = 0;
        while ring.signing_key_for(&pod_keys).is_some() {
            rotations += 1;
            ring = ring.rotated(key(100 + rotations), Timestamp::UNIX_EPOCH);
            assert!(ring.previous.len() <= PREVIOUS_KEYS_MAX);
        }
        // One rotation brings its younger key into use, one more into the previous ones.
        assert_eq!(usize::from(rotations), PREVIOUS_KEYS_MAX + 2);
    }

    #[test]
    fn generated_keys_differ() {
        let ring = KeyRing::generate(Timestamp::UNIX_EPOCH).unwrap();
        assert_ne!(ring.current.id(), ring.next.id());
        assert_ne!(*ring.current.seed(), [0; KEY_BYTES]);
    }

    #[test]
    fn debug_of_a_ring_shows_ids_and_no_private_byte() {
        let seed = [0xa7; KEY_BYTES];
        let ring = KeyRing { current: SigningKey::from_seed(&seed), ..ring() };
        let shown = format!("{ring:?} {ring:#?}");
        assert!(shown.contains(&ring.current.id().to_string()));
        for private in ["a7a7", "A7A7", "167, 167", "p6enp6en"] {
            assert!(!shown.contains(private), "{shown}");
        }
    }

    #[test]
    fn environment_and_annotation_are_read_back() {
        let keys = ring().public_keys();
        assert_eq!(parse_annotation(&annotation_value(&keys)), Ok(keys.map(|key| key.id()).to_vec()));
        let read: Result<Vec<_>, _> = environment_value(&keys).split(',').map(PublicKey::parse).collect();
        assert_eq!(read, Ok(keys.to_vec()));
        assert_eq!(parse_annotation(""), Err(KeyError::NotHex(16)));
    }
}
