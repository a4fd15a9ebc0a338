//! Directories that change while they are looked at or sent, and what stands in the way of a batch.

use std::os::unix::net::UnixListener;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::*;
use crate::replicate::image::{Entry, StatePath};

fn path(text: &str) -> StatePath {
    StatePath::parse(text.as_bytes()).unwrap()
}

#[test]
fn what_moves_from_file_to_file_is_in_every_whole_look() {
    const LOOKS: usize = 1_000;
    /// Length of a file in which it is; without it a file is shorter. Unit: bytes.
    const LENGTH: u64 = 1_000;
    // In memory, so that looks and writes are about as fast.
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    let file = |name: &str| folder.path().join(name);
    fs::write(file("log"), vec![0; 1_000]).unwrap();
    fs::write(file("table"), "").unwrap();
    let mut scanner = Scanner::new(StateDirectory::open(folder.path()).unwrap());
    let is_over = AtomicBool::new(false);
    let (mut whole, mut missed) = (0, 0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut names = ["log", "table"];
            // No content twice: what comes back as it was may have been away.
            for number in 0_u64.. {
                if is_over.load(Ordering::Relaxed) {
                    break;
                }
                let [from, to] = names;
                fs::write(file(to), [number.to_be_bytes(); 125].as_flattened()).unwrap();
                fs::write(file(from), number.to_be_bytes()).unwrap();
                names = [to, from];
                // Now and then it rests for as long as a look takes.
                std::thread::sleep(Duration::from_micros(if rand_bit() { 2_000 } else { 0 }));
            }
        });
        for number in 0..LOOKS {
            let snapshot = scanner.look(number as u64).unwrap();
            let is_empty = |name| matches!(snapshot.image[&path(name)], Entry::File { size: ..LENGTH, .. });
            if snapshot.is_whole {
                whole += 1;
                missed += usize::from(is_empty("log") && is_empty("table"));
            }
        }
        is_over.store(true, Ordering::Relaxed);
    });
    println!("{whole} of {LOOKS} looks found a moment");
    assert!(whole > 0, "nothing was judged");
    assert_eq!(missed, 0, "what was acknowledged is in neither file");
    assert!(scanner.look(LOOKS as u64).unwrap().is_whole, "nothing changes any more");
}

fn rand_bit() -> bool {
    getrandom::u32().unwrap().is_multiple_of(2)
}

#[test]
fn one_file_may_grow_all_the_time() {
    const LOOKS: u64 = 20;
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    fs::write(&log, "0").unwrap();
    let table = folder.path().join("table");
    fs::write(&table, "old").unwrap();
    // From a backup of a clock that was ahead.
    let ahead = std::time::SystemTime::now() + Duration::from_secs(3_600);
    File::options().write(true).open(&table).unwrap().set_modified(ahead).unwrap();
    // Older than what proves nothing.
    std::thread::sleep(Duration::from_millis(100));
    let mut scanner = Scanner::new(StateDirectory::open(folder.path()).unwrap());
    assert!(scanner.look(0).unwrap().is_whole);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut log = File::options().append(true).open(&log).unwrap();
            while !is_over.load(Ordering::Relaxed) {
                log.write_all(b"more").unwrap();
                // A look reads all of it, and is to come to an end.
                std::thread::sleep(Duration::from_micros(200));
            }
        });
        let whole = (1..=LOOKS).filter(|number| scanner.look(*number).unwrap().is_whole).count();
        is_over.store(true, Ordering::Relaxed);
        assert_eq!(whole as u64, LOOKS);
    });
}

#[test]
fn what_was_changed_in_place_since_the_look_is_not_sent_as_if_it_had_been_there_then() {
    for (is_exact, expected) in [(true, (BatchEnd::Torn, "old")), (false, (BatchEnd::Newer, "new"))] {
        let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let mut copying = Copying::new(from.path(), to.path());
        fs::write(from.path().join("table"), "old").unwrap();
        let snapshot = copying.look();
        copying.copy(snapshot);
        fs::write(from.path().join("table"), "now").unwrap();
        let snapshot = Snapshot { is_exact, ..copying.look() };
        fs::write(from.path().join("table"), "new").unwrap();
        let (_, end) = copying.copied(snapshot);
        assert_eq!((end, &*fs::read_to_string(to.path().join("table")).unwrap()), expected);
    }
}

#[test]
fn what_is_not_replicated_stands_in_no_batch_s_way() {
    let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (outside, below) = (tempfile::tempdir().unwrap(), to.path().join("gone/deep"));
    fs::create_dir_all(&below).unwrap();
    fs::write(outside.path().join("file"), "safe").unwrap();
    let _socket = UnixListener::bind(below.join("socket")).unwrap();
    std::os::unix::fs::symlink(outside.path(), below.join("link")).unwrap();
    std::os::unix::fs::symlink(outside.path(), to.path().join("folder")).unwrap();
    fs::create_dir(from.path().join("folder")).unwrap();
    fs::write(from.path().join("folder/file"), "new").unwrap();
    let mut copying = Copying::new(from.path(), to.path());
    let snapshot = copying.look();
    copying.copy(snapshot);
    assert_eq!(content(from.path()), content(to.path()));
    assert_eq!(fs::read_to_string(outside.path().join("file")).unwrap(), "safe");
}

#[test]
fn a_folder_in_which_nobody_may_write_is_filled_all_the_same() {
    let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let folder = from.path().join("a/b");
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("file"), "x").unwrap();
    for path in [folder.as_path(), folder.parent().unwrap()] {
        fs::set_permissions(path, Permissions::from_mode(0o555)).unwrap();
    }
    let mut copying = Copying::new(from.path(), to.path());
    let snapshot = copying.look();
    copying.copy(snapshot);
    assert_eq!(content(from.path()), content(to.path()));
}
