//! Runs the entries of the fuzz targets of replicated state over random bytes, so that every test run exercises them.

use bps_agent::fuzzing;
use proptest::collection::vec;
use proptest::prelude::*;

/// Names that would lead out, into the agents' own folder, through a trap of the entry's directory, or nowhere.
fn name() -> impl Strategy<Value = Vec<u8>> {
    let chosen = proptest::sample::select(vec![
        "a",
        "a/b",
        "a/link",
        "a/link/new",
        "link",
        "link/new",
        "link/../../outside/new",
        "file",
        "file/new",
        "new",
        "../outside/new",
        "../outside/file",
        "/outside/file",
        ".bps-ha",
        ".bps-ha/id",
        "a/../.bps-ha/id",
        "./a",
        "a/.",
        "a//b",
        "",
        ".",
        "..",
        "a\0b",
        "new/folder",
    ]);
    let long = [200, 255, 256, 1_100].map(|length| vec![b'n'; length]);
    let deep = vec!["d"; 33].join("/").into_bytes();
    prop_oneof![
        8 => chosen.prop_map(|name| name.as_bytes().to_vec()),
        1 => proptest::sample::select(long.to_vec()),
        1 => Just(deep),
        1 => vec(any::<u8>(), 0..12),
    ]
}

/// A word with such a name, as bytes that no sender would put together.
fn word() -> impl Strategy<Value = Vec<u8>> {
    let named = (4..=11_u8, name(), vec(any::<u8>(), 44)).prop_map(|(kind, name, fields)| {
        let length = u16::try_from(name.len()).unwrap().to_be_bytes();
        let rest = match kind {
            4 | 8 | 9 | 10 => &[fields[0] & 1, fields[1]][..],
            5 => &[&[fields[0] & 1], &fields[1..42]].concat()[..],
            // Mostly the length that the file in the entry's directory has.
            11 if fields[0] > 9 => &[0, 0, 0, 0, 0, 0, 0, 4],
            11 => &fields[..8],
            _ => &[],
        };
        [&[kind], &length[..], &name, rest].concat()
    });
    let piece = vec(any::<u8>(), 1..40).prop_map(|bytes| [&[12], &bytes[..]].concat());
    prop_oneof![3 => named, 1 => piece, 1 => vec(any::<u8>(), 0..90)]
}

/// Words of a batch as `fuzzing::batch` takes them.
fn batch() -> impl Strategy<Value = Vec<u8>> {
    vec(word(), 0..12).prop_map(|words| {
        let framed = words.into_iter().filter_map(|word| {
            let length = u8::try_from(word.len()).ok()?;
            Some([&[length], &word[..]].concat())
        });
        framed.flatten().collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes_as_a_word_keep_the_promises(bytes in word()) {
        fuzzing::word(&bytes);
    }

    #[test]
    fn nothing_is_heard_of_a_stranger(
        first in vec(any::<u8>(), 16),
        length in prop_oneof![Just([0, 0, 0, 1]), Just([0, 0, 0, 65]), any::<[u8; 4]>()],
        rest in vec(any::<u8>(), 0..200),
    ) {
        fuzzing::stranger(&[&first[..], &length, &rest].concat());
        fuzzing::stranger(&rest);
    }

    #[test]
    fn any_change_to_what_was_said_is_noticed(changes in vec(any::<u8>(), 0..64)) {
        fuzzing::greeting(&changes);
    }

    #[test]
    fn no_batch_reaches_out_of_its_directory(bytes in batch()) {
        fuzzing::batch(&bytes);
    }
}

#[test]
fn the_entries_would_notice_a_stranger_who_is_heard() {
    let said = fuzzing::said();
    assert!(std::panic::catch_unwind(|| fuzzing::stranger(&said)).is_err());
}
