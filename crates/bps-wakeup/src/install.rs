//! Copies the running binary into the Pod's volume, so that containers of other images can run it.

use std::fs::{File, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use super::place::place;

const RUNNING_BINARY: &str = "/proc/self/exe";

/// Everybody may read and run it, nobody may change it: the containers of a Pod may have different users.
const MODE: u32 = 0o555;

/// Copies the running binary into a directory under this name, and returns the path.
///
/// The copy is whole or absent, so a container that was killed in between can simply run again.
///
/// # Errors
/// What the file system says.
pub fn install(directory: &Path, name: &str) -> io::Result<PathBuf> {
    place(directory, name, |copy| {
        io::copy(&mut File::open(RUNNING_BINARY)?, copy)?;
        copy.set_permissions(Permissions::from_mode(MODE))
    })
}
