//! Decides where the lab keeps its files: a run directory that ends with the cluster, and a cache that stays.

use std::env;
use std::path::{Path, PathBuf};

/// Longest run directory. Unit: bytes. Source: the address of a Unix socket has room for 107 bytes
/// (unix(7)), and containerd's is `<run directory>/nodes/n32/containerd.sock.ttrpc`.
pub const RUN_DIRECTORY_BYTES_MAX: usize = 70;

const NAME: &str = "backuppodset-lab";

/// Where the files of one cluster are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunDirectory(PathBuf);

impl RunDirectory {
    /// A run directory at a path of the caller's choice.
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self(path.into())
    }

    /// `LAB_DIR` if it is set; else `/run/backuppodset-lab` for root, so that it does not outlive a reboot
    /// any more than processes and mounts do; else a directory of the user's own.
    pub fn from_environment() -> Self {
        if let Some(path) = set("LAB_DIR") {
            return Self(path);
        }
        if is_root() {
            return Self(Path::new("/run").join(NAME));
        }
        let user = rustix::process::getuid().as_raw();
        Self(match set("XDG_RUNTIME_DIR") {
            Some(runtime) => runtime.join(NAME),
            None => env::temp_dir().join(format!("{NAME}-{user}")),
        })
    }

    /// The directory itself.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// What the cluster consists of, see [`crate::state`].
    pub fn state(&self) -> PathBuf {
        self.0.join("state.json")
    }

    /// Held while the cluster is being changed. Beside the directory, because the directory comes and goes.
    pub fn lock(&self) -> PathBuf {
        let mut path = self.0.clone().into_os_string();
        path.push(".lock");
        path.into()
    }

    /// The administrator's kubeconfig.
    pub fn kubeconfig(&self) -> PathBuf {
        self.0.join("kubeconfig")
    }

    /// Certificates, keys and the components' kubeconfigs.
    pub fn pki(&self) -> PathBuf {
        self.0.join("pki")
    }

    /// Configuration of CoreDNS.
    pub fn corefile(&self) -> PathBuf {
        self.0.join("Corefile")
    }

    /// Logs of the control plane.
    pub fn logs(&self) -> PathBuf {
        self.0.join("log")
    }

    /// Image archives made by the lab itself.
    pub fn images(&self) -> PathBuf {
        self.0.join("images")
    }

    /// Everything of one node.
    pub fn node(&self, name: &str) -> NodeDirectory {
        NodeDirectory(self.0.join("nodes").join(name))
    }
}

/// Where the files of one node are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeDirectory(PathBuf);

impl NodeDirectory {
    /// A file or directory of the node.
    pub fn join(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// The directory itself.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Keeps the node's network namespace.
    pub fn network_pin(&self) -> PathBuf {
        self.0.join("network-namespace")
    }

    /// Keeps the node's mount namespace.
    pub fn mount_pin(&self) -> PathBuf {
        self.0.join("mount-namespace")
    }

    /// Where containerd listens.
    pub fn containerd_socket(&self) -> PathBuf {
        self.0.join("containerd.sock")
    }

    /// One directory per Pod network, with one file per address in use, made by the CNI plugin.
    pub fn pod_addresses(&self) -> PathBuf {
        self.0.join("cni-addresses")
    }

    /// One directory per running container, made by containerd.
    pub fn bundles(&self) -> PathBuf {
        self.0.join("state/io.containerd.runtime.v2.task/k8s.io")
    }
}

/// The directory of the cache: `LAB_CACHE`, else below the user's cache directory, else (no home) below the
/// temporary directory.
pub fn cache() -> PathBuf {
    let user = || set("XDG_CACHE_HOME").or_else(|| Some(set("HOME")?.join(".cache")));
    set("LAB_CACHE").unwrap_or_else(|| user().unwrap_or_else(env::temp_dir).join(NAME))
}

/// An environment variable that holds a path; an empty one counts as not set.
pub fn set(variable: &str) -> Option<PathBuf> {
    env::var_os(variable).filter(|value| !value.is_empty()).map(PathBuf::from)
}

/// Whether this process may make namespaces and mounts.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_socket_address_fits_into_a_socket_address() {
        let run = RunDirectory::at(format!("/{}", "d".repeat(RUN_DIRECTORY_BYTES_MAX - 1)));
        let socket = format!("{}.ttrpc", run.node("n32").containerd_socket().display());
        assert!(socket.len() <= 107, "{} bytes", socket.len());
    }

    #[test]
    fn the_lock_is_not_inside_the_directory_that_it_guards() {
        let run = RunDirectory::at("/run/lab");
        assert!(!run.lock().starts_with(run.path()));
    }
}
