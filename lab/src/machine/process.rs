//! Finds, signals and starts processes of the lab; never one that merely has a number of ours.
//!
//! Each daemon carries [`MARK_VARIABLE`] in its environment, and its children inherit it. So what a run
//! started is found without any file, also when the run was killed between a fork and its next write.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde::{Deserialize, Serialize};

use super::Error;

/// Environment variable whose value names the run and the daemon that a process belongs to.
pub const MARK_VARIABLE: &str = "BACKUPPODSET_LAB_RUN";

/// Pause between two looks at processes that are about to end. Unit: milliseconds.
const POLL_MILLISECONDS: u64 = 2;

/// One process, told apart from a later one with the same number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ProcessId {
    /// Number of the process.
    pub pid: i32,
    /// When it started. Unit: clock ticks since boot (field 22 of `/proc/<pid>/stat`).
    pub start_time: u64,
}

impl ProcessId {
    /// The process that has this number now; `None` if there is none or if it has ended (a zombie).
    pub fn of(pid: i32) -> Option<Self> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let start_time = parse_stat(&stat)?;
        Some(Self { pid, start_time })
    }

    /// The process that asks.
    pub fn current() -> Self {
        let pid = i32::try_from(std::process::id()).expect("the kernel gives positive numbers of 31 bits");
        Self::of(pid).expect("the process that asks is running")
    }

    /// Whether this very process is still running.
    pub fn is_running(self) -> bool {
        Self::of(self.pid) == Some(self)
    }

    /// The file that it runs, as its kernel shows it; `None` if it has ended.
    pub fn program(self) -> Option<PathBuf> {
        fs::read_link(format!("/proc/{}/exe", self.pid)).ok()
    }

    /// The processes that it started itself and that run.
    pub fn children(self) -> BTreeSet<Self> {
        let path = format!("/proc/{0}/task/{0}/children", self.pid);
        let numbers = fs::read_to_string(path).unwrap_or_default();
        numbers.split_whitespace().filter_map(|number| Self::of(number.parse().ok()?)).collect()
    }

    /// Sends a signal to this very process; `false` if it had ended.
    ///
    /// # Errors
    /// `File` if the kernel refuses, for example for lack of permission.
    pub fn signal(self, signal: Signal) -> Result<bool, Error> {
        let refused = |errno: Errno| Error::file("signal", Path::new(&format!("/proc/{}", self.pid)), errno);
        let Some(pid) = Pid::from_raw(self.pid) else { return Ok(false) };
        let pidfd = match pidfd_open(pid, PidfdFlags::empty()) {
            Ok(pidfd) => pidfd,
            Err(Errno::SRCH) => return Ok(false),
            Err(errno) => return Err(refused(errno)),
        };
        // The descriptor pins whoever has the number now; only then is it known whether that is ours.
        if !self.is_running() {
            return Ok(false);
        }
        match pidfd_send_signal(&pidfd, signal) {
            Ok(()) => Ok(true),
            Err(Errno::SRCH) => Ok(false),
            Err(errno) => Err(refused(errno)),
        }
    }
}

/// Start time of a process from its stat line; `None` for a zombie or a line that cannot be read.
fn parse_stat(stat: &str) -> Option<u64> {
    // The name is in parentheses and may itself contain spaces and parentheses.
    let (_, after_name) = stat.rsplit_once(") ")?;
    let fields: Vec<&str> = after_name.split(' ').collect();
    // `after_name` starts with field 3 of proc(5); the number of threads is field 20, the start time field 22.
    let threads: u64 = fields.get(17)?.parse().ok()?;
    // The first thread may have ended before the others, and as long as one lives its sockets stay open.
    if matches!(*fields.first()?, "Z" | "X") && threads <= 1 {
        return None;
    }
    fields.get(19)?.parse().ok()
}

/// All running processes whose mark starts with `prefix`.
pub fn marked(prefix: &str) -> BTreeSet<ProcessId> {
    let wanted = format!("{MARK_VARIABLE}={prefix}");
    running(|pid| {
        fs::read(format!("/proc/{pid}/environ")).is_ok_and(|environ| {
            environ.split(|byte| *byte == 0).any(|entry| entry.starts_with(wanted.as_bytes()))
        })
    })
}

/// All running processes that are in the cgroup `path` or below it, in whichever hierarchy.
pub fn in_cgroup(path: &str) -> BTreeSet<ProcessId> {
    running(|pid| is_in_cgroup(pid, path))
}

/// Whether the process with this number is in the cgroup `path` or below it.
pub fn is_in_cgroup(pid: i32, path: &str) -> bool {
    let below = format!("{path}/");
    fs::read_to_string(format!("/proc/{pid}/cgroup")).is_ok_and(|lines| {
        lines
            .lines()
            .filter_map(|line| line.splitn(3, ':').nth(2))
            .any(|cgroup| cgroup == path || cgroup.starts_with(&below))
    })
}

fn running(is_wanted: impl Fn(i32) -> bool) -> BTreeSet<ProcessId> {
    let Ok(entries) = fs::read_dir("/proc") else { return BTreeSet::new() };
    entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok())
        .filter_map(|pid| {
            let id = ProcessId::of(pid)?;
            // Looked at twice, so that a number that was handed on in between is not taken for ours.
            (is_wanted(pid) && id.is_running()).then_some(id)
        })
        .collect()
}

/// Kills all processes that `find` yields, and looks again until it yields none: a process may fork faster
/// than one pass can kill.
///
/// # Errors
/// `Overdue` if some are left after `limit`, `File` if a signal is refused.
pub fn kill_all(what: &str, limit: Duration, find: impl Fn() -> BTreeSet<ProcessId>) -> Result<(), Error> {
    let deadline = Instant::now() + limit;
    loop {
        let found = find();
        if found.is_empty() {
            return Ok(());
        }
        if Instant::now() >= deadline {
            return Err(Error::Overdue { what: format!("{what} {found:?}"), seconds: limit.as_secs() });
        }
        for process in found {
            process.signal(Signal::KILL)?;
        }
        std::thread::sleep(Duration::from_millis(POLL_MILLISECONDS));
    }
}

/// Waits until a process has ended; `false` if it still runs after `limit`.
pub fn wait_gone(process: ProcessId, limit: Duration) -> bool {
    let deadline = Instant::now() + limit;
    while process.is_running() {
        if Instant::now() >= deadline {
            return false;
        }
        std::thread::sleep(Duration::from_millis(POLL_MILLISECONDS));
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_spaces_and_parentheses_does_not_shift_the_fields() {
        let stat = "7 (a) b (c) S 1 7 7 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 4711 100 200";
        assert_eq!(parse_stat(stat), Some(4711));
    }

    #[test]
    fn a_zombie_counts_as_ended() {
        let stat = "7 (a) Z 1 7 7 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 4711 100 200";
        assert_eq!(parse_stat(stat), None);
    }

    #[test]
    fn a_process_whose_first_thread_has_ended_before_the_others_still_runs() {
        let stat = "7 (a) Z 1 7 7 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 3 0 4711 100 200";
        assert_eq!(parse_stat(stat), Some(4711));
    }

    #[test]
    fn a_process_with_our_number_but_another_start_is_not_signalled() {
        let own = ProcessId::current();
        let earlier = ProcessId { start_time: own.start_time - 1, ..own };
        assert!(own.is_running());
        assert!(!earlier.is_running());
        assert!(!earlier.signal(Signal::KILL).unwrap());
    }

    #[test]
    fn marked_processes_and_their_children_are_found_and_killed() {
        let mark = format!("test-{}/", std::process::id());
        let mut parent = std::process::Command::new("sh")
            .args(["-c", "sleep 60 & sleep 60"])
            .env(MARK_VARIABLE, format!("{mark}sleeper"))
            .spawn()
            .unwrap();
        kill_all("sleepers", Duration::from_secs(10), || marked(&mark)).unwrap();
        assert!(!parent.wait().unwrap().success());
        assert_eq!(marked(&mark), BTreeSet::new());
    }
}
