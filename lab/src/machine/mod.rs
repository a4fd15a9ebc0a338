//! What the lab does to the machine, one module per kind of resource; each can be undone by looking at the
//! machine alone, because the process that made it may have been killed before it could write anything down.

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

pub mod cgroups;
pub mod clock;
pub mod command;
pub mod mounts;
pub mod network;
pub mod process;
pub mod sysctls;

/// Why a change of the machine did not happen.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A program could not be started at all.
    #[error("start `{command}`")]
    Start {
        /// The program and its arguments.
        command: String,
        /// Why not.
        #[source]
        source: std::io::Error,
    },
    /// A program ended with an exit code other than 0.
    #[error("`{command}` ended with {status}: {stderr}")]
    Refuse {
        /// The program and its arguments.
        command: String,
        /// Exit code or signal.
        status: std::process::ExitStatus,
        /// The end of what it printed on standard error.
        stderr: String,
    },
    /// A program or a process was still running when its time was over.
    #[error("{what} was still running after {seconds} s")]
    Overdue {
        /// The program or the process.
        what: String,
        /// How long it was given, in seconds.
        seconds: u64,
    },
    /// A file, directory or mount could not be read or changed.
    #[error("{action} {path}")]
    File {
        /// What was tried, for example `read`.
        action: &'static str,
        /// On what.
        path: PathBuf,
        /// Why it did not work.
        #[source]
        source: std::io::Error,
    },
    /// A daemon was started but its process is not there.
    #[error("{owner} ended right after its start; its log says: {log}")]
    Vanish {
        /// Which daemon.
        owner: String,
        /// The last lines of its log.
        log: String,
    },
}

impl Error {
    /// Adds what was tried, and on what, to an error of the operating system.
    pub(crate) fn file(action: &'static str, path: &Path, source: impl Into<std::io::Error>) -> Self {
        Self::File { action, path: path.to_owned(), source: source.into() }
    }
}

/// Bytes as hexadecimal digits.
pub(crate) fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |digits, byte| digits + &format!("{byte:02x}"))
}

/// Creates a directory and its parents.
///
/// # Errors
/// `File` if the operating system refuses.
pub fn create_directory(path: &Path) -> Result<(), Error> {
    std::fs::create_dir_all(path).map_err(|error| Error::file("create directory", path, error))
}

/// Writes a file through a temporary neighbour, so that a reader or a crash never sees half of it.
///
/// # Errors
/// `File` if the operating system refuses.
pub fn write_file(path: &Path, content: &[u8]) -> Result<(), Error> {
    let temporary = path.with_extension("partial");
    std::fs::write(&temporary, content).map_err(|error| Error::file("write", &temporary, error))?;
    std::fs::rename(&temporary, path).map_err(|error| Error::file("rename into place", path, error))
}

/// Writes a file that only its owner may read: keys and what contains them.
///
/// # Errors
/// `File` if the operating system refuses.
pub fn write_private_file(path: &Path, content: &[u8]) -> Result<(), Error> {
    let temporary = path.with_extension("partial");
    let failed = |error| Error::file("write", &temporary, error);
    let mut options = OpenOptions::new();
    let mut file =
        options.write(true).create(true).truncate(true).mode(0o600).open(&temporary).map_err(failed)?;
    file.write_all(content).map_err(failed)?;
    std::fs::rename(&temporary, path).map_err(|error| Error::file("rename into place", path, error))
}

/// Reads a whole text file.
///
/// # Errors
/// `File` if the operating system refuses.
pub fn read_file(path: &Path) -> Result<String, Error> {
    std::fs::read_to_string(path).map_err(|error| Error::file("read", path, error))
}
