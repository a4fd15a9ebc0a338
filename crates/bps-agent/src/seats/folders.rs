//! The state directories of the seats, and what is kept of the Lease that each of them had last.
//!
//! ```text
//! seats/<n>/.bps-ha/seat      uid of the Lease, hexadecimal; then, if the seat was given up, the count after it
//! ```

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{MetadataExt as _, chown};
use std::path::{Path, PathBuf};

use bps_protocol::SeatNumber;
use bps_wire::level::Level;

use super::choice::{FreeSeat, Past};
use super::link;
use crate::replicate::directory::StateDirectory;

/// Folder of the directories of all seats.
pub const SEATS: &str = "seats";
const SEAT_FILE: &str = "seat";

/// The state directory of one seat.
#[derive(Clone, Debug)]
pub struct SeatFolder {
    /// Which seat.
    pub number: SeatNumber,
    /// Where it is.
    pub path: PathBuf,
    /// The directory itself.
    pub directory: StateDirectory,
}

/// Opens the directories of so many seats, and makes those that are missing.
///
/// # Errors
/// One cannot be used, or something else has the name of the link.
pub fn open(directory: &Path, seats: u8) -> io::Result<Vec<SeatFolder>> {
    link::check(directory)?;
    let all = directory.join(SEATS);
    make_like(&all, directory)?;
    let opened = (0..seats).map(|number| {
        let path = all.join(number.to_string());
        make_like(&path, directory)?;
        let directory = StateDirectory::open(&path)?;
        Ok(SeatFolder { number: SeatNumber(number), path, directory })
    });
    opened.collect()
}

impl SeatFolder {
    /// The last Lease of the seat; `None`: there was none, or what is kept of it cannot be understood.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn past(&self) -> io::Result<Option<Past>> {
        Ok(self.directory.read_own(SEAT_FILE)?.as_deref().and_then(parse))
    }

    /// Notes that the seat has this Lease, which says this of state directories.
    ///
    /// A copy that is neither of this Lease nor in sync for it makes room for another one. The directory then gets
    /// another number, because the Lease that had the seat before may call the number that it has now in sync.
    ///
    /// # Errors
    /// A file cannot be read or written, or the system has no random numbers.
    pub fn take(&self, lease: u128, level: &Level) -> io::Result<()> {
        let (past, taken) = (self.past()?, Past { lease, given_up: None });
        if past == Some(taken) {
            // Since before a restart: a disk that is full is no reason to leave the pair.
            return Ok(());
        }
        let is_former = past.is_some_and(|past| past.lease == lease);
        if !is_former && !level.names(self.directory.id()) {
            self.directory.renew()?;
        }
        self.keep(taken)
    }

    /// The seat for the choice of one.
    ///
    /// # Errors
    /// What is kept of its last Lease cannot be read.
    pub fn as_free(&self) -> io::Result<FreeSeat> {
        Ok(FreeSeat { number: self.number, directory: self.directory.id(), past: self.past()? })
    }

    /// Notes that the seat was given up, after those that all other seats know of.
    ///
    /// # Errors
    /// A file of a seat cannot be read, or that of this one cannot be written.
    pub fn give_up(&self, all: &[Self]) -> io::Result<()> {
        let Some(past) = self.past()? else { return Ok(()) };
        let mut last = 0;
        for seat in all {
            last = seat.past()?.and_then(|past| past.given_up).unwrap_or_default().max(last);
        }
        self.keep(Past { given_up: Some(last.saturating_add(1)), ..past })
    }

    fn keep(&self, Past { lease, given_up }: Past) -> io::Result<()> {
        let count = given_up.map(|count| format!(" {count}")).unwrap_or_default();
        self.directory.write_own(SEAT_FILE, &format!("{lease:032x}{count}\n"))
    }
}

fn parse(text: &str) -> Option<Past> {
    let mut words = text.split_whitespace();
    let lease = u128::from_str_radix(words.next()?, 16).ok()?;
    let given_up = words.next().map(str::parse).transpose().ok()?;
    Some(Past { lease, given_up })
}

/// Makes a folder, if there is none, that its application may use as it may use this one.
fn make_like(path: &Path, like: &Path) -> io::Result<()> {
    if path.try_exists()? {
        return Ok(());
    }
    // Aside, so that a folder that is there is whole.
    let aside = path.with_extension("new");
    match fs::create_dir(&aside) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        Ok(()) | Err(_) => {}
    }
    let model = fs::metadata(like)?;
    match chown(&aside, Some(model.uid()), Some(model.gid())) {
        // An agent without privileges is mostly the user of the application.
        Err(error) if error.kind() != io::ErrorKind::PermissionDenied => return Err(error),
        Ok(()) | Err(_) => {}
    }
    // After it: a change of the owner may take bits away.
    fs::set_permissions(&aside, model.permissions())?;
    fs::rename(&aside, path)?;
    // A copy that is called in sync must be there after a loss of power.
    path.parent().map_or(Ok(()), |parent| File::open(parent)?.sync_all())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn past(seats: &[SeatFolder]) -> Vec<Option<(u128, Option<u64>)>> {
        let pasts = seats.iter().map(|seat| seat.past().unwrap());
        pasts.map(|past| past.map(|past| (past.lease, past.given_up))).collect()
    }

    #[test]
    fn each_seat_has_a_directory_with_a_number_of_its_own_that_it_keeps() {
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o770)).unwrap();
        let ids = |seats: u8| -> Vec<_> {
            open(folder.path(), seats).unwrap().iter().map(|seat| seat.directory.id()).collect()
        };
        let first = ids(2);
        assert_ne!(first[0], first[1]);
        assert_eq!(ids(3)[..2], first, "one more seat changes nothing of the others");
        let mode = fs::metadata(folder.path().join("seats/1")).unwrap().permissions().mode();
        assert_eq!(mode & 0o7777, 0o770);
        assert!(open(&folder.path().join("none"), 2).is_err());
    }

    #[test]
    fn seats_know_their_last_lease_and_in_which_order_they_were_given_up() {
        let folder = tempfile::tempdir().unwrap();
        let seats = open(folder.path(), 3).unwrap();
        assert_eq!(past(&seats), [None, None, None]);

        seats[0].give_up(&seats).unwrap();
        seats[2].take(8, &Level::Unsaid).unwrap();
        seats[1].take(9, &Level::Unsaid).unwrap();
        seats[2].give_up(&seats).unwrap();
        seats[1].give_up(&seats).unwrap();
        let expected = [None, Some((9, Some(2))), Some((8, Some(1)))];
        assert_eq!(past(&seats), expected);
        assert_eq!(past(&open(folder.path(), 3).unwrap()), expected, "after a restart");

        seats[2].take(8, &Level::Unsaid).unwrap();
        assert_eq!(past(&seats)[2], Some((8, None)));
    }

    #[test]
    fn what_was_said_of_a_copy_is_not_said_of_the_one_that_takes_its_place() {
        let folder = tempfile::tempdir().unwrap();
        let seats = open(folder.path(), 1).unwrap();
        // Whether the directory has the number that it had before this Lease took the seat.
        let keeps = |lease, is_in_sync: bool| {
            let before = seats[0].directory.id();
            let level = if is_in_sync { Level::Only([before].into()) } else { Level::Unsaid };
            seats[0].take(lease, &level).unwrap();
            seats[0].directory.id() == before
        };
        assert!(!keeps(8, false));
        assert!(keeps(8, false), "after a restart");
        seats[0].give_up(&seats).unwrap();
        assert!(keeps(8, false), "it is the former one");
        assert!(!keeps(9, false));
        assert!(keeps(10, true), "it has what this Lease needs");
        assert_eq!(seats[0].as_free().unwrap().past, Some(Past { lease: 10, given_up: None }));
    }
}
