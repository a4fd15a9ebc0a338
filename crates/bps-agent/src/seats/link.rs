//! Points the application at the state directory of the seat that acts.
//!
//! The launcher does so before each start: the agent itself must not wait for a disk, and an application must not start
//! at all if the link may lead to the state of another pair.

use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use bps_protocol::SeatNumber;

use super::folders::SEATS;

/// Name of the link in the state directory.
pub const ACTIVE: &str = "active";
/// The next link, until it is renamed.
const ASIDE: &str = "active.new";

/// Where the link of a state directory is to lead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ActiveLink {
    /// The state directory.
    pub directory: PathBuf,
    /// The seat that acts.
    pub seat: SeatNumber,
}

impl ActiveLink {
    /// As the value of a variable; `None`: the name of the directory is no text.
    pub fn text(&self) -> Option<String> {
        self.directory.to_str().map(|directory| format!("{}:{directory}", self.seat.0))
    }

    /// Reads such a value; `None` if it is none.
    pub fn of_text(text: &str) -> Option<Self> {
        let (seat, directory) = text.split_once(':')?;
        Some(Self { directory: directory.into(), seat: SeatNumber(seat.parse().ok()?) })
    }

    /// Replaces the link: who looks sees the former one or this one.
    ///
    /// # Errors
    /// What the kernel refused, as if something else has the name of the link.
    pub fn point(&self) -> io::Result<()> {
        let aside = self.directory.join(ASIDE);
        match fs::remove_file(&aside) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            Ok(()) | Err(_) => {}
        }
        // Relative: the volume may be mounted elsewhere in another container.
        symlink(Path::new(SEATS).join(self.seat.0.to_string()), &aside)?;
        fs::rename(&aside, self.directory.join(ACTIVE))
    }
}

/// Checks that nothing else than the link has its name.
///
/// # Errors
/// Something else has, or the directory cannot be read.
pub fn check(directory: &Path) -> io::Result<()> {
    let path = directory.join(ACTIVE);
    match fs::symlink_metadata(&path) {
        Ok(found) if found.is_symlink() => Ok(()),
        Ok(_) => Err(io::Error::new(
            io::ErrorKind::AlreadyExists,
            format!(
                "{} is no link: with --standby-for the agent makes one there to the state of the seat that acts; \
                 move what is there elsewhere",
                path.display()
            ),
        )),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link(directory: &Path, seat: u8) -> ActiveLink {
        ActiveLink { directory: directory.to_owned(), seat: SeatNumber(seat) }
    }

    #[test]
    fn a_link_is_read_as_it_was_written_and_nothing_else_is_one() {
        for directory in ["/state", "/a:b/\u{fc}", "relative"] {
            let link = link(Path::new(directory), 7);
            assert_eq!(link.text().and_then(|text| ActiveLink::of_text(&text)), Some(link));
        }
        for wrong in ["", "/state", "x:/state", "256:/state"] {
            assert_eq!(ActiveLink::of_text(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn the_link_leads_to_the_last_seat_also_after_a_launcher_was_killed() {
        let folder = tempfile::tempdir().unwrap();
        let leads_to = || fs::read_link(folder.path().join(ACTIVE)).unwrap();
        for seat in [0, 3, 3] {
            link(folder.path(), seat).point().unwrap();
            assert_eq!(leads_to(), Path::new("seats").join(seat.to_string()));
        }
        symlink("nowhere", folder.path().join(ASIDE)).unwrap();
        link(folder.path(), 1).point().unwrap();
        assert_eq!(leads_to(), Path::new("seats/1"));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
        check(folder.path()).unwrap();
    }

    #[test]
    fn what_is_no_link_is_kept_and_named() {
        let folder = tempfile::tempdir().unwrap();
        check(folder.path()).unwrap();
        fs::create_dir(folder.path().join(ACTIVE)).unwrap();
        assert!(link(folder.path(), 0).point().is_err());
        let error = check(folder.path()).unwrap_err().to_string();
        assert!(error.contains("/active is no link") && error.contains("move what is there"), "{error}");
    }
}
