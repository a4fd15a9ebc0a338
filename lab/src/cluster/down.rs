//! Removes a cluster and checks that nothing is left of it.
//!
//! Every step is taken whatever became of the one before, and may be taken again: the list at the end is what
//! counts.

use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;
use std::time::Duration;

use super::Error;
use crate::machine::process::{self, ProcessId};
use crate::machine::{self, cgroups, mounts, network, sysctls};
use crate::paths::{self, RunDirectory};
use crate::progress::Progress;
use crate::state::{self, Journal, Lock, Progress as Stage, Purpose, State};

/// How long all processes together may take to end after SIGKILL. Unit: seconds.
const KILL_SECONDS_MAX: u64 = 60;

pub(super) fn down(run: &RunDirectory) -> Result<(), Error> {
    let _lock = Lock::take(run).map_err(Error::KeepState)?;
    let Some(state) = state::load(run).map_err(Error::KeepState)? else {
        // An `up` that was killed at its very first write has left this much.
        let _ = fs::remove_file(run.state().with_extension("partial"));
        let _ = fs::remove_dir(run.path());
        return report(leftovers(run, None));
    };
    let journal = Journal::open(run.clone(), state).map_err(Error::KeepState)?;
    journal.change(|state| state.progress = Stage::Stopping).map_err(Error::KeepState)?;
    remove(run, &journal.snapshot())
}

/// See [`super::Cluster::remove_abandoned`].
pub(super) fn remove_abandoned(run: &RunDirectory, progress: Progress) -> Result<(), Error> {
    remove_if(run, progress, "remove a cluster whose processes were killed", State::is_abandoned)?;
    if let Some(owner) = bridge_owner()
        && !owner.path().exists()
        // A cable goes with its node's network namespace: who is not to be seen from here may be there all the same.
        && network::links() == [network::BRIDGE]
        && process::marked("").is_empty()
        && process::in_cgroup(&format!("/{}", cgroups::ROOT)).is_empty()
    {
        let step = progress.step("remove what is left of a cluster whose directory is gone");
        remove_nameless();
        report(leftovers(&owner, None))?;
        step.done();
    }
    Ok(())
}

/// See [`super::Cluster::make_room`].
pub(super) fn make_room(run: &RunDirectory, progress: Progress) -> Result<(), Error> {
    remove_abandoned(run, progress)?;
    let has_shown = |state: &State| matches!(state.purpose, Purpose::Show(by) if !by.is_running());
    remove_if(run, progress, "remove the cluster that has shown something", has_shown)?;
    network::bridge_alias().map_or(Ok(()), |owner| Err(Error::FindBridge { owner }))
}

/// The directory of the cluster that the bridge belongs to; `None` also for a user who could not remove it.
fn bridge_owner() -> Option<RunDirectory> {
    // One that is only just being made has no name yet.
    let alias = network::bridge_alias().filter(|alias| paths::is_root() && !alias.is_empty());
    alias.map(RunDirectory::at)
}

/// Removes the cluster in this directory and the one that the bridge belongs to, each if it is to go.
fn remove_if(
    run: &RunDirectory,
    progress: Progress,
    step: &'static str,
    is_to_go: impl Fn(&State) -> bool,
) -> Result<(), Error> {
    // A cluster that was killed early has no bridge yet; one of another directory has nothing else that names it.
    let owner = bridge_owner().filter(|owner| owner != run);
    for run in [Some(run.clone()), owner].into_iter().flatten() {
        if state::load(&run).map_err(Error::KeepState)?.is_some_and(|state| is_to_go(&state)) {
            let step = progress.step(step);
            down(&run)?;
            step.done();
        }
    }
    Ok(())
}

/// Removes everything; the caller holds the lock.
pub(super) fn remove(run: &RunDirectory, state: &State) -> Result<(), Error> {
    let limit = Duration::from_secs(KILL_SECONDS_MAX);
    let mut problems: Vec<machine::Error> = Vec::new();
    let mut step = |result: Result<(), machine::Error>| problems.extend(result.err());
    step(process::kill_all("processes", limit, || processes(state)));
    if has_nodes(state) {
        step(mounts::unmount_below(run.path()));
        for problem in remove_nameless() {
            step(Err(problem));
        }
        step(sysctls::restore(&state.sysctls));
        for directory in state.directories.iter().rev() {
            step(
                ignore_missing(fs::remove_dir(directory))
                    .map_err(|error| machine::Error::file("remove", directory, error)),
            );
        }
    }
    // Last, because the state file is in it: until here `down` can be repeated.
    if problems.is_empty() {
        let removed = ignore_missing(fs::remove_dir_all(run.path()));
        problems.extend(removed.err().map(|error| machine::Error::file("remove", run.path(), error)));
    }
    let mut left = leftovers(run, Some(state));
    left.extend(problems.iter().map(ToString::to_string));
    report(left)
}

/// Removes what has no run's name on it, as there is one of it on a machine. Returns what could not be done.
fn remove_nameless() -> Vec<machine::Error> {
    let links = network::links().into_iter().filter_map(|link| {
        let deleted = network::delete_link(&link);
        // The kernel may have removed it in between, together with its other end.
        deleted.err().filter(|_| network::link_exists(&link))
    });
    links.chain(cgroups::remove(None).err()).collect()
}

/// All processes that the cluster has started, and all that its containers consist of.
fn processes(state: &State) -> BTreeSet<ProcessId> {
    let mut found = process::marked(&format!("{}/", state.run));
    if has_nodes(state) {
        found.extend(process::in_cgroup(&format!("/{}", cgroups::ROOT)));
    }
    found
}

/// Whether the cluster may have touched more of the machine than files and processes.
fn has_nodes(state: &State) -> bool {
    !state.sysctls.is_empty()
}

/// What is still there, one line each.
fn leftovers(run: &RunDirectory, state: Option<&State>) -> Vec<String> {
    let mut left = Vec::new();
    let marked = state.map_or_else(BTreeSet::new, processes);
    left.extend(marked.iter().map(|process| format!("process {}", process.pid)));
    left.extend(
        mounts::below(run.path()).unwrap_or_default().iter().map(|path| format!("mount {}", path.display())),
    );
    if run.path().exists() {
        left.push(format!("directory {}", run.path().display()));
    }
    let bridge_owner = network::bridge_alias();
    let is_ours = |owner: &String| owner.as_str() == run.path().display().to_string();
    if bridge_owner.is_none_or(|owner| is_ours(&owner)) && state.is_none_or(has_nodes) {
        left.extend(network::links().iter().map(|link| format!("link {link}")));
        left.extend(cgroups::present().iter().map(|path| format!("cgroup {}", path.display())));
    }
    if let Some(state) = state {
        let changed = sysctls::changed(&state.sysctls, &sysctls::read());
        left.extend(changed.iter().map(|(key, value)| format!("sysctl {key} is no longer {value}")));
        let directories = state.directories.iter().filter(|path| path.exists());
        left.extend(directories.map(|path| format!("directory {}", path.display())));
    }
    left
}

fn report(what: Vec<String>) -> Result<(), Error> {
    if what.is_empty() { Ok(()) } else { Err(Error::LeaveBehind { what }) }
}

fn ignore_missing(result: std::io::Result<()>) -> std::io::Result<()> {
    match result {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        other => other,
    }
}
