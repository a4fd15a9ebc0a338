//! Claims about tickets, frames and answers: what opens a gate, and that nothing else does.

use bps_wakeup::protocol::{
    Answer, AnswerError, FRAME_BYTES, Identity, Refusal, SignedTicket, TICKET_MAX_AHEAD_SECONDS, Ticket,
};
use bps_wakeup::signing::{KeyId, PublicKey, SigningKey};
use bps_wakeup::uid::{UID_MAX_BYTES, Uid};
use proptest::prelude::*;

const NOW: u64 = 1_700_000_000;
const EXPIRY: u64 = NOW + 60;

fn uid(text: &str) -> Uid {
    Uid::parse(text).unwrap()
}

fn key(seed: u8) -> SigningKey {
    SigningKey::from_seed(&[seed; 32])
}

fn ticket() -> Ticket {
    let (pod, set) =
        (uid("3e0d6f0c-2b57-4b9b-8f43-52a2c6a0f6d1"), uid("86a5c0d4-0b3c-44a8-9a3e-0f4d7f0c1b11"));
    Ticket { pod, set, epoch: 7, expiry: EXPIRY, key: KeyId([0; 8]) }
}

/// What the gate of `ticket()` that trusts these keys says at this time.
fn verified(signed: &SignedTicket, keys: &[PublicKey], now: u64) -> Result<(), Refusal> {
    signed.verify(&Identity { pod: ticket().pod, set: ticket().set, keys }, now)
}

fn verified_frame(frame: &[u8]) -> Result<(), Refusal> {
    SignedTicket::decode(frame).and_then(|signed| verified(&signed, &[key(1).public()], NOW))
}

#[test]
fn a_ticket_of_the_operator_opens_its_gate_as_often_as_it_is_sent() {
    let frame = ticket().sign(&key(1)).encode();
    assert_eq!([verified_frame(&frame), verified_frame(&frame)], [Ok(()), Ok(())]);
}

#[test]
fn every_flipped_bit_of_a_frame_is_refused_for_the_reason_of_its_field() {
    let frame = ticket().sign(&key(1)).encode();
    for bit in 0..FRAME_BYTES * 8 {
        let mut flipped = frame;
        flipped[bit / 8] ^= 1 << (bit % 8);
        let refusal = verified_frame(&flipped).expect_err("a flipped bit");
        let expected: &[Refusal] = match bit / 8 {
            0..4 => &[Refusal::NotAFrame],
            4 => &[Refusal::UnsupportedVersion],
            5 => &[Refusal::WrongLength],
            6..55 => &[Refusal::MalformedUid, Refusal::OtherPod],
            55..104 => &[Refusal::MalformedUid, Refusal::OtherSet],
            112..120 => &[Refusal::Expired, Refusal::TooFarAhead, Refusal::BadSignature],
            120..128 => &[Refusal::UnknownKey],
            // The epoch and the signature itself.
            _ => &[Refusal::BadSignature],
        };
        assert!(expected.contains(&refusal), "bit {bit}: {refusal:?}");
    }
}

#[test]
fn every_prefix_and_every_longer_frame_is_refused() {
    let frame = ticket().sign(&key(1)).encode();
    for length in 0..FRAME_BYTES {
        assert_eq!(verified_frame(&frame[..length]), Err(Refusal::WrongLength), "{length} bytes");
    }
    for extra in [1, 63, 64, 4096] {
        let longer = [frame.as_slice(), &vec![0; extra]].concat();
        assert_eq!(verified_frame(&longer), Err(Refusal::WrongLength), "{extra} bytes more");
    }
}

#[test]
fn a_ticket_of_another_pod_or_set_is_refused() {
    let keys = [key(1).public()];
    let other_pod = Ticket { pod: uid("another"), ..ticket() }.sign(&key(1));
    let other_set = Ticket { set: uid("another"), ..ticket() }.sign(&key(1));
    let swapped = Ticket { pod: ticket().set, set: ticket().pod, ..ticket() }.sign(&key(1));
    assert_eq!(verified(&other_pod, &keys, NOW), Err(Refusal::OtherPod));
    assert_eq!(verified(&other_set, &keys, NOW), Err(Refusal::OtherSet));
    assert_eq!(verified(&swapped, &keys, NOW), Err(Refusal::OtherPod));
}

#[test]
fn a_ticket_is_valid_before_its_expiry_and_not_too_long_before() {
    let (signed, keys) = (ticket().sign(&key(1)), [key(1).public()]);
    let at = |now| verified(&signed, &keys, now);
    assert_eq!(at(EXPIRY - 1), Ok(()));
    assert_eq!(at(EXPIRY), Err(Refusal::Expired));
    assert_eq!(at(u64::MAX), Err(Refusal::Expired));
    assert_eq!(at(EXPIRY - TICKET_MAX_AHEAD_SECONDS), Ok(()));
    assert_eq!(at(EXPIRY - TICKET_MAX_AHEAD_SECONDS - 1), Err(Refusal::TooFarAhead));
    assert_eq!(at(0), Err(Refusal::TooFarAhead));
    let endless = Ticket { expiry: u64::MAX, ..ticket() }.sign(&key(1));
    assert_eq!(verified(&endless, &keys, NOW), Err(Refusal::TooFarAhead));
}

#[test]
fn only_a_key_that_the_pod_knows_opens_its_gate() {
    let signed = ticket().sign(&key(1));
    let (trusted, other) = (key(1).public(), key(2).public());
    assert_eq!(verified(&signed, &[other, trusted], NOW), Ok(()));
    assert_eq!(verified(&signed, &[other], NOW), Err(Refusal::UnknownKey), "unknown or retired");
    assert_eq!(verified(&signed, &[], NOW), Err(Refusal::UnknownKey));
    // Signed by a stranger who writes the id of a trusted key into the ticket.
    let mut forged = ticket().sign(&key(2));
    forged.ticket.key = key(1).id();
    assert_eq!(verified(&forged, &[trusted], NOW), Err(Refusal::BadSignature));
}

#[test]
fn a_signature_over_the_bare_bytes_is_refused() {
    let mut signed = ticket().sign(&key(1));
    signed.signature = key(1).sign(&signed.encode()[..128]);
    assert_eq!(verified(&signed, &[key(1).public()], NOW), Err(Refusal::BadSignature));
}

#[test]
fn a_signature_that_was_not_reduced_is_refused() {
    // The order of the group (RFC 8032, section 5.1), little endian; s + order satisfies the same equation.
    const ORDER: [u8; 32] = [
        0xed, 0xd3, 0xf5, 0x5c, 0x1a, 0x63, 0x12, 0x58, 0xd6, 0x9c, 0xf7, 0xa2, 0xde, 0xf9, 0xde, 0x14, 0, 0,
        0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x10,
    ];
    let mut signed = ticket().sign(&key(1));
    let mut carry = 0;
    for (byte, order) in signed.signature[32..].iter_mut().zip(ORDER) {
        let [low, high] = (u16::from(*byte) + u16::from(order) + carry).to_le_bytes();
        (*byte, carry) = (low, u16::from(high));
    }
    assert_eq!(carry, 0);
    assert_eq!(verified(&signed, &[key(1).public()], NOW), Err(Refusal::BadSignature));
}

#[test]
fn the_past_of_a_ticket_can_be_checked_without_the_time() {
    let keys = [key(1).public()];
    let gate = Identity { pod: ticket().pod, set: ticket().set, keys: &keys };
    let old = Ticket { expiry: 1, ..ticket() };
    assert_eq!(old.sign(&key(1)).verify_at_any_time(&gate), Ok(()));
    assert_eq!(old.sign(&key(2)).verify_at_any_time(&gate), Err(Refusal::UnknownKey));
    assert_eq!(
        Ticket { pod: uid("x"), ..old }.sign(&key(1)).verify_at_any_time(&gate),
        Err(Refusal::OtherPod)
    );
}

#[test]
fn the_layout_of_a_frame_does_not_change() {
    // Written by hand from the table in `protocol`; a change here needs a new version.
    let small = Ticket { pod: uid("p"), set: uid("st"), epoch: 0x0102, expiry: 0x0304, key: KeyId([0; 8]) };
    let mut expected = vec![b'B', b'P', b'S', b'W', 1, 192, 1, b'p'];
    expected.extend([0; UID_MAX_BYTES - 1]);
    expected.extend([2, b's', b't']);
    expected.extend([0; UID_MAX_BYTES - 2]);
    expected.extend([0, 0, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 0, 0, 3, 4]);
    expected.extend(key(1).id().0);
    assert_eq!(small.sign(&key(1)).encode()[..128], expected);
}

#[test]
fn the_codes_of_refusals_do_not_change() {
    let codes = Refusal::ALL.map(|refusal| (refusal.code(), refusal.as_str()));
    let expected = [
        (1, "NotAFrame"),
        (2, "UnsupportedVersion"),
        (3, "WrongLength"),
        (4, "MalformedUid"),
        (5, "OtherPod"),
        (6, "OtherSet"),
        (7, "Expired"),
        (8, "TooFarAhead"),
        (9, "UnknownKey"),
        (10, "BadSignature"),
        (11, "Busy"),
        (12, "TooSlow"),
        (13, "NotRecorded"),
    ];
    assert_eq!(codes, expected);
}

#[test]
fn answers_are_read_back_and_nothing_else_is_an_answer() {
    let answers = Refusal::ALL.map(Answer::Refused).into_iter().chain([Answer::Accepted]);
    for answer in answers {
        assert_eq!(Answer::decode(&answer.encode()), Ok(answer));
        assert_eq!(Answer::decode(&answer.encode()[..5]), Err(AnswerError::NotAnAnswer));
    }
    assert_eq!(Answer::decode(b"BPSA\x01\xff"), Err(AnswerError::UnknownCode(255)));
    assert_eq!(Answer::decode(b"BPSA\x02\x00"), Err(AnswerError::NotAnAnswer));
    assert_eq!(Answer::decode(b"HTTP/1"), Err(AnswerError::NotAnAnswer));
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_ticket_is_read_back_and_opens_its_own_gate_only(
        pod in "[A-Za-z0-9._-]{1,48}", set in "[A-Za-z0-9._-]{1,48}", other in "[A-Za-z0-9._-]{1,48}",
        epoch: u64, expiry in 1_u64.., seed: [u8; 32],
    ) {
        let key = SigningKey::from_seed(&seed);
        let (pod, set, other) = (uid(&pod), uid(&set), uid(&other));
        let signed = Ticket { pod, set, epoch, expiry, key: KeyId([0; 8]) }.sign(&key);
        prop_assert_eq!(SignedTicket::decode(&signed.encode()), Ok(signed));
        let keys = [key.public()];
        let gate = Identity { pod, set, keys: &keys };
        prop_assert_eq!(signed.verify(&gate, expiry - 1), Ok(()));
        if other != pod {
            prop_assert_eq!(signed.verify(&Identity { pod: other, ..gate }, expiry - 1), Err(Refusal::OtherPod));
        }
    }
}
