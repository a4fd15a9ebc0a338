//! Looks what is below a state directory, and puts on the own disk what changed since the last look.
//!
//! A file is read again when its size, times or inode are others than at the last look, or so recent that a further
//! change might have left them the same. It is synced before it is read: a page that is written through a mapping
//! after that changes the times once more, but not in memory, where each look reads all.
//!
//! Content may move while it is looked at, from one file to another as a log that is merged into a table, or to another name.
//! A look that reads the place where it goes first and the place where it came from last finds it in neither. So a look reads
//! all again that may have changed, until what it has was there at one moment; if that moment does not come, it says so. A
//! file that was read is kept open until it is sent, whatever its name is then.

mod content;
mod fingerprint;
mod kept;
mod strides;
mod trouble;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, Dir, FileType, Stat, fstat, fsync, statat};
use sha2::Sha256;
use tracing::warn;

use self::content::hash;
pub use self::content::prefix;
use self::fingerprint::{Fingerprint, fingerprint, is_in_memory, mode_of, wall_clock};
pub use self::kept::Kept;
pub use self::strides::Strides;
use self::strides::Striding;
pub use self::trouble::{LookTrouble, is_gone};
use self::trouble::{at, too_deep, too_many, unreliable};
use super::blockage::shown;
use super::directory::StateDirectory;
use super::image::{Entry, HASH_BYTES, Image, StatePath};
use super::left_out::{LeftOut, has_pid, may_be_pid_file};

/// Most files and folders of a state directory. 100,000: an image of them takes some ten megabytes.
pub const ENTRIES_MAX: usize = 100_000;
/// How often everything is looked at, if it changes meanwhile. 8: whoever writes all the time must not occupy a core with it.
const PASSES_MAX: usize = 8;
/// How long a look begins further passes, but for the second one, without which most changes are no whole look. 1 s: it is
/// mostly a large file then that is read again each time.
const PASSES_WITHIN: Duration = Duration::from_secs(1);

/// Names in a state directory that are not the application's: the agents' own folder, and what a file system keeps at the
/// root of a volume, which nobody else may read.
const OF_OTHERS: [&[u8]; 2] = [super::HIDDEN_FOLDER.as_bytes(), b"lost+found"];

/// What the state directory had at one moment of a look.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// Number of the look; a later one has a higher number.
    pub sequence: u64,
    /// What there is.
    pub image: Image,
    /// More about each file, for who sends it.
    pub sources: BTreeMap<StatePath, Source>,
    /// Files that were read, for who sends them.
    pub kept: Kept,
    /// Whether all of it was there at one moment.
    pub is_whole: bool,
    /// Whether the standby is to get it as it is, or nothing of it.
    pub is_exact: bool,
    /// The first path of something that has content and is not replicated, as `blockage::shown` gives it.
    pub passed_over: Option<String>,
}

/// What a sender must know of a file.
#[derive(Clone, Debug)]
pub struct Source {
    /// Which file it was.
    pub inode: u64,
    /// The file has only grown since the look before.
    pub growth: Option<Growth>,
}

/// The content of a file as of the look before.
#[derive(Clone, Debug)]
pub struct Growth {
    /// Its length. Unit: bytes.
    pub size: u64,
    /// Its hash.
    pub hash: [u8; HASH_BYTES],
    /// The hash's state, to go on with.
    pub state: Sha256,
}

/// Looks again and again.
#[derive(Debug)]
pub struct Scanner {
    directory: StateDirectory,
    /// What is not replicated; `None`: everything is looked at.
    left_out: Option<LeftOut>,
    known: Files,
    /// Folders that have been synced since they were as here.
    synced: BTreeMap<Option<StatePath>, Fingerprint>,
    /// Whether each change shows in the times of a file.
    do_times_tell: bool,
    /// How far looks have come.
    strides: Strides,
    has_warned: bool,
    /// Something could not be put on the disk. The kernel tells so once, and forgets the bytes.
    is_unreliable: bool,
}

type Files = BTreeMap<StatePath, Known>;

/// A file as of the last look.
#[derive(Clone, Debug)]
struct Known {
    fingerprint: Fingerprint,
    /// When it was read for the first time as it is.
    same_since: Duration,
    /// Whether it need not be read again as long as the fingerprint is the same.
    is_settled: bool,
    /// Whether the fingerprint would have changed if something was written since.
    is_past: bool,
    size: u64,
    hash: [u8; HASH_BYTES],
}

/// What was found when everything was looked at once.
struct Pass {
    snapshot: Snapshot,
    known: Files,
    /// The folders as they were before their names were read.
    folders: BTreeMap<Option<StatePath>, Fingerprint>,
    /// Files that have changed since they were read before, and whether they have only grown since the look before.
    moving: Vec<(StatePath, bool)>,
}

/// One pass.
struct Look<'a> {
    scanner: &'a mut Scanner,
    /// Files as of the look before.
    base: &'a Files,
    before: Option<&'a Pass>,
    now: Pass,
    synced: BTreeMap<Option<StatePath>, Fingerprint>,
    began: Duration,
}

impl Scanner {
    /// One that knows nothing yet.
    pub fn new(directory: StateDirectory) -> Self {
        let do_times_tell = !is_in_memory(directory.root());
        let (known, synced) = (Files::new(), BTreeMap::new());
        let strides = Strides::default();
        Self {
            directory,
            left_out: None,
            known,
            synced,
            do_times_tell,
            strides,
            has_warned: false,
            is_unreliable: false,
        }
    }

    /// The same, which passes by what belongs to one run of the application.
    #[must_use]
    pub fn leaving_out(self, left_out: LeftOut) -> Self {
        Self { left_out: Some(left_out), ..self }
    }

    /// What shows whether a look that has begun comes further.
    pub fn strides(&self) -> Strides {
        self.strides.clone()
    }

    /// What is there, if nobody changes it meanwhile; it is on the own disk when this returns.
    ///
    /// # Errors
    /// As [`Scanner::look`].
    pub fn read(directory: StateDirectory) -> io::Result<Image> {
        Ok(Self::new(directory).pass(0, &Files::new(), None)?.snapshot.image)
    }

    /// Looks at everything; what changed is on the own disk when this returns.
    ///
    /// # Errors
    /// Something cannot be read or synced, or there is too much. After something could not be synced there is no look any more.
    pub fn look(&mut self, sequence: u64) -> io::Result<Snapshot> {
        if self.is_unreliable {
            return Err(unreliable());
        }
        let base = std::mem::take(&mut self.known);
        match self.passes(sequence, &base) {
            Ok(found) => {
                self.known = found.known;
                Ok(found.snapshot)
            }
            Err(error) => {
                self.known = base;
                Err(error)
            }
        }
    }

    fn passes(&mut self, sequence: u64, base: &Files) -> io::Result<Pass> {
        let began = Instant::now();
        let mut found = self.pass(sequence, base, None)?;
        found.snapshot.is_whole = self.is_whole(base, &found);
        for passes in 1..PASSES_MAX {
            if found.snapshot.is_whole || passes > 1 && began.elapsed() >= PASSES_WITHIN {
                break;
            }
            let mut next = self.pass(sequence, base, Some(&found))?;
            next.snapshot.is_whole = self.is_whole(&found.known, &next);
            found = next;
        }
        Ok(found)
    }

    /// Whether all that a pass found was there at one moment. `before` is what was known when it began.
    ///
    /// What was read twice with the same content and times was there when the pass began. One file may have grown since: then
    /// that moment is when it was read, provided that nothing else has changed until after the pass.
    fn is_whole(&self, before: &Files, found: &Pass) -> bool {
        let are_names_whole = || !misses_one(before, &found.known) && self.are_unchanged(&found.folders);
        match &found.moving[..] {
            [] => are_names_whole(),
            [(path, true)] => {
                are_names_whole() && self.are_others_at_rest((&found.snapshot, &found.known), path)
            }
            _ => false,
        }
    }

    /// Whether what was read of a file is still there.
    fn is_content_the_same(&self, snapshot: &Snapshot, path: &StatePath) -> bool {
        let Some(Entry::File { size, hash, .. }) = snapshot.image.get(path) else { return false };
        let now = self.directory.open_file(path).and_then(|file| {
            let mut file = Striding { inner: file, strides: &self.strides };
            prefix(&mut file, *size)
        });
        now.is_ok_and(|now| now.is_some_and(|now| now.hash == *hash))
    }

    /// Whether no file but this one has changed since it was read.
    fn are_others_at_rest(&self, (snapshot, files): (&Snapshot, &Files), but: &StatePath) -> bool {
        let mut at_hand = None;
        files.iter().filter(|(path, _)| *path != but).all(|(path, known)| {
            let (folder, name) = path.split();
            if at_hand.as_ref().is_none_or(|(of, _)| *of != folder) {
                at_hand = self.directory.parent(path).ok().map(|(parent, _)| (folder, parent));
            }
            let Some((_, parent)) = &at_hand else { return false };
            let now = statat(parent, name, AtFlags::SYMLINK_NOFOLLOW);
            let is_same = now.is_ok_and(|now| fingerprint(&now) == known.fingerprint);
            is_same
                && if self.do_times_tell { known.is_past } else { self.is_content_the_same(snapshot, path) }
        })
    }

    /// Whether no name was made, removed or moved in these folders since they were read.
    fn are_unchanged(&self, folders: &BTreeMap<Option<StatePath>, Fingerprint>) -> bool {
        let is_same = |(path, read): (&Option<StatePath>, &Fingerprint)| {
            let now = match path {
                None => fstat(self.directory.root()).map_err(io::Error::from),
                Some(path) => self
                    .directory
                    .parent(path)
                    .and_then(|(parent, name)| Ok(statat(&parent, name, AtFlags::SYMLINK_NOFOLLOW)?)),
            };
            now.is_ok_and(|now| fingerprint(&now) == *read)
        };
        folders.iter().all(is_same)
    }

    /// Looks at everything once. `before` is what the pass before found.
    fn pass(&mut self, sequence: u64, base: &Files, before: Option<&Pass>) -> io::Result<Pass> {
        let began = wall_clock();
        let kept = before.map(|before| before.snapshot.kept.clone()).unwrap_or_default();
        let snapshot = Snapshot { sequence, kept, ..Snapshot::default() };
        let now = Pass { snapshot, known: Files::new(), folders: BTreeMap::new(), moving: Vec::new() };
        let mut look = Look { scanner: self, base, before, now, synced: BTreeMap::new(), began };
        // By name: a process has fewer descriptors than a folder may have folders.
        let mut folders = vec![None];
        while let Some(path) = folders.pop() {
            let looked = match look.scanner.directory.folder(path.as_ref()) {
                Ok(folder) => look.folder(path.as_ref(), &folder, &mut folders),
                Err(error) if is_gone(&error) => {
                    look.forget(path.as_ref());
                    Ok(())
                }
                Err(error) => Err(error),
            };
            looked.map_err(|error| at(error, path.as_ref()))?;
        }
        let Look { now, synced, .. } = look;
        self.synced = synced;
        Ok(now)
    }
}

impl Look<'_> {
    fn folder(
        &mut self,
        path: Option<&StatePath>,
        folder: &OwnedFd,
        folders: &mut Vec<Option<StatePath>>,
    ) -> io::Result<()> {
        self.sync(path, folder)?;
        for entry in Dir::read_from(folder)? {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            let is_of_others = path.is_none() && OF_OTHERS.contains(&name);
            if matches!(name, b"." | b"..") || is_of_others {
                continue;
            }
            if self.now.snapshot.image.len() >= ENTRIES_MAX {
                return Err(too_many(path));
            }
            self.scanner.strides.make();
            let below = StatePath::below(path, name).ok_or_else(|| too_deep(path, name))?;
            match self.entry(below.clone(), (folder, name), folders) {
                // It was removed or replaced meanwhile: the next look will see what became of it.
                Err(error) if is_gone(&error) => {}
                other => other.map_err(|error| at(error, Some(&below)))?,
            }
        }
        Ok(())
    }

    /// A folder was removed or replaced since its name was read: the next pass will see what became of it.
    fn forget(&mut self, path: Option<&StatePath>) {
        let _: Option<Entry> = path.and_then(|path| self.now.snapshot.image.remove(path));
    }

    /// Puts names that were made or removed on disk.
    fn sync(&mut self, path: Option<&StatePath>, folder: &OwnedFd) -> io::Result<()> {
        let (path, fingerprint) = (path.cloned(), fingerprint(&fstat(folder)?));
        if self.scanner.synced.get(&path) != Some(&fingerprint) {
            self.on_disk(fsync(folder).map_err(io::Error::from))?;
        }
        self.now.folders.insert(path.clone(), fingerprint);
        if fingerprint.is_past(self.began) {
            self.synced.insert(path, fingerprint);
        }
        Ok(())
    }

    fn entry(
        &mut self,
        path: StatePath,
        (folder, name): (&OwnedFd, &[u8]),
        folders: &mut Vec<Option<StatePath>>,
    ) -> io::Result<()> {
        let stat = statat(folder, name, AtFlags::SYMLINK_NOFOLLOW)?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => {
                self.now.snapshot.image.insert(path.clone(), Entry::Folder { mode: mode_of(&stat) });
                folders.push(Some(path));
            }
            FileType::RegularFile if self.is_left_out(&path, &stat)? => {}
            FileType::RegularFile => self.file(path, &stat)?,
            FileType::Symlink | FileType::CharacterDevice | FileType::BlockDevice | FileType::Unknown => {
                self.pass_over(&path);
            }
            // They have no content that could be lost: whoever serves on them makes them anew.
            FileType::Fifo | FileType::Socket => {}
        }
        Ok(())
    }

    fn is_left_out(&self, path: &StatePath, stat: &Stat) -> io::Result<bool> {
        let Some(left_out) = &self.scanner.left_out else { return Ok(false) };
        let bytes = u64::try_from(stat.st_size).unwrap_or_default();
        let is_pid_file = may_be_pid_file(path, bytes) && has_pid(self.scanner.directory.open_file(path)?)?;
        Ok(is_pid_file || left_out.names(path))
    }

    fn file(&mut self, path: StatePath, stat: &Stat) -> io::Result<()> {
        let last = self.before.map_or(self.base, |before| &before.known).get(&path);
        let (known, growth) = match last {
            Some(known)
                if self.scanner.do_times_tell
                    && known.is_settled
                    && known.fingerprint == fingerprint(stat) =>
            {
                let source = self.before.and_then(|before| before.snapshot.sources.get(&path));
                (known.clone(), source.and_then(|source| source.growth.clone()))
            }
            _ => {
                let mut file = self.scanner.directory.open_file(&path)?;
                // Of the file that was opened, and from before it is synced and read.
                let stat = fstat(&file)?;
                self.on_disk(file.sync_all())?;
                let until = u64::try_from(stat.st_size).unwrap_or_default();
                let mut striding = Striding { inner: &mut file, strides: &self.scanner.strides };
                let (size, hash, growth) = hash(&mut striding, until, self.base.get(&path))?;
                let fingerprint = fingerprint(&stat);
                // The same content alone proves nothing: it may have been another one in between.
                let same = last.filter(|known| known.fingerprint == fingerprint && known.hash == hash);
                // Where each look reads everything, what has not changed must not use up what may be kept open.
                if self.scanner.do_times_tell || same.is_none() {
                    self.now.snapshot.kept.keep(path.clone(), file);
                }
                if same.is_none() {
                    self.now.moving.push((path.clone(), growth.is_some()));
                }
                let same_since = same.map_or(self.began, |known| known.same_since);
                let is_settled = fingerprint.is_settled(same_since, self.began);
                let is_past = fingerprint.is_past(self.began);
                (Known { fingerprint, same_since, is_settled, is_past, size, hash }, growth)
            }
        };
        let Known { fingerprint, size, hash, .. } = known.clone();
        self.now.snapshot.image.insert(path.clone(), Entry::File { mode: mode_of(stat), size, hash });
        self.now.snapshot.sources.insert(path.clone(), Source { inode: fingerprint.inode, growth });
        self.now.known.insert(path, known);
        Ok(())
    }

    fn on_disk(&mut self, synced: io::Result<()>) -> io::Result<()> {
        self.scanner.is_unreliable |= synced.is_err();
        synced
    }

    fn pass_over(&mut self, path: &StatePath) {
        let path = shown(path.as_bytes());
        if !std::mem::replace(&mut self.scanner.has_warned, true) {
            warn!(
                path,
                "Passed over what is neither a regular file nor a folder: no barrier is kept while it is in the state directory"
            );
        }
        self.now.snapshot.passed_over.get_or_insert(path);
    }
}

/// Whether a file is gone that was there before: removed, or moved to where it could not be seen any more.
fn misses_one(before: &Files, now: &Files) -> bool {
    let mut gone = before.iter().filter(|(path, _)| !now.contains_key(path)).peekable();
    if gone.peek().is_none() {
        return false;
    }
    let found: BTreeSet<u64> = now.values().map(|known| known.fingerprint.inode).collect();
    gone.any(|(_, known)| !found.contains(&known.fingerprint.inode))
}

#[cfg(test)]
mod tests;
