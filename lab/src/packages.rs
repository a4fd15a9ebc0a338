//! Checks that the programs a node needs are there, and installs what is missing on Debian and its relatives.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::machine::{self, command};
use crate::paths;

/// How long one call of apt-get may take. Unit: seconds. Source: about 60 MB of packages over a slow line.
const INSTALL_SECONDS_MAX: u64 = 600;

/// What a node calls, and the Debian package that has it.
const NEEDED: &[(&str, &str)] = &[
    ("runc", "runc"),
    ("nft", "nftables"),
    ("iptables", "iptables"),
    ("conntrack", "conntrack"),
    ("ip", "iproute2"),
    ("mount", "mount"),
    ("nsenter", "util-linux"),
    ("setsid", "util-linux"),
    ("unshare", "util-linux"),
    ("cc", "gcc"),
    ("busybox", "busybox-static"),
];

/// The package with the CNI plugins, and where distributions put them.
const CNI_PACKAGE: &str = "containernetworking-plugins";
const CNI_DIRECTORIES: [&str; 2] = ["/usr/lib/cni", "/opt/cni/bin"];
const CNI_PLUGINS: [&str; 3] = ["bridge", "host-local", "loopback"];

/// Where programs are looked for besides `PATH`: users' paths often lack the administrator's directories.
const SYSTEM_DIRECTORIES: [&str; 3] = ["/usr/sbin", "/sbin", "/usr/local/sbin"];

/// Why the machine is not ready for a node.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Something is missing and this process may not, or cannot, install it.
    #[error("missing {}; run: sudo apt-get update && sudo apt-get install -y {}", .missing.join(", "), .packages.join(" "))]
    Missing {
        /// Programs that were not found.
        missing: Vec<String>,
        /// The Debian packages that have them.
        packages: Vec<String>,
    },
    /// apt-get was called and did not succeed.
    #[error("install {}", .packages.join(" "))]
    Install {
        /// The packages.
        packages: Vec<String>,
        /// What apt-get said.
        #[source]
        source: machine::Error,
    },
}

/// Sees to it that everything is installed; returns the directory of the CNI plugins.
///
/// # Errors
/// `Missing` without root or apt-get, or if a package does not bring what it should; `Install` if apt-get
/// does not succeed.
pub fn ensure() -> Result<PathBuf, Error> {
    let first = missing();
    if first.is_empty() {
        return Ok(cni_directory().expect("nothing is missing"));
    }
    if !paths::is_root() || find("apt-get").is_none() {
        return Err(report(&first));
    }
    install(&packages(&first))?;
    match cni_directory() {
        Some(directory) if missing().is_empty() => Ok(directory),
        _ => Err(report(&missing())),
    }
}

/// Sees to it that further programs are installed, each of them with the Debian package that has it.
///
/// # Errors
/// As [`ensure`].
pub fn ensure_programs(needed: &[(&'static str, &'static str)]) -> Result<(), Error> {
    let first = missing_of(needed);
    if first.is_empty() {
        return Ok(());
    }
    if !paths::is_root() || find("apt-get").is_none() {
        return Err(report(&first));
    }
    install(&packages(&first))?;
    let rest = missing_of(needed);
    if rest.is_empty() { Ok(()) } else { Err(report(&rest)) }
}

/// Where a program is, looked for in `PATH` and the administrator's directories.
pub fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(SYSTEM_DIRECTORIES.iter().map(PathBuf::from))
        .map(|directory| directory.join(program))
        .find(|candidate| candidate.is_file())
}

fn missing() -> Vec<(&'static str, &'static str)> {
    let mut missing = missing_of(NEEDED);
    if cni_directory().is_none() {
        missing.push(("CNI plugins", CNI_PACKAGE));
    }
    missing
}

fn missing_of(needed: &[(&'static str, &'static str)]) -> Vec<(&'static str, &'static str)> {
    needed.iter().copied().filter(|(program, _)| find(program).is_none()).collect()
}

fn cni_directory() -> Option<PathBuf> {
    let complete = |directory: &Path| CNI_PLUGINS.iter().all(|plugin| directory.join(plugin).is_file());
    CNI_DIRECTORIES.iter().map(PathBuf::from).find(|directory| complete(directory))
}

fn packages(missing: &[(&str, &str)]) -> Vec<String> {
    let mut packages: Vec<_> = missing.iter().map(|(_, package)| (*package).to_owned()).collect();
    packages.sort_unstable();
    packages.dedup();
    packages
}

fn report(missing: &[(&str, &str)]) -> Error {
    let programs = missing.iter().map(|(program, _)| (*program).to_owned()).collect();
    Error::Missing { missing: programs, packages: packages(missing) }
}

fn install(packages: &[String]) -> Result<(), Error> {
    let apt = |words: &[&str]| {
        let mut command = Command::new("apt-get");
        command.args(words).env("DEBIAN_FRONTEND", "noninteractive");
        command::run_command(command, Duration::from_secs(INSTALL_SECONDS_MAX))
            .map_err(|source| Error::Install { packages: packages.to_vec(), source })
    };
    apt(&["update"])?;
    let mut words = vec!["install", "-y", "--no-install-recommends"];
    words.extend(packages.iter().map(String::as_str));
    apt(&words).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_said_in_one_line_that_can_be_pasted() {
        let error = report(&[("ip", "iproute2"), ("nsenter", "util-linux"), ("setsid", "util-linux")]);
        assert_eq!(
            error.to_string(),
            "missing ip, nsenter, setsid; run: sudo apt-get update && sudo apt-get install -y iproute2 util-linux"
        );
    }
}
