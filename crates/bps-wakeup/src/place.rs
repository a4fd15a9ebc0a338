//! Writes a file of the Pod's volume so that it is whole or absent, also after a power failure.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

/// Writes a file aside and moves it to its place; returns that place.
pub(super) fn place(
    directory: &Path,
    name: &str,
    write: impl FnOnce(&mut File) -> io::Result<()>,
) -> io::Result<PathBuf> {
    let aside = directory.join(format!(".{name}.aside"));
    // What a container left that was killed while it wrote may belong to another user; the directory is ours.
    match fs::remove_file(&aside) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).open(&aside)?;
    write(&mut file)?;
    file.sync_all()?;
    let placed = directory.join(name);
    fs::rename(&aside, &placed)?;
    File::open(directory)?.sync_all()?;
    Ok(placed)
}
