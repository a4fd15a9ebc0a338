//! Switches one node on and off: its namespaces, containerd, kubelet and kube-proxy.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::addresses::NodeAddresses;
use crate::binaries::{Binaries, Component};
use crate::config::{self, NodeFiles};
use crate::control_plane::KUBE_PROXY_KUBECONFIG;
use crate::cuts;
use crate::daemon::{Daemon, Namespaces};
use crate::machine::clock;
use crate::machine::{self, Error, cgroups, command, mounts, network, process};
use crate::paths::{NodeDirectory, RunDirectory};
use crate::pki::Identity;
use crate::state::State;
use crate::volumes;

/// How long containerd may take until it answers. Unit: seconds. Source: 0.3 s on an idle machine.
const CONTAINERD_SECONDS_MAX: u64 = 30;
/// How long all processes of a node may take to end after SIGKILL. Unit: seconds. Source: 0.1 s for each GB of
/// memory that a process has.
const KILL_SECONDS_MAX: u64 = 30;
/// Pause between two attempts to reach containerd. Unit: milliseconds.
const POLL_MILLISECONDS: u64 = 5;

/// Who may do what in the folder of a volume: everybody everything.
const VOLUME_MODE: u32 = 0o777;

/// Directories that programs of a node insist on, and the node's own directory that is mounted over each in
/// the node's mount namespace.
const PRIVATE_DIRECTORIES: [(&str, &str); 4] = [
    ("/run/containerd", "run-containerd"),
    ("/var/lib/cni", "cni-cache"),
    ("/var/lib/kubelet", "kubelet"),
    ("/var/log", "var-log"),
];

/// Where a node's programs read who resolves names.
const RESOLVER: &str = "/etc/resolv.conf";
/// The node's own file that is mounted over it, and names nobody: a node has no way out, so whoever asks this machine's
/// resolver for a registry waits for minutes, and every later pull of that image waits with it.
const OWN_RESOLVER: &str = "resolv.conf";

/// Those of the directories above that this machine does not have.
pub fn missing_directories() -> Vec<PathBuf> {
    PRIVATE_DIRECTORIES.iter().map(|(path, _)| PathBuf::from(path)).filter(|path| !path.exists()).collect()
}

/// Name of a node's container runtime among its parts.
pub const CONTAINERD: &str = "containerd";
/// Name of a node's agent among its parts.
pub const KUBELET: &str = "kubelet";
/// Name of a node's implementation of Services among its parts.
pub const KUBE_PROXY: &str = "kube-proxy";
/// All parts of a node, in the order in which they have to start.
pub const PARTS: [&str; 3] = [CONTAINERD, KUBELET, KUBE_PROXY];

/// Who owns the processes of a node's part.
pub fn owner(node: &str, part: &str) -> String {
    format!("{node}/{part}")
}

/// By what a node's kubelet is known to the API server.
#[derive(Clone, Copy)]
pub struct Credentials<'a> {
    /// Its certificate.
    pub identity: &'a Identity,
    /// The same as a configuration.
    pub kubeconfig: &'a str,
}

/// What it takes to switch a node on.
#[derive(Debug, Clone)]
pub struct Site {
    /// Where everything is.
    pub run: RunDirectory,
    /// All nodes of the cluster, the one in question included.
    pub nodes: Vec<NodeAddresses>,
    /// Where the CNI plugins are.
    pub cni_plugins: PathBuf,
}

impl Site {
    fn directory(&self, node: &NodeAddresses) -> NodeDirectory {
        self.run.node(&node.name)
    }

    fn files(&self) -> NodeFiles {
        NodeFiles {
            authority: self.run.pki().join("ca.crt"),
            proxy_kubeconfig: self.run.pki().join(KUBE_PROXY_KUBECONFIG),
            cni_plugins: self.cni_plugins.clone(),
            shim: Component::Shim.file(),
        }
    }

    /// Writes what stays while the node is off: configuration and credentials.
    ///
    /// # Errors
    /// `File` if a file cannot be written.
    pub fn furnish(
        &self,
        node: &NodeAddresses,
        credentials: &Credentials<'_>,
        grace: Duration,
    ) -> Result<(), Error> {
        let Credentials { identity, kubeconfig } = *credentials;
        let directory = self.directory(node);
        let files = self.files();
        machine::create_directory(&directory.join("cni"))?;
        for (_, folder) in volumes::folders(&directory) {
            machine::create_directory(&folder)?;
            // Containers write as users of their own.
            fs::set_permissions(&folder, Permissions::from_mode(VOLUME_MODE))
                .map_err(|error| Error::file("open for everybody", &folder, error))?;
        }
        let plain = [
            ("containerd.toml", config::containerd(&directory, &files)),
            (OWN_RESOLVER, "nameserver 127.0.0.1\n".to_owned()),
            ("cni/10-lab.conflist", config::cni(&directory, node)),
            ("kubelet.json", config::kubelet(&directory, node, &files, grace)),
            ("kube-proxy.json", config::kube_proxy(node, &files)),
            ("kubelet.crt", identity.certificate.clone()),
        ];
        for (name, content) in plain {
            machine::write_file(&directory.join(name), content.as_bytes())?;
        }
        machine::write_private_file(&directory.join("kubelet.key"), identity.key.as_bytes())?;
        machine::write_private_file(&directory.join("kubelet.kubeconfig"), kubeconfig.as_bytes())
    }

    /// Makes the node's namespaces and its place in the network.
    ///
    /// # Errors
    /// See [`enum@Error`].
    pub fn connect(&self, node: &NodeAddresses) -> Result<(), Error> {
        let directory = self.directory(node);
        mounts::create_network_namespace(&directory.network_pin())?;
        network::connect(node, &self.nodes, &directory.network_pin())?;
        mounts::create_mount_namespace(&directory.mount_pin())?;
        for (target, own) in PRIVATE_DIRECTORIES {
            machine::create_directory(&directory.join(own))?;
            mounts::bind_inside(&directory.mount_pin(), &directory.join(own), Path::new(target))?;
        }
        if Path::new(RESOLVER).exists() {
            mounts::bind_inside(&directory.mount_pin(), &directory.join(OWN_RESOLVER), Path::new(RESOLVER))?;
        }
        cgroups::create(&node.name)
    }

    /// Renews the rules that cut this node off from others.
    ///
    /// # Errors
    /// `Refuse` if nft does not take them.
    pub fn apply_cuts(&self, node: &str, state: &State) -> Result<(), Error> {
        let directory = self.run.node(node);
        let rules = cuts::render(node, &state.cuts, &self.nodes);
        network::apply_cuts(&directory.network_pin(), &rules, directory.path())
    }

    /// The programs of a node, in the order in which they have to start.
    pub fn daemons(&self, node: &NodeAddresses, binaries: &Binaries) -> Vec<(String, Daemon)> {
        let directory = self.directory(node);
        let at = |name: &str| directory.join(name).display().to_string();
        let program = |component| binaries.find(component).map(Path::to_owned);
        let kubelet = vec![
            format!("--config={}", at("kubelet.json")),
            format!("--kubeconfig={}", at("kubelet.kubeconfig")),
            format!("--hostname-override={}", node.name),
            format!("--node-ip={}", node.address),
            format!("--node-labels=topology.kubernetes.io/zone={}", node.zone),
        ];
        let parts = [
            (CONTAINERD, program(Component::Containerd), vec!["--config".to_owned(), at("containerd.toml")]),
            (KUBELET, program(Component::Kubelet), kubelet),
            (KUBE_PROXY, program(Component::KubeProxy), vec![format!("--config={}", at("kube-proxy.json"))]),
        ];
        let build = |(part, program, arguments): (&str, Option<PathBuf>, Vec<String>)| {
            let daemon = Daemon {
                program: program?,
                arguments,
                log: directory.join("log").join(format!("{part}.log")),
                namespaces: Some(Namespaces {
                    network: directory.network_pin(),
                    mount: directory.mount_pin(),
                }),
                process: None,
            };
            Some((owner(&node.name, part), daemon))
        };
        parts.into_iter().filter_map(build).collect()
    }

    /// Takes the power from a node: first its cable, so that no farewell of a dying process gets out, then all
    /// its processes, then what its memory held. Its disk stays.
    ///
    /// # Errors
    /// `Overdue` if a process cannot be killed; otherwise see [`enum@Error`].
    pub fn power_off(&self, node: &str, run_mark: &str) -> Result<clock::Instant, Error> {
        let directory = self.run.node(node);
        let instant = clock::Instant::now();
        network::unplug(node)?;
        let mark = format!("{run_mark}/{node}/");
        let group = format!("/{}/{node}", cgroups::ROOT);
        process::kill_all("processes of the node", Duration::from_secs(KILL_SECONDS_MAX), || {
            let mut found = process::marked(&mark);
            found.extend(process::in_cgroup(&group));
            found
        })?;
        mounts::release(&directory.mount_pin())?;
        mounts::release(&directory.network_pin())?;
        network::delete_link(&network::cable(node))?;
        cgroups::remove(Some(node))?;
        for volatile in ["state", "run-containerd"] {
            let path = directory.join(volatile);
            if path.exists() {
                fs::remove_dir_all(&path).map_err(|error| Error::file("remove", &path, error))?;
            }
        }
        Ok(instant)
    }
}

/// Waits until a node's containerd accepts connections.
///
/// # Errors
/// `Overdue` if it does not.
pub fn await_containerd(directory: &NodeDirectory) -> Result<(), Error> {
    let deadline = Instant::now() + Duration::from_secs(CONTAINERD_SECONDS_MAX);
    while UnixStream::connect(directory.containerd_socket()).is_err() {
        if Instant::now() >= deadline {
            let what = format!("the start of containerd (see {})", directory.join("log").display());
            return Err(Error::Overdue { what, seconds: CONTAINERD_SECONDS_MAX });
        }
        std::thread::sleep(Duration::from_millis(POLL_MILLISECONDS));
    }
    Ok(())
}

/// Imports an image archive on a node.
///
/// # Errors
/// `Refuse` if containerd does not take it.
pub fn import(directory: &NodeDirectory, archive: &Path) -> Result<(), Error> {
    let socket = directory.containerd_socket().display().to_string();
    let archive = archive.display().to_string();
    let program = Component::Ctr.file().display().to_string();
    command::run(&program, ["--address", &socket, "--namespace", "k8s.io", "images", "import", &archive])
        .map(drop)
}
