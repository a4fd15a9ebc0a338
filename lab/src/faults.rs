//! Breaks a running cluster on purpose, and says exactly when.
//!
//! Each fault is what the hardware or the kernel would do, never a request that a component could answer
//! politely. What only signals processes takes no lock and writes nothing, so that its delay is that of one
//! system call.

use std::collections::BTreeSet;

use rustix::process::Signal;

use crate::addresses::NodeAddresses;
use crate::cluster::{self, Cluster, StartError, start_recorded};
use crate::containers::{self, Container, Kind};
use crate::cuts::{Cut, Peer};
use crate::daemon;
use crate::machine::clock::Instant;
use crate::machine::process::ProcessId;
use crate::machine::{self, network};
use crate::node::{self, Site};
use crate::packages;
use crate::state::{self, Journal};

/// Why a fault could not be injected.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The cluster or the node is not there.
    #[error("find what to break")]
    FindCluster(#[source] cluster::Error),
    /// No such container runs on any node.
    #[error("{target} is not running on any node")]
    FindContainer {
        /// What was looked for.
        target: String,
    },
    /// The Pod has several containers and none was named.
    #[error("pod {pod} runs several containers; name one of {}", .names.join(", "))]
    ChooseContainer {
        /// The Pod.
        pod: String,
        /// Its running containers.
        names: Vec<String>,
    },
    /// There is no such part.
    #[error("there is no part {part}; there are {known}")]
    FindPart {
        /// What was asked for.
        part: String,
        /// What there is.
        known: String,
    },
    /// The node is on already, or off already.
    #[error("node {node} is {}", if *.is_on { "on" } else { "off" })]
    FindSwitched {
        /// The node.
        node: String,
        /// How it is.
        is_on: bool,
    },
    /// The part is running already, or is not.
    #[error("{part} is {}", if *.is_running { "running" } else { "not running" })]
    FindStarted {
        /// The part.
        part: String,
        /// How it is.
        is_running: bool,
    },
    /// The machine refused.
    #[error("{action}")]
    Act {
        /// What was tried.
        action: &'static str,
        /// Why not.
        #[source]
        source: machine::Error,
    },
    /// The state file could not be kept.
    #[error("keep the state")]
    KeepState(#[source] state::Error),
}

impl From<cluster::Error> for Error {
    fn from(source: cluster::Error) -> Self {
        Self::FindCluster(source)
    }
}

/// A Pod, and if need be one of its containers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// Namespace of the Pod.
    pub namespace: String,
    /// Name of the Pod.
    pub pod: String,
    /// One of its containers; may be left out if only one runs.
    pub container: Option<String>,
}

impl Target {
    fn describe(&self) -> String {
        let container = self.container.as_ref().map(|name| format!(" container {name}")).unwrap_or_default();
        format!("pod {}/{}{container}", self.namespace, self.pod)
    }
}

/// Processes that were found beforehand, so that nothing stands between the decision and the signal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Aim {
    processes: Vec<ProcessId>,
}

impl Aim {
    /// Signals the processes; the instant is taken right before the first.
    ///
    /// # Errors
    /// `Act` if the kernel refuses.
    pub fn fire(&self, signal: Signal) -> Result<Instant, Error> {
        let instant = Instant::now();
        for process in &self.processes {
            process.signal(signal).map_err(acting("signal a process"))?;
        }
        Ok(instant)
    }

    /// The processes.
    pub fn processes(&self) -> &[ProcessId] {
        &self.processes
    }
}

/// Faults of processes and containers.
impl Cluster {
    /// The main process of one application container.
    ///
    /// # Errors
    /// `FindContainer`, `ChooseContainer`.
    pub fn aim_at_process(&self, target: &Target) -> Result<Aim, Error> {
        Ok(Aim { processes: vec![self.container(target)?.main] })
    }

    /// All processes of one application container, the main process first.
    ///
    /// # Errors
    /// `FindContainer`, `ChooseContainer`.
    pub fn aim_at_container(&self, target: &Target) -> Result<Aim, Error> {
        let container = self.container(target)?;
        let mut processes = vec![container.main];
        processes.extend(container.processes().into_iter().filter(|process| *process != container.main));
        Ok(Aim { processes })
    }

    /// The process that keeps the Pod's namespaces; if it ends, the kubelet stops everything in the Pod and
    /// begins again with the init containers.
    ///
    /// # Errors
    /// `FindContainer`.
    pub fn aim_at_sandbox(&self, target: &Target) -> Result<Aim, Error> {
        let found = self.containers(target)?.into_iter().find(|container| container.kind == Kind::Sandbox);
        let container = found.ok_or_else(|| Error::FindContainer { target: target.describe() })?;
        Ok(Aim { processes: vec![container.main] })
    }

    /// Kills the main process of a container.
    ///
    /// # Errors
    /// See [`enum@Error`].
    pub fn kill_process(&self, target: &Target) -> Result<Instant, Error> {
        self.aim_at_process(target)?.fire(Signal::KILL)
    }

    /// Kills all processes of a container.
    ///
    /// # Errors
    /// See [`enum@Error`].
    pub fn kill_container(&self, target: &Target) -> Result<Instant, Error> {
        self.aim_at_container(target)?.fire(Signal::KILL)
    }

    /// Kills the process that keeps the Pod's namespaces.
    ///
    /// # Errors
    /// See [`enum@Error`].
    pub fn kill_sandbox(&self, target: &Target) -> Result<Instant, Error> {
        self.aim_at_sandbox(target)?.fire(Signal::KILL)
    }

    /// Stops all processes of a container where they are, as a machine does that swaps or migrates.
    ///
    /// # Errors
    /// See [`enum@Error`].
    pub fn pause(&self, target: &Target) -> Result<Instant, Error> {
        self.aim_at_container(target)?.fire(Signal::STOP)
    }

    /// Lets a paused container go on.
    ///
    /// # Errors
    /// See [`enum@Error`].
    pub fn resume(&self, target: &Target) -> Result<Instant, Error> {
        self.aim_at_container(target)?.fire(Signal::CONT)
    }

    fn containers(&self, target: &Target) -> Result<Vec<Container>, Error> {
        let directories: Vec<_> =
            self.nodes()?.iter().map(|node| self.run_directory().node(&node.name)).collect();
        Ok(containers::of_pod(&directories, &target.namespace, &target.pod))
    }

    fn container(&self, target: &Target) -> Result<Container, Error> {
        let mut found: Vec<_> = self
            .containers(target)?
            .into_iter()
            .filter(|one| one.kind == Kind::Application)
            .filter(|one| target.container.as_ref().is_none_or(|name| *name == one.name))
            .collect();
        match found.len() {
            0 => Err(Error::FindContainer { target: target.describe() }),
            1 => Ok(found.remove(0)),
            _ => Err(Error::ChooseContainer {
                pod: target.pod.clone(),
                names: found.into_iter().map(|one| one.name).collect(),
            }),
        }
    }
}

/// Faults of nodes and of the network.
impl Cluster {
    /// Takes the power from a node: nothing more gets out of it, and all its processes are killed. Its disk
    /// stays.
    ///
    /// # Errors
    /// `FindSwitched` if it is off; see [`enum@Error`].
    pub fn power_off(&self, name: &str) -> Result<Instant, Error> {
        let node = self.node(name)?;
        let site = self.site()?;
        self.change(|journal| {
            let run = switch(journal, &node, false)?;
            site.power_off(&node.name, &run).map_err(acting("power off a node"))
        })
    }

    /// Gives a node its power back, with the cuts that it had; returns before it is ready.
    ///
    /// # Errors
    /// `FindSwitched` if it is on; see [`enum@Error`].
    pub fn power_on(&self, name: &str) -> Result<Instant, Error> {
        let node = self.node(name)?;
        let site = self.site()?;
        self.change(|journal| {
            switch(journal, &node, true)?;
            let instant = Instant::now();
            site.connect(&node).map_err(acting("connect the node"))?;
            apply_cuts(&site, journal)?;
            for part in node::PARTS {
                let owner = node::owner(&node.name, part);
                start(journal, &owner)?;
                if part == node::CONTAINERD {
                    let directory = self.run_directory().node(&node.name);
                    node::await_containerd(&directory).map_err(acting("start containerd"))?;
                }
            }
            Ok(instant)
        })
    }

    /// Cuts a node off. Connections are not reset: packets just no longer arrive.
    ///
    /// # Errors
    /// `FindCluster` if a node is unknown; `Act` if the rules are refused.
    pub fn cut(&self, name: &str, from: Peer) -> Result<Instant, Error> {
        let node = self.node(name)?.name;
        if let Peer::Node(peer) = &from {
            self.node(peer)?;
        }
        let site = self.site()?;
        self.change(|journal| {
            journal.change(|state| state.cuts.insert(Cut { node, from })).map_err(Error::KeepState)?;
            let instant = Instant::now();
            apply_cuts(&site, journal)?;
            Ok(instant)
        })
    }

    /// Heals all cuts that a node is part of.
    ///
    /// # Errors
    /// `FindCluster` if the node is unknown; `Act` if the rules are refused.
    pub fn heal(&self, name: &str) -> Result<Instant, Error> {
        let node = self.node(name)?.name;
        let site = self.site()?;
        let keep = |cut: &Cut| cut.node != node && cut.from != Peer::Node(node.clone());
        self.change(|journal| {
            journal.change(|state| state.cuts.retain(keep)).map_err(Error::KeepState)?;
            let instant = Instant::now();
            apply_cuts(&site, journal)?;
            Ok(instant)
        })
    }

    fn site(&self) -> Result<Site, Error> {
        let cni_plugins = packages::ensure().map_err(cluster::Error::PrepareMachine)?;
        Ok(Site { run: self.run_directory().clone(), nodes: self.nodes()?, cni_plugins })
    }
}

/// Faults of the cluster's own programs.
impl Cluster {
    /// Ends a part of the control plane or of a node: `etcd`, `kube-apiserver`, `n1/kubelet`. It is asked to
    /// end, and killed if it does not; with `is_killed` it is killed at once.
    ///
    /// # Errors
    /// `FindPart`, `FindStarted`; `Act` if it does not end.
    pub fn stop(&self, part: &str, is_killed: bool) -> Result<Instant, Error> {
        let owner = self.part(part)?;
        let recorded = self.state()?.daemons.get(&owner).and_then(|daemon| daemon.process);
        let Some(process) = recorded.filter(|process| process.is_running()) else {
            return Err(Error::FindStarted { part: owner, is_running: false });
        };
        let instant = Instant::now();
        let signal = if is_killed { Signal::KILL } else { Signal::TERM };
        daemon::stop(process, signal).map_err(acting("stop a part"))?;
        Ok(instant)
    }

    /// Starts a stopped part again, as it was started before.
    ///
    /// # Errors
    /// `FindPart`, `FindStarted`; `Act` if it does not start.
    pub fn start(&self, part: &str) -> Result<Instant, Error> {
        let owner = self.part(part)?;
        self.change(|journal| {
            let instant = Instant::now();
            start(journal, &owner)?;
            Ok(instant)
        })
    }

    /// The full name of a part: those of the control plane may be named without `control/`, and the parts
    /// named `kube-...` without that.
    fn part(&self, part: &str) -> Result<String, Error> {
        let daemons = self.state()?.daemons;
        let candidates = [part.to_owned(), format!("control/{part}"), format!("control/kube-{part}")];
        let found = candidates.into_iter().find(|name| daemons.contains_key(name));
        found.ok_or_else(|| Error::FindPart {
            part: part.to_owned(),
            known: daemons.into_keys().collect::<Vec<_>>().join(", "),
        })
    }
}

/// Renews what each node that is on lets through.
fn apply_cuts(site: &Site, journal: &Journal) -> Result<(), Error> {
    let state = journal.snapshot();
    let isolated: BTreeSet<_> =
        state.cuts.iter().filter(|cut| cut.from == Peer::All).map(|cut| cut.node.as_str()).collect();
    for node in state.nodes.iter().filter(|node| node.is_on) {
        let plugged = if isolated.contains(node.name.as_str()) {
            network::unplug(&node.name)
        } else {
            network::plug(&node.name)
        };
        plugged.map_err(acting("plug or unplug a node"))?;
        site.apply_cuts(&node.name, &state).map_err(acting("change a node's packet filter"))?;
    }
    Ok(())
}

/// Writes down that a node is on or off; returns the mark of the run.
fn switch(journal: &Journal, node: &NodeAddresses, is_on: bool) -> Result<String, Error> {
    let was_on = journal.snapshot().nodes.iter().any(|one| one.name == node.name && one.is_on);
    if was_on == is_on {
        return Err(Error::FindSwitched { node: node.name.clone(), is_on });
    }
    let record = |state: &mut state::State| {
        for one in state.nodes.iter_mut().filter(|one| one.name == node.name) {
            one.is_on = is_on;
        }
        state.run.clone()
    };
    journal.change(record).map_err(Error::KeepState)
}

fn start(journal: &Journal, owner: &str) -> Result<(), Error> {
    let daemon = journal.snapshot().daemons.remove(owner);
    let daemon = daemon.ok_or_else(|| Error::FindPart { part: owner.to_owned(), known: String::new() })?;
    if daemon.process.is_some_and(ProcessId::is_running) {
        return Err(Error::FindStarted { part: owner.to_owned(), is_running: true });
    }
    start_recorded(journal, owner, &daemon).map_err(|error| match error {
        StartError::Keep(source) => Error::KeepState(source),
        StartError::Machine(source) => acting("start a part")(source),
    })
}

fn acting(action: &'static str) -> impl Fn(machine::Error) -> Error {
    move |source| Error::Act { action, source }
}
