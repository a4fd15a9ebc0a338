//! What an agent leaves in files: a mark that it ran in this Pod before, and its role for probes.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bps_protocol::{AgentId, Epoch, Role};
use bps_runtime::shutdown::Shutdown;
use bps_runtime::tasks::TaskError;
use bps_wire::uid::format_uid;
use rustix::process::{Pid, getpid, getppid};
use serde_json::json;
use tokio::sync::watch;
use tokio::time::sleep;
use tracing::warn;

/// Pause before a state that could not be written is written again.
const WRITE_AGAIN_AFTER: Duration = Duration::from_secs(1);

/// What the state file says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct State {
    /// What the agent is to its pair; `None`: it belongs to none yet.
    pub role: Option<Role>,
    /// Its own epoch, or the highest that it knows of.
    pub epoch: Epoch,
}

impl State {
    /// Of an agent that no Lease names.
    pub const UNASSIGNED: Self = Self { role: None, epoch: Epoch { term: 0, sequence: 0 } };
}

/// Whether this Pod comes to this Lease for the first time, and notes that it came.
///
/// Both are uids. What a Pod promised to the members of one Lease binds it in no other one, and the operator makes a
/// Lease anew only when nobody can act by the old one any more.
///
/// In the container's own layer, which is new after each restart of the container, the mark would be lost; so there
/// every start counts as a further one. So it does if a mark cannot be kept, as on a full disk: that costs a wait, and the
/// pair a standby otherwise.
///
/// # Errors
/// There is no such directory.
pub fn is_first_start(directory: &Path, pod: AgentId, lease: u128) -> io::Result<bool> {
    // Below the enforcer, which is the first process of a container, or without one.
    let is_in_container = getpid().is_init() || getppid().is_some_and(Pid::is_init);
    if is_in_container && fs::metadata(directory)?.dev() == fs::metadata("/")?.dev() {
        warn!("The state folder is no volume: this start counts as a restart");
        return Ok(false);
    }
    let name = format!("started-{}-{}", format_uid(pod.0), format_uid(lease));
    match make(directory, &name) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err(error),
        Err(error) => {
            let told = &error as &dyn std::error::Error;
            warn!(error = told, "Could not keep a mark of this start: it counts as a restart");
            Ok(false)
        }
    }
}

/// It must be there after a crash of the node, when the same Pod starts again.
fn make(directory: &Path, name: &str) -> io::Result<()> {
    File::create_new(directory.join(name))?.sync_all()?;
    File::open(directory)?.sync_all()
}

/// Writes each state into the file, the newest if they change faster than the disk is.
///
/// # Errors
/// None; a file that cannot be written is no reason to stop an application.
pub async fn keep_state(
    file: PathBuf,
    mut states: watch::Receiver<State>,
    shutdown: Shutdown,
) -> Result<(), TaskError> {
    loop {
        let state = *states.borrow_and_update();
        let target = file.clone();
        // A disk may be slow, and the agent's loop shares this thread.
        let written = tokio::task::spawn_blocking(move || write(&target, state)).await?;
        if let Err(error) = &written {
            warn!(error = error as &dyn std::error::Error, "Could not write the state file");
        }
        tokio::select! {
            // The last state is written before the end.
            biased;
            changed = states.changed() => if changed.is_err() { return Ok(()) },
            () = shutdown.requested() => return Ok(()),
            // A disk that is full may have room again.
            () = sleep(WRITE_AGAIN_AFTER), if written.is_err() => {}
        }
    }
}

/// Aside, then renamed: readers see the old state or the new one.
fn write(file: &Path, State { role, epoch }: State) -> io::Result<()> {
    let state = json!({"role": role.map_or("unassigned", word), "epoch": u64::from(epoch)});
    let aside = file.with_extension("new");
    fs::write(&aside, format!("{state}\n"))?;
    fs::rename(&aside, file)
}

/// The word for a role in the state file and in logs.
pub fn word(role: Role) -> &'static str {
    match role {
        Role::Standby => "standby",
        Role::Lapsed => "lapsed",
        Role::HandedOver => "handed-over",
        Role::Active => "active",
        Role::Stopping => "stopping",
        Role::Ended => "ended",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_first_start_of_a_pod_at_a_lease_is_the_first() {
        let directory = tempfile::tempdir().unwrap();
        let starts = [(1, 7), (1, 7), (2, 7), (1, 8), (1, 7), (1, 8)];
        let starts =
            starts.map(|(pod, lease)| is_first_start(directory.path(), AgentId(pod), lease).unwrap());
        assert_eq!(starts, [true, false, true, true, false, false]);
        assert!(is_first_start(&directory.path().join("none"), AgentId(1), 7).is_err());
    }

    #[test]
    fn the_state_file_is_replaced_as_a_whole() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("state.json");
        let epoch = Epoch { term: 1, sequence: 2 };
        for role in [Role::Standby, Role::Active] {
            write(&file, State { role: Some(role), epoch }).unwrap();
        }
        assert_eq!(fs::read_to_string(&file).unwrap(), "{\"epoch\":4294967298,\"role\":\"active\"}\n");
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
    }
}
