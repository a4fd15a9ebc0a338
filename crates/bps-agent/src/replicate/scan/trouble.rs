//! What may go wrong in a look, in words for whoever chose the directory.

use std::io;

use super::super::image::{PATH_MAX_BYTES, PATH_MAX_PARTS, StatePath};

/// Of a path that is longer than what can be replicated.
pub(super) fn too_deep(folder: Option<&StatePath>, name: &[u8]) -> io::Error {
    let folder = folder.map(StatePath::display).unwrap_or_default();
    let advice = format!(
        "{folder}/{}: a path of more than {PATH_MAX_BYTES} bytes or {PATH_MAX_PARTS} folders: shorten it, or move it out of \
         the directory that is replicated",
        String::from_utf8_lossy(name)
    );
    io::Error::new(io::ErrorKind::InvalidFilename, advice)
}

/// The error with the name of what it is about.
pub(super) fn of(error: &io::Error, name: &[u8]) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", String::from_utf8_lossy(name)))
}

/// Whether somebody removed or replaced it meanwhile.
pub fn is_gone(error: &io::Error) -> bool {
    use io::ErrorKind::{InvalidInput, IsADirectory, NotADirectory, NotFound};
    let is_link = error.raw_os_error() == Some(rustix::io::Errno::LOOP.raw_os_error());
    is_link || matches!(error.kind(), NotFound | NotADirectory | IsADirectory | InvalidInput)
}

/// Of a disk that has not taken what was written to it, and may say of the same bytes later that it has.
pub(super) fn unreliable() -> io::Error {
    io::Error::other(
        "the disk lost what was written to it: nothing is acknowledged here before the container starts anew; check the volume",
    )
}
