//! What the fuzz targets of replicated state call, and what `crates/bps-agent/tests/it/state_hostile_bytes.rs` calls with bytes of its own:
//! each entry takes any bytes and panics if a promise of the replication is broken.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Component, Path, PathBuf};

use bps_protocol::{AgentId, Epoch};
use bps_wire::key_ring::KeyRing;
use bps_wire::level::DirectoryId;
use tokio::io::{AsyncReadExt as _, duplex, join, sink};
use tokio::sync::watch;

use crate::replicate::HIDDEN_FOLDER;
use crate::replicate::channel::Channel;
use crate::replicate::directory::StateDirectory;
use crate::replicate::door::Door;
use crate::replicate::image::StatePath;
use crate::replicate::inbox::Inbox;
use crate::replicate::word::Word;

const EPOCH: Epoch = Epoch { term: 3, sequence: 1 };
const HELLO: Word = Word::Hello { group: 7, from: AgentId(1), to: AgentId(2), directory: DirectoryId(3) };

/// Any bytes as a word: no panic, one encoding per word, and no path that leads out.
pub fn word(bytes: &[u8]) {
    let Some(word) = Word::decode(bytes) else { return };
    assert_eq!(word.encode(), bytes, "a word has one encoding");
    let path = match &word {
        Word::Has(path, _)
        | Word::Remove(path)
        | Word::MakeFolder(path, _)
        | Word::SetMode(path, _)
        | Word::Write(path, _)
        | Word::Append(path, _) => path,
        Word::Hello { .. }
        | Word::Challenge { .. }
        | Word::Attach
        | Word::All
        | Word::Piece(_)
        | Word::Commit(_)
        | Word::Acknowledge(_)
        | Word::Abandon
        | Word::Busy
        | Word::Refuse(_) => return,
    };
    stays_below(path);
}

/// Looked at with the standard library's eyes, which are not those that let the path in.
fn stays_below(path: &StatePath) {
    let text = <std::ffi::OsStr as std::os::unix::ffi::OsStrExt>::from_bytes(path.as_bytes());
    let mut parts = Path::new(text).components();
    assert!(parts.clone().all(|part| matches!(part, Component::Normal(_))), "{path:?} leads out");
    assert_ne!(parts.next(), Some(Component::Normal(HIDDEN_FOLDER.as_ref())), "{path:?} is the agents' own");
    assert!(!path.as_bytes().contains(&0), "{path:?} ends early");
}

/// Any bytes from somebody without a key, to either end of a connection: nothing is heard, however much is trusted.
pub fn stranger(bytes: &[u8]) {
    run(async {
        let accepted = Channel::accepted(join(bytes, sink()), keys()).await;
        let connected = Channel::connected(join(bytes, sink()), keys(), EPOCH).await;
        for mut channel in accepted.into_iter().chain(connected) {
            channel.trust();
            let heard = channel.hear().await;
            assert!(heard.is_err(), "bytes without the key were taken for {heard:?}");
        }
    });
}

/// The first bytes of a connection with the bytes laid over them: only what was said is heard.
///
/// The first byte chooses where; the others are combined by exclusive or.
pub fn greeting(bytes: &[u8]) {
    let whole = said();
    let mut changed = whole.clone();
    if let Some((start, changes)) = bytes.split_first() {
        let start = usize::from(*start) % changed.len();
        changed[start..].iter_mut().zip(changes).for_each(|(byte, change)| *byte ^= change);
    }
    run(async {
        let mut standby = Channel::accepted(join(&changed[..], sink()), keys()).await.expect("a number");
        let heard = standby.hear().await;
        if changed == whole {
            assert_eq!((heard.expect("what was said"), standby.epoch()), (HELLO, EPOCH));
        } else {
            assert!(heard.is_err(), "changed bytes were taken for {heard:?}");
        }
    });
}

/// What the side that connects and has the key puts on the wire first: the number that it draws, and its hello.
pub fn said() -> Vec<u8> {
    run(async {
        let (near, mut far) = duplex(4096);
        let mut active = Channel::connected(near, keys(), EPOCH).await.expect("room for a number");
        active.say(&[HELLO]).await.expect("room for a word");
        drop(active);
        let mut said = Vec::new();
        far.read_to_end(&mut said).await.expect("an end");
        said
    })
}

/// Any batch, carried out over a directory with traps in it: whatever was said, nothing is touched outside of it, and
/// nothing of the agents' own.
///
/// The bytes are words, each behind its length in one byte; what is no word of a batch is left out, as a receiver ends
/// there.
pub fn batch(bytes: &[u8]) {
    let home = tempfile::tempdir().expect("a directory");
    let (outside, inside) = (home.path().join("outside"), home.path().join("inside"));
    set_traps(&inside, &outside);
    let directory = StateDirectory::open(&inside).expect("a state directory");
    let before = seen(&outside);
    let door = Door::default();
    door.open(Epoch::default());
    let turn = directory.try_turn().expect("nobody else receives");
    let mut inbox = Inbox::new(directory.clone(), turn).expect("an inbox");
    for word in words(bytes) {
        let _: std::io::Result<()> = inbox.take(word);
    }
    let pass = door.enter(Epoch::default(), DirectoryId(1)).expect("an open door");
    // A step may be impossible; what counts is what it has done.
    let _: std::io::Result<()> = inbox.commit(pass);
    assert_eq!(seen(&outside), before);
    // It gets another number if it has half of the batch, and none from anybody else.
    let own = fs::read_to_string(inside.join(HIDDEN_FOLDER).join("id")).expect("its number");
    assert_eq!(own, format!("{:032x}\n", directory.id().0));
}

fn words(mut bytes: &[u8]) -> Vec<Word> {
    let mut words = Vec::new();
    while let Some((length, rest)) = bytes.split_first() {
        let (word, rest) = rest.split_at(usize::from(*length).min(rest.len()));
        words.extend(Word::decode(word));
        bytes = rest;
    }
    words
}

/// A folder and a file, and symbolic links to a folder and a file outside.
fn set_traps(inside: &Path, outside: &Path) {
    fs::create_dir_all(outside.join("folder")).expect("a folder");
    fs::write(outside.join("file"), "theirs").expect("a file");
    fs::create_dir_all(inside.join("a")).expect("a folder");
    fs::write(inside.join("a/b"), "ours").expect("a file");
    for (link, target) in [("link", "folder"), ("a/link", "folder"), ("file", "file")] {
        symlink(outside.join(target), inside.join(link)).expect("a link");
    }
}

/// All that is below a folder: permission bits and content.
fn seen(folder: &Path) -> BTreeMap<PathBuf, (u32, Vec<u8>)> {
    let mut all = BTreeMap::new();
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        let mode = fs::symlink_metadata(&path).expect("an entry").permissions().mode();
        let content = if path.is_dir() {
            all.extend(seen(&path));
            Vec::new()
        } else {
            fs::read(&path).expect("a file")
        };
        all.insert(path, (mode, content));
    }
    all
}

fn keys() -> watch::Receiver<KeyRing> {
    watch::channel(KeyRing::parse(&"0f".repeat(32)).expect("a key")).1
}

fn run<Output>(talk: impl Future<Output = Output>) -> Output {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
    runtime.block_on(talk)
}
