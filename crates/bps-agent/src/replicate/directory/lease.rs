//! Which Lease a state directory is of, and what becomes of its number and its content when another Lease takes it.
//!
//! A Lease names directories by their numbers. A number must not outlast the state that it was said of: an agent that
//! came back to its former Lease would act with the state of another pair.

use std::ffi::CString;
use std::io;
use std::os::fd::AsFd as _;

use bps_wire::level::Level;
use rustix::fs::{Dir, Mode, fsync, mkdirat, renameat};
use rustix::io::Errno;
use tracing::warn;

use super::{StateDirectory, open_folder};
use crate::replicate::HIDDEN_FOLDER;
use crate::replicate::image::PATH_MAX_PARTS;
use crate::replicate::inbox::remove_folder;

const LEASE_FILE: &str = "lease";
/// Beginning of the names of folders with the content of a former Lease.
const FORMER: &str = "former-";

/// The Lease that a state directory is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DirectoryLease {
    /// None yet: what is in the directory, if anything, came with it.
    Unset,
    /// The one with this uid.
    Uid(u128),
    /// One, but the note of it cannot be understood.
    Unreadable,
}

/// What becomes of state of a former Lease that the next one does not call in sync.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FormerState {
    /// It stays, and an application that acts before any other one begins with it: the volume is the Pod's.
    Stays,
    /// It is moved aside, because it may be the only copy.
    SetAside,
    /// It is removed: the former Lease needs nothing of it.
    Removed,
}

impl StateDirectory {
    /// The Lease that it is of.
    ///
    /// # Errors
    /// The note cannot be read.
    pub fn lease(&self) -> io::Result<DirectoryLease> {
        let Some(text) = self.read_own(LEASE_FILE)? else { return Ok(DirectoryLease::Unset) };
        let uid = u128::from_str_radix(text.trim(), 16);
        Ok(uid.map_or(DirectoryLease::Unreadable, DirectoryLease::Uid))
    }

    /// Notes that it is of this Lease, which says this of state directories. To be called before anything is received
    /// for the Lease, or acted by it.
    ///
    /// A directory of another Lease gets another number, unless this Lease calls it in sync: the operator makes a Lease
    /// that was deleted again with the same directories.
    ///
    /// # Errors
    /// A batch of the former Lease is still being carried out; it is not known whether this Lease calls the directory
    /// in sync; or a file cannot be read or written. The agent must not join the Lease then.
    pub fn belong_to(&self, lease: u128, level: &Level, former: FormerState) -> io::Result<()> {
        let before = self.lease()?;
        if before == DirectoryLease::Uid(lease) {
            return Ok(());
        }
        let Some(_turn) = self.try_turn() else {
            return Err(io::Error::new(
                io::ErrorKind::ResourceBusy,
                "a batch of the former Lease is still being carried out",
            ));
        };

        match before {
            DirectoryLease::Unset => {}
            DirectoryLease::Uid(_) | DirectoryLease::Unreadable => {
                self.change_lease(before, level, former)?;
            }
        }
        self.write_own(LEASE_FILE, &format!("{lease:032x}\n"))
    }

    fn change_lease(&self, before: DirectoryLease, level: &Level, former: FormerState) -> io::Result<()> {
        if level.names(self.id()) {
            return Ok(());
        }
        if *level == Level::Unreadable {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "the annotation ha-in-sync of the Lease cannot be read, and may name the state directory: correct it",
            ));
        }
        // First: what is moved is in sync for no Lease any more.
        self.renew()?;
        match former {
            FormerState::Stays => Ok(()),
            FormerState::SetAside => self.set_aside(before),
            FormerState::Removed => {
                self.set_aside(before)?;
                self.remove_former(None);
                Ok(())
            }
        }
    }

    /// Moves all that is not the agents' own into a folder of theirs. What an attempt before has moved stays there, and
    /// what was set aside of an earlier Lease goes.
    fn set_aside(&self, before: DirectoryLease) -> io::Result<()> {
        let name = match before {
            DirectoryLease::Uid(lease) => format!("{FORMER}{lease:032x}"),
            DirectoryLease::Unset | DirectoryLease::Unreadable => format!("{FORMER}unknown"),
        };
        self.remove_former(Some(&name));
        match mkdirat(&self.hidden, &name, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
        let aside = open_folder(self.hidden.as_fd(), name.as_bytes())?;

        for entry in entries(Dir::read_from(&self.root)?)? {
            if entry.as_bytes() != HIDDEN_FOLDER.as_bytes() {
                renameat(&self.root, &entry, &aside, &entry)?;
            }
        }
        fsync(&aside)?;
        fsync(&self.hidden)?;
        Ok(fsync(&self.root)?)
    }

    /// Removes what was set aside, but for the folder of this name. It only takes room, so that a failure stops
    /// nothing.
    fn remove_former(&self, except: Option<&str>) {
        let removed = || {
            for entry in entries(Dir::read_from(&self.hidden)?)? {
                let name = entry.as_bytes();
                if name.starts_with(FORMER.as_bytes()) && Some(name) != except.map(str::as_bytes) {
                    remove_folder(&self.hidden, name, PATH_MAX_PARTS)?;
                }
            }
            Ok::<_, io::Error>(())
        };
        if let Err(error) = removed() {
            warn!(error = &error as &dyn std::error::Error, "Could not remove the state of a former Lease");
        }
    }
}

/// Names in a folder. All of them at once: entries must not be moved while a folder is being read.
fn entries(folder: Dir) -> io::Result<Vec<CString>> {
    let names = folder.map(|entry| Ok(entry?.file_name().to_owned()));
    let is_entry =
        |name: &io::Result<CString>| !name.as_ref().is_ok_and(|name| matches!(name.as_bytes(), b"." | b".."));
    names.filter(is_entry).collect()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;
    use crate::replicate::gate::{PromoteWhen, may_take};

    fn only(directory: &StateDirectory) -> Level {
        Level::Only([directory.id()].into())
    }

    fn names(folder: &Path) -> Vec<String> {
        let names =
            fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<_> = names.filter(|name| name != HIDDEN_FOLDER).collect();
        names.sort();
        names
    }

    /// A Pod goes from one pair to another one and back, and its first Lease has said nothing since.
    #[test]
    fn a_directory_that_has_state_of_another_lease_may_not_act_by_the_former_one() {
        let folder = tempfile::tempdir().unwrap();
        let directory = StateDirectory::open(folder.path()).unwrap();
        directory.belong_to(8, &Level::Unsaid, FormerState::Stays).unwrap();
        let in_sync = only(&directory);
        for (lease, may) in [(8, true), (9, false), (8, false)] {
            let level = if lease == 8 { &in_sync } else { &Level::Unsaid };
            directory.belong_to(lease, level, FormerState::Stays).unwrap();
            assert_eq!(may_take(PromoteWhen::InSync, &in_sync, directory.id()), may, "{lease}");
        }
    }

    #[test]
    fn a_directory_keeps_its_number_where_it_belongs_or_is_in_sync_and_one_without_lease_keeps_it_too() {
        let folder = tempfile::tempdir().unwrap();
        let directory = StateDirectory::open(folder.path()).unwrap();
        let id = directory.id();
        let steps = [(8, Level::Unsaid), (8, Level::Unreadable), (9, only(&directory)), (9, Level::Unsaid)];
        for (lease, level) in steps {
            directory.belong_to(lease, &level, FormerState::Removed).unwrap();
            assert_eq!((directory.id(), directory.lease().unwrap()), (id, DirectoryLease::Uid(lease)));
        }
        let reopened = StateDirectory::open(folder.path()).unwrap();
        assert_eq!((reopened.id(), reopened.lease().unwrap()), (id, DirectoryLease::Uid(9)));
    }

    #[test]
    fn a_lease_that_cannot_be_read_and_a_batch_that_is_not_over_leave_all_as_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let directory = StateDirectory::open(folder.path()).unwrap();
        directory.belong_to(8, &Level::Unsaid, FormerState::Removed).unwrap();
        fs::write(folder.path().join("log"), "8").unwrap();
        let id = directory.id();
        let refused = directory.belong_to(9, &Level::Unreadable, FormerState::Removed).unwrap_err();
        assert!(refused.to_string().contains("ha-in-sync"), "{refused}");
        let turn = directory.try_turn().unwrap();
        let busy = directory.belong_to(9, &Level::Unsaid, FormerState::Removed).unwrap_err();
        assert_eq!(busy.kind(), io::ErrorKind::ResourceBusy);
        drop(turn);
        assert_eq!((directory.id(), directory.lease().unwrap()), (id, DirectoryLease::Uid(8)));
        assert_eq!(names(folder.path()), ["log"]);
    }

    #[test]
    fn state_of_a_former_lease_stays_or_is_set_aside_or_removed_and_seeds_stay() {
        let folder = tempfile::tempdir().unwrap();
        let aside = |lease: u128| folder.path().join(HIDDEN_FOLDER).join(format!("{FORMER}{lease:032x}"));
        let write = |content: &str| {
            fs::create_dir_all(folder.path().join("deep/er")).unwrap();
            fs::write(folder.path().join("deep/er/log"), content).unwrap();
        };
        write("seed");
        let directory = StateDirectory::open(folder.path()).unwrap();
        directory.belong_to(7, &Level::Unsaid, FormerState::Removed).unwrap();
        assert_eq!(names(folder.path()), ["deep"]);
        directory.belong_to(8, &Level::Unsaid, FormerState::Stays).unwrap();
        assert_eq!(names(folder.path()), ["deep"]);

        directory.belong_to(9, &Level::Unsaid, FormerState::SetAside).unwrap();
        assert_eq!((names(folder.path()), names(&aside(8))), (vec![], vec!["deep".to_owned()]));
        write("9");
        directory.belong_to(10, &Level::Unsaid, FormerState::SetAside).unwrap();
        assert_eq!((names(folder.path()), names(&aside(9))), (vec![], vec!["deep".to_owned()]));
        assert!(!aside(8).exists(), "one Lease at most takes room");
        write("10");
        directory.belong_to(11, &Level::Unsaid, FormerState::Removed).unwrap();
        assert_eq!(names(folder.path()), Vec::<String>::new());
        assert!(!aside(9).exists() && !aside(10).exists());
    }

    #[test]
    fn an_attempt_that_was_interrupted_goes_on() {
        let folder = tempfile::tempdir().unwrap();
        let directory = StateDirectory::open(folder.path()).unwrap();
        directory.belong_to(8, &Level::Unsaid, FormerState::SetAside).unwrap();
        fs::write(folder.path().join("one"), "8").unwrap();
        directory.set_aside(DirectoryLease::Uid(8)).unwrap();
        fs::write(folder.path().join("two"), "8").unwrap();
        directory.belong_to(9, &Level::Unsaid, FormerState::SetAside).unwrap();
        let aside = folder.path().join(HIDDEN_FOLDER).join(format!("{FORMER}{:032x}", 8));
        assert_eq!(names(&aside), ["one", "two"]);
    }

    #[test]
    fn a_note_that_cannot_be_understood_counts_as_that_of_another_lease() {
        let folder = tempfile::tempdir().unwrap();
        let directory = StateDirectory::open(folder.path()).unwrap();
        directory.write_own(LEASE_FILE, "\n").unwrap();
        let id = directory.id();
        assert_eq!(directory.lease().unwrap(), DirectoryLease::Unreadable);
        directory.belong_to(8, &Level::Unsaid, FormerState::SetAside).unwrap();
        assert_ne!(directory.id(), id);
    }
}
