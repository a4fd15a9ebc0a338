//! Runs the entries of the fuzz targets over random bytes, so that every test run exercises them.

use bps_wakeup::fuzzing;
use proptest::collection::vec;
use proptest::prelude::*;

/// The beginning of a good frame, followed by anything: random bytes alone hardly get past the magic.
fn after_a_good_header() -> impl Strategy<Value = Vec<u8>> {
    vec(any::<u8>(), 0..300).prop_map(|rest| [b"BPSW\x01\xc0".as_slice(), &rest].concat())
}

/// A frame whose uids and padding are sound and whose rest is anything.
fn well_formed() -> impl Strategy<Value = Vec<u8>> {
    let uid = vec(proptest::char::range('a', 'z'), 1..=48).prop_map(|uid| {
        let mut field = vec![u8::try_from(uid.len()).unwrap()];
        field.extend(uid.iter().map(|letter| u8::try_from(*letter).unwrap()));
        field.resize(49, 0);
        field
    });
    (uid.clone(), uid, vec(any::<u8>(), 88))
        .prop_map(|(pod, set, rest)| [b"BPSW\x01\xc0".as_slice(), &pod, &set, &rest].concat())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes_as_a_frame_keep_the_promises(
        bytes in prop_oneof![vec(any::<u8>(), 0..300), after_a_good_header(), well_formed()]
    ) {
        fuzzing::frame(&bytes);
    }

    #[test]
    fn any_change_to_a_valid_frame_closes_the_gate(changes in vec(any::<u8>(), 0..64)) {
        fuzzing::ticket(&changes);
    }

    #[test]
    fn any_bytes_as_an_answer_keep_the_promises(
        bytes in prop_oneof![vec(any::<u8>(), 0..12), any::<u8>().prop_map(|code| [b"BPSA\x01", &[code][..]].concat())]
    ) {
        fuzzing::answer(&bytes);
    }

    #[test]
    fn any_text_as_a_key_keeps_the_promises(
        text in prop_oneof![".{0,90}", "[0-9a-f]{16}:[0-9a-f]{64}", "[0-9a-f]{0,20}:[0-9a-g]{0,70}"]
    ) {
        fuzzing::key(text.as_bytes());
    }
}

#[test]
fn the_entries_would_notice_an_open_gate() {
    // A frame signed with the key that the gate of `fuzzing::frame` trusts must make that entry fail.
    use bps_wakeup::protocol::Ticket;
    use bps_wakeup::signing::{KeyId, SigningKey};
    use bps_wakeup::uid::Uid;

    let uid = Uid::parse("pod").unwrap();
    let ticket = Ticket { pod: uid, set: uid, epoch: 1, expiry: 2, key: KeyId([0; 8]) };
    let frame = ticket.sign(&SigningKey::from_seed(&[1; 32])).encode();
    assert!(std::panic::catch_unwind(|| fuzzing::frame(&frame)).is_err());
}
