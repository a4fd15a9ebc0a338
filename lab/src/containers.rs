//! Finds the processes of a Pod's containers, from the files that containerd keeps about what runs.
//!
//! Neither containerd nor the API server is asked: they may be what is broken at that moment.

use std::collections::BTreeSet;
use std::fs;
use std::net::Ipv4Addr;
use std::path::Path;

use serde::Deserialize;

use crate::config::POD_NETWORK;
use crate::machine::process::{self, ProcessId};
use crate::paths::NodeDirectory;

/// What a container is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Keeps the Pod's namespaces.
    Sandbox,
    /// Is named in the Pod's specification; an init container, too.
    Application,
}

/// A container that runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Container {
    /// By which containerd knows it.
    pub id: String,
    /// What it is for.
    pub kind: Kind,
    /// Its name in the Pod's specification; empty for the sandbox.
    pub name: String,
    /// Its first process, which is process 1 in the container.
    pub main: ProcessId,
    /// Path of its control group.
    pub cgroup: String,
}

impl Container {
    /// All its processes that run now.
    pub fn processes(&self) -> BTreeSet<ProcessId> {
        process::in_cgroup(&self.cgroup)
    }
}

/// The running containers of a Pod, wherever it runs, ordered by name.
pub fn of_pod(nodes: &[NodeDirectory], namespace: &str, pod: &str) -> Vec<Container> {
    let bundles = nodes.iter().filter_map(|node| fs::read_dir(node.bundles()).ok()).flatten().flatten();
    let mut found: Vec<_> = bundles.filter_map(|bundle| read(&bundle.path(), namespace, pod)).collect();
    found.sort_by(|one, other| one.name.cmp(&other.name));
    found
}

/// The sandbox of a Pod, if it runs on this node.
pub fn sandbox(node: &NodeDirectory, namespace: &str, pod: &str) -> Option<Container> {
    let found = of_pod(std::slice::from_ref(node), namespace, pod);
    found.into_iter().find(|container| container.kind == Kind::Sandbox)
}

/// The address that the network plugin has given to a sandbox; `None` if it uses the node's network.
pub fn address(node: &NodeDirectory, sandbox: &Container) -> Option<Ipv4Addr> {
    // The plugin keeps a file for each address, named by it, that begins with the sandbox.
    let files = fs::read_dir(node.pod_addresses().join(POD_NETWORK)).ok()?.flatten();
    files
        .filter(|file| fs::read_to_string(file.path()).is_ok_and(|text| text.starts_with(&sandbox.id)))
        .find_map(|file| file.file_name().to_str()?.parse().ok())
}

/// What containerd writes for runc, as far as it matters here.
#[derive(Deserialize)]
struct Specification {
    annotations: Annotations,
    linux: Linux,
}

#[derive(Deserialize)]
struct Annotations {
    #[serde(rename = "io.kubernetes.cri.container-type")]
    kind: String,
    #[serde(rename = "io.kubernetes.cri.sandbox-namespace")]
    namespace: String,
    #[serde(rename = "io.kubernetes.cri.sandbox-name")]
    pod: String,
    #[serde(rename = "io.kubernetes.cri.container-name", default)]
    container: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Linux {
    cgroups_path: String,
}

/// The container of a bundle; `None` if it is another Pod's, or is just being made or removed.
fn read(bundle: &Path, namespace: &str, pod: &str) -> Option<Container> {
    let specification = fs::read_to_string(bundle.join("config.json")).ok()?;
    let (kind, name, cgroup) = select(&specification, namespace, pod)?;
    let pid = fs::read_to_string(bundle.join("init.pid")).ok()?;
    let main = ProcessId::of(pid.trim().parse().ok()?)?;
    // The number in the file may be another process's by now, but that one is in another group.
    let id = bundle.file_name()?.to_str()?.to_owned();
    process::is_in_cgroup(main.pid, &cgroup).then_some(Container { id, kind, name, main, cgroup })
}

fn select(specification: &str, namespace: &str, pod: &str) -> Option<(Kind, String, String)> {
    let Specification { annotations, linux } = serde_json::from_str(specification).ok()?;
    let kind = match annotations.kind.as_str() {
        "sandbox" => Kind::Sandbox,
        "container" => Kind::Application,
        _ => return None,
    };
    let is_wanted = annotations.namespace == namespace && annotations.pod == pod;
    is_wanted.then_some((kind, annotations.container, linux.cgroups_path))
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONTAINER: &str = r#"{"ociVersion": "1.0.2", "annotations": {
        "io.kubernetes.cri.container-type": "container",
        "io.kubernetes.cri.container-name": "web",
        "io.kubernetes.cri.sandbox-name": "web-0",
        "io.kubernetes.cri.sandbox-namespace": "default"
    }, "linux": {"cgroupsPath": "/backuppodset-lab/n1/kubepods/besteffort/pod1/2"}}"#;

    #[test]
    fn a_container_is_known_by_the_pod_that_it_belongs_to() {
        let expected = (
            Kind::Application,
            "web".to_owned(),
            "/backuppodset-lab/n1/kubepods/besteffort/pod1/2".to_owned(),
        );
        assert_eq!(select(CONTAINER, "default", "web-0"), Some(expected));
        assert_eq!(select(CONTAINER, "default", "web-1"), None);
        assert_eq!(select(CONTAINER, "other", "web-0"), None);
    }

    #[test]
    fn half_a_specification_is_no_container() {
        assert_eq!(select(&CONTAINER[..100], "default", "web-0"), None);
    }
}
