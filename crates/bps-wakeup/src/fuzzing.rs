//! What the fuzz targets call, and what `crates/bps-wakeup/tests/it/hostile_bytes.rs` calls with bytes of its own: each entry
//! takes any bytes and panics if a promise of the protocol is broken.

use crate::protocol::{Answer, FRAME_BYTES, Identity, Refusal, SignedTicket, Ticket, check_header};
use crate::signing::{KeyId, PublicKey, SigningKey};
use crate::uid::Uid;

/// When the gate of these entries reads its clock. Unit: seconds since 1970.
const NOW: u64 = 1_700_000_000;

/// Any bytes as a frame: no panic, one encoding per ticket, and no forged frame opens the gate.
pub fn frame(bytes: &[u8]) {
    let decoded = SignedTicket::decode(bytes);
    if let Err(refusal) = check_header(bytes) {
        assert_eq!(decoded, Err(refusal), "the beginning decides");
    }
    let Ok(ticket) = decoded else { return };
    assert_eq!(ticket.encode().as_slice(), bytes, "a ticket has one frame");
    let key = SigningKey::from_seed(&[1; 32]).public();
    let keys = [key];
    // The gate of whatever Pod the bytes name, so that only the signature is in the way.
    let gate = Identity { pod: ticket.ticket.pod, set: ticket.ticket.set, keys: &keys };
    let now = ticket.ticket.expiry.saturating_sub(1);
    assert!(ticket.verify(&gate, now).is_err(), "bytes without the private key opened the gate");
}

/// A valid frame with the bytes laid over it: only the untouched frame opens the gate.
///
/// The first two bytes choose where; the others are combined by exclusive or.
pub fn ticket(bytes: &[u8]) {
    let key = SigningKey::from_seed(&[1; 32]);
    let uid = |text| Uid::parse(text).expect("a uid");
    let (pod, set) =
        (uid("3e0d6f0c-2b57-4b9b-8f43-52a2c6a0f6d1"), uid("86a5c0d4-0b3c-44a8-9a3e-0f4d7f0c1b11"));
    let whole = Ticket { pod, set, epoch: 7, expiry: NOW + 60, key: KeyId([0; 8]) }.sign(&key).encode();
    let mut changed = whole;
    if let Some(([high, low], changes)) = bytes.split_first_chunk() {
        let start = usize::from(u16::from_be_bytes([*high, *low])) % FRAME_BYTES;
        changed[start..].iter_mut().zip(changes).for_each(|(byte, change)| *byte ^= change);
    }
    let keys = [key.public()];
    let gate = Identity { pod, set, keys: &keys };
    let verified = SignedTicket::decode(&changed).and_then(|ticket| ticket.verify(&gate, NOW));
    assert_eq!(verified.is_ok(), changed == whole, "{verified:?}");
}

/// Any bytes as an answer: no panic, and one encoding per answer.
pub fn answer(bytes: &[u8]) {
    if let Ok(answer) = Answer::decode(bytes) {
        assert_eq!(answer.encode().as_slice(), bytes);
        let is_known = match answer {
            Answer::Accepted => true,
            Answer::Refused(refusal) => Refusal::ALL.contains(&refusal),
        };
        assert!(is_known);
    }
}

/// Any text as a key of the environment: no panic, and one text per key.
pub fn key(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Ok(key) = PublicKey::parse(text) {
        assert_eq!(key.to_string(), text);
    }
}
