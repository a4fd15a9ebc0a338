//! Finds or builds the programs of Kubernetes, etcd, containerd, CoreDNS and Helm, from Go modules whose versions and
//! checksums are pinned in this repository.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};

use crate::machine::{self, command};
use crate::packages;
use crate::paths;
use crate::progress::Progress;

mod module;

use module::{CONTAINERD, COREDNS, HELM, KUBERNETES, Module, REFEREE};

/// Version of Kubernetes that is built. The modules of `kubernetes/go.mod` are of this version.
pub const KUBERNETES_VERSION: &str = "v1.36.4";

/// How long the build of one program may take. Unit: seconds. Source: the API server, first of all and cold,
/// takes 221 s on two cores.
const BUILD_SECONDS_MAX: u64 = 3_600;

/// One program of the cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Component {
    /// The store.
    Etcd,
    /// The API server.
    ApiServer,
    /// The built-in controllers.
    ControllerManager,
    /// The scheduler.
    Scheduler,
    /// A node's agent.
    Kubelet,
    /// A node's implementation of Services.
    KubeProxy,
    /// The command line.
    Kubectl,
    /// Answers for the names of Services.
    CoreDns,
    /// A node's container runtime.
    Containerd,
    /// What it starts for each Pod.
    Shim,
    /// Its command line.
    Ctr,
    /// Renders the chart, for tests; no part of a cluster.
    Helm,
    /// kube-scheduler with plugins that check our extender; no part of a cluster.
    Referee,
}

/// What a control plane needs.
pub const CONTROL_PLANE: [Component; 5] = [
    Component::Etcd,
    Component::ApiServer,
    Component::ControllerManager,
    Component::Scheduler,
    Component::Kubectl,
];

/// What a cluster with nodes needs.
pub const CLUSTER: [Component; 11] = [
    Component::Etcd,
    Component::ApiServer,
    Component::ControllerManager,
    Component::Scheduler,
    Component::Kubelet,
    Component::KubeProxy,
    Component::Kubectl,
    Component::CoreDns,
    Component::Containerd,
    Component::Shim,
    Component::Ctr,
];

impl Component {
    /// Name of the program's file.
    pub fn name(self) -> &'static str {
        match self {
            Self::Etcd => "etcd",
            Self::ApiServer => "kube-apiserver",
            Self::ControllerManager => "kube-controller-manager",
            Self::Scheduler => "kube-scheduler",
            Self::Kubelet => "kubelet",
            Self::KubeProxy => "kube-proxy",
            Self::Kubectl => "kubectl",
            Self::CoreDns => "coredns",
            Self::Containerd => "containerd",
            Self::Shim => "containerd-shim-runc-v2",
            Self::Ctr => "ctr",
            Self::Helm => "helm",
            Self::Referee => "referee",
        }
    }

    fn module(self) -> &'static Module {
        match self {
            Self::Etcd
            | Self::ApiServer
            | Self::ControllerManager
            | Self::Scheduler
            | Self::Kubelet
            | Self::KubeProxy
            | Self::Kubectl => &KUBERNETES,
            Self::CoreDns => &COREDNS,
            Self::Containerd | Self::Shim | Self::Ctr => &CONTAINERD,
            Self::Helm => &HELM,
            Self::Referee => &REFEREE,
        }
    }

    /// Where it is once it was built.
    pub fn file(self) -> PathBuf {
        self.module().directory().join("bin").join(self.name())
    }

    fn version(self) -> &'static str {
        match self {
            Self::Etcd => KUBERNETES.version_of("go.etcd.io/etcd/server/v3"),
            Self::ApiServer
            | Self::ControllerManager
            | Self::Scheduler
            | Self::Kubelet
            | Self::KubeProxy
            | Self::Kubectl
            | Self::Referee => KUBERNETES_VERSION,
            Self::CoreDns => COREDNS.version_of("github.com/coredns/coredns"),
            Self::Containerd | Self::Shim | Self::Ctr => {
                CONTAINERD.version_of("github.com/containerd/containerd/v2")
            }
            Self::Helm => HELM.version_of("helm.sh/helm/v3"),
        }
    }

    fn package(self) -> String {
        match self {
            Self::CoreDns | Self::Referee => ".".to_owned(),
            Self::Etcd => "go.etcd.io/etcd/server/v3".to_owned(),
            Self::ApiServer
            | Self::ControllerManager
            | Self::Scheduler
            | Self::Kubelet
            | Self::KubeProxy
            | Self::Kubectl => format!("k8s.io/kubernetes/cmd/{}", self.name()),
            Self::Containerd | Self::Shim | Self::Ctr => {
                format!("github.com/containerd/containerd/v2/cmd/{}", self.name())
            }
            Self::Helm => "helm.sh/helm/v3/cmd/helm".to_owned(),
        }
    }

    /// The variable by which `setup-envtest` names this program's file.
    fn asset_variable(self) -> Option<&'static str> {
        match self {
            Self::Etcd => Some("TEST_ASSET_ETCD"),
            Self::ApiServer => Some("TEST_ASSET_KUBE_APISERVER"),
            Self::Kubectl => Some("TEST_ASSET_KUBECTL"),
            Self::ControllerManager
            | Self::Scheduler
            | Self::Kubelet
            | Self::KubeProxy
            | Self::CoreDns
            | Self::Containerd
            | Self::Shim
            | Self::Ctr
            | Self::Helm
            | Self::Referee => None,
        }
    }
}

/// Where each program is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Binaries(BTreeMap<Component, PathBuf>);

impl Binaries {
    /// The file of a program; `None` if these binaries do not include it.
    pub fn find(&self, component: Component) -> Option<&Path> {
        self.0.get(&component).map(PathBuf::as_path)
    }
}

/// Why there are no programs.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no Go to build them with.
    #[error(
        "building Kubernetes needs Go 1.26 or later in PATH; or set KUBEBUILDER_ASSETS for a control plane only"
    )]
    FindGo,
    /// The cache could not be used.
    #[error("use the cache of built programs")]
    Cache(#[source] machine::Error),
    /// The compiler did not succeed.
    #[error("build {component}")]
    Build {
        /// Which program.
        component: &'static str,
        /// What the compiler said.
        #[source]
        source: machine::Error,
    },
}

/// Finds the programs of a control plane: what `KUBEBUILDER_ASSETS` and `TEST_ASSET_*` name if they name an
/// API server and an etcd, else those of the cache, built if necessary.
///
/// # Errors
/// See [`ensure`].
pub fn ensure_control_plane(progress: Progress) -> Result<Binaries, Error> {
    let assets = assets(paths::set("KUBEBUILDER_ASSETS").as_deref(), paths::set);
    assets.map_or_else(|| ensure(&CONTROL_PLANE, progress), Ok)
}

/// The programs that the variables of `setup-envtest` name; `None` without an API server and an etcd.
fn assets(directory: Option<&Path>, named: impl Fn(&str) -> Option<PathBuf>) -> Option<Binaries> {
    let find = |component: Component| {
        let named = component.asset_variable().and_then(&named);
        let path = named.or_else(|| Some(directory?.join(component.name())))?;
        path.is_file().then_some((component, path))
    };
    let binaries = Binaries(CONTROL_PLANE.into_iter().filter_map(find).collect());
    let is_enough = [Component::Etcd, Component::ApiServer].iter().all(|one| binaries.find(*one).is_some());
    is_enough.then_some(binaries)
}

/// Finds the wanted programs in the cache and builds those that are missing.
///
/// Two processes never build at once: the second waits for the first and finds its results.
///
/// # Errors
/// `FindGo` if something must be built and there is no Go; `Build` or `Cache` if that does not work.
pub fn ensure(wanted: &[Component], progress: Progress) -> Result<Binaries, Error> {
    let binaries = Binaries(wanted.iter().map(|component| (*component, component.file())).collect());
    if binaries.0.values().all(|path| path.is_file()) {
        return Ok(binaries);
    }
    let go = packages::find("go").ok_or(Error::FindGo)?;
    machine::create_directory(&paths::cache()).map_err(Error::Cache)?;
    let _lock = lock(&paths::cache().join("lock"), progress)?;
    let compiler = Compiler { go, progress };
    for (component, path) in &binaries.0 {
        if !path.is_file() {
            compiler.build(*component, path)?;
        }
    }
    Ok(binaries)
}

fn lock(path: &Path, progress: Progress) -> Result<File, Error> {
    let failed = |error| Error::Cache(machine::Error::file("lock", path, error));
    let file = File::create(path).map_err(failed)?;
    if flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
        let step = progress.step("wait for another process that builds");
        flock(&file, FlockOperation::LockExclusive).map_err(|errno| failed(errno.into()))?;
        step.done();
    }
    Ok(file)
}

/// What it takes to build a program.
struct Compiler {
    go: PathBuf,
    progress: Progress,
}

impl Compiler {
    fn build(&self, component: Component, path: &Path) -> Result<(), Error> {
        let step = self.progress.step(&format!("build {} {}", component.name(), component.version()));
        let module = component.module().write()?;
        if let Some(directory) = path.parent() {
            machine::create_directory(directory).map_err(Error::Cache)?;
        }
        // Written beside the final name, so that an interrupted build leaves nothing that looks whole.
        let partial = path.with_extension("partial");
        let mut command = Command::new(&self.go);
        command
            .current_dir(module)
            .env("CGO_ENABLED", "0")
            .env("GOWORK", "off")
            // Kept where what is built of them is kept, so that whoever has the cache needs no network.
            .env("GOMODCACHE", paths::cache().join("go-modules"))
            // Four times the garbage of its default: the compiler collects less and takes about an eighth less processor time (etcd:
            // 110 and 125 s user in place of 131 and 141 s).
            .env("GOGC", "400")
            // Else only `go clean` could remove them.
            .env("GOFLAGS", "-modcacherw")
            // The linker leaves debug information out, so the compiler need not make it: another ninth less (ctr: 88 s user in place of
            // 99 s).
            .args(["build", "-trimpath", "-mod=readonly", "-gcflags=all=-dwarf=false"])
            .args(["-ldflags", &linker_flags(component), "-o"])
            .arg(&partial)
            .arg(component.package());
        command::run_command(command, Duration::from_secs(BUILD_SECONDS_MAX))
            .map_err(|source| Error::Build { component: component.name(), source })?;
        fs::rename(&partial, path)
            .map_err(|error| Error::Cache(machine::Error::file("rename into place", path, error)))?;
        step.done();
        Ok(())
    }
}

fn linker_flags(component: Component) -> String {
    let strip = "-s -w";
    if component.version() != KUBERNETES_VERSION {
        return strip.to_owned();
    }
    let mut numbers = KUBERNETES_VERSION.trim_start_matches('v').split('.');
    let (major, minor) = (numbers.next().unwrap_or_default(), numbers.next().unwrap_or_default());
    let set = "-X k8s.io/component-base/version.git";
    format!("{strip} {set}Version={KUBERNETES_VERSION} {set}Major={major} {set}Minor={minor}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_linked_into_kubernetes_but_into_nothing_else() {
        let others = [Component::Etcd, Component::CoreDns, Component::Containerd];
        assert_eq!(others.map(linker_flags), ["-s -w"; 3]);
        assert_eq!(
            linker_flags(Component::Kubelet),
            "-s -w -X k8s.io/component-base/version.gitVersion=v1.36.4 \
             -X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=36"
        );
    }

    #[test]
    fn assets_without_an_api_server_are_not_taken() {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("etcd"), "").unwrap();
        assert_eq!(assets(Some(directory.path()), |_| None), None);
        assert_eq!(assets(None, |_| None), None);
    }

    #[test]
    fn a_named_asset_goes_before_the_directory() {
        let directory = tempfile::tempdir().unwrap();
        for name in ["etcd", "kube-apiserver", "other-etcd"] {
            fs::write(directory.path().join(name), "").unwrap();
        }
        let other = directory.path().join("other-etcd");
        let named = |variable: &str| (variable == "TEST_ASSET_ETCD").then(|| other.clone());
        let found = assets(Some(directory.path()), named).unwrap();
        let expected = [
            (Component::Etcd, other.clone()),
            (Component::ApiServer, directory.path().join("kube-apiserver")),
        ];
        assert_eq!(found, Binaries(expected.into_iter().collect()));
    }
}
