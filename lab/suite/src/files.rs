//! Reads and writes the files of the suite, and says which one it was if that does not work.

use std::fs;
use std::path::{Path, PathBuf};

/// Why a file could not be read or changed.
#[derive(Debug, thiserror::Error)]
#[error("{action} {}", .path.display())]
pub(crate) struct Error {
    action: &'static str,
    path: PathBuf,
    source: std::io::Error,
}

impl Error {
    /// What was tried, and on what.
    pub(crate) fn of(action: &'static str, path: &Path, source: impl Into<std::io::Error>) -> Self {
        Self { action, path: path.to_owned(), source: source.into() }
    }
}

/// Creates a folder and its parents.
pub(crate) fn create_folder(path: &Path) -> Result<(), Error> {
    fs::create_dir_all(path).map_err(|error| Error::of("create", path, error))
}

/// How much may still be written to the disk of a folder; `None` if that is not known. Unit: MiB.
pub(crate) fn free_mib(folder: &Path) -> Option<u64> {
    let disk = rustix::fs::statvfs(folder).ok()?;
    Some(disk.f_bavail.saturating_mul(disk.f_frsize) >> 20)
}

/// Reads a whole text file.
pub(crate) fn read(path: &Path) -> Result<String, Error> {
    fs::read_to_string(path).map_err(|error| Error::of("read", path, error))
}

/// Writes a file through a temporary neighbour, so that a run that is killed never leaves half of it.
pub(crate) fn write(path: &Path, content: &[u8]) -> Result<(), Error> {
    let temporary = path.with_extension("partial");
    fs::write(&temporary, content).map_err(|error| Error::of("write", &temporary, error))?;
    fs::rename(&temporary, path).map_err(|error| Error::of("rename into place", path, error))
}

/// The texts of all sources below a folder; what cannot be read has no tests.
pub(crate) fn sources(folder: &Path) -> Vec<String> {
    let (mut folders, mut texts) = (vec![folder.to_owned()], Vec::new());
    while let Some(folder) = folders.pop() {
        for path in fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()) {
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                texts.extend(fs::read_to_string(path));
            }
        }
    }
    texts
}
