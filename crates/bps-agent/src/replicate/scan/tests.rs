//! When everything is looked at once more.

use super::*;
use crate::replicate::image::PATH_MAX_PARTS;

fn files(files: &[(&str, u64)]) -> BTreeMap<StatePath, Known> {
    let file = |(path, inode): &(&str, u64)| {
        let fingerprint =
            Fingerprint { device: 1, inode: *inode, size: 0, modified: (0, 0), changed: (0, 0) };
        let known = Known {
            fingerprint,
            same_since: Duration::ZERO,
            is_settled: true,
            is_past: true,
            size: 0,
            hash: [0; HASH_BYTES],
        };
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
fn what_was_written_over_in_a_file_that_has_grown_is_not_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let (log, path) = (folder.path().join("log"), StatePath::parse(b"log").unwrap());
    let mut scanner = Scanner::new(StateDirectory::open(folder.path()).unwrap());
    std::fs::write(&log, "one").unwrap();
    scanner.look(1).unwrap();
    std::fs::write(&log, "one two").unwrap();
    let snapshot = scanner.look(2).unwrap();
    assert!(scanner.is_content_the_same(&snapshot, &path));
    std::fs::write(&log, "one two more").unwrap();
    assert!(scanner.is_content_the_same(&snapshot, &path), "it has only grown");
    for changed in ["one six more", "One two more", "one tw"] {
        std::fs::write(&log, changed).unwrap();
        assert!(!scanner.is_content_the_same(&snapshot, &path), "{changed}");
    }
}

#[test]
fn a_file_need_not_be_read_again_once_no_write_can_be_under_way() {
    let second = Duration::from_secs;
    let changed = Fingerprint { device: 1, inode: 1, size: 0, modified: (0, 0), changed: (100, 0) };
    let table = [
        // Read for the first time.
        ((101, 101), false),
        ((103, 103), false),
        ((130, 130), false),
        ((131, 131), true),
        // It was the same a moment before, or for a while.
        ((102, 103), false),
        ((101, 103), true),
        ((100, 102), false),
    ];
    for ((same_since, now), expected) in table {
        assert_eq!(changed.is_settled(second(same_since), second(now)), expected, "{same_since} {now}");
    }
}

#[test]
fn a_path_that_cannot_be_replicated_is_an_error_that_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let deep = folder.path().join(["d"; PATH_MAX_PARTS].join("/"));
    std::fs::create_dir_all(&deep).unwrap();
    let mut scanner = Scanner::new(StateDirectory::open(folder.path()).unwrap());
    assert_eq!(scanner.look(1).unwrap().image.len(), PATH_MAX_PARTS);
    std::fs::write(deep.join("file"), "x").unwrap();
    let said = scanner.look(2).expect_err("it is too deep").to_string();
    assert!(said.contains("d/file: a path of more than 1024 bytes or 32 folders"), "{said}");
}

#[test]
fn in_memory_a_store_through_a_mapping_is_seen_although_no_time_tells_of_it() {
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = folder.path().join("table");
    std::fs::write(&path, "one").unwrap();
    let old = std::time::SystemTime::now() - 2 * Duration::from_secs(60);
    std::fs::File::options().write(true).open(&path).unwrap().set_modified(old).unwrap();
    let mut scanner = Scanner::new(StateDirectory::open(folder.path()).unwrap());
    let image = scanner.look(1).unwrap().image;
    for known in scanner.known.values_mut() {
        known.is_settled = true;
    }
    // As after such a store: other content behind the same fingerprint.
    let known = StatePath::parse(b"table").unwrap();
    std::fs::write(&path, "two").unwrap();
    let now = fingerprint(&rustix::fs::stat(&path).unwrap());
    scanner.known.get_mut(&known).unwrap().fingerprint = now;
    assert_ne!(scanner.look(2).unwrap().image, image);
}

/// A process may have fewer descriptors than that; with a limit the test would be one of the whole process.
#[test]
fn a_look_holds_no_more_folders_open_than_it_reads() {
    let folder = tempfile::tempdir().unwrap();
    for number in 0..FOLDERS {
        std::fs::create_dir(folder.path().join(format!("shard-{number}"))).unwrap();
    }
    let mut scanner = Scanner::new(StateDirectory::open(folder.path()).unwrap());
    let mut look = Look {
        base: &Files::new(),
        before: None,
        now: Pass {
            snapshot: Snapshot::default(),
            known: Files::new(),
            folders: BTreeMap::new(),
            moving: Vec::new(),
        },
        synced: BTreeMap::new(),
        began: wall_clock(),
        scanner: &mut scanner,
    };
    let (root, mut folders) = (look.scanner.directory.folder(None).unwrap(), Vec::new());
    let before = descriptors();
    look.folder(None, &root, &mut folders).unwrap();
    assert_eq!(folders.len(), FOLDERS);
    assert!(descriptors() < before + FOLDERS / 2, "other tests have some");
}

const FOLDERS: usize = 400;

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

#[test]
fn after_something_could_not_be_put_on_the_disk_there_is_no_look_any_more() {
    let folder = tempfile::tempdir().unwrap();
    let mut scanner = Scanner::new(StateDirectory::open(folder.path()).unwrap());
    scanner.look(1).unwrap();
    scanner.is_unreliable = true;
    for sequence in [2, 3] {
        let error = scanner.look(sequence).unwrap_err().to_string();
        assert!(error.starts_with("the disk lost what was written to it"), "{error}");
    }
}

#[test]
fn what_belongs_to_one_run_is_not_replicated_and_a_standby_that_has_it_is_told_so() {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in [("app.pid", "7"), ("data.pid", "data"), ("node.lock", "x"), ("log", "x")] {
        std::fs::write(folder.path().join(name), text).unwrap();
    }
    let directory = StateDirectory::open(folder.path()).unwrap();
    let left_out = LeftOut::naming(vec!["node.lock".parse().unwrap()]);
    let names = |image: Image| image.into_keys().map(|path| path.display()).collect::<Vec<_>>();
    let snapshot = Scanner::new(directory.clone()).leaving_out(left_out).look(1).unwrap();
    assert!(snapshot.is_whole);
    assert_eq!(names(snapshot.image), ["data.pid", "log"]);
    assert_eq!(names(Scanner::read(directory).unwrap()), ["app.pid", "data.pid", "log", "node.lock"]);
}
