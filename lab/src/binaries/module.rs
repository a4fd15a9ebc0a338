//! The Go modules that pin what is built, and where each of them is in the cache.

use std::path::PathBuf;

use sha2::{Digest, Sha256};

use super::{Error, KUBERNETES_VERSION};
use crate::machine::{self, hexadecimal};
use crate::paths;

/// How many digits of a module's hash name its directory in the cache: enough that two never meet.
const KEY_DIGITS: usize = 12;

/// A Go module of this repository.
pub(super) struct Module {
    /// Begins the name of its directory in the cache.
    name: &'static str,
    go_mod: &'static str,
    go_sum: &'static str,
    /// A program of its own, if it has one.
    main: Option<&'static str>,
}

/// Kubernetes and etcd, built as they are.
pub(super) const KUBERNETES: Module = Module {
    name: KUBERNETES_VERSION,
    go_mod: include_str!("../../kubernetes/go.mod"),
    go_sum: include_str!("../../kubernetes/go.sum"),
    main: None,
};

/// CoreDNS with few of its plugins.
pub(super) const COREDNS: Module = Module {
    name: "coredns",
    go_mod: include_str!("../../coredns/go.mod"),
    go_sum: include_str!("../../coredns/go.sum"),
    main: Some(include_str!("../../coredns/main.go")),
};

/// containerd, its shim and its command line, built as they are.
pub(super) const CONTAINERD: Module = Module {
    name: "containerd",
    go_mod: include_str!("../../containerd/go.mod"),
    go_sum: include_str!("../../containerd/go.sum"),
    main: None,
};

/// Helm, built as it is.
pub(super) const HELM: Module = Module {
    name: "helm",
    go_mod: include_str!("../../helm/go.mod"),
    go_sum: include_str!("../../helm/go.sum"),
    main: None,
};

/// kube-scheduler with plugins of our own, of the same modules as the one that is built as it is.
pub(super) const REFEREE: Module =
    Module { name: "referee", main: Some(include_str!("../../referee/main.go")), ..KUBERNETES };

impl Module {
    /// Its directory in the cache, named for exactly these files.
    pub(super) fn directory(&self) -> PathBuf {
        let mut hash = Sha256::new();
        for (_, content) in self.files() {
            hash.update(content);
        }
        let digest = hexadecimal(&hash.finalize());
        paths::cache().join(format!("{}-{}", self.name, &digest[..KEY_DIGITS]))
    }

    /// Writes its files there; returns the directory that they are in.
    pub(super) fn write(&self) -> Result<PathBuf, Error> {
        let directory = self.directory().join("module");
        machine::create_directory(&directory).map_err(Error::Cache)?;
        for (name, content) in self.files() {
            machine::write_file(&directory.join(name), content.as_bytes()).map_err(Error::Cache)?;
        }
        Ok(directory)
    }

    /// The version of a module that it needs; empty if it needs none of this path.
    pub(super) fn version_of(&self, path: &str) -> &'static str {
        let lines = self.go_mod.lines().map(|line| line.trim().trim_start_matches("require "));
        let version = |line: &'static str| line.strip_prefix(path)?.strip_prefix(' ')?.split(' ').next();
        lines.filter(|line| !line.contains("=>")).find_map(version).unwrap_or_default()
    }

    fn files(&self) -> impl Iterator<Item = (&'static str, &'static str)> {
        let main = self.main.map(|main| ("main.go", main));
        [("go.mod", self.go_mod), ("go.sum", self.go_sum)].into_iter().chain(main)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pinned_modules_are_the_version_that_is_announced() {
        assert_eq!(KUBERNETES.version_of("k8s.io/kubernetes"), KUBERNETES_VERSION);
        assert_eq!(KUBERNETES.version_of("go.etcd.io/etcd/server/v3"), "v3.6.16");
        assert_eq!(COREDNS.version_of("github.com/coredns/coredns"), "v1.14.7");
        assert_eq!(COREDNS.version_of("github.com/coredns"), "");
        assert_eq!(CONTAINERD.version_of("github.com/containerd/containerd/v2"), "v2.1.9");
        assert_eq!(HELM.version_of("helm.sh/helm/v3"), "v3.22.0");
    }

    #[test]
    fn what_kubernetes_and_coredns_both_need_is_compiled_once() {
        for path in ["k8s.io/api", "k8s.io/client-go", "golang.org/x/net", "google.golang.org/protobuf"] {
            assert_eq!(COREDNS.version_of(path), KUBERNETES.version_of(path), "{path}");
        }
    }
}
