//! Takes the words of a batch, keeps their content aside, and carries the batch out as a whole when it is complete.
//!
//! Nothing is changed in the state directory before the commit, and nothing at all without a pass of the door.

use std::collections::BTreeSet;
use std::fs::{File, Permissions};
use std::io::{self, Seek as _, SeekFrom, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt as _;

use rustix::fs::{AtFlags, Mode, OFlags, fsync, mkdirat, openat, unlinkat};
use rustix::io::Errno;

use super::directory::{StateDirectory, Turn};
use super::door::Pass;
use super::image::StatePath;
use super::scan::{ENTRIES_MAX, is_gone};
use super::word::Word;

/// Most steps of a batch: everything goes and everything comes.
const STEPS_MAX: usize = 2 * ENTRIES_MAX;

/// A batch that is being received.
#[derive(Debug)]
pub struct Inbox {
    directory: StateDirectory,
    steps: Vec<Step>,
    open: Option<File>,
    /// Number of the next file aside.
    next: u64,
    /// Work on a thread goes on after its connection is given up, and takes the inbox with it: until it ends, no other one
    /// may use the same names.
    _turn: Turn,
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

impl Inbox {
    /// An empty one.
    ///
    /// # Errors
    /// What an earlier one left behind cannot be removed.
    pub fn new(directory: StateDirectory, turn: Turn) -> io::Result<Self> {
        directory.remove_asides()?;
        Ok(Self { directory, steps: Vec::new(), open: None, next: 0, _turn: turn })
    }

    /// Takes a word that belongs to a batch.
    ///
    /// # Errors
    /// It belongs to none, or cannot be kept.
    pub fn take(&mut self, word: Word) -> io::Result<()> {
        if let Word::Piece(bytes) = &word {
            let file = self.open.as_mut().ok_or(io::ErrorKind::InvalidData)?;
            return file.write_all(bytes);
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
            | Word::Acknowledge(_) => return Err(io::ErrorKind::InvalidData.into()),
        };
        self.steps.push(step);
        Ok(())
    }

    /// Carries out the batch; when this returns it is on disk.
    ///
    /// # Errors
    /// A step is impossible: what was said does not fit what is there. The steps before it have been carried out.
    pub fn commit(&mut self, _pass: &Pass) -> io::Result<()> {
        self.close()?;
        let mut folders = BTreeSet::new();
        for step in std::mem::take(&mut self.steps) {
            let path = match step {
                Step::Remove(path) => {
                    self.remove(&path)?;
                    path
                }
                Step::MakeFolder(path, mode) => {
                    let (folder, name) = self.directory.parent(&path)?;
                    mkdirat(&folder, name, Mode::from_raw_mode(mode.into()))?;
                    self.set_mode(&path, mode)?;
                    path
                }
                Step::SetMode(path, mode) => {
                    self.set_mode(&path, mode)?;
                    path
                }
                Step::Place(path, number) => {
                    self.directory.move_aside_to(number, &path)?;
                    path
                }
                Step::Append(path, size, number) => {
                    self.append(&path, size, number)?;
                    continue;
                }
            };
            let bytes = path.as_bytes();
            let end = bytes.iter().rposition(|byte| *byte == b'/');
            folders.insert(end.and_then(|end| StatePath::parse(&bytes[..end])));
        }
        self.sync(&folders)
    }

    fn create(&mut self) -> io::Result<u64> {
        self.next += 1;
        self.open = Some(self.directory.create_aside(self.next)?);
        Ok(self.next)
    }

    fn close(&mut self) -> io::Result<()> {
        self.open.take().map_or(Ok(()), |file| file.sync_all())
    }

    fn remove(&self, path: &StatePath) -> io::Result<()> {
        let (folder, name) = self.directory.parent(path)?;
        match unlinkat(&folder, name, AtFlags::empty()) {
            Err(Errno::ISDIR | Errno::PERM) => Ok(unlinkat(&folder, name, AtFlags::REMOVEDIR)?),
            other => Ok(other?),
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

    /// In place: what is beyond the acknowledged length is nobody's if this is interrupted.
    fn append(&self, path: &StatePath, size: u64, number: u64) -> io::Result<()> {
        let (folder, name) = self.directory.parent(path)?;
        let flags = OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let mut file = File::from(openat(&folder, name, flags, Mode::empty())?);
        if !file.metadata()?.is_file() || file.metadata()?.len() != size {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "a file has another length than the active knows",
            ));
        }
        file.seek(SeekFrom::Start(size))?;
        let mut tail = self.directory.open_aside(number)?;
        io::copy(&mut tail, &mut file)?;
        file.sync_all()?;
        self.directory.remove_aside(number)
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
