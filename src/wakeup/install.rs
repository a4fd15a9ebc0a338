//! Copies the running binary into the Pod's volume, so that containers of other images can run the gate.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

/// The name of the copy.
pub const BINARY: &str = "bps-wakeup";

const ASIDE: &str = ".bps-wakeup.aside";
const RUNNING_BINARY: &str = "/proc/self/exe";

/// Everybody may read and run it, nobody may change it: the containers of a Pod may have different users.
const MODE: u32 = 0o555;

/// Copies the running binary to `<directory>/bps-wakeup` and returns that path.
///
/// The copy is whole or absent, so a container that was killed in between can simply run again.
///
/// # Errors
/// What the file system says.
pub fn install(directory: &Path) -> io::Result<PathBuf> {
    let aside = directory.join(ASIDE);
    match fs::remove_file(&aside) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }
    let mut copy = OpenOptions::new().write(true).create_new(true).mode(MODE).open(&aside)?;
    io::copy(&mut File::open(RUNNING_BINARY)?, &mut copy)?;
    // The mode above went through the umask.
    copy.set_permissions(Permissions::from_mode(MODE))?;
    copy.sync_all()?;
    let binary = directory.join(BINARY);
    fs::rename(&aside, &binary)?;
    Ok(binary)
}
