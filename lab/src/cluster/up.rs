//! Makes a cluster, step by step: each step is in the state file before it is taken.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::low_level::emulate_default_handler;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::task::JoinSet;

use super::{Cluster, Error, Options, down};
use crate::addresses::{self, NODES_MAX, NodeAddresses};
use crate::binaries::{self, Binaries, Component};
use crate::config;
use crate::control_plane::{self, Endpoints, READY_SECONDS_MAX, certify_node, owner};
use crate::daemon::Daemon;
use crate::dns;
use crate::install;
use crate::machine::{self, mounts, network, sysctls};
use crate::node::{self, Credentials, Site};
use crate::packages;
use crate::paths::{self, RUN_DIRECTORY_BYTES_MAX};
use crate::pause;
use crate::pki::Authority;
use crate::progress::Progress;
use crate::ready;
use crate::state::{self, Journal, Lock, Node, Progress as Stage, State};
use crate::volumes;

/// How long all nodes may take to become ready. Unit: seconds. Source: 5 to 8 s on an idle machine with two
/// cores and three nodes; more while the machine compiles something.
const NODES_READY_SECONDS_MAX: u64 = 120;

pub(super) async fn up(options: Options) -> Result<Cluster, Error> {
    check(&options)?;
    down::remove_abandoned(&options.run, options.progress)?;
    let lock = Lock::take(&options.run).map_err(Error::KeepState)?;
    refuse_second(&options)?;
    let (binaries, cni_plugins) = provide(&options).await?;
    let endpoints =
        if options.is_control_plane_only { Endpoints::on_loopback() } else { Endpoints::for_nodes() };
    let endpoints = endpoints.map_err(Error::StartControlPlane)?;
    let journal = Arc::new(open_journal(&options, endpoints)?);
    let count = if options.is_control_plane_only { 0 } else { options.nodes };
    let site = Site { run: options.run.clone(), nodes: addresses::nodes(count), cni_plugins };
    let builder = Builder {
        journal: Arc::clone(&journal),
        site,
        binaries,
        endpoints,
        node_grace: options.node_grace,
        progress: options.progress,
    };
    let built = build_or_interrupt(builder, options.is_interruptible).await;
    let finished = built
        .and_then(|()| journal.change(|state| state.progress = Stage::Running).map_err(Error::KeepState));
    if let Err(error) = finished {
        if let Err(left) = down::remove(&options.run, &journal.snapshot()) {
            tracing::error!(error = %left, "Could not remove an unfinished cluster");
        }
        return Err(error);
    }
    drop(lock);
    Ok(Cluster { run: options.run })
}

fn check(options: &Options) -> Result<(), Error> {
    if options.run.path().as_os_str().len() > RUN_DIRECTORY_BYTES_MAX {
        return Err(Error::FitSockets { directory: options.run.path().to_owned() });
    }
    if options.is_control_plane_only {
        return Ok(());
    }
    if !(1..=NODES_MAX).contains(&options.nodes) {
        return Err(Error::CountNodes { asked: options.nodes });
    }
    if paths::is_root() { Ok(()) } else { Err(Error::NeedRoot) }
}

fn refuse_second(options: &Options) -> Result<(), Error> {
    let directory = options.run.path().to_owned();
    if let Some(state) = state::load(&options.run).map_err(Error::KeepState)? {
        return Err(match state.progress {
            Stage::Running => {
                Error::FindRunning { directory, nodes: state.nodes.len(), since: state.created.to_string() }
            }
            Stage::Starting | Stage::Stopping => Error::FindUnfinished { directory },
        });
    }
    if std::fs::read_dir(&directory).is_ok_and(|mut entries| entries.next().is_some()) {
        return Err(Error::FindFiles { directory });
    }
    match network::bridge_alias() {
        Some(owner) if !options.is_control_plane_only => Err(Error::FindBridge { owner }),
        Some(_) | None => Ok(()),
    }
}

/// Everything that must be there before the first resource of the cluster is made.
async fn provide(options: &Options) -> Result<(Binaries, PathBuf), Error> {
    let (is_small, progress) = (options.is_control_plane_only, options.progress);
    let work = move || {
        if is_small {
            let binaries = binaries::ensure_control_plane(progress).map_err(Error::FindBinaries)?;
            return Ok((binaries, PathBuf::new()));
        }
        let cni_plugins = packages::ensure().map_err(Error::PrepareMachine)?;
        let binaries = binaries::ensure(&binaries::CLUSTER, progress).map_err(Error::FindBinaries)?;
        Ok((binaries, cni_plugins))
    };
    tokio::task::spawn_blocking(work).await.expect("finding programs does not panic")
}

fn open_journal(options: &Options, endpoints: Endpoints) -> Result<Journal, Error> {
    machine::create_directory(options.run.path()).map_err(changing("create the run directory"))?;
    let now = Timestamp::now();
    let state = State {
        run: format!("{:x}-{:x}", now.as_millisecond(), std::process::id()),
        progress: Stage::Starting,
        purpose: options.purpose,
        created: now,
        server: endpoints.server(),
        nodes: Vec::new(),
        daemons: BTreeMap::new(),
        sysctls: if options.is_control_plane_only { BTreeMap::new() } else { sysctls::read() },
        directories: Vec::new(),
        cuts: BTreeSet::new(),
    };
    Journal::open(options.run.clone(), state).map_err(Error::KeepState)
}

/// Builds in a task of its own, so that an interrupt can stop it between two steps, never within one.
async fn build_or_interrupt(builder: Builder, is_interruptible: bool) -> Result<(), Error> {
    let journal = Arc::clone(&builder.journal);
    let mut task = JoinSet::new();
    task.spawn(Arc::new(builder).build());
    if is_interruptible {
        let listen = |kind| {
            signal(kind).map_err(|error| {
                changing("listen for signals")(machine::Error::file("listen", "signals".as_ref(), error))
            })
        };
        let (mut interrupt, mut terminate) =
            (listen(SignalKind::interrupt())?, listen(SignalKind::terminate())?);
        tokio::select! {
            // A finished build is finished, even if a signal came at the same moment.
            biased;
            Some(result) = task.join_next() => {
                tokio::spawn(end_as_by_default(interrupt, terminate));
                return result.expect("building does not panic");
            }
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
        journal.close();
    }
    match task.join_next().await.expect("the task was spawned").expect("building does not panic") {
        Err(Error::KeepState(state::Error::Interrupt)) => Err(Error::Interrupt),
        result if is_interruptible => result.and(Err(Error::Interrupt)),
        result => result,
    }
}

/// Gives signals their usual effect back: once somebody has listened for them, they end no process any more.
async fn end_as_by_default(mut interrupt: Signal, mut terminate: Signal) {
    let number = tokio::select! {
        _ = interrupt.recv() => SIGINT,
        _ = terminate.recv() => SIGTERM,
    };
    // Ends this process. It fails only for numbers of no signal.
    drop(emulate_default_handler(number));
}

struct Builder {
    journal: Arc<Journal>,
    site: Site,
    binaries: Binaries,
    endpoints: Endpoints,
    node_grace: Duration,
    progress: Progress,
}

impl Builder {
    async fn build(self: Arc<Self>) -> Result<(), Error> {
        if !self.site.nodes.is_empty() {
            self.lay_ground()?;
        }
        let step = self.progress.step("control plane and container runtimes");
        let prepared =
            control_plane::prepare(&self.site.run, self.endpoints, &self.binaries, self.node_grace)
                .map_err(Error::StartControlPlane)?;
        // The runtimes start while the API server does; the kubelets would only wait for it.
        self.furnish(&prepared.authority)?;
        let runtimes = self.start_runtimes();
        let control_plane = self.start_control_plane(prepared.daemons).await;
        let runtimes = runtimes.join_all().await.into_iter().collect::<Result<(), _>>();
        let client = control_plane?;
        runtimes?;
        step.done();
        if self.site.nodes.is_empty() {
            return Ok(());
        }
        let step = self.progress.step(&format!("{} nodes", self.site.nodes.len()));
        self.start_agents()?;
        let names: Vec<_> = self.site.nodes.iter().map(|node| node.name.clone()).collect();
        let limit = Duration::from_secs(NODES_READY_SECONDS_MAX);
        ready::nodes(&client, &names, limit).await.map_err(Error::AwaitReady)?;
        ready::service_account(&client, limit).await.map_err(Error::AwaitReady)?;
        step.done();
        Ok(())
    }

    /// What all nodes share: the bridge, mount points outside, the image of the pause program.
    fn lay_ground(&self) -> Result<(), Error> {
        let run = &self.site.run;
        mounts::isolate(run.path()).map_err(changing("mount the run directory"))?;
        self.record(|_| ())?;
        network::create_bridge(&run.path().display().to_string()).map_err(changing("create the bridge"))?;
        for directory in node::missing_directories() {
            self.record(|state| state.directories.push(directory.clone()))?;
            machine::create_directory(&directory).map_err(changing("create a mount point"))?;
        }
        pause::build(&run.images()).map(drop).map_err(changing("make the pause image"))
    }

    fn furnish(&self, authority: &Authority) -> Result<(), Error> {
        for node in &self.site.nodes {
            let identity =
                certify_node(authority, &node.name, node.address).map_err(Error::StartControlPlane)?;
            let kubeconfig = config::kubeconfig(&self.endpoints.server(), authority.certificate(), &identity);
            let credentials = Credentials { identity: &identity, kubeconfig: &kubeconfig };
            self.site.furnish(node, &credentials, self.node_grace).map_err(starting(node))?;
        }
        Ok(())
    }

    async fn start_control_plane(&self, daemons: Vec<(String, Daemon)>) -> Result<kube::Client, Error> {
        let client = ready::client(&self.site.run.kubeconfig()).await.map_err(Error::AwaitReady)?;
        for (name, daemon) in daemons {
            self.start(&name, &daemon).map_err(|error| match error {
                StartError::Keep(error) => Error::KeepState(error),
                StartError::Machine(error) => Error::StartControlPlane(control_plane::Error::Start(error)),
            })?;
            if name == owner(Component::ApiServer) {
                let limit = Duration::from_secs(READY_SECONDS_MAX);
                let failed = |source| {
                    let log = daemon.log_tail();
                    Error::StartControlPlane(control_plane::Error::AwaitReady { source, log })
                };
                ready::api_server(&client, limit).await.map_err(failed)?;
                if !self.site.nodes.is_empty() {
                    self.provide_for_pods(&client).await?;
                }
            }
        }
        Ok(client)
    }

    /// Names of Services and volumes; before CoreDNS starts, which else is refused and waits a second.
    async fn provide_for_pods(&self, client: &kube::Client) -> Result<(), Error> {
        let limit = Duration::from_secs(READY_SECONDS_MAX);
        ready::namespace(client, dns::NAMESPACE, limit).await.map_err(Error::AwaitReady)?;
        let mut objects = dns::objects();
        objects.extend(volumes::objects(&self.site.run, &self.site.nodes));
        install::apply(client, &objects).await.map_err(|error| Error::Provide(Box::new(error)))
    }

    fn start_runtimes(self: &Arc<Self>) -> JoinSet<Result<(), Error>> {
        let mut tasks = JoinSet::new();
        for node in self.site.nodes.clone() {
            let builder = Arc::clone(self);
            tasks.spawn_blocking(move || builder.start_runtime(&node));
        }
        tasks
    }

    fn start_runtime(&self, node: &NodeAddresses) -> Result<(), Error> {
        self.record(|state| {
            state.nodes.push(Node { name: node.name.clone(), is_on: true });
            state.nodes.sort_by(|one, other| addresses::order(&one.name).cmp(&addresses::order(&other.name)));
        })?;
        self.site.connect(node).map_err(starting(node))?;
        self.start_node_part(node, node::CONTAINERD)?;
        let directory = self.site.run.node(&node.name);
        node::await_containerd(&directory).map_err(starting(node))?;
        node::import(&directory, &self.site.run.images().join(pause::ARCHIVE)).map_err(starting(node))
    }

    fn start_agents(&self) -> Result<(), Error> {
        for node in &self.site.nodes {
            self.start_node_part(node, node::KUBELET)?;
            self.start_node_part(node, node::KUBE_PROXY)?;
        }
        Ok(())
    }

    fn start_node_part(&self, node: &NodeAddresses, part: &str) -> Result<(), Error> {
        let wanted = node::owner(&node.name, part);
        let daemons = self.site.daemons(node, &self.binaries);
        for (name, daemon) in daemons.into_iter().filter(|(name, _)| *name == wanted) {
            self.start(&name, &daemon).map_err(|error| match error {
                StartError::Keep(error) => Error::KeepState(error),
                StartError::Machine(error) => starting(node)(error),
            })?;
        }
        Ok(())
    }

    fn start(&self, name: &str, daemon: &Daemon) -> Result<(), StartError> {
        start_recorded(&self.journal, name, daemon)
    }

    fn record(&self, change: impl FnOnce(&mut State)) -> Result<(), Error> {
        self.journal.change(change).map_err(Error::KeepState)
    }
}

/// Why a daemon is not running.
#[derive(Debug)]
pub(crate) enum StartError {
    /// It could not be recorded, so it was not started.
    Keep(state::Error),
    /// It could not be started.
    Machine(machine::Error),
}

/// Starts a daemon after writing down that it exists, and then writes down its process.
pub(crate) fn start_recorded(journal: &Journal, name: &str, daemon: &Daemon) -> Result<(), StartError> {
    let run = journal
        .change(|state| {
            state.daemons.insert(name.to_owned(), Daemon { process: None, ..daemon.clone() });
            state.run.clone()
        })
        .map_err(StartError::Keep)?;
    let process = daemon.start(&format!("{run}/{name}")).map_err(StartError::Machine)?;
    let started = Daemon { process: Some(process), ..daemon.clone() };
    journal.change(|state| state.daemons.insert(name.to_owned(), started)).map(drop).map_err(StartError::Keep)
}

fn starting(node: &NodeAddresses) -> impl Fn(machine::Error) -> Error {
    let node = node.name.clone();
    move |source| Error::StartNode { node: node.clone(), source }
}

fn changing(action: &'static str) -> impl Fn(machine::Error) -> Error {
    move |source| Error::ChangeMachine { action, source }
}
