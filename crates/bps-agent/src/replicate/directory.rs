//! A state directory on disk: reached by descriptors that follow no symbolic link, and with a folder of the agents' own.
//!
//! ```text
//! .bps-ha/id      number of the directory, hexadecimal: drawn when an agent first uses it
//! .bps-ha/epoch   uid of the Lease, and the highest epoch that was received for it
//! .bps-ha/new-*   what is being received
//! .bps-ha/torn    there while a batch of several steps is being carried out
//! .bps-ha/sync    socket on which the application asks for a barrier
//! .bps-ha/lease   uid of the Lease that it is of, hexadecimal, see [`lease`]
//! .bps-ha/former-*  state of a Lease that it was of before, which may be the only copy
//! .bps-ha/seat    of one of several seats that was given up, see `seats::folders`
//! ```

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, RwLock};

use bps_protocol::Epoch;
use bps_wire::level::DirectoryId;
use rustix::fs::{
    AtFlags, Dir, FileType, Mode, OFlags, fstatvfs, fsync, mkdirat, openat, renameat, unlinkat,
};
use rustix::io::Errno;
use tokio::sync::{Mutex, OwnedMutexGuard};
use tracing::warn;

use super::HIDDEN_FOLDER;
use super::image::StatePath;
use crate::draw::draw;

/// Permission bits of the agents' own folder. An application of another user reaches the socket in it, and sees no more.
const PASSABLE: Mode = Mode::from_bits_retain(0o711);
/// Beginning of the names of what is being received.
const ASIDE: &str = "new-";
const ID_FILE: &str = "id";
const EPOCH_FILE: &str = "epoch";
const TORN_FILE: &str = "torn";
/// Longest file of the agents' own. Unit: bytes.
const OWN_FILE_MAX_BYTES: u64 = 256;

/// A state directory. Clones share the descriptors.
#[derive(Clone, Debug)]
pub struct StateDirectory {
    root: Arc<OwnedFd>,
    hidden: Arc<OwnedFd>,
    path: PathBuf,
    id: Arc<RwLock<DirectoryId>>,
    turns: Arc<Mutex<()>>,
}

/// The right to receive into a state directory; one at a time.
#[derive(Debug)]
pub struct Turn {
    _guard: OwnedMutexGuard<()>,
}

impl StateDirectory {
    /// Opens it, and gives it a number if it has none, or another one if somebody stopped in the middle of a batch: what is
    /// there may be a mixture of two moments, and have neither.
    ///
    /// The number tells it from any other one, also from one at the same place that a restarted container has lost.
    ///
    /// # Errors
    /// It is no directory, cannot be written, or the system has no random numbers.
    pub fn open(path: &Path) -> io::Result<Self> {
        let root =
            rustix::fs::open(path, OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::RDONLY, Mode::empty())?;
        match mkdirat(&root, HIDDEN_FOLDER, PASSABLE) {
            Ok(()) => fsync(&root)?,
            Err(Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
        let hidden = open_folder(root.as_fd(), HIDDEN_FOLDER.as_bytes())?;
        let directory = Self {
            root: Arc::new(root),
            hidden: Arc::new(hidden),
            path: path.to_owned(),
            id: Arc::default(),
            turns: Arc::default(),
        };
        match directory.number()? {
            Some(id) => directory.set_id(id),
            None => drop(directory.renew()?),
        }
        if directory.read_own(TORN_FILE)?.is_some() {
            warn!(
                "The state directory was left in the middle of a batch: it counts as another one until it is level"
            );
            directory.renew()?;
            directory.end_steps()?;
        }
        directory.remove_asides()?;
        Ok(directory)
    }

    /// Waits until nobody receives into it. May be dropped and called again.
    pub async fn turn(&self) -> Turn {
        Turn { _guard: self.turns.clone().lock_owned().await }
    }

    /// The turn, if nobody receives into it now.
    pub fn try_turn(&self) -> Option<Turn> {
        self.turns.clone().try_lock_owned().ok().map(|guard| Turn { _guard: guard })
    }

    /// Its number.
    pub fn id(&self) -> DirectoryId {
        *self.id.read().expect("no holder of this lock panics")
    }

    /// Gives it another number: nothing that was said of the old one is said of it any more.
    ///
    /// # Errors
    /// The number cannot be kept, or the system has no random numbers; it has the old one then.
    pub fn renew(&self) -> io::Result<DirectoryId> {
        let id = draw()?;
        self.write_own(ID_FILE, &format!("{id:032x}\n"))?;
        self.set_id(DirectoryId(id));
        Ok(DirectoryId(id))
    }

    /// Whether its number is still what this process knows. If not, another agent uses the very same directory.
    ///
    /// # Errors
    /// The number cannot be read.
    pub fn is_own(&self) -> io::Result<bool> {
        Ok(self.number()? == Some(self.id()))
    }

    /// Takes over the number that is in it; returns whether that is what this process knew.
    ///
    /// # Errors
    /// The number cannot be read.
    pub fn read_number(&self) -> io::Result<bool> {
        let (known, number) = (self.id(), self.number()?);
        self.set_id(number.unwrap_or(known));
        Ok(number == Some(known))
    }

    fn number(&self) -> io::Result<Option<DirectoryId>> {
        let text = self.read_own(ID_FILE)?;
        Ok(text.and_then(|text| u128::from_str_radix(text.trim(), 16).ok()).map(DirectoryId))
    }

    fn set_id(&self, id: DirectoryId) {
        *self.id.write().expect("no holder of this lock panics") = id;
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Where the application finds the socket for barriers.
    pub fn socket_path(&self) -> PathBuf {
        self.path.join(HIDDEN_FOLDER).join("sync")
    }

    /// The directory itself.
    pub fn root(&self) -> BorrowedFd<'_> {
        self.root.as_fd()
    }

    /// Checks that its volume has this much room. Unit: bytes.
    ///
    /// # Errors
    /// `StorageFull` if it has less; or the file system does not answer.
    pub fn has_room(&self, needed: u64) -> io::Result<()> {
        let told = fstatvfs(&self.root)?;
        // What is left to processes without privileges: an agent mostly has none.
        if told.f_bavail.saturating_mul(told.f_frsize) < needed {
            return Err(io::ErrorKind::StorageFull.into());
        }
        Ok(())
    }

    /// The highest epoch that was received for this Lease.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn epoch(&self, group: u128) -> io::Result<Epoch> {
        let text = self.read_own(EPOCH_FILE)?.unwrap_or_default();
        let mut words = text.split_whitespace();
        let of = words.next().and_then(|word| u128::from_str_radix(word, 16).ok());
        let epoch = words.next().and_then(|word| word.parse::<u64>().ok()).map(Epoch::from);
        Ok(epoch.filter(|_| of == Some(group)).unwrap_or_default())
    }

    /// Keeps the epoch over restarts.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn keep_epoch(&self, group: u128, epoch: Epoch) -> io::Result<()> {
        self.write_own(EPOCH_FILE, &format!("{group:032x} {}\n", u64::from(epoch)))
    }

    /// The folder that a path ends in, and the last name. No part of the way may be a symbolic link.
    ///
    /// # Errors
    /// A part of the way is missing, or is no folder.
    pub fn parent<'a>(&self, path: &'a StatePath) -> io::Result<(OwnedFd, &'a [u8])> {
        let (folders, name) = path.parts();
        let mut folder = self.root.try_clone()?;
        for part in folders {
            folder = open_folder(folder.as_fd(), part)?;
        }
        Ok((folder, name))
    }

    /// A folder in it, or the directory itself.
    ///
    /// # Errors
    /// As [`StateDirectory::parent`].
    pub fn folder(&self, path: Option<&StatePath>) -> io::Result<OwnedFd> {
        let Some(path) = path else { return self.root.try_clone() };
        let (parent, name) = self.parent(path)?;
        open_folder(parent.as_fd(), name)
    }

    /// Notes on disk that what follows is to happen as a whole.
    ///
    /// # Errors
    /// What the kernel refused.
    pub fn begin_steps(&self) -> io::Result<()> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        drop(openat(&self.hidden, TORN_FILE, flags, Mode::RUSR | Mode::WUSR)?);
        Ok(fsync(&self.hidden)?)
    }

    /// It has happened as a whole, or the directory has another number.
    ///
    /// # Errors
    /// What the kernel refused.
    pub fn end_steps(&self) -> io::Result<()> {
        unlinkat(&self.hidden, TORN_FILE, AtFlags::empty())?;
        // A mark that comes back with the power would take its number from a copy that may be the only one then.
        Ok(fsync(&self.hidden)?)
    }

    /// Opens a regular file for reading.
    ///
    /// # Errors
    /// It is missing or something else.
    pub fn open_file(&self, path: &StatePath) -> io::Result<File> {
        let (folder, name) = self.parent(path)?;
        // Without waiting: a pipe that took the place of a file must not stop anybody.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let file = File::from(openat(&folder, name, flags, Mode::empty())?);
        if !file.metadata()?.is_file() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        Ok(file)
    }

    /// A new file for what is being received.
    ///
    /// # Errors
    /// What the kernel refused.
    pub fn create_aside(&self, number: u64) -> io::Result<File> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::TRUNC | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(openat(&self.hidden, aside(number), flags, Mode::RUSR | Mode::WUSR)?.into())
    }

    /// Opens what was received.
    ///
    /// # Errors
    /// What the kernel refused.
    pub fn open_aside(&self, number: u64) -> io::Result<File> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(openat(&self.hidden, aside(number), flags, Mode::empty())?.into())
    }

    /// Removes what was received.
    ///
    /// # Errors
    /// What the kernel refused.
    pub fn remove_aside(&self, number: u64) -> io::Result<()> {
        Ok(unlinkat(&self.hidden, aside(number), AtFlags::empty())?)
    }

    /// Puts what was received at its place, which is replaced as a whole.
    ///
    /// # Errors
    /// What the kernel refused, as if another file system is mounted there.
    pub fn move_aside_to(&self, number: u64, path: &StatePath) -> io::Result<()> {
        let (folder, name) = self.parent(path)?;
        renameat(&self.hidden, aside(number), &folder, name).map_err(|error| match error {
            Errno::XDEV => io::Error::new(
                io::ErrorKind::CrossesDevices,
                "something is mounted below the state directory: replicate a directory of one mount",
            ),
            other => other.into(),
        })
    }

    /// Removes what was being received when somebody stopped.
    ///
    /// # Errors
    /// What the kernel refused.
    pub fn remove_asides(&self) -> io::Result<()> {
        for entry in Dir::read_from(&self.hidden)? {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if name.starts_with(ASIDE.as_bytes()) && entry.file_type() != FileType::Directory {
                unlinkat(&self.hidden, name, AtFlags::empty())?;
            }
        }
        Ok(())
    }

    /// Reads a file of the agents' own; `None`: there is none.
    ///
    /// # Errors
    /// It cannot be read.
    pub(crate) fn read_own(&self, name: &str) -> io::Result<Option<String>> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = match openat(&self.hidden, name, flags, Mode::empty()) {
            Ok(file) => File::from(file),
            Err(Errno::NOENT) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let mut text = String::new();
        file.take(OWN_FILE_MAX_BYTES).read_to_string(&mut text)?;
        Ok(Some(text))
    }

    /// Removes a file of the agents' own, if there is one.
    ///
    /// # Errors
    /// It cannot be removed.
    pub(crate) fn remove_own(&self, name: &str) -> io::Result<()> {
        match unlinkat(&self.hidden, name, AtFlags::empty()) {
            Ok(()) => Ok(fsync(&self.hidden)?),
            Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Replaces a file of the agents' own, as a whole and on disk.
    ///
    /// # Errors
    /// It cannot be written.
    pub(crate) fn write_own(&self, name: &str, text: &str) -> io::Result<()> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let new = format!("{name}.new");
        let mut file = File::from(openat(&self.hidden, &new, flags, Mode::RUSR | Mode::WUSR)?);
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        renameat(&self.hidden, &new, &self.hidden, name)?;
        Ok(fsync(&self.hidden)?)
    }
}

/// Opens a folder that is no symbolic link.
///
/// # Errors
/// It is missing or something else.
pub fn open_folder(folder: BorrowedFd<'_>, name: &[u8]) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(openat(folder, std::ffi::OsStr::from_bytes(name), flags, Mode::empty())?)
}

fn aside(number: u64) -> String {
    format!("{ASIDE}{number}")
}

pub mod lease;
#[cfg(test)]
mod tests;
