//! Makes and removes the mounts and the pinned namespaces of the lab; all of them are below one directory.

use std::fs::File;
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use rustix::mount::{
    MountFlags, MountPropagationFlags, UnmountFlags, mount_bind, mount_change, mount_remount, unmount,
};

use super::{Error, command};

/// How often `unmount_below` may look again. One pass is enough unless somebody mounts at the same time.
const PASSES_MAX: usize = 5;

/// Mounts a directory on itself, private and without `noexec`.
///
/// Private, because the kernel refuses to pin a mount namespace on a shared mount. Without `noexec`, because
/// some distributions mount `/run` with it, and containers execute files from volumes below this directory.
///
/// # Errors
/// `File` if the kernel refuses, for example without `CAP_SYS_ADMIN`.
pub fn isolate(directory: &Path) -> Result<(), Error> {
    let refused = |errno: Errno| Error::file("mount on itself", directory, errno);
    mount_bind(directory, directory).map_err(refused)?;
    mount_change(directory, MountPropagationFlags::PRIVATE).map_err(refused)?;
    mount_remount(directory, MountFlags::BIND, "").map_err(refused)
}

/// Makes a network namespace that lives until `pin` is unmounted and its last process has ended.
///
/// # Errors
/// `File` or `Refuse` if the pin cannot be made.
pub fn create_network_namespace(pin: &Path) -> Result<(), Error> {
    create_pin(pin)?;
    command::run("unshare", [&format!("--net={}", pin.display()), "true"]).map(drop)
}

/// Makes a mount namespace that lives until `pin` is unmounted and its last process has ended.
///
/// It sees what the machine unmounts later, but the machine does not see what is mounted in it.
///
/// # Errors
/// `File` or `Refuse` if the pin cannot be made.
pub fn create_mount_namespace(pin: &Path) -> Result<(), Error> {
    create_pin(pin)?;
    command::run("unshare", [&format!("--mount={}", pin.display()), "--propagation", "slave", "true"])
        .map(drop)
}

/// Mounts a file or directory, `source`, over another one, `target`, inside the pinned mount namespace.
///
/// # Errors
/// `File` or `Refuse` if it cannot be mounted.
pub fn bind_inside(pin: &Path, source: &Path, target: &Path) -> Result<(), Error> {
    let namespace = format!("--mount={}", pin.display());
    let (source, target) = (source.display().to_string(), target.display().to_string());
    command::run("nsenter", [&namespace, "mount", "--bind", &source, &target]).map(drop)
}

/// Unmounts a pin; one that is not mounted is left as it is.
///
/// # Errors
/// `File` if the kernel refuses.
pub fn release(pin: &Path) -> Result<(), Error> {
    match unmount(pin, UnmountFlags::DETACH) {
        Ok(()) | Err(Errno::INVAL | Errno::NOENT) => Ok(()),
        Err(errno) => Err(Error::file("unmount", pin, errno)),
    }
}

/// Unmounts everything at and below a directory, the latest first.
///
/// # Errors
/// `File` if the kernel refuses, `Overdue` if new mounts keep appearing.
pub fn unmount_below(directory: &Path) -> Result<(), Error> {
    for _ in 0..PASSES_MAX {
        let mounts = below(directory)?;
        if mounts.is_empty() {
            return Ok(());
        }
        for mount in mounts.iter().rev() {
            release(mount)?;
        }
    }
    Err(Error::Overdue { what: format!("a process that mounts below {}", directory.display()), seconds: 0 })
}

/// All mount points at and below a directory, in the order in which they were made.
///
/// # Errors
/// `File` if the mount table cannot be read.
pub fn below(directory: &Path) -> Result<Vec<PathBuf>, Error> {
    let mountinfo = super::read_file(Path::new("/proc/self/mountinfo"))?;
    Ok(parse_points(&mountinfo).into_iter().filter(|point| point.starts_with(directory)).collect())
}

fn create_pin(pin: &Path) -> Result<(), Error> {
    File::create(pin).map(drop).map_err(|error| Error::file("create", pin, error))
}

fn parse_points(mountinfo: &str) -> Vec<PathBuf> {
    mountinfo.lines().filter_map(|line| Some(PathBuf::from(unescape(line.split(' ').nth(4)?)))).collect()
}

/// Undoes the kernel's `\040` notation for blanks in mount points.
fn unescape(field: &str) -> String {
    [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")]
        .into_iter()
        .fold(field.to_owned(), |text, (escaped, plain)| text.replace(escaped, plain))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mount_points_with_blanks_are_read_as_they_are() {
        let line =
            "36 35 98:0 /mnt1 /mnt/my\\040disk rw,noatime master:1 - ext3 /dev/root rw,errors=continue\n";
        assert_eq!(parse_points(line), [PathBuf::from("/mnt/my disk")]);
    }
}
