//! A cluster on this machine: made by `up`, found again by `attach`, removed by `down`.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::addresses::{self, NODES_MAX, NodeAddresses};
use crate::control_plane::NODE_GRACE;
use crate::machine::{self, process::MARK_VARIABLE, process::ProcessId};
use crate::node;
use crate::paths::{RUN_DIRECTORY_BYTES_MAX, RunDirectory};
use crate::progress::Progress;
use crate::state::{self, Journal, Lock, Progress as Stage, Purpose, State};
use crate::{binaries, control_plane, install, packages, pki, ready};

mod down;
mod up;

pub(crate) use up::{StartError, start_recorded};

/// What kind of cluster to make, and where.
#[derive(Debug, Clone)]
pub struct Options {
    /// Where its files are.
    pub run: RunDirectory,
    /// Number of nodes. Range: 1..=32; not used if there is only a control plane.
    pub nodes: u8,
    /// No nodes, no root: the control plane listens on the loopback interface.
    pub is_control_plane_only: bool,
    /// What is shown meanwhile.
    pub progress: Progress,
    /// Whether SIGINT and SIGTERM undo what was made so far; else they do what the process says.
    pub is_interruptible: bool,
    /// Who may remove it, and when.
    pub purpose: Purpose,
    /// How long a node may be silent before Kubernetes takes it for lost.
    pub node_grace: Duration,
}

impl Default for Options {
    /// Three nodes in the usual place, silently.
    fn default() -> Self {
        Self {
            run: RunDirectory::from_environment(),
            nodes: 3,
            is_control_plane_only: false,
            progress: Progress::Silent,
            is_interruptible: false,
            purpose: Purpose::Asked,
            node_grace: NODE_GRACE,
        }
    }
}

/// Why a cluster could not be made, found or removed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is one already.
    #[error("a cluster of {nodes} nodes has been running in {} since {since}; remove it with `lab down`", .directory.display())]
    FindRunning {
        /// Its run directory.
        directory: PathBuf,
        /// Its number of nodes.
        nodes: usize,
        /// When it was made. RFC 3339.
        since: String,
    },
    /// An earlier `up` or `down` was killed.
    #[error("an earlier `up` or `down` did not finish in {}; clear up with `lab down`", .directory.display())]
    FindUnfinished {
        /// Its run directory.
        directory: PathBuf,
    },
    /// The nodes' bridge exists but belongs to another run directory.
    #[error("another cluster is on this machine, in {owner:?}; remove it with `LAB_DIR={owner} lab down`")]
    FindBridge {
        /// That other run directory.
        owner: String,
    },
    /// The run directory has files in it that are not a cluster's.
    #[error("{} is not empty and is not a cluster's; choose another LAB_DIR", .directory.display())]
    FindFiles {
        /// The run directory.
        directory: PathBuf,
    },
    /// Nodes need privileges.
    #[error("nodes need root (namespaces, mounts, cgroups); run as root or use --control-plane-only")]
    NeedRoot,
    /// The run directory's name is too long for the sockets in it.
    #[error("{} is longer than {RUN_DIRECTORY_BYTES_MAX} bytes; choose a shorter LAB_DIR", .directory.display())]
    FitSockets {
        /// The run directory.
        directory: PathBuf,
    },
    /// A number of nodes that cannot be had.
    #[error("a cluster has 1 to {NODES_MAX} nodes, not {asked}")]
    CountNodes {
        /// The number that was asked for.
        asked: u8,
    },
    /// There is no cluster, or it is not finished.
    #[error("no cluster is running in {}; start one with `lab up`", .directory.display())]
    FindNone {
        /// Where it was looked for.
        directory: PathBuf,
    },
    /// There is no node of this name.
    #[error("there is no node {name}; there are {known}")]
    FindNode {
        /// What was asked for.
        name: String,
        /// What there is.
        known: String,
    },
    /// Programs of the distribution are missing.
    #[error("prepare the machine")]
    PrepareMachine(#[source] packages::Error),
    /// Programs of Kubernetes are missing.
    #[error("find the programs of Kubernetes")]
    FindBinaries(#[source] binaries::Error),
    /// The control plane does not start.
    #[error("start the control plane")]
    StartControlPlane(#[source] control_plane::Error),
    /// A node does not start.
    #[error("start node {node}")]
    StartNode {
        /// Which.
        node: String,
        /// Why not.
        #[source]
        source: machine::Error,
    },
    /// Something of the machine could not be changed.
    #[error("{action}")]
    ChangeMachine {
        /// What was tried.
        action: &'static str,
        /// Why it did not work.
        #[source]
        source: machine::Error,
    },
    /// The state file could not be kept.
    #[error("keep the state")]
    KeepState(#[source] state::Error),
    /// The API server did not take what Pods find in a cluster.
    #[error("provide names and volumes")]
    Provide(#[source] Box<install::Error>),
    /// The API server did not say in time that everything is there.
    #[error("await the cluster")]
    AwaitReady(#[source] ready::Error),
    /// The user has asked to stop; what was made is removed.
    #[error("interrupted; everything that was made is removed")]
    Interrupt,
    /// `down` has done all it can and something is still there.
    #[error("left behind:\n  {}", .what.join("\n  "))]
    LeaveBehind {
        /// What is still there.
        what: Vec<String>,
    },
}

impl From<pki::Error> for Error {
    fn from(source: pki::Error) -> Self {
        Self::StartControlPlane(control_plane::Error::Certify(source))
    }
}

/// A running cluster.
#[derive(Debug, Clone)]
pub struct Cluster {
    run: RunDirectory,
}

impl Cluster {
    /// Makes a cluster and waits until all its nodes are ready. It stays until [`Cluster::down`], also when
    /// this process ends. If it cannot be completed, what was made is removed. What [`Cluster::remove_abandoned`]
    /// finds goes first.
    ///
    /// # Errors
    /// See [`enum@Error`].
    pub async fn up(options: Options) -> Result<Self, Error> {
        up::up(options).await
    }

    /// Finds the cluster that runs in the usual place, whatever `KUBECONFIG` says.
    ///
    /// # Errors
    /// `FindNone` or `FindUnfinished`.
    pub fn attach() -> Result<Self, Error> {
        Self::attach_to(RunDirectory::from_environment())
    }

    /// Finds the cluster that runs in this directory.
    ///
    /// # Errors
    /// `FindNone` or `FindUnfinished`.
    pub fn attach_to(run: RunDirectory) -> Result<Self, Error> {
        let cluster = Self { run };
        let directory = cluster.run.path().to_owned();
        match cluster.state()?.progress {
            Stage::Running => Ok(cluster),
            Stage::Starting | Stage::Stopping => Err(Error::FindUnfinished { directory }),
        }
    }

    /// Removes the cluster in this directory, finished or not, and checks that nothing is left of it.
    /// Without one it only checks.
    ///
    /// # Errors
    /// `LeaveBehind` with a list of what could not be removed; `KeepState` if another command is at work.
    pub fn down(run: &RunDirectory) -> Result<(), Error> {
        down::down(run)
    }

    /// Removes the cluster in this directory, and the one that the nodes' bridge belongs to, if nobody can use it any
    /// more ([`State::is_abandoned`]), and what is left of one whose directory is gone.
    ///
    /// # Errors
    /// As [`Cluster::down`].
    pub fn remove_abandoned(run: &RunDirectory, progress: Progress) -> Result<(), Error> {
        down::remove_abandoned(run, progress)
    }

    /// [`Cluster::remove_abandoned`], and removes a cluster that was only there to show something: for tests, as two
    /// clusters with nodes do not fit on a machine.
    ///
    /// # Errors
    /// As [`Cluster::down`]; `FindBridge` if a cluster is there that somebody asked for or uses at the moment.
    pub fn make_room(run: &RunDirectory, progress: Progress) -> Result<(), Error> {
        down::make_room(run, progress)
    }

    /// If it is there to show something, notes that this process does.
    ///
    /// # Errors
    /// `FindNone` or `KeepState`.
    pub fn show(&self) -> Result<(), Error> {
        if !self.makes_room()? {
            return Ok(());
        }
        self.change(|journal| {
            let noted = journal.change(|state| state.purpose = Purpose::Show(ProcessId::current()));
            noted.map_err(Error::KeepState)
        })
    }

    /// Whether [`Cluster::make_room`] removes it once it is not used any more.
    ///
    /// # Errors
    /// `FindNone` or `KeepState`.
    pub fn makes_room(&self) -> Result<bool, Error> {
        Ok(matches!(self.state()?.purpose, Purpose::Show(_)))
    }

    /// What the cluster consists of.
    ///
    /// # Errors
    /// `FindNone` or `KeepState`.
    pub fn state(&self) -> Result<State, Error> {
        let state = state::load(&self.run).map_err(Error::KeepState)?;
        state.ok_or_else(|| Error::FindNone { directory: self.run.path().to_owned() })
    }

    /// Where its files are.
    pub fn run_directory(&self) -> &RunDirectory {
        &self.run
    }

    /// The administrator's kubeconfig.
    pub fn kubeconfig_path(&self) -> PathBuf {
        self.run.kubeconfig()
    }

    /// A client with all rights.
    ///
    /// # Errors
    /// `AwaitReady` if the kubeconfig is gone.
    pub async fn client(&self) -> Result<kube::Client, Error> {
        ready::client(&self.run.kubeconfig()).await.map_err(Error::AwaitReady)
    }

    /// Its nodes, in the order of their names.
    ///
    /// # Errors
    /// `FindNone` or `KeepState`.
    pub fn nodes(&self) -> Result<Vec<NodeAddresses>, Error> {
        Ok(addresses::nodes(u8::try_from(self.state()?.nodes.len()).unwrap_or(NODES_MAX)))
    }

    /// One node.
    ///
    /// # Errors
    /// `FindNode` if there is none of this name.
    pub fn node(&self, name: &str) -> Result<NodeAddresses, Error> {
        let nodes = self.nodes()?;
        let known = nodes.iter().map(|node| node.name.as_str()).collect::<Vec<_>>().join(", ");
        let found = nodes.iter().find(|node| node.name == name).cloned();
        found.ok_or_else(|| Error::FindNode { name: name.to_owned(), known })
    }

    /// Imports an image archive on all nodes that are on, at the same time.
    ///
    /// # Errors
    /// `StartNode` for the first node that does not take it.
    pub fn load(&self, archive: &Path) -> Result<(), Error> {
        let nodes: Vec<_> = self.state()?.nodes.into_iter().filter(|node| node.is_on).collect();
        std::thread::scope(|scope| {
            let imports: Vec<_> = nodes
                .iter()
                .map(|node| {
                    let directory = self.run.node(&node.name);
                    let import = scope.spawn(move || node::import(&directory, archive));
                    (node, import)
                })
                .collect();
            imports.into_iter().try_for_each(|(node, import)| {
                let result = import.join().expect("importing does not panic");
                result.map_err(|source| Error::StartNode { node: node.name.clone(), source })
            })
        })
    }

    /// A command that runs in a node's network: there the addresses of Pods and Services work. What it
    /// starts ends with the cluster at the latest.
    ///
    /// # Errors
    /// `FindNode` if there is no such node.
    pub fn command_in(&self, node: &str, program: &str) -> Result<Command, Error> {
        let node = self.node(node)?;
        let pin = self.run.node(&node.name).network_pin();
        let mut command = Command::new("nsenter");
        command.arg(format!("--net={}", pin.display())).arg("--").arg(program);
        command.env(MARK_VARIABLE, format!("{}/{}/command", self.state()?.run, node.name));
        Ok(command)
    }

    /// Changes the cluster while nobody else does.
    pub(crate) fn change<T, E: From<Error>>(
        &self,
        change: impl FnOnce(&Journal) -> Result<T, E>,
    ) -> Result<T, E> {
        let _lock = Lock::take(&self.run).map_err(Error::KeepState)?;
        let journal = Journal::open(self.run.clone(), self.state()?).map_err(Error::KeepState)?;
        change(&journal)
    }
}
