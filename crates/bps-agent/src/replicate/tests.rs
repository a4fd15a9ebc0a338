//! Two directories, and whatever happens to the first one: after a batch both are equal.

mod batches;
mod door;
mod full;
mod ledger;
mod lines;
mod moments;
mod seats;

use std::collections::BTreeMap;
use std::fs::{self, File, Permissions};
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::Arc;

use bps_protocol::Epoch;
use bps_wire::level::DirectoryId;
use proptest::prelude::*;
use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities};

use super::HIDDEN_FOLDER;
use super::directory::{StateDirectory, Turn};
use super::door::Door;
use super::image::Image;
use super::inbox::Inbox;
use super::outbox::{BatchEnd, Outbox};
use super::scan::{Scanner, Snapshot};
use super::word::Word;

/// Something that happens to a state directory.
#[derive(Clone, Debug)]
enum Deed {
    Write(String, Vec<u8>),
    Append(String, Vec<u8>),
    /// In place, without another length.
    Overwrite(String, u8),
    Truncate(String, u64),
    Remove(String),
    Rename(String, String),
    MakeFolder(String),
    SetMode(String, u32),
    /// A batch is made and carried out.
    Barrier,
    /// The standby begins anew with what is on its disk.
    Reconnect,
}

fn deeds() -> impl Strategy<Value = Vec<Deed>> {
    let path = || "[ab](/[ab]){0,2}";
    let bytes = || proptest::collection::vec(any::<u8>(), 0..40);
    let deed = prop_oneof![
        4 => (path(), bytes()).prop_map(|(path, bytes)| Deed::Write(path, bytes)),
        4 => (path(), bytes()).prop_map(|(path, bytes)| Deed::Append(path, bytes)),
        2 => (path(), any::<u8>()).prop_map(|(path, byte)| Deed::Overwrite(path, byte)),
        1 => (path(), 0..20_u64).prop_map(|(path, length)| Deed::Truncate(path, length)),
        2 => path().prop_map(Deed::Remove),
        2 => (path(), path()).prop_map(|(from, to)| Deed::Rename(from, to)),
        1 => path().prop_map(Deed::MakeFolder),
        1 => (path(), any::<bool>(), 0..8_u32).prop_map(|(path, is_writable, bits)| {
            Deed::SetMode(path, if is_writable { 0o700 } else { 0o500 } | bits)
        }),
        4 => Just(Deed::Barrier),
        1 => Just(Deed::Reconnect),
    ];
    proptest::collection::vec(deed, 1..30)
}

impl Deed {
    /// What is impossible, such as a file below a file, does not happen.
    fn happen(&self, root: &Path) {
        let done = match self {
            Self::Write(path, bytes) => {
                let path = root.join(path);
                drop(fs::create_dir_all(path.parent().unwrap()));
                fs::write(path, bytes)
            }
            Self::Append(path, bytes) => {
                File::options().append(true).open(root.join(path)).and_then(|mut file| file.write_all(bytes))
            }
            Self::Overwrite(path, byte) => {
                File::options().write(true).open(root.join(path)).and_then(|mut file| {
                    if file.metadata()?.len() > 0 { file.write_all(&[*byte]) } else { Ok(()) }
                })
            }
            Self::Truncate(path, length) => {
                File::options().write(true).open(root.join(path)).and_then(|file| file.set_len(*length))
            }
            Self::Remove(path) => {
                let path = root.join(path);
                fs::remove_file(&path).or_else(|_| fs::remove_dir_all(&path))
            }
            Self::Rename(from, to) => fs::rename(root.join(from), root.join(to)),
            Self::MakeFolder(path) => fs::create_dir_all(root.join(path)),
            Self::SetMode(path, mode) => fs::set_permissions(root.join(path), Permissions::from_mode(*mode)),
            Self::Barrier | Self::Reconnect => Ok(()),
        };
        drop(done);
    }
}

/// Path, permission bits, and content if it is a file.
type Content = BTreeMap<String, (u32, Option<Vec<u8>>)>;

fn content(root: &Path) -> Content {
    let (mut found, mut folders) = (Content::new(), vec![root.to_owned()]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path == root.join(HIDDEN_FOLDER) {
                continue;
            }
            let mode = fs::metadata(&path).unwrap().permissions().mode() & 0o7777;
            let name = path.strip_prefix(root).unwrap().display().to_string();
            if path.is_dir() {
                found.insert(name, (mode, None));
                folders.push(path);
            } else {
                found.insert(name, (mode, Some(fs::read(path).unwrap())));
            }
        }
    }
    found
}

/// Does this on a thread that has no capability, so that permission bits hold for it, also if it is of root.
fn unprivileged<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    let limited = || {
        let none = CapabilitySet::empty();
        let sets = CapabilitySets { effective: none, permitted: none, inheritable: none };
        set_capabilities(None, sets).unwrap();
        work()
    };
    std::thread::scope(|scope| scope.spawn(limited).join().unwrap())
}

/// An active's and a standby's directory without a network in between.
struct Copying {
    from: StateDirectory,
    to: StateDirectory,
    scanner: Scanner,
    mirror: Image,
    door: Door,
    sequence: u64,
}

impl Copying {
    fn new(from: &Path, to: &Path) -> Self {
        let (from, to) = (StateDirectory::open(from).unwrap(), StateDirectory::open(to).unwrap());
        let door = Door::default();
        door.open(Epoch::default());
        let scanner = Scanner::new(from.clone());
        let mut copying = Self { from, to, scanner, mirror: Image::new(), door, sequence: 0 };
        copying.reconnect();
        copying
    }

    fn reconnect(&mut self) {
        self.mirror = Scanner::new(self.to.clone()).look(0).unwrap().image;
    }

    fn look(&mut self) -> Snapshot {
        self.sequence += 1;
        self.scanner.look(self.sequence).unwrap()
    }

    /// Returns the words of the batch.
    fn copy(&mut self, snapshot: Snapshot) -> Vec<Word> {
        self.copied(snapshot).0
    }

    /// Returns the words of the batch, and what came of it. Agents are seldom privileged.
    fn copied(&mut self, snapshot: Snapshot) -> (Vec<Word>, BatchEnd) {
        unprivileged(|| self.carried_out(snapshot))
    }

    fn carried_out(&mut self, snapshot: Snapshot) -> (Vec<Word>, BatchEnd) {
        let mut outbox = Outbox::new(self.from.clone(), std::mem::take(&mut self.mirror), Arc::new(snapshot));
        let mut inbox = new_inbox(&self.to);
        let mut said = Vec::new();
        loop {
            // Small portions: the boundaries between them must not matter.
            let words = outbox.next(100).unwrap();
            if words.is_empty() {
                break;
            }
            for word in &words {
                if let Word::Commit(sequence) = word {
                    assert_eq!(*sequence, self.sequence);
                    inbox.commit(self.door.enter(Epoch::default(), DirectoryId(1)).unwrap()).unwrap();
                } else if *word == Word::Abandon {
                    inbox.abandon().unwrap();
                } else {
                    inbox.take(word.clone()).unwrap();
                }
            }
            said.extend(words);
        }
        let end;
        (self.mirror, end) = outbox.into_mirror();
        (said, end)
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn after_each_batch_both_directories_are_equal(deeds in deeds()) {
        let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::write(to.path().join("left-over"), "x").unwrap();
        let mut copying = Copying::new(from.path(), to.path());
        for deed in deeds.into_iter().chain([Deed::Barrier]) {
            deed.happen(from.path());
            match deed {
                Deed::Barrier => {
                    let snapshot = copying.look();
                    copying.copy(snapshot);
                    prop_assert_eq!(content(from.path()), content(to.path()));
                    let seen = Scanner::new(copying.to.clone()).look(0).unwrap().image;
                    prop_assert_eq!(&copying.mirror, &seen, "what the active believes of the standby");
                }
                Deed::Reconnect => copying.reconnect(),
                Deed::Write(..)
                | Deed::Append(..)
                | Deed::Overwrite(..)
                | Deed::Truncate(..)
                | Deed::Remove(_)
                | Deed::Rename(..)
                | Deed::MakeFolder(_)
                | Deed::SetMode(..) => {}
            }
        }
    }

    #[test]
    fn what_changes_between_look_and_batch_is_there_after_the_next_batch(
        before in deeds(),
        between in deeds(),
        is_exact in any::<bool>(),
    ) {
        let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let mut copying = Copying::new(from.path(), to.path());
        for deed in &before {
            deed.happen(from.path());
        }
        let (had, looked_at) = (content(to.path()), content(from.path()));
        let snapshot = Snapshot { is_exact, ..copying.look() };
        prop_assert!(snapshot.is_whole, "nothing changed while it was looked at");
        for deed in &between {
            deed.happen(from.path());
        }
        let (_, end) = copying.copied(snapshot);
        match end {
            BatchEnd::Exact => prop_assert_eq!(content(to.path()), looked_at),
            BatchEnd::Torn if is_exact => prop_assert_eq!(content(to.path()), had),
            BatchEnd::Torn | BatchEnd::Newer => prop_assert!(!is_exact),
        }
        let seen = Scanner::new(copying.to.clone()).look(0).unwrap().image;
        prop_assert_eq!(&copying.mirror, &seen, "what the active believes of the standby");
        let snapshot = copying.look();
        copying.copy(snapshot);
        prop_assert_eq!(content(from.path()), content(to.path()));
    }
}

#[test]
fn of_a_file_that_has_grown_only_the_tail_is_sent() {
    let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let log = from.path().join("log");
    fs::write(&log, vec![7; 1000]).unwrap();
    let mut copying = Copying::new(from.path(), to.path());
    let snapshot = copying.look();
    copying.copy(snapshot);
    // Once for a look that the standby gets, and once for one that it does not.
    for is_skipped in [false, true] {
        let length = fs::metadata(&log).unwrap().len();
        File::options().append(true).open(&log).unwrap().write_all(b"tail").unwrap();
        if is_skipped {
            copying.look();
            File::options().append(true).open(&log).unwrap().write_all(b"more").unwrap();
        }
        let snapshot = copying.look();
        let words = copying.copy(snapshot);
        let tail = if is_skipped { &b"tailmore"[..] } else { b"tail" };
        assert!(matches!(&words[0], Word::Append(_, from) if *from == length), "{words:?}");
        assert_eq!(words[1], Word::Piece(tail.to_vec()));
    }
    assert_eq!(content(from.path()), content(to.path()));
}

#[test]
fn a_file_that_got_another_name_after_the_look_is_there_all_the_same() {
    let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let mut copying = Copying::new(from.path(), to.path());
    fs::write(from.path().join("new"), "acknowledged").unwrap();
    let snapshot = copying.look();
    fs::rename(from.path().join("new"), from.path().join("cur")).unwrap();
    copying.copy(snapshot);
    assert_eq!(fs::read_to_string(to.path().join("new")).unwrap(), "acknowledged");
    let snapshot = copying.look();
    copying.copy(snapshot);
    assert_eq!(content(from.path()), content(to.path()));
}

/// The one before may not have removed yet what it had in part.
fn new_inbox(directory: &StateDirectory) -> Inbox {
    Inbox::new(directory.clone(), turn(directory)).unwrap()
}

fn turn(directory: &StateDirectory) -> Turn {
    loop {
        match directory.try_turn() {
            Some(turn) => return turn,
            None => std::thread::yield_now(),
        }
    }
}

#[test]
fn a_batch_that_is_not_complete_changes_nothing() {
    let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    fs::write(to.path().join("a"), "old").unwrap();
    fs::write(from.path().join("a"), "new").unwrap();
    let mut copying = Copying::new(from.path(), to.path());
    let snapshot = Arc::new(copying.look());
    let mut outbox = Outbox::new(copying.from.clone(), copying.mirror.clone(), snapshot);
    let mut inbox = new_inbox(&copying.to);
    for word in outbox.next(usize::MAX).unwrap() {
        if !matches!(word, Word::Commit(_)) {
            inbox.take(word).unwrap();
        }
    }
    assert_eq!(fs::read(to.path().join("a")).unwrap(), b"old");
    drop(inbox);
    drop(turn(&copying.to));
    let hidden = fs::read_dir(to.path().join(HIDDEN_FOLDER)).unwrap();
    let names: Vec<_> = hidden.map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["id"], "what was kept aside is gone");
}

#[test]
fn no_batch_leads_out_of_the_directory() {
    let (inside, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    fs::write(outside.path().join("file"), "safe").unwrap();
    std::os::unix::fs::symlink(outside.path(), inside.path().join("out")).unwrap();
    std::os::unix::fs::symlink(outside.path().join("file"), inside.path().join("link")).unwrap();
    let directory = StateDirectory::open(inside.path()).unwrap();
    let door = Door::default();
    door.open(Epoch::default());
    let path = |text: &str| super::image::StatePath::parse(text.as_bytes()).unwrap();
    let batches = [
        vec![Word::Remove(path("out/file"))],
        vec![Word::MakeFolder(path("out/folder"), 0o755)],
        vec![Word::SetMode(path("out/file"), 0o777)],
        vec![Word::SetMode(path("link"), 0o777)],
        vec![Word::Write(path("out/new"), 0o644), Word::Piece(b"x".to_vec())],
        vec![Word::Append(path("link"), 4), Word::Piece(b"x".to_vec())],
    ];
    for batch in batches {
        let mut inbox = new_inbox(&directory);
        for word in batch.clone() {
            inbox.take(word).unwrap();
        }
        let pass = door.enter(Epoch::default(), DirectoryId(1)).unwrap();
        assert!(inbox.commit(pass).is_err(), "{batch:?}");
    }
    // A link itself may be replaced and removed, as it is inside.
    let mut inbox = new_inbox(&directory);
    for word in [Word::Write(path("link"), 0o644), Word::Piece(b"new".to_vec()), Word::Remove(path("out"))] {
        inbox.take(word).unwrap();
    }
    inbox.commit(door.enter(Epoch::default(), DirectoryId(1)).unwrap()).unwrap();
    let safe = (0o100_644, Some(b"safe".to_vec()));
    assert_eq!(content(outside.path()).remove("file"), Some((safe.0 & 0o7777, safe.1)));
    assert_eq!(content(outside.path()).len(), 1);
    assert_eq!(fs::read(inside.path().join("link")).unwrap(), b"new");
}

#[test]
fn words_that_belong_to_no_batch_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let directory = StateDirectory::open(folder.path()).unwrap();
    let mut inbox = new_inbox(&directory);
    for word in [Word::Attach, Word::All, Word::Commit(1), Word::Acknowledge(1), Word::Piece(vec![1])] {
        assert!(inbox.take(word.clone()).is_err(), "{word:?}");
    }
}
