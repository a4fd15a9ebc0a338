//! When everything is looked at once more.

use super::*;

fn files(files: &[(&str, u64)]) -> BTreeMap<StatePath, Known> {
    let file = |(path, inode): &(&str, u64)| {
        let fingerprint =
            Fingerprint { device: 1, inode: *inode, size: 0, modified: (0, 0), changed: (0, 0) };
        let known = Known { fingerprint, is_settled: true, is_past: true, size: 0, hash: [0; HASH_BYTES] };
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

#[test]
fn a_tail_that_was_written_again_is_not_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let (log, path) = (folder.path().join("log"), StatePath::parse(b"log").unwrap());
    let mut scanner = Scanner::new(StateDirectory::open(folder.path()).unwrap());
    std::fs::write(&log, "one").unwrap();
    scanner.look(1).unwrap();
    std::fs::write(&log, "one two").unwrap();
    let snapshot = scanner.look(2).unwrap();
    assert!(scanner.is_tail_the_same(&snapshot, &path));
    std::fs::write(&log, "one two more").unwrap();
    assert!(scanner.is_tail_the_same(&snapshot, &path), "it has only grown");
    std::fs::write(&log, "one six more").unwrap();
    assert!(!scanner.is_tail_the_same(&snapshot, &path));
}
