//! When everything is looked at once more.

use super::*;

fn files(files: &[(&str, u64)]) -> BTreeMap<StatePath, Known> {
    let file = |(path, inode): &(&str, u64)| {
        let fingerprint =
            Fingerprint { device: 1, inode: *inode, size: 0, modified: (0, 0), changed: (0, 0) };
        let known = Known { fingerprint, is_settled: true, size: 0, hash: [0; HASH_BYTES] };
        (StatePath::parse(path.as_bytes()).unwrap(), known)
    };
    files.iter().map(file).collect()
}

#[test]
fn a_file_that_is_gone_is_looked_for_unless_it_was_seen_under_another_name() {
    let before = files(&[("a", 1), ("b", 2)]);
    let table = [
        (files(&[("a", 1), ("b", 2), ("c", 3)]), false),
        // Replaced as a whole.
        (files(&[("a", 1), ("b", 3)]), false),
        (files(&[("a", 1), ("c", 2)]), false),
        (files(&[("a", 1)]), true),
        (files(&[("a", 1), ("c", 3)]), true),
    ];
    assert_eq!(table.each_ref().map(|(now, _)| misses_one(&before, now)), table.map(|(_, is)| is));
}
