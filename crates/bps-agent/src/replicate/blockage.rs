//! Reasons for which the standby does not get the state: an active's own look fails, or the standby refuses what it gets.

use std::io;

use bps_api::LagReason;
use rustix::io::Errno;

use super::scan::LookTrouble;

/// Longest path that is shown. Unit: bytes. 100: the annotation of the Lease stays below the 256 bytes that operators of
/// earlier releases read, and an answer to a barrier is one short line.
const SHOWN_PATH_MAX_BYTES: usize = 100;
/// End of a path that was shortened.
const CUT: &str = "...";

/// Reason for which the standby does not get the state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blockage {
    /// The reason.
    pub reason: LagReason,
    /// Path below the state directory that it is about, as [`shown`] gives it.
    pub path: Option<String>,
}

impl Blockage {
    /// Classifies the error of a look.
    ///
    /// Errors of the medium are those that a healthy disk does not return for any file. Every other error is about what
    /// is there: another disk with the same files would return it as well.
    pub fn of_look(error: &io::Error) -> Self {
        let trouble = error.get_ref().and_then(|inner| inner.downcast_ref::<LookTrouble>());
        let (is_of_disk, path) = match trouble {
            Some(LookTrouble::Unreliable) => (true, None),
            Some(LookTrouble::Unreplicable { path, .. }) => (false, Some(path)),
            Some(LookTrouble::At { path, source }) => (is_of_disk(source), Some(path)),
            None => (is_of_disk(error), None),
        };
        let reason = if is_of_disk { LagReason::ActiveDiskFails } else { LagReason::Unreplicable };
        Self { reason, path: path.cloned() }
    }

    /// Text for an application whose barrier is not kept because of this. One line.
    pub fn refusal(&self) -> String {
        match &self.path {
            Some(path) => {
                format!("the state directory cannot be replicated: {path}; see the log of the agent")
            }
            None => "the state directory cannot be read; see the log of the agent".to_owned(),
        }
    }
}

impl From<StateRefusal> for Blockage {
    fn from(refusal: StateRefusal) -> Self {
        let reason = match refusal {
            StateRefusal::Full => LagReason::StandbyFull,
            StateRefusal::Failed => LagReason::StandbyDiskFails,
        };
        Self { reason, path: None }
    }
}

/// Reason for which a standby takes nothing, as its last word says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StateRefusal {
    /// Its volume has no room.
    #[error("the standby's volume is full")]
    Full,
    /// Its disk refused something else.
    #[error("the standby's disk refused the state")]
    Failed,
}

impl StateRefusal {
    /// Every reason.
    pub const ALL: [Self; 2] = [Self::Full, Self::Failed];

    /// Number on the wire.
    pub fn code(self) -> u8 {
        match self {
            Self::Full => 1,
            Self::Failed => 2,
        }
    }

    /// The reason with this number; `None` if there is none.
    pub fn of_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|refusal| refusal.code() == code)
    }

    /// The reason behind an error of the standby's work on its own directory; `None` if its disk is not the reason.
    pub fn of(error: &io::Error) -> Option<Self> {
        use io::ErrorKind::{CrossesDevices, StorageFull};
        let error = innermost(error);
        match (Errno::from_io_error(error), error.kind()) {
            (Some(Errno::NOSPC | Errno::DQUOT), _) | (None, StorageFull) => Some(Self::Full),
            (Some(_), _) | (None, CrossesDevices) => Some(Self::Failed),
            (None, _) => None,
        }
    }

    /// The reason in an error of a connection that the standby ended with it.
    pub fn in_error(error: &io::Error) -> Option<Self> {
        error.get_ref().and_then(|inner| inner.downcast_ref::<Self>()).copied()
    }
}

/// A path or name as people may read it: on one line, without control characters, and shortened.
pub fn shown(path: &[u8]) -> String {
    let text = String::from_utf8_lossy(path);
    let mut shown: String = text
        .chars()
        .map(|letter| if letter.is_control() { char::REPLACEMENT_CHARACTER } else { letter })
        .collect();
    if shown.len() > SHOWN_PATH_MAX_BYTES {
        let ends = (0..=SHOWN_PATH_MAX_BYTES - CUT.len()).rev();
        let end = ends.into_iter().find(|end| shown.is_char_boundary(*end));
        shown.truncate(end.unwrap_or_default());
        shown.push_str(CUT);
    }
    shown
}

/// Whether the medium below a directory failed.
fn is_of_disk(error: &io::Error) -> bool {
    const OF_DISK: [Errno; 11] = [
        Errno::IO,
        Errno::ROFS,
        Errno::NOSPC,
        Errno::DQUOT,
        Errno::STALE,
        Errno::NODEV,
        Errno::NXIO,
        Errno::TIMEDOUT,
        Errno::REMOTEIO,
        Errno::UCLEAN,
        Errno::BADMSG,
    ];
    Errno::from_io_error(innermost(error)).is_some_and(|errno| OF_DISK.contains(&errno))
}

/// The error that others wrap.
fn innermost(error: &io::Error) -> &io::Error {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<io::Error>());
    inner.map_or(error, innermost)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_system(errno: Errno) -> io::Error {
        io::Error::from_raw_os_error(errno.raw_os_error())
    }

    fn at(errno: Errno) -> io::Error {
        let trouble = LookTrouble::At { path: "a/b".into(), source: of_system(errno) };
        io::Error::other(trouble)
    }

    #[test]
    fn an_error_of_the_medium_is_the_disk_s_and_any_other_one_is_about_what_is_there() {
        let (fails, unreplicable) = (LagReason::ActiveDiskFails, LagReason::Unreplicable);
        let path = || Some("a/b".to_owned());
        let table = [
            (of_system(Errno::IO), fails, None),
            (at(Errno::IO), fails, path()),
            (at(Errno::ROFS), fails, path()),
            (at(Errno::ACCESS), unreplicable, path()),
            (at(Errno::MFILE), unreplicable, path()),
            (io::Error::other(LookTrouble::Unreliable), fails, None),
            (
                io::Error::other(LookTrouble::Unreplicable {
                    path: "a/b".into(),
                    advice: "shorten it".into(),
                }),
                unreplicable,
                path(),
            ),
            (io::Error::other("task panicked"), unreplicable, None),
        ];
        for (error, reason, path) in table {
            assert_eq!(Blockage::of_look(&error), Blockage { reason, path }, "{error:?}");
        }
    }

    #[test]
    fn a_standby_names_a_reason_for_its_own_disk_only() {
        let table = [
            (of_system(Errno::NOSPC), Some(StateRefusal::Full)),
            (io::Error::other(of_system(Errno::NOSPC)), Some(StateRefusal::Full)),
            (of_system(Errno::DQUOT), Some(StateRefusal::Full)),
            (of_system(Errno::IO), Some(StateRefusal::Failed)),
            (io::Error::other(of_system(Errno::ROFS)), Some(StateRefusal::Failed)),
            (io::Error::other(io::Error::from(io::ErrorKind::CrossesDevices)), Some(StateRefusal::Failed)),
            // The active said what does not fit, or the door is closed.
            (io::ErrorKind::InvalidData.into(), None),
            (io::ErrorKind::PermissionDenied.into(), None),
        ];
        for (error, expected) in table {
            assert_eq!(StateRefusal::of(&error), expected, "{error:?}");
        }
    }

    #[test]
    fn a_path_is_shown_on_one_short_line() {
        assert_eq!(shown(b"a/b c"), "a/b c");
        assert_eq!(shown(b"a\nok 1 2\xff"), "a\u{fffd}ok 1 2\u{fffd}");
        let long = shown("\u{fc}".repeat(200).as_bytes());
        assert!(long.len() <= SHOWN_PATH_MAX_BYTES && long.ends_with("..."), "{long}");
    }
}
