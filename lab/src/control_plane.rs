//! Prepares and starts etcd, the API server, the controllers, the scheduler and, for nodes, CoreDNS.
//!
//! [`ControlPlane`] is these alone, on free ports of the loopback interface, without root: for tests of what
//! the API server accepts. [`prepare`] is the part that it shares with a cluster with nodes.

use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::addresses::{API_SERVICE, HOST, SERVICES, SERVICES_V6};
use crate::binaries::{self, Binaries, Component};
use crate::config;
use crate::daemon::{Daemon, Tether};
use crate::dns;
use crate::machine;
use crate::machine::process::{self, ProcessId};
use crate::paths::RunDirectory;
use crate::pki::{self, Authority, Identity, Subject, TokenKeys};
use crate::progress::Progress;
use crate::ready;

/// How long the API server may take to become ready. Unit: seconds. Source: 3.1 s on an idle machine with two
/// cores; ten times that while the machine compiles something.
pub const READY_SECONDS_MAX: u64 = 60;

/// How long a node may be silent by default before Kubernetes takes it for lost. Source: `--node-monitor-grace-period`, 50 s
/// since Kubernetes 1.32.
pub const NODE_GRACE: Duration = Duration::from_secs(50);

/// Port of the API server in a cluster with nodes.
const CLUSTER_API_PORT: u16 = 6443;

/// Why there is no control plane.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The programs could not be found or built.
    #[error("find the programs of Kubernetes")]
    FindBinaries(#[source] binaries::Error),
    /// A certificate could not be made.
    #[error("make certificates")]
    Certify(#[source] pki::Error),
    /// A file could not be written or a program not be started.
    #[error("start the control plane")]
    Start(#[source] machine::Error),
    /// There is no free port on the loopback interface.
    #[error("find a free port")]
    FindPort(#[source] std::io::Error),
    /// The API server did not become ready.
    #[error("the API server; its log says: {log}")]
    AwaitReady {
        /// What was waited for.
        #[source]
        source: ready::Error,
        /// The end of its log.
        log: String,
    },
    /// The kubeconfig was not accepted by the client.
    #[error("make a client")]
    Connect(#[source] ready::Error),
}

/// Where a control plane listens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Endpoints {
    /// Address of the API server.
    pub address: Ipv4Addr,
    /// Port of the API server.
    pub api_port: u16,
    /// Port of etcd for clients, always on the loopback interface.
    pub etcd_client_port: u16,
    /// Port of etcd for peers, of which there are none.
    pub etcd_peer_port: u16,
}

impl Endpoints {
    /// On the machine's address in the nodes' network.
    ///
    /// # Errors
    /// `FindPort` if etcd finds no free port.
    pub fn for_nodes() -> Result<Self, Error> {
        Ok(Self { address: HOST, api_port: CLUSTER_API_PORT, ..Self::on_loopback()? })
    }

    /// On free ports of the loopback interface.
    ///
    /// # Errors
    /// `FindPort` if there are none.
    pub fn on_loopback() -> Result<Self, Error> {
        // All three are held until all are known, so that they differ.
        let bind = || TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(Error::FindPort);
        let port = |listener: &TcpListener| listener.local_addr().map(|address| address.port());
        let (api, client, peer) = (bind()?, bind()?, bind()?);
        Ok(Self {
            address: Ipv4Addr::LOCALHOST,
            api_port: port(&api).map_err(Error::FindPort)?,
            etcd_client_port: port(&client).map_err(Error::FindPort)?,
            etcd_peer_port: port(&peer).map_err(Error::FindPort)?,
        })
    }

    /// Address of the API server as a URL.
    pub fn server(&self) -> String {
        format!("https://{}:{}", self.address, self.api_port)
    }
}

/// The parts of a control plane, ready to be started.
pub struct Prepared {
    /// Owner and program, in the order in which they have to start; the API server is the second.
    pub daemons: Vec<(String, Daemon)>,
    /// Signs the certificates of nodes.
    pub authority: Authority,
}

/// Writes certificates, keys and kubeconfigs below the run directory and says what to start; a node may be silent for
/// `node_grace` before it counts as lost.
///
/// # Errors
/// `Certify` or `Start` if a certificate or a file cannot be made.
pub fn prepare(
    run: &RunDirectory,
    endpoints: Endpoints,
    binaries: &Binaries,
    node_grace: Duration,
) -> Result<Prepared, Error> {
    let authority = Authority::generate().map_err(Error::Certify)?;
    machine::create_directory(&run.pki()).map_err(Error::Start)?;
    write(&run.pki().join("ca.crt"), authority.certificate())?;
    let tokens = TokenKeys::generate().map_err(Error::Certify)?;
    write(&run.pki().join("tokens.key"), &tokens.private)?;
    write(&run.pki().join("tokens.pub"), &tokens.public)?;
    for (file, subject) in subjects(endpoints) {
        let identity = authority.issue(&subject).map_err(Error::Certify)?;
        write(&run.pki().join(format!("{file}.crt")), &identity.certificate)?;
        write(&run.pki().join(format!("{file}.key")), &identity.key)?;
        let kubeconfig = config::kubeconfig(&endpoints.server(), authority.certificate(), &identity);
        write(&run.pki().join(format!("{file}.kubeconfig")), &kubeconfig)?;
        if file == ADMIN {
            write(&run.kubeconfig(), &kubeconfig)?;
        }
    }
    write(&run.corefile(), &dns::corefile(run))?;
    Ok(Prepared { daemons: daemons(run, endpoints, binaries, node_grace), authority })
}

/// Makes the certificate of one node's kubelet.
///
/// # Errors
/// `Certify` if it cannot be made.
pub fn certify_node(authority: &Authority, name: &str, address: Ipv4Addr) -> Result<Identity, Error> {
    let subject = Subject {
        user: format!("system:node:{name}"),
        group: Some("system:nodes"),
        addresses: vec![address],
        names: vec![name.to_owned()],
    };
    authority.issue(&subject).map_err(Error::Certify)
}

/// File name of kube-proxy's kubeconfig below the directory of keys.
pub const KUBE_PROXY_KUBECONFIG: &str = "kube-proxy.kubeconfig";
const ADMIN: &str = "admin";
const MASTERS: Option<&str> = Some("system:masters");

fn subjects(endpoints: Endpoints) -> Vec<(&'static str, Subject)> {
    let client = |user: &str, group| Subject { user: user.to_owned(), group, ..Subject::default() };
    let names =
        ["kubernetes", "kubernetes.default", "kubernetes.default.svc", "localhost"].map(str::to_owned);
    let full_name = format!("{}.{}", names[2], dns::DOMAIN);
    let api_server = Subject {
        addresses: vec![endpoints.address, Ipv4Addr::LOCALHOST, API_SERVICE],
        names: names.into_iter().chain([full_name]).collect(),
        ..client("kube-apiserver", None)
    };
    vec![
        (ADMIN, client("lab-admin", MASTERS)),
        ("kube-apiserver", api_server),
        ("kubelet-client", client("kube-apiserver-kubelet-client", MASTERS)),
        ("kube-controller-manager", client("system:kube-controller-manager", None)),
        ("kube-scheduler", client("system:kube-scheduler", None)),
        ("kube-proxy", client("system:kube-proxy", None)),
        ("coredns", client(dns::USER, None)),
    ]
}

/// Owner of a part of the control plane, as the state and the marks of processes have it.
pub fn owner(component: Component) -> String {
    format!("control/{}", component.name())
}

fn daemons(
    run: &RunDirectory,
    endpoints: Endpoints,
    binaries: &Binaries,
    node_grace: Duration,
) -> Vec<(String, Daemon)> {
    let has_controllers = binaries.find(Component::ControllerManager).is_some();
    let parts = [
        (Component::Etcd, etcd(run, endpoints)),
        (Component::ApiServer, api_server(run, endpoints, has_controllers)),
        (Component::ControllerManager, controller_manager(run, node_grace)),
        (Component::Scheduler, scheduler(run)),
        (Component::CoreDns, vec![format!("-conf={}", run.corefile().display())]),
    ];
    let build = |(component, arguments): (Component, Vec<String>)| {
        let daemon = Daemon {
            program: binaries.find(component)?.to_owned(),
            arguments,
            log: run.logs().join(format!("{}.log", component.name())),
            namespaces: None,
            process: None,
        };
        Some((owner(component), daemon))
    };
    parts.into_iter().filter_map(build).collect()
}

fn etcd(run: &RunDirectory, endpoints: Endpoints) -> Vec<String> {
    let client = format!("http://127.0.0.1:{}", endpoints.etcd_client_port);
    let peer = format!("http://127.0.0.1:{}", endpoints.etcd_peer_port);
    vec![
        format!("--data-dir={}", run.path().join("etcd").display()),
        format!("--listen-client-urls={client}"),
        format!("--advertise-client-urls={client}"),
        format!("--listen-peer-urls={peer}"),
        format!("--initial-advertise-peer-urls={peer}"),
        format!("--initial-cluster=default={peer}"),
        // The data ends with the cluster: nothing has to survive a power failure of the machine.
        "--unsafe-no-fsync".to_owned(),
        "--log-level=warn".to_owned(),
    ]
}

fn api_server(run: &RunDirectory, endpoints: Endpoints, has_controllers: bool) -> Vec<String> {
    let file = |name: &str| run.pki().join(name).display().to_string();
    let mut arguments = vec![
        format!("--etcd-servers=http://127.0.0.1:{}", endpoints.etcd_client_port),
        format!("--bind-address={}", endpoints.address),
        format!("--advertise-address={}", endpoints.address),
        format!("--secure-port={}", endpoints.api_port),
        format!("--tls-cert-file={}", file("kube-apiserver.crt")),
        format!("--tls-private-key-file={}", file("kube-apiserver.key")),
        format!("--client-ca-file={}", file("ca.crt")),
        format!("--service-cluster-ip-range={SERVICES},{SERVICES_V6}"),
        "--authorization-mode=Node,RBAC".to_owned(),
        "--allow-privileged=true".to_owned(),
        "--service-account-issuer=https://kubernetes.default.svc".to_owned(),
        format!("--service-account-key-file={}", file("tokens.pub")),
        format!("--service-account-signing-key-file={}", file("tokens.key")),
        format!("--kubelet-client-certificate={}", file("kubelet-client.crt")),
        format!("--kubelet-client-key={}", file("kubelet-client.key")),
        "--kubelet-preferred-address-types=InternalIP".to_owned(),
        "--enable-admission-plugins=NodeRestriction".to_owned(),
    ];
    if !has_controllers {
        // Nobody would make the ServiceAccount that every Pod is then required to have.
        arguments.push("--disable-admission-plugins=ServiceAccount".to_owned());
    }
    if endpoints.address.is_loopback() {
        // A loopback address is not a valid endpoint of the Service `kubernetes`.
        arguments.push("--endpoint-reconciler-type=none".to_owned());
    }
    arguments
}

fn controller_manager(run: &RunDirectory, node_grace: Duration) -> Vec<String> {
    let file = |name: &str| run.pki().join(name).display().to_string();
    vec![
        format!("--kubeconfig={}", file("kube-controller-manager.kubeconfig")),
        format!("--service-account-private-key-file={}", file("tokens.key")),
        format!("--root-ca-file={}", file("ca.crt")),
        "--use-service-account-credentials=true".to_owned(),
        "--leader-elect=false".to_owned(),
        "--secure-port=0".to_owned(),
        format!("--node-monitor-grace-period={}s", node_grace.as_secs()),
        // It makes this directory if it is missing; by default that is one of the machine's own.
        format!("--flex-volume-plugin-dir={}", run.path().join("volume-plugins").display()),
        // The lab plans the nodes' Pod ranges. Controllers of clouds do not run without one, and 1.37 does not know their names.
        "--controllers=*,-node-ipam-controller".to_owned(),
    ]
}

fn scheduler(run: &RunDirectory) -> Vec<String> {
    vec![
        format!("--kubeconfig={}", run.pki().join("kube-scheduler.kubeconfig").display()),
        "--leader-elect=false".to_owned(),
        "--secure-port=0".to_owned(),
    ]
}

fn write(path: &Path, content: &str) -> Result<(), Error> {
    machine::write_private_file(path, content.as_bytes()).map_err(Error::Start)
}

/// A control plane without nodes that ends with this value, or with this process.
pub struct ControlPlane {
    run: RunDirectory,
    api_port: u16,
    // Ends the last started first.
    tethers: Vec<Tether>,
}

impl ControlPlane {
    /// Starts a control plane whose files are in `directory`, which must be empty or missing.
    ///
    /// Several may run at once, each in its own directory. The caller removes the directory.
    ///
    /// # Errors
    /// See [`enum@Error`].
    pub async fn start(directory: impl Into<PathBuf>) -> Result<Self, Error> {
        let run = RunDirectory::at(directory);
        let binaries = tokio::task::spawn_blocking(|| binaries::ensure_control_plane(Progress::Shown))
            .await
            .expect("finding programs does not panic")
            .map_err(Error::FindBinaries)?;
        let endpoints = Endpoints::on_loopback()?;
        let prepared = prepare(&run, endpoints, &binaries, NODE_GRACE)?;
        let mut control_plane = Self { run, api_port: endpoints.api_port, tethers: Vec::new() };
        for (owner, daemon) in prepared.daemons {
            let mark = control_plane.mark(&owner);
            control_plane.tethers.push(daemon.start_tethered(&mark).map_err(Error::Start)?);
            if owner == self::owner(Component::ApiServer) {
                control_plane.await_ready(&daemon).await?;
            }
        }
        Ok(control_plane)
    }

    /// The administrator's kubeconfig.
    pub fn kubeconfig_path(&self) -> PathBuf {
        self.run.kubeconfig()
    }

    /// A client with all rights.
    ///
    /// # Errors
    /// `Connect` if the kubeconfig is gone.
    pub async fn client(&self) -> Result<kube::Client, Error> {
        ready::client(&self.run.kubeconfig()).await.map_err(Error::Connect)
    }

    /// Starts a further scheduler beside the one that places all other Pods; it ends with what is returned.
    ///
    /// `program` is kube-scheduler or one that is built of it. `configuration` is a `KubeSchedulerConfiguration`; how it reaches the API
    /// server is added.
    ///
    /// # Errors
    /// `FindBinaries` if the program cannot be built, `Start` if it cannot be started.
    pub async fn start_scheduler(
        &self,
        name: &str,
        program: Component,
        mut configuration: Value,
    ) -> Result<Tether, Error> {
        let built = tokio::task::spawn_blocking(move || binaries::ensure(&[program], Progress::Shown));
        let built = built.await.expect("finding programs does not panic").map_err(Error::FindBinaries)?;
        let kubeconfig = self.run.pki().join("kube-scheduler.kubeconfig");
        // With --config the flag for it is ignored.
        configuration["clientConnection"] = json!({"kubeconfig": kubeconfig, "qps": 1_000, "burst": 1_000});
        configuration["leaderElection"] = json!({"leaderElect": false});
        let path = self.run.path().join(format!("{name}.json"));
        write(&path, &configuration.to_string())?;

        let daemon = Daemon {
            program: built.find(program).expect("it was asked for").to_owned(),
            arguments: vec![format!("--config={}", path.display()), "--secure-port=0".to_owned()],
            log: self.run.logs().join(format!("{name}.log")),
            namespaces: None,
            process: None,
        };
        daemon.start_tethered(&self.mark(&format!("control/{name}"))).map_err(Error::Start)
    }

    /// Sends a signal to the API server alone, for example to suspend it.
    ///
    /// # Errors
    /// `Start` if the signal is refused.
    pub fn signal_api_server(&self, signal: Signal) -> Result<(), Error> {
        let mark = self.mark(&owner(Component::ApiServer));
        // The shell that holds it must go on, or nobody would end it.
        let is_server = |process: &ProcessId| {
            let name = std::fs::read_to_string(format!("/proc/{}/comm", process.pid)).unwrap_or_default();
            !name.starts_with("sh")
        };
        for process in process::marked(&mark).into_iter().filter(is_server) {
            process.signal(signal).map_err(Error::Start)?;
        }
        Ok(())
    }

    /// Tells its processes apart from all others of the machine.
    pub fn own_mark(&self) -> String {
        format!("tethered-{}/{}/", std::process::id(), self.api_port)
    }

    /// Tells the processes of one part apart from all others.
    fn mark(&self, owner: &str) -> String {
        self.own_mark() + owner
    }

    async fn await_ready(&self, api_server: &Daemon) -> Result<(), Error> {
        let client = self.client().await?;
        let limit = Duration::from_secs(READY_SECONDS_MAX);
        let failed = |source| Error::AwaitReady { source, log: api_server.log_tail() };
        ready::api_server(&client, limit).await.map_err(failed)
    }
}

impl Drop for ControlPlane {
    fn drop(&mut self) {
        while let Some(tether) = self.tethers.pop() {
            drop(tether);
        }
    }
}
