//! The state directories of the seats, and what is kept of the Lease that each of them had last.
//!
//! ```text
//! seats/<n>/.bps-ha/lease     the last Lease, see `replicate::directory::lease`
//! seats/<n>/.bps-ha/seat      if the seat was given up: uid of that Lease, hexadecimal, and the count after it
//! ```
//!
//! A volume that outlives its Pod may come to an agent with another number of seats. No copy on it is passed over or
//! acted with by mistake: the agent refuses to start, and says what the user does.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{MetadataExt as _, chown};
use std::path::Path;

use bps_protocol::SeatNumber;
use bps_wire::level::Level;

use super::choice::{FreeSeat, SeatPast};
use super::link;
use crate::replicate::HIDDEN_FOLDER;
use crate::replicate::directory::StateDirectory;
use crate::replicate::directory::lease::{DirectoryLease, FormerState};

/// Folder of the directories of all seats.
pub const SEATS: &str = "seats";
/// Most seats of an agent, as `--standby-for` permits.
const SEATS_MAX: u8 = 8;
const SEAT_FILE: &str = "seat";

/// The state directory of one seat.
#[derive(Clone, Debug)]
pub struct SeatFolder {
    /// Which seat.
    pub number: SeatNumber,
    /// The directory itself.
    pub directory: StateDirectory,
}

/// Opens the directories of so many seats, and makes those that are missing.
///
/// # Errors
/// One cannot be used, something else has the name of the link, or there is a copy of an agent with another number of
/// seats.
pub fn open(directory: &Path, seats: u8) -> io::Result<Vec<SeatFolder>> {
    link::check(directory)?;
    check_for_several(directory, seats)?;
    let all = directory.join(SEATS);
    make_like(&all, directory)?;
    let opened = (0..seats).map(|number| {
        make_like(&all.join(number.to_string()), directory)?;
        SeatFolder::open(directory, number)
    });
    opened.collect()
}

/// Checks that an agent with one seat, whose copy is the directory itself, finds no seats there.
///
/// # Errors
/// There are some, or the directory cannot be read.
pub fn check_for_one(directory: &Path) -> io::Result<()> {
    for number in 0..SEATS_MAX {
        if is_used(&directory.join(SEATS).join(number.to_string()))? {
            return Err(refused(format!(
                "{directory} has the state of several seats: use --standby-for as before, or move what is in \
                 {directory}/seats/<n>, .bps-ha too, to {directory}, where <n> is the seat to go on with, and remove \
                 {directory}/seats and {directory}/active",
                directory = directory.display()
            )));
        }
    }
    Ok(())
}

/// Checks that so many seats leave no copy out.
fn check_for_several(directory: &Path, seats: u8) -> io::Result<()> {
    if is_used(directory)? {
        return Err(refused(format!(
            "{directory} has the state of an agent with one seat: move what is in it, .bps-ha too, to \
             {directory}/seats/0, or leave --standby-for out",
            directory = directory.display()
        )));
    }
    for number in (seats..SEATS_MAX).rev() {
        if !is_used(&directory.join(SEATS).join(number.to_string()))? {
            continue;
        }
        match SeatFolder::open(directory, number)?.past()? {
            SeatPast::Nothing | SeatPast::Lease { given_up: Some(_), .. } => {}
            SeatPast::Lease { given_up: None, .. } | SeatPast::Unreadable => {
                return Err(refused(format!(
                    "{directory}/seats/{number} may be the only copy of a pair's state: use --standby-for={least}, or \
                     move that folder elsewhere",
                    directory = directory.display(),
                    least = number + 1
                )));
            }
        }
    }
    Ok(())
}

/// Whether an agent has used a state directory.
fn is_used(directory: &Path) -> io::Result<bool> {
    directory.join(HIDDEN_FOLDER).join("id").try_exists()
}

fn refused(message: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, message)
}

impl SeatFolder {
    fn open(directory: &Path, number: u8) -> io::Result<Self> {
        let directory = StateDirectory::open(&directory.join(SEATS).join(number.to_string()))?;
        Ok(Self { number: SeatNumber(number), directory })
    }

    /// What the seat had last.
    ///
    /// # Errors
    /// A file cannot be read.
    pub fn past(&self) -> io::Result<SeatPast> {
        Ok(match self.directory.lease()? {
            DirectoryLease::Unset => SeatPast::Nothing,
            DirectoryLease::Unreadable => SeatPast::Unreadable,
            DirectoryLease::Uid(lease) => {
                let note = self.directory.read_own(SEAT_FILE)?;
                let given_up = note.as_deref().and_then(parse).filter(|(of, _)| *of == lease);
                SeatPast::Lease { lease, given_up: given_up.map(|(_, count)| count) }
            }
        })
    }

    /// Notes that the seat has this Lease, which says this of state directories.
    ///
    /// A copy that is neither of this Lease nor in sync for it makes room for another one. It is set aside unless the
    /// seat was given up: then its former Lease needs nothing of it.
    ///
    /// # Errors
    /// As [`StateDirectory::belong_to`].
    pub fn take(&self, lease: u128, level: &Level) -> io::Result<()> {
        let former = match self.past()? {
            SeatPast::Lease { given_up: Some(_), .. } => FormerState::Removed,
            SeatPast::Nothing | SeatPast::Lease { given_up: None, .. } | SeatPast::Unreadable => {
                FormerState::SetAside
            }
        };
        self.directory.belong_to(lease, level, former)?;
        self.directory.remove_own(SEAT_FILE)
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
        let SeatPast::Lease { lease, .. } = self.past()? else { return Ok(()) };
        let mut last = 0;
        for seat in all {
            if let SeatPast::Lease { given_up: Some(count), .. } = seat.past()? {
                last = count.max(last);
            }
        }
        self.directory.write_own(SEAT_FILE, &format!("{lease:032x} {}\n", last.saturating_add(1)))
    }
}

/// The Lease that a seat had when it was given up, and the count.
fn parse(text: &str) -> Option<(u128, u64)> {
    let (lease, count) = text.trim().split_once(' ')?;
    Some((u128::from_str_radix(lease, 16).ok()?, count.parse().ok()?))
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
        let pasts = seats.iter().map(|seat| match seat.past().unwrap() {
            SeatPast::Nothing => None,
            SeatPast::Lease { lease, given_up } => Some((lease, given_up)),
            SeatPast::Unreadable => panic!("seat {}", seat.number.0),
        });
        pasts.collect()
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
        assert!(keeps(8, false), "it is of no Lease before");
        assert!(keeps(8, false), "after a restart");
        seats[0].give_up(&seats).unwrap();
        assert!(keeps(8, false), "it is the former one");
        assert!(!keeps(9, false));
        assert!(keeps(10, true), "it has what this Lease needs");
        assert_eq!(seats[0].as_free().unwrap().past, SeatPast::Lease { lease: 10, given_up: None });
    }

    #[test]
    fn state_of_a_former_lease_is_removed_from_a_seat_that_was_given_up_and_else_set_aside() {
        let folder = tempfile::tempdir().unwrap();
        let seats = open(folder.path(), 1).unwrap();
        let root = folder.path().join("seats/0");
        let write = || fs::write(root.join("log"), "state").unwrap();
        let [kept, replaced] =
            [8, 9].map(|lease: u128| root.join(format!(".bps-ha/former-{lease:032x}/log")));
        write();
        seats[0].take(8, &Level::Unsaid).unwrap();
        assert!(root.join("log").exists(), "a seed");
        seats[0].take(9, &Level::Unsaid).unwrap();
        assert!(!root.join("log").exists() && kept.exists());
        write();
        seats[0].give_up(&seats).unwrap();
        seats[0].take(10, &Level::Unsaid).unwrap();
        assert!(!root.join("log").exists() && !replaced.exists() && !kept.exists());
    }

    #[test]
    fn a_note_that_cannot_be_understood_does_not_make_a_seat_empty_or_given_up() {
        let folder = tempfile::tempdir().unwrap();
        let seats = open(folder.path(), 2).unwrap();
        seats[0].take(8, &Level::Unsaid).unwrap();
        for wrong in ["", "8", "x 1", "9 1"] {
            seats[0].directory.write_own(SEAT_FILE, wrong).unwrap();
            assert_eq!(past(&seats)[0], Some((8, None)), "{wrong:?}");
        }
        seats[0].directory.write_own("lease", "what").unwrap();
        assert_eq!(seats[0].as_free().unwrap().past, SeatPast::Unreadable);
    }

    #[test]
    fn a_copy_of_an_agent_with_another_number_of_seats_is_not_passed_over() {
        let told = |refused: io::Result<()>| refused.map_err(|error| error.to_string());
        let several = |folder: &Path, seats| told(open(folder, seats).map(drop));

        let one = tempfile::tempdir().unwrap();
        drop(StateDirectory::open(one.path()).unwrap());
        assert_eq!(told(check_for_one(one.path())), Ok(()));
        let error = several(one.path(), 2).unwrap_err();
        assert!(error.contains("/seats/0") && error.contains("leave --standby-for out"), "{error}");
        assert_eq!(fs::read_dir(one.path()).unwrap().count(), 1, "nothing is made");

        let three = tempfile::tempdir().unwrap();
        let seats = open(three.path(), 3).unwrap();
        assert_eq!(several(three.path(), 2), Ok(()), "a seat that never had a Lease");
        seats[2].take(8, &Level::Unsaid).unwrap();
        let error = several(three.path(), 2).unwrap_err();
        assert!(error.contains("/seats/2 may be") && error.contains("--standby-for=3"), "{error}");
        seats[2].give_up(&seats).unwrap();
        assert_eq!(several(three.path(), 2), Ok(()), "its Lease needs nothing of it");
        let error = told(check_for_one(three.path())).unwrap_err();
        assert!(error.contains("use --standby-for as before"), "{error}");
    }
}
