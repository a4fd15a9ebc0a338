//! All processes below this one: start, signal, reap, kill, and the proof that none is left.
//!
//! Orphans of the application become children of this process, so "no children" proves that the application and all
//! that it ever started have ended. Processes that entered the container from outside, as `kubectl exec` does, are
//! nobody's children here and are left alone.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, WaitOptions, getpid, kill_process, kill_process_group, set_child_subreaper, wait,
};

use tracing::warn;

use super::relay::RelaySettings;
use super::sockets::listening;
use super::world::Processes;

/// How often a command that is killed is searched for processes that were started meanwhile. 5: each round kills
/// whoever could start more; what is left after them ends with the agent.
const KILL_ROUNDS_MAX: u32 = 5;

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// By itself, with this code.
    Exited(i32),
    /// By this signal.
    Killed(i32),
}

impl Ending {
    /// The code that shells and container runtimes report for it: 128 and the number of the signal, if there was one.
    pub fn exit_code(self) -> u8 {
        let code = match self {
            Self::Exited(code) => code,
            Self::Killed(signal) => signal.saturating_add(128),
        };
        u8::try_from(code).unwrap_or(u8::MAX)
    }
}

/// What has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reaped {
    /// How the command itself ended, if it did.
    pub command: Option<Ending>,
    /// No process is left, not even one that the command left behind.
    pub is_empty: bool,
}

/// Variables that a command gets beside those of this process.
pub type Environment = BTreeMap<&'static str, String>;

/// The processes below this one.
#[derive(Debug)]
pub struct Tree {
    command: Pid,
}

/// How commands ended that somebody will ask for. The kernel tells an end once, to whoever looks first, whichever
/// command it is about; so what was told is kept for the others.
static ENDINGS: Mutex<BTreeMap<i32, Option<Ending>>> = Mutex::new(BTreeMap::new());

fn endings() -> MutexGuard<'static, BTreeMap<i32, Option<Ending>>> {
    // A panic while it was held leaves a whole map.
    ENDINGS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Makes this process the parent of all orphans below it.
///
/// PID 1 of a container is that already.
///
/// # Errors
/// What the kernel refused.
pub fn adopt_orphans() -> io::Result<()> {
    Ok(set_child_subreaper(Some(getpid()))?)
}

impl Tree {
    /// Starts a command in a process group of its own, by way of the launcher: this program with `launch`.
    ///
    /// Call it on a thread that lives as long as the process, because the kernel kills the command when the thread
    /// that started it ends.
    ///
    /// # Errors
    /// The launcher could not be started. What is wrong with the command itself shows in how it ends.
    pub fn start(launcher: &Path, command: &[OsString], environment: &Environment) -> io::Result<Self> {
        let child = Command::new(launcher)
            .arg("launch")
            .arg(getpid().as_raw_pid().to_string())
            .arg("--")
            .args(command)
            .envs(environment)
            .process_group(0)
            .spawn()?;
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        let command = pid.ok_or(io::ErrorKind::InvalidData)?;
        endings().insert(command.as_raw_pid(), None);
        Ok(Self { command })
    }

    /// Number of the process of the command.
    pub fn command(&self) -> i32 {
        self.command.as_raw_pid()
    }
}

impl Processes for Tree {
    fn signal(&self, signal: Signal) -> io::Result<()> {
        match kill_process_group(self.command, signal) {
            Ok(()) | Err(Errno::SRCH) => Ok(()),
            // It is killed when its time is over, by the end of this container if there is no other way.
            Err(Errno::PERM) => {
                warn!(
                    "May not signal the application, which has changed its user: give the container the capability KILL"
                );
                Ok(())
            }
            Err(error) => Err(error.into()),
        }
    }

    fn listening(&self, at: &RelaySettings) -> io::Result<Vec<OwnedFd>> {
        listening(&living()?, at)
    }

    fn reap(&self) -> io::Result<Reaped> {
        let is_empty = loop {
            let (pid, status) = match wait(WaitOptions::NOHANG) {
                Ok(Some(ended)) => ended,
                Ok(None) => break false,
                Err(Errno::CHILD) => break true,
                Err(Errno::INTR) => continue,
                Err(error) => return Err(error.into()),
            };
            if let Some(ending) = endings().get_mut(&pid.as_raw_pid()) {
                let exited = status.exit_status().map(Ending::Exited);
                *ending = exited.or_else(|| status.terminating_signal().map(Ending::Killed));
            }
        };
        let command = endings().get(&self.command.as_raw_pid()).copied().flatten();
        Ok(Reaped { command, is_empty })
    }

    fn kill(&self) -> io::Result<usize> {
        kill_all(&below(getpid().as_raw_pid(), &parents(&stats()?)))
    }

    fn kill_command(&self) -> io::Result<()> {
        // The number of a command that was reaped may be another's by now.
        if self.reap()?.command.is_some() {
            return Ok(());
        }
        let mut killed = Ok(0);
        for _ in 0..KILL_ROUNDS_MAX {
            killed = kill_all(&below(self.command.as_raw_pid(), &parents(&stats()?)));
            if !matches!(killed, Ok(1..)) {
                break;
            }
        }
        kill_all(&BTreeSet::from([self.command.as_raw_pid()])).and(killed).map(drop)
    }
}

/// Kills each of these processes, and then says if one may not be killed; how many there were.
fn kill_all(doomed: &BTreeSet<i32>) -> io::Result<usize> {
    let mut killed = Ok(doomed.len());
    for pid in doomed.iter().copied().filter_map(Pid::from_raw) {
        match kill_process(pid, Signal::KILL) {
            // It may have ended since the list was read.
            Ok(()) | Err(Errno::SRCH) => {}
            Err(error) => killed = Err(error.into()),
        }
    }
    killed
}

impl Drop for Tree {
    fn drop(&mut self) {
        endings().remove(&self.command.as_raw_pid());
    }
}

/// Every process below this one that has not ended.
///
/// # Errors
/// The process list cannot be read.
pub(super) fn living() -> io::Result<BTreeSet<i32>> {
    let stats = stats()?;
    let mut living = below(getpid().as_raw_pid(), &parents(&stats));
    living.retain(|pid| !has_ended(&stats[pid]));
    Ok(living)
}

/// Whether a process has ended, or has begun to and has let go of its descriptors or is about to.
pub(super) fn is_ending(pid: i32) -> bool {
    std::fs::read(format!("/proc/{pid}/stat")).map_or(true, |stat| {
        let stat = String::from_utf8_lossy(&stat);
        has_ended(&stat) || is_exiting(&stat)
    })
}

/// Flag of the kernel for a thread that is ending, `PF_EXITING` in its `sched.h`.
const EXITING: u32 = 4;

/// Whether a line of `/proc/<pid>/stat` is about a process whose only thread is ending: flags are the 7th field after the
/// name.
fn is_exiting(stat: &str) -> bool {
    let Some((_, rest)) = stat.rsplit_once(')') else { return false };
    let mut fields = rest.split_whitespace();
    let flags = fields.nth(6).and_then(|flags| flags.parse::<u32>().ok());
    flags.is_some_and(|flags| flags & EXITING != 0) && matches!(fields.nth(10), Some("0" | "1"))
}

/// Whether a line of `/proc/<pid>/stat` is about a process that only waits for its parent to take note.
///
/// A process whose first thread has ended looks the same but for the number of its threads, the 18th field after the
/// name.
fn has_ended(stat: &str) -> bool {
    let Some((_, rest)) = stat.rsplit_once(')') else { return false };
    let mut fields = rest.split_whitespace();
    let is_zombie = matches!(fields.next(), Some("Z" | "X"));
    is_zombie && matches!(fields.nth(16), Some("0" | "1"))
}

/// Every process with its line of `/proc/<pid>/stat`.
fn stats() -> io::Result<BTreeMap<i32, String>> {
    let mut stats = BTreeMap::new();
    for entry in std::fs::read_dir("/proc")? {
        let name = entry?.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.parse().ok()) else { continue };
        // It may have ended since the directory was read.
        let Ok(stat) = std::fs::read(format!("/proc/{pid}/stat")) else { continue };
        // The name in it is whatever bytes the process chose.
        stats.insert(pid, String::from_utf8_lossy(&stat).into_owned());
    }
    Ok(stats)
}

/// Every process with its parent.
fn parents(stats: &BTreeMap<i32, String>) -> BTreeMap<i32, i32> {
    stats.iter().filter_map(|(pid, stat)| Some((*pid, parent_of(stat)?))).collect()
}

/// The parent in a line of `/proc/<pid>/stat`: the second field after the name, which is in brackets and may hold
/// anything, brackets too.
fn parent_of(stat: &str) -> Option<i32> {
    stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}

/// All processes whose ancestor this one is.
fn below(root: i32, parents: &BTreeMap<i32, i32>) -> BTreeSet<i32> {
    let mut found = BTreeSet::new();
    let mut rest = vec![root];
    while let Some(parent) = rest.pop() {
        let children = parents.iter().filter(|(_, of)| **of == parent).map(|(child, _)| *child);
        rest.extend(children.filter(|child| found.insert(*child)));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parent_is_found_behind_any_name() {
        assert_eq!(parent_of("17 (nginx) S 1 17 17 0 -1"), Some(1));
        assert_eq!(parent_of("17 (a) S 9 (b) ) R 4 17 17"), Some(4));
        assert_eq!(parent_of("17 (cut"), None);
    }

    #[test]
    fn a_process_is_seen_whatever_bytes_it_is_called_by() {
        use std::os::unix::ffi::OsStrExt as _;
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join(std::ffi::OsStr::from_bytes(b"\xc3"));
        // No copy: a file that was just written may still be open in a child of another test.
        std::os::unix::fs::symlink("/bin/sleep", &program).unwrap();
        let mut child = Command::new(program).arg("60").spawn().unwrap();
        let number = i32::try_from(child.id()).unwrap();
        let is_seen = living().unwrap().contains(&number);
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(is_seen);
    }

    #[test]
    fn a_process_without_code_to_run_has_ended() {
        let stat = |state, threads| {
            format!("17 (a) R (b) {state} 1 17 17 0 -1 0 0 0 0 0 0 0 0 0 20 0 {threads} 0 9")
        };
        assert!(has_ended(&stat("Z", 1)));
        assert!(!has_ended(&stat("Z", 2)));
        assert!(!has_ended(&stat("S", 1)));
    }

    #[test]
    fn a_process_that_ends_is_ending_unless_another_thread_of_it_goes_on() {
        let stat = |flags, threads| {
            format!("17 (a) R (b) R 1 17 17 0 -1 {flags} 0 0 0 0 0 0 0 0 20 0 {threads} 0 9")
        };
        let exiting = 0x40_0104;
        assert!(is_exiting(&stat(exiting, 1)));
        assert!(!is_exiting(&stat(exiting, 2)));
        assert!(!is_exiting(&stat(0x40_0100, 1)));
        let own = i32::try_from(std::process::id()).unwrap();
        assert_eq!([own, i32::MAX].map(is_ending), [false, true]);
    }

    #[test]
    fn grandchildren_are_below_and_strangers_are_not() {
        let parents = BTreeMap::from([(2, 1), (3, 2), (4, 3), (5, 0), (6, 5), (1, 0)]);
        assert_eq!(below(1, &parents), BTreeSet::from([2, 3, 4]));
        assert_eq!(below(4, &parents), BTreeSet::new());
    }

    #[test]
    fn exit_codes_are_those_that_shells_report() {
        let codes = [Ending::Exited(0), Ending::Exited(3), Ending::Killed(9), Ending::Killed(15)];
        assert_eq!(codes.map(Ending::exit_code), [0, 3, 137, 143]);
    }
}
