//! Takes the words of a batch, keeps their content aside, and carries the batch out as a whole when it is complete.
//!
//! Nothing is changed in the state directory before the commit, and nothing at all without a pass of the door.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, Permissions};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};

use rustix::fs::{AtFlags, Dir, Mode, OFlags, fsync, mkdirat, openat, unlinkat};
use rustix::io::Errno;
use rustix::process::geteuid;
use tracing::warn;

use super::directory::{StateDirectory, Turn, open_folder};
use super::door::Pass;
use super::image::{PATH_MAX_PARTS, StatePath};
use super::scan::{ENTRIES_MAX, is_gone};
use super::word::Word;

/// Most steps of a batch: everything goes and everything comes.
const STEPS_MAX: usize = 2 * ENTRIES_MAX;

/// How much is written before it is put on the disk. 64 MiB: a slow disk takes a few seconds for that, in which nothing more is
/// read from the connection. Unit: bytes.
const UNSYNCED_MAX_BYTES: usize = 64 << 20;

/// Number aside of a file that is made of another one and what is appended to it; those that are received begin at 1.
const WHOLE: u64 = 0;

/// Permission bits with which a folder can be filled, and a file be written.
const OWNER_MAY_ALL: u16 = 0o700;

/// A batch that is being received.
#[derive(Debug)]
pub struct Inbox {
    directory: StateDirectory,
    steps: Vec<Step>,
    open: Option<File>,
    /// How much was written since something was put on the disk. Unit: bytes.
    unsynced: usize,
    /// How much of the batch has come. Unit: bytes.
    received: u64,
    /// Number of the last file aside.
    next: u64,
    /// Whether there may be files aside.
    has_asides: bool,
    /// Work on a thread goes on after its connection is given up, and takes the inbox with it: until it ends, no other one
    /// may use the same names.
    turn: Option<Turn>,
}

#[derive(Debug)]
enum Step {
    Remove(StatePath),
    MakeFolder(StatePath, u16),
    SetMode(StatePath, u16),
    /// Move a file that was received to its place.
    Place(StatePath, u64),
    /// Append a file that was received to what has this length.
    Append(StatePath, u64, u64),
}

impl Step {
    /// The folder in which it changes what there is, or the file whose content it changes.
    fn changed(&self) -> Option<StatePath> {
        match self {
            Self::Remove(path) | Self::MakeFolder(path, _) | Self::Place(path, _) => path.folder(),
            Self::Append(path, ..) => Some(path.clone()),
            Self::SetMode(..) => None,
        }
    }
}

/// Permission bits of what is read-only and about to be changed.
type Locked = BTreeMap<StatePath, u16>;

impl Inbox {
    /// An empty one.
    ///
    /// # Errors
    /// What an earlier one left behind cannot be removed.
    pub fn new(directory: StateDirectory, turn: Turn) -> io::Result<Self> {
        directory.remove_asides()?;
        Ok(Self {
            directory,
            steps: Vec::new(),
            open: None,
            unsynced: 0,
            received: 0,
            next: 0,
            has_asides: false,
            turn: Some(turn),
        })
    }

    /// Takes a word that belongs to a batch.
    ///
    /// # Errors
    /// It belongs to none, or cannot be kept.
    pub fn take(&mut self, word: Word) -> io::Result<()> {
        if let Word::Piece(bytes) = &word {
            return self.keep(bytes);
        }
        self.close()?;
        if self.steps.len() >= STEPS_MAX {
            return Err(io::ErrorKind::QuotaExceeded.into());
        }
        let step = match word {
            Word::Remove(path) => Step::Remove(path),
            Word::MakeFolder(path, mode) => Step::MakeFolder(path, mode),
            Word::SetMode(path, mode) => Step::SetMode(path, mode),
            Word::Write(path, mode) => {
                let number = self.create()?;
                if let Some(file) = &self.open {
                    file.set_permissions(Permissions::from_mode(mode.into()))?;
                }
                Step::Place(path, number)
            }
            Word::Append(path, size) => Step::Append(path, size, self.create()?),
            Word::Hello { .. }
            | Word::Challenge { .. }
            | Word::Attach
            | Word::Has(..)
            | Word::All
            | Word::Piece(_)
            | Word::Commit(_)
            | Word::Acknowledge(_)
            | Word::Abandon
            | Word::Busy
            | Word::Refuse(_) => return Err(io::ErrorKind::InvalidData.into()),
        };
        self.steps.push(step);
        Ok(())
    }

    /// Room that the batch needs at least, as far as it has come. Unit: bytes.
    pub fn needs(&self) -> u64 {
        self.received
    }

    /// Carries out the batch; when this returns it is on disk.
    ///
    /// # Errors
    /// There is no room for what it appends: nothing was carried out. Or
    /// A step is impossible: what was said does not fit what is there. The steps before it have been carried out, and the
    /// directory has another number, so that nobody takes what is there for what was level.
    pub fn commit(&mut self, pass: Pass) -> io::Result<()> {
        let steps = std::mem::take(&mut self.steps);
        let locked = self.close().and_then(|()| self.has_room_for(&steps)).and_then(|()| self.locked(&steps));
        // One step happens or does not; of an append what is beyond the acknowledged length is nobody's.
        let is_one = steps.len() < 2 && locked.as_ref().is_ok_and(Locked::is_empty);
        let begun = if is_one || locked.is_err() { Ok(()) } else { self.directory.begin_steps() };
        let locked = match begun.and(locked) {
            Ok(locked) if !is_one => locked,
            one => {
                let carried = one.and_then(|locked| self.carry_out(steps, locked));
                self.has_asides &= carried.is_err();
                if carried.is_ok() {
                    self.received = 0;
                    pass.done();
                } else {
                    pass.nothing_done();
                }
                return carried;
            }
        };
        let carried = self.carry_out(steps, locked);
        self.has_asides &= carried.is_err();
        if carried.is_ok() {
            self.received = 0;
            pass.done();
        } else {
            self.directory.renew()?;
        }
        self.directory.end_steps()?;
        carried
    }

    /// Checks that there is room for the longest part that is copied from aside to the end of a file: what is moved needs none,
    /// and each part is removed once it is copied. A disk that is full in the middle of a batch leaves a mixture, and the
    /// directory is not level any more then.
    fn has_room_for(&mut self, steps: &[Step]) -> io::Result<()> {
        let mut longest = 0;
        for step in steps {
            if let Step::Append(_, _, number) = step {
                longest = self.directory.open_aside(*number)?.metadata()?.len().max(longest);
            }
        }

        let found = self.directory.has_room(longest);
        if found.is_err() {
            self.received += longest;
        }
        found
    }

    /// What these steps change and its owner may not, who is this process: whoever is not root has to make it writable for
    /// the time. The application did so itself, or had it open.
    fn locked(&self, steps: &[Step]) -> io::Result<Locked> {
        let mut locked = Locked::new();
        for path in steps.iter().filter_map(Step::changed).collect::<BTreeSet<_>>() {
            let found = match self.open_any(&path) {
                Ok(found) => File::from(found).metadata()?,
                // It comes with this batch.
                Err(error) if is_gone(&error) => continue,
                Err(error) => return Err(error),
            };
            let mode = Mode::from_raw_mode(found.mode());
            let needed = if found.is_dir() { Mode::RWXU } else { Mode::WUSR };
            if !mode.contains(needed) && found.uid() == geteuid().as_raw() {
                locked.insert(path, u16::try_from(mode.bits()).unwrap_or(OWNER_MAY_ALL));
            }
        }
        Ok(locked)
    }

    fn carry_out(&self, steps: Vec<Step>, locked: Locked) -> io::Result<()> {
        for (path, mode) in &locked {
            self.set_mode(path, mode | OWNER_MAY_ALL)?;
        }
        let (mut folders, mut modes) = (BTreeSet::new(), locked);
        for step in steps {
            let path = match step {
                Step::Remove(path) => {
                    self.remove(&path)?;
                    modes.remove(&path);
                    path
                }
                Step::MakeFolder(path, mode) => {
                    self.make_folder(&path)?;
                    modes.insert(path.clone(), mode);
                    path
                }
                Step::SetMode(path, mode) => {
                    self.set_mode(&path, mode | OWNER_MAY_ALL)?;
                    modes.insert(path.clone(), mode);
                    path
                }
                Step::Place(path, number) => {
                    self.directory.move_aside_to(number, &path)?;
                    modes.remove(&path);
                    path
                }
                Step::Append(path, size, number) => {
                    if !self.append(&path, size, number)? {
                        continue;
                    }
                    path
                }
            };
            folders.insert(path.folder());
        }
        // Last, and what is below first: a folder in which nobody may write had to be filled before.
        for (path, mode) in modes.into_iter().rev() {
            self.set_mode(&path, mode)?;
        }
        self.sync(&folders)
    }

    fn keep(&mut self, bytes: &[u8]) -> io::Result<()> {
        let file = self.open.as_mut().ok_or(io::ErrorKind::InvalidData)?;
        self.received += bytes.len() as u64;
        file.write_all(bytes)?;
        self.unsynced += bytes.len();
        if self.unsynced >= UNSYNCED_MAX_BYTES {
            self.unsynced = 0;
            file.sync_data()?;
        }
        Ok(())
    }

    /// Forgets the words of a batch that is not to be carried out.
    ///
    /// # Errors
    /// What was kept cannot be removed.
    pub fn abandon(&mut self) -> io::Result<()> {
        (self.open, self.unsynced, self.received) = (None, 0, 0);
        self.steps.clear();
        self.directory.remove_asides()?;
        self.has_asides = false;
        Ok(())
    }

    fn create(&mut self) -> io::Result<u64> {
        self.next += 1;
        self.has_asides = true;
        self.open = Some(self.directory.create_aside(self.next)?);
        Ok(self.next)
    }

    fn close(&mut self) -> io::Result<()> {
        self.open.take().map_or(Ok(()), |file| file.sync_all())
    }

    fn remove(&self, path: &StatePath) -> io::Result<()> {
        let (folder, name) = self.directory.parent(path)?;
        match unlinkat(&folder, name, AtFlags::empty()) {
            Err(Errno::ISDIR | Errno::PERM) => remove_folder(&folder, name, PATH_MAX_PARTS),
            other => Ok(other?),
        }
    }

    /// What is there and is no folder was passed over when it was looked at, and is in the way.
    fn make_folder(&self, path: &StatePath) -> io::Result<()> {
        let (folder, name) = self.directory.parent(path)?;
        match mkdirat(&folder, name, Mode::RWXU) {
            Err(Errno::EXIST) if open_folder(folder.as_fd(), name).is_err() => {
                unlinkat(&folder, name, AtFlags::empty())?;
                Ok(mkdirat(&folder, name, Mode::RWXU)?)
            }
            Ok(()) | Err(Errno::EXIST) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn set_mode(&self, path: &StatePath, mode: u16) -> io::Result<()> {
        let file = File::from(self.open_any(path)?);
        file.set_permissions(Permissions::from_mode(mode.into()))?;
        file.sync_all()
    }

    fn open_any(&self, path: &StatePath) -> io::Result<OwnedFd> {
        let (folder, name) = self.directory.parent(path)?;
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        Ok(openat(&folder, name, flags, Mode::empty())?)
    }

    /// In place: what is beyond the acknowledged length is nobody's if this is interrupted. Returns whether another file has the
    /// name now.
    fn append(&self, path: &StatePath, size: u64, number: u64) -> io::Result<bool> {
        let (folder, name) = self.directory.parent(path)?;
        let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let mut file = File::from(openat(&folder, name, flags, Mode::empty())?);
        let found = file.metadata()?;
        if !found.is_file() || found.len() != size {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "a file has another length than the active knows",
            ));
        }
        let mut tail = self.directory.open_aside(number)?;
        let is_linked = found.nlink() > 1;
        if is_linked {
            // The other names are files of their own to the active.
            let mut whole = self.directory.create_aside(WHOLE)?;
            io::copy(&mut (&file).take(size), &mut whole)?;
            io::copy(&mut tail, &mut whole)?;
            whole.set_permissions(found.permissions())?;
            whole.sync_all()?;
            self.directory.move_aside_to(WHOLE, path)?;
        } else {
            file.seek(SeekFrom::Start(size))?;
            let appended = io::copy(&mut tail, &mut file).and_then(|_| file.sync_all());
            if appended.is_err() {
                // What the disk refused may be in memory still, where it would be taken for what is on the disk.
                file.set_len(size)?;
            }
            appended?;
        }
        self.directory.remove_aside(number)?;
        Ok(is_linked)
    }

    fn sync(&self, folders: &BTreeSet<Option<StatePath>>) -> io::Result<()> {
        for folder in folders {
            match folder {
                None => fsync(self.directory.root())?,
                // It may have been removed by a later step, whose folder is synced, too.
                Some(path) => match self.open_any(path) {
                    Ok(folder) => fsync(folder)?,
                    Err(error) if is_gone(&error) => {}
                    Err(error) => return Err(error),
                },
            }
        }
        Ok(())
    }
}

impl Drop for Inbox {
    /// What was not carried out takes space from whoever acts next. A large file takes its time to go, for which nobody waits but
    /// the next inbox.
    fn drop(&mut self) {
        if !self.has_asides {
            return;
        }
        let (directory, turn) = (self.directory.clone(), self.turn.take());
        let removal = move || {
            if let Err(error) = directory.remove_asides() {
                warn!(error = &error as &dyn std::error::Error, "Could not remove what was received in part");
            }
            drop(turn);
        };
        // Without a thread the next inbox removes it.
        drop(std::thread::Builder::new().spawn(removal));
    }
}

/// Removes a folder with what is left in it. Follows no symbolic link.
pub(super) fn remove_folder(parent: &OwnedFd, name: &[u8], deepest: usize) -> io::Result<()> {
    match unlinkat(parent, name, AtFlags::REMOVEDIR) {
        Err(Errno::NOTEMPTY | Errno::EXIST) if deepest > 0 => {}
        other => return Ok(other?),
    }
    let folder = open_folder(parent.as_fd(), name)?;
    for entry in Dir::read_from(&folder)? {
        let entry = entry?;
        let left = entry.file_name().to_bytes();
        if matches!(left, b"." | b"..") {
            continue;
        }
        match unlinkat(&folder, left, AtFlags::empty()) {
            Err(Errno::ISDIR | Errno::PERM) => remove_folder(&folder, left, deepest - 1)?,
            other => other?,
        }
    }
    Ok(unlinkat(parent, name, AtFlags::REMOVEDIR)?)
}
