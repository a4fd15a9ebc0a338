//! Makes and removes the lab's control groups, on cgroup v1, v2 and machines that mount both.
//!
//! Version 2 alone (`/sys/fs/cgroup` is of type cgroup2) is handled by the same rules as the kernel's
//! documentation gives them, but only version 1 with an additional version 2 hierarchy could be tried.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::{Error, create_directory};

/// The one directory, in each hierarchy, below which all groups of the lab are.
pub const ROOT: &str = "backuppodset-lab";

/// How long the kernel may hold a group whose last process has just ended. Unit: seconds.
const REMOVE_SECONDS_MAX: u64 = 10;
/// Pause between two attempts to remove a busy group. Unit: milliseconds.
const REMOVE_POLL_MILLISECONDS: u64 = 10;

/// Which version the container runtime will use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    /// One hierarchy per controller.
    V1,
    /// One hierarchy for all.
    V2,
}

/// One mounted hierarchy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hierarchy {
    /// Where it is mounted.
    pub mount: PathBuf,
    /// Which version it is.
    pub version: Version,
}

/// Every hierarchy that is mounted here, in the order of the mount table.
///
/// # Errors
/// `File` if the mount table cannot be read.
pub fn hierarchies() -> Result<Vec<Hierarchy>, Error> {
    Ok(parse_mounts(&super::read_file(Path::new("/proc/self/mountinfo"))?))
}

/// The version that kubelet and runc use: they ask whether `/sys/fs/cgroup` itself is version 2.
pub fn version(hierarchies: &[Hierarchy]) -> Version {
    let unified = Path::new("/sys/fs/cgroup");
    if hierarchies.iter().any(|one| one.mount == unified && one.version == Version::V2) {
        Version::V2
    } else {
        Version::V1
    }
}

fn parse_mounts(mountinfo: &str) -> Vec<Hierarchy> {
    mountinfo
        .lines()
        .filter_map(|line| {
            let (mount, kind) = line.split_once(" - ")?;
            let version = match kind.split(' ').next()? {
                "cgroup" => Version::V1,
                "cgroup2" => Version::V2,
                _ => return None,
            };
            Some(Hierarchy { mount: PathBuf::from(mount.split(' ').nth(4)?), version })
        })
        .collect()
}

/// Makes the group `backuppodset-lab/<node>` that a kubelet takes for its root.
///
/// # Errors
/// `File` if a hierarchy refuses.
pub fn create(node: &str) -> Result<(), Error> {
    let hierarchies = hierarchies()?;
    let used = version(&hierarchies);
    for hierarchy in hierarchies.iter().filter(|one| one.version == used) {
        let root = hierarchy.mount.join(ROOT);
        let group = root.join(node);
        create_directory(&group)?;
        match hierarchy.version {
            // A new group of the cpuset controller has neither processors nor memory until told.
            Version::V1 if hierarchy.mount.join("cpuset.cpus").exists() => {
                inherit_cpuset(&hierarchy.mount, &root)?;
                inherit_cpuset(&root, &group)?;
            }
            Version::V1 => {}
            Version::V2 => {
                for parent in [hierarchy.mount.as_path(), root.as_path(), group.as_path()] {
                    delegate(parent)?;
                }
            }
        }
    }
    Ok(())
}

fn inherit_cpuset(parent: &Path, child: &Path) -> Result<(), Error> {
    for file in ["cpuset.cpus", "cpuset.mems"] {
        let value = super::read_file(&parent.join(file))?;
        let path = child.join(file);
        fs::write(&path, value).map_err(|error| Error::file("write", &path, error))?;
    }
    Ok(())
}

/// Hands every controller of a version 2 group on to its children.
fn delegate(group: &Path) -> Result<(), Error> {
    let controllers = super::read_file(&group.join("cgroup.controllers"))?;
    let path = group.join("cgroup.subtree_control");
    for controller in controllers.split_whitespace() {
        fs::write(&path, format!("+{controller}")).map_err(|error| Error::file("write", &path, error))?;
    }
    Ok(())
}

/// Removes the lab's groups (below `node`, or all) from every hierarchy; there must be no process left.
///
/// # Errors
/// `File` if a group stays busy for longer than the kernel needs to notice that it is empty.
pub fn remove(node: Option<&str>) -> Result<(), Error> {
    let deadline = Instant::now() + Duration::from_secs(REMOVE_SECONDS_MAX);
    for hierarchy in hierarchies()? {
        let root = hierarchy.mount.join(ROOT);
        remove_tree(&node.map_or(root.clone(), |node| root.join(node)), deadline)?;
    }
    Ok(())
}

/// The lab's groups that exist now.
pub fn present() -> Vec<PathBuf> {
    let roots = hierarchies().unwrap_or_default().into_iter().map(|one| one.mount.join(ROOT));
    roots.filter(|root| root.exists()).collect()
}

fn remove_tree(group: &Path, deadline: Instant) -> Result<(), Error> {
    let entries = match fs::read_dir(group) {
        Ok(entries) => entries,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(Error::file("list", group, error)),
    };
    for entry in entries.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())) {
        remove_tree(&entry.path(), deadline)?;
    }
    loop {
        match fs::remove_dir(group) {
            Ok(()) => return Ok(()),
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            Err(error) if error.kind() == ErrorKind::ResourceBusy && Instant::now() < deadline => {
                std::thread::sleep(Duration::from_millis(REMOVE_POLL_MILLISECONDS));
            }
            Err(error) => return Err(Error::file("remove", group, error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HYBRID: &str = "31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755\n\
        32 31 0:29 / /sys/fs/cgroup/cpu rw,relatime shared:9 - cgroup cgroup rw,cpu\n\
        41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n";
    const UNIFIED: &str = "31 23 0:28 / /sys/fs/cgroup rw,relatime shared:4 - cgroup2 cgroup2 rw\n";

    #[test]
    fn a_machine_with_both_versions_counts_as_version_1() {
        let found = parse_mounts(HYBRID);
        assert_eq!(
            found,
            [
                Hierarchy { mount: "/sys/fs/cgroup/cpu".into(), version: Version::V1 },
                Hierarchy { mount: "/sys/fs/cgroup/unified".into(), version: Version::V2 },
            ]
        );
        assert_eq!(version(&found), Version::V1);
    }

    #[test]
    fn a_unified_hierarchy_at_the_usual_place_counts_as_version_2() {
        assert_eq!(version(&parse_mounts(UNIFIED)), Version::V2);
    }
}
