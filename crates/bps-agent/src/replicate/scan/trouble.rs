//! What may go wrong in a look, in words for whoever chose the directory.

use std::io;

use super::super::blockage::shown;
use super::super::image::{PATH_MAX_BYTES, PATH_MAX_PARTS, StatePath};
use super::ENTRIES_MAX;

/// What an error of a look is about, inside of the `io::Error`.
#[derive(Debug, thiserror::Error)]
pub enum LookTrouble {
    /// Something cannot be read, or not be put on the disk.
    #[error("read {path} of the state directory")]
    At {
        /// Path below the state directory, as `blockage::shown` gives it; a dot for the directory itself.
        path: String,
        /// What the operating system said.
        #[source]
        source: io::Error,
    },
    /// What is there is beyond what can be replicated.
    #[error("{path}: {advice}")]
    Unreplicable {
        /// Path below the state directory, as `blockage::shown` gives it; a dot for the directory itself.
        path: String,
        /// What it is, and what to do.
        advice: String,
    },
    /// The disk has not taken what was written to it, and may say of the same bytes later that it has.
    #[error(
        "the disk lost what was written to it: nothing is acknowledged here before the container starts anew; check the volume"
    )]
    Unreliable,
}

/// Of a path that is longer than what can be replicated.
pub(super) fn too_deep(folder: Option<&StatePath>, name: &[u8]) -> io::Error {
    let folder = folder.map(StatePath::as_bytes).unwrap_or_default();
    // The end tells more than the beginning, which is mostly the same for many.
    let path =
        format!(".../{}/{}", String::from_utf8_lossy(last_name(folder)), String::from_utf8_lossy(name));
    let advice = format!(
        "a path of more than {PATH_MAX_BYTES} bytes or {PATH_MAX_PARTS} folders: shorten it, or move it out of the directory \
         that is replicated"
    );
    let trouble = LookTrouble::Unreplicable { path: shown(path.as_bytes()), advice };
    io::Error::new(io::ErrorKind::InvalidFilename, trouble)
}

/// Of a directory that has more than can be replicated; the folder is the one where the count was exceeded.
pub(super) fn too_many(folder: Option<&StatePath>) -> io::Error {
    let path = shown_or_root(folder);
    let advice = format!("more than {ENTRIES_MAX} files: replicate a directory with fewer");
    io::Error::new(io::ErrorKind::QuotaExceeded, LookTrouble::Unreplicable { path, advice })
}

/// The error with the path that it is about; one that has a path keeps it.
pub(super) fn at(error: io::Error, path: Option<&StatePath>) -> io::Error {
    if error.get_ref().and_then(|inner| inner.downcast_ref::<LookTrouble>()).is_some() {
        return error;
    }
    io::Error::new(error.kind(), LookTrouble::At { path: shown_or_root(path), source: error })
}

fn shown_or_root(path: Option<&StatePath>) -> String {
    path.map_or_else(|| ".".to_owned(), |path| shown(path.as_bytes()))
}

fn last_name(path: &[u8]) -> &[u8] {
    path.rsplit(|byte| *byte == b'/').next().unwrap_or_default()
}

/// Whether somebody removed or replaced it meanwhile.
pub fn is_gone(error: &io::Error) -> bool {
    use io::ErrorKind::{InvalidInput, IsADirectory, NotADirectory, NotFound};
    let is_link = error.raw_os_error() == Some(rustix::io::Errno::LOOP.raw_os_error());
    is_link || matches!(error.kind(), NotFound | NotADirectory | IsADirectory | InvalidInput)
}

/// Of a disk that has not taken what was written to it.
pub(super) fn unreliable() -> io::Error {
    io::Error::other(LookTrouble::Unreliable)
}
