//! Signals processes and containers of Pods; takes no lock and writes nothing.

use rustix::process::Signal;

use super::{Error, Target, acting};
use crate::cluster::Cluster;
use crate::containers::{self, Container, Kind};
use crate::machine::clock::Instant;
use crate::machine::process::ProcessId;

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

    /// All processes of one application container but the main one: the application, where an init runs it.
    ///
    /// # Errors
    /// `FindContainer`, `ChooseContainer`.
    pub fn aim_below_init(&self, target: &Target) -> Result<Aim, Error> {
        let mut aim = self.aim_at_container(target)?;
        let init = aim.processes.remove(0).program();
        aim.processes.retain(|process| process.program() != init);
        Ok(aim)
    }

    /// All processes of one application container that run the program of its main one.
    ///
    /// # Errors
    /// `FindContainer`, `ChooseContainer`.
    pub fn aim_at_init(&self, target: &Target) -> Result<Aim, Error> {
        let mut aim = self.aim_at_container(target)?;
        let init = aim.processes.first().and_then(|main| main.program());
        aim.processes.retain(|process| process.program() == init);
        Ok(aim)
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

    /// Kills all processes of a container but those of its main one's program.
    ///
    /// # Errors
    /// See [`enum@Error`].
    pub fn kill_below_init(&self, target: &Target) -> Result<Instant, Error> {
        self.aim_below_init(target)?.fire(Signal::KILL)
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
