//! Remembers what belongs to a cluster, on disk, before it exists.
//!
//! Most of what a cluster leaves on a machine carries its name and is found by that (marked processes, one
//! bridge, one cgroup, mounts below one directory). What cannot be found that way is in here: the run's mark,
//! the old values of kernel settings, directories made outside. So a killed `up` can always be undone.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::Mutex;

use jiff::Timestamp;
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

use crate::cuts::Cut;
use crate::daemon::Daemon;
use crate::machine;
use crate::machine::process::ProcessId;
use crate::paths::RunDirectory;

/// How often a lock is taken again because its file was removed in between by whoever held it.
const LOCK_ATTEMPTS_MAX: usize = 10;

/// How far a cluster has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Progress {
    /// `up` is at work, or was interrupted.
    Starting,
    /// `up` has ended well.
    Running,
    /// `down` is at work, or was interrupted.
    Stopping,
}

/// What a cluster is there for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Purpose {
    /// Somebody asked for it, and removes it.
    #[default]
    Asked,
    /// To show or to measure something, by this process; afterwards tests, which need the machine for themselves, may remove it.
    Show(ProcessId),
    /// Of use to this process only.
    OneProcess(ProcessId),
}

/// One node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Node {
    /// Name, as in Kubernetes.
    pub name: String,
    /// Whether it was switched on last.
    pub is_on: bool,
}

/// A cluster, as `state.json` has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct State {
    /// Mark of this run: the value of the environment variable of all its processes starts with it.
    pub run: String,
    /// How far it has come.
    pub progress: Progress,
    /// What it is there for.
    #[serde(default)]
    pub purpose: Purpose,
    /// When `up` began.
    pub created: Timestamp,
    /// Address of the API server.
    pub server: String,
    /// The nodes; empty if there is only a control plane.
    pub nodes: Vec<Node>,
    /// What runs, by owner (`control/etcd`, `n1/kubelet`).
    pub daemons: BTreeMap<String, Daemon>,
    /// Kernel settings before the first kubelet, by path below `/proc/sys`.
    pub sysctls: BTreeMap<String, String>,
    /// Directories that were made outside the run directory, in the order in which they were made.
    pub directories: Vec<PathBuf>,
    /// Connections that are cut at present.
    pub cuts: BTreeSet<Cut>,
}

impl State {
    /// Whether nobody can use it any more: it was for one process and that has ended, or all that was started has, be it by hand.
    pub fn is_abandoned(&self) -> bool {
        if let Purpose::OneProcess(keeper) = self.purpose
            && !keeper.is_running()
        {
            return true;
        }
        let mut processes = self.daemons.values().filter_map(|daemon| daemon.process).peekable();
        processes.peek().is_some() && processes.all(|process| !process.is_running())
    }
}

/// Why the state could not be kept.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file could not be read or written.
    #[error("keep the state of the cluster")]
    Keep(#[source] machine::Error),
    /// The file is there but is not a state.
    #[error("{path} is not a state of this version of the lab")]
    Parse {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        #[source]
        source: serde_json::Error,
    },
    /// Another process changes the cluster at this moment.
    #[error("another lab command is changing the cluster in {}", .directory.display())]
    Busy {
        /// The run directory.
        directory: PathBuf,
    },
    /// The user has asked to stop.
    #[error("interrupted")]
    Interrupt,
}

/// Reads the state of a cluster; `None` if there is none.
///
/// # Errors
/// `Keep` or `Parse` if the file is there but cannot be read.
pub fn load(run: &RunDirectory) -> Result<Option<State>, Error> {
    let path = run.state();
    if !path.exists() {
        return Ok(None);
    }
    let text = machine::read_file(&path).map_err(Error::Keep)?;
    serde_json::from_str(&text).map(Some).map_err(|source| Error::Parse { path, source })
}

/// The state of a cluster that is being changed: every change is on disk before the next step.
pub struct Journal {
    run: RunDirectory,
    state: Mutex<(State, bool)>,
}

impl Journal {
    /// Begins to keep a state, and writes it once.
    ///
    /// # Errors
    /// `Keep` if it cannot be written.
    pub fn open(run: RunDirectory, state: State) -> Result<Self, Error> {
        let journal = Self { run, state: Mutex::new((state, true)) };
        journal.change(|_| ())?;
        Ok(journal)
    }

    /// Changes the state and writes it.
    ///
    /// # Errors
    /// `Keep` if it cannot be written; `Interrupt` after [`Journal::close`].
    pub fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> Result<T, Error> {
        let mut guard = self.state.lock().expect("no change panics");
        let (state, is_open) = &mut *guard;
        if !*is_open {
            return Err(Error::Interrupt);
        }
        let result = change(state);
        let text = serde_json::to_string_pretty(state).expect("a state has only string keys");
        machine::write_file(&self.run.state(), text.as_bytes()).map_err(Error::Keep)?;
        Ok(result)
    }

    /// From now on every change is refused, so that whoever builds the cluster stops at the next step.
    pub fn close(&self) {
        self.state.lock().expect("no change panics").1 = false;
    }

    /// The state as it is now.
    pub fn snapshot(&self) -> State {
        self.state.lock().expect("no change panics").0.clone()
    }

    /// The directory that the state is in.
    pub fn run_directory(&self) -> &RunDirectory {
        &self.run
    }
}

/// The right to change the cluster in one run directory; it ends with the value or with the process.
pub struct Lock {
    path: PathBuf,
    _file: File,
}

impl Lock {
    /// Takes the lock.
    ///
    /// # Errors
    /// `Busy` if another process has it; `Keep` if the file cannot be made.
    pub fn take(run: &RunDirectory) -> Result<Self, Error> {
        let path = run.lock();
        let busy = || Error::Busy { directory: run.path().to_owned() };
        for _ in 0..LOCK_ATTEMPTS_MAX {
            let failed = |error| Error::Keep(machine::Error::file("open", &path, error));
            let file = OpenOptions::new().create(true).append(true).open(&path).map_err(failed)?;
            flock(&file, FlockOperation::NonBlockingLockExclusive).map_err(|_| busy())?;
            // The previous holder removes the file; a lock on a removed file guards nothing.
            let is_current = |metadata: fs::Metadata| {
                fs::metadata(&path)
                    .is_ok_and(|now| (now.dev(), now.ino()) == (metadata.dev(), metadata.ino()))
            };
            if file.metadata().is_ok_and(is_current) {
                return Ok(Self { path, _file: file });
            }
        }
        Err(busy())
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // Removed while it is still held. If this does not work, an unlocked empty file stays, and guards nothing.
        let _ = fs::remove_file(&self.path);
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::cuts::Peer;

    pub(crate) fn sample() -> State {
        State {
            run: "0123abcd".into(),
            progress: Progress::Running,
            purpose: Purpose::Asked,
            created: Timestamp::UNIX_EPOCH,
            server: "https://198.18.0.1:6443".into(),
            nodes: vec![Node { name: "n1".into(), is_on: true }],
            daemons: BTreeMap::new(),
            sysctls: BTreeMap::from([("kernel/panic".into(), "0".into())]),
            directories: vec!["/var/lib/kubelet".into()],
            cuts: BTreeSet::from([Cut { node: "n1".into(), from: Peer::Node("n2".into()) }]),
        }
    }

    fn run_directory(parent: &tempfile::TempDir) -> RunDirectory {
        let run = RunDirectory::at(parent.path().join("run"));
        machine::create_directory(run.path()).unwrap();
        run
    }

    #[test]
    fn a_state_is_read_back_as_it_was_written() {
        let parent = tempfile::tempdir().unwrap();
        let run = run_directory(&parent);
        assert_eq!(load(&run).unwrap(), None);
        let journal = Journal::open(run.clone(), sample()).unwrap();
        assert_eq!(load(&run).unwrap(), Some(sample()));
        journal.change(|state| state.progress = Progress::Stopping).unwrap();
        assert_eq!(load(&run).unwrap(), Some(State { progress: Progress::Stopping, ..sample() }));
    }

    fn ended() -> ProcessId {
        // The number was given to another process meanwhile.
        let own = ProcessId::current();
        ProcessId { start_time: own.start_time - 1, ..own }
    }

    #[test]
    fn a_cluster_is_abandoned_when_the_process_that_it_is_for_has_ended() {
        let is_abandoned = |purpose| State { purpose, ..sample() }.is_abandoned();
        assert!(!is_abandoned(Purpose::Asked));
        assert!(!is_abandoned(Purpose::Show(ended())));
        assert!(!is_abandoned(Purpose::OneProcess(ProcessId::current())));
        assert!(is_abandoned(Purpose::OneProcess(ended())));
    }

    #[test]
    fn a_cluster_is_abandoned_when_all_that_was_to_run_has_ended() {
        let is_abandoned = |processes: &[Option<ProcessId>]| {
            let daemons = processes.iter().enumerate().map(|(index, process)| {
                (format!("n{index}/kubelet"), Daemon { process: *process, ..crate::daemon::tests::sample() })
            });
            State { daemons: daemons.collect(), ..sample() }.is_abandoned()
        };
        let running = Some(ProcessId::current());
        assert!(is_abandoned(&[Some(ended()), Some(ended())]));
        assert!(is_abandoned(&[Some(ended()), None]));
        assert!(!is_abandoned(&[Some(ended()), running]));
        assert!(!is_abandoned(&[None, None]), "nothing was started yet");
    }

    #[test]
    fn nothing_can_be_added_to_a_closed_journal() {
        let parent = tempfile::tempdir().unwrap();
        let run = run_directory(&parent);
        let journal = Journal::open(run.clone(), sample()).unwrap();
        journal.close();
        let refused = journal.change(|state| state.nodes.clear());
        assert!(matches!(refused, Err(Error::Interrupt)));
        assert_eq!(load(&run).unwrap(), Some(sample()));
    }

    #[test]
    fn a_lock_is_held_by_one_and_leaves_no_file() {
        let parent = tempfile::tempdir().unwrap();
        let run = run_directory(&parent);
        let first = Lock::take(&run).unwrap();
        assert!(matches!(Lock::take(&run), Err(Error::Busy { .. })));
        drop(first);
        drop(Lock::take(&run).unwrap());
        assert!(!run.lock().exists());
    }
}
