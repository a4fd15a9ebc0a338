//! Starts and stops one long-running program of the cluster.
//!
//! Two ways: detached, for a cluster that outlives the command that made it; tethered, for a control plane that
//! must end with the test that made it, even if the test is killed.

use std::fs::{File, OpenOptions};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde::{Deserialize, Serialize};

use crate::machine::command::tail;
use crate::machine::process::{self, MARK_VARIABLE, ProcessId};
use crate::machine::{self, Error};

/// How long a program may take until its process can be seen. Unit: seconds.
const APPEAR_SECONDS_MAX: u64 = 10;
/// How long a program may take to end by itself before it is killed. Unit: seconds. Source: the API server
/// drains its connections for some seconds.
const STOP_SECONDS_MAX: u64 = 15;
/// Pause between two looks at a program that is about to appear. Unit: milliseconds.
const POLL_MILLISECONDS: u64 = 2;
/// Becomes the program after it has closed whatever the caller's caller left open: a lock that a script took before
/// it called the lab would else be held for as long as the cluster runs.
const CLOSE_INHERITED: &str =
    r#"for fd in /proc/self/fd/*; do fd=${fd##*/}; [ "$fd" -le 2 ] || exec {fd}>&-; done; exec "$@""#;

/// How much of a log is shown when a program does not start. Unit: bytes.
const LOG_BYTES_SHOWN: usize = 1_500;

/// Everything it takes to start a program, and start it again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Daemon {
    /// The program's file.
    pub program: PathBuf,
    /// Its arguments.
    pub arguments: Vec<String>,
    /// Where its standard output and error go.
    pub log: PathBuf,
    /// The namespaces it runs in; the machine's own if `None`.
    pub namespaces: Option<Namespaces>,
    /// Its process, when it was started last.
    pub process: Option<ProcessId>,
}

/// The pinned namespaces of a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Namespaces {
    /// Pin of the network namespace.
    pub network: PathBuf,
    /// Pin of the mount namespace.
    pub mount: PathBuf,
}

impl Daemon {
    /// The words of the command line, without what puts it into the background.
    fn words(&self) -> Vec<String> {
        let mut words = Vec::new();
        if let Some(namespaces) = &self.namespaces {
            words.push("nsenter".to_owned());
            words.push(format!("--net={}", namespaces.network.display()));
            words.push(format!("--mount={}", namespaces.mount.display()));
        }
        words.push(self.program.display().to_string());
        words.extend(self.arguments.iter().cloned());
        words
    }

    /// Starts the program so that it outlives this process; `mark` is `<run>/<owner>` and must be unique.
    ///
    /// # Errors
    /// `Start` or `File` if it cannot be started, `Vanish` if it is not there afterwards.
    pub fn start(&self, mark: &str) -> Result<ProcessId, Error> {
        let before = process::marked(mark);
        let mut command = Command::new("setsid");
        command.args(["--fork", "bash", "-c", CLOSE_INHERITED, "daemon"]);
        command.args(self.words()).env(MARK_VARIABLE, mark);
        self.redirect(&mut command)?;
        let described = || format!("setsid --fork {}", self.words().join(" "));
        let status = command
            .stdin(Stdio::null())
            .status()
            .map_err(|source| Error::Start { command: described(), source })?;
        if !status.success() {
            return Err(Error::Refuse { command: described(), status, stderr: String::new() });
        }
        let deadline = Instant::now() + Duration::from_secs(APPEAR_SECONDS_MAX);
        while Instant::now() < deadline {
            let new = process::marked(mark).into_iter().filter(|process| !before.contains(process));
            // What it has forked by now started later, or at the same tick with a higher number.
            if let Some(process) = new.min_by_key(|process| (process.start_time, process.pid)) {
                return Ok(process);
            }
            std::thread::sleep(Duration::from_millis(POLL_MILLISECONDS));
        }
        Err(Error::Vanish { owner: mark.to_owned(), log: self.log_tail() })
    }

    /// Starts the program so that it is killed when the returned tether is dropped or this process ends.
    ///
    /// # Errors
    /// `Start` or `File` if it cannot be started.
    pub fn start_tethered(&self, mark: &str) -> Result<Tether, Error> {
        let mut command = Command::new("sh");
        // The shell ends, and takes the program with it, when the other end of its standard input is closed:
        // the kernel does that however this process ends.
        command.args(["-c", r#""$@" & child=$!; read -r _; kill -KILL "$child"; wait "$child""#, "tether"]);
        command.args(self.words()).env(MARK_VARIABLE, mark);
        self.redirect(&mut command)?;
        let child = command
            .stdin(Stdio::piped())
            .spawn()
            .map_err(|source| Error::Start { command: self.words().join(" "), source })?;
        Ok(Tether { child })
    }

    /// The end of the program's log.
    pub fn log_tail(&self) -> String {
        let bytes = std::fs::read(&self.log).unwrap_or_default();
        tail(&String::from_utf8_lossy(&bytes), LOG_BYTES_SHOWN)
    }

    /// Gives the program its log and a small environment: a proxy setting of the user's shell, for example,
    /// would send a kubelet's requests elsewhere.
    fn redirect(&self, command: &mut Command) -> Result<(), Error> {
        let (stdout, stderr) = (open_log(&self.log)?, open_log(&self.log)?);
        let mark = command.get_envs().find(|(key, _)| *key == MARK_VARIABLE);
        let mark = mark.and_then(|(_, value)| value).map(std::ffi::OsStr::to_owned).unwrap_or_default();
        command
            .env_clear()
            .env(MARK_VARIABLE, mark)
            .env("HOME", "/nonexistent")
            .env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
            .current_dir("/")
            .stdout(stdout)
            .stderr(stderr);
        Ok(())
    }
}

/// Asks a process to end, and kills it if it does not.
///
/// # Errors
/// `File` if a signal is refused, `Overdue` if even a kill does not end it.
pub fn stop(process: ProcessId, signal: Signal) -> Result<(), Error> {
    let limit = Duration::from_secs(STOP_SECONDS_MAX);
    for signal in [signal, Signal::KILL] {
        process.signal(signal)?;
        if process::wait_gone(process, limit) {
            return Ok(());
        }
    }
    Err(Error::Overdue { what: format!("process {}", process.pid), seconds: 2 * STOP_SECONDS_MAX })
}

/// A program that ends with this value.
pub struct Tether {
    child: Child,
}

impl Tether {
    /// Whether the program has not yet been told to end.
    pub fn is_held(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }
}

impl Drop for Tether {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        // The shell ends at once after the kill; its exit code says nothing.
        let _ = self.child.wait();
    }
}

fn open_log(path: &Path) -> Result<File, Error> {
    if let Some(directory) = path.parent() {
        machine::create_directory(directory)?;
    }
    OpenOptions::new().create(true).append(true).open(path).map_err(|error| Error::file("open", path, error))
}

#[cfg(test)]
pub(crate) mod tests {
    use std::collections::BTreeSet;

    use super::*;

    pub(crate) fn sample() -> Daemon {
        Daemon {
            program: "/bin/sleep".into(),
            arguments: vec!["60".into()],
            log: "/dev/null".into(),
            namespaces: None,
            process: None,
        }
    }

    fn sleeper(directory: &tempfile::TempDir) -> Daemon {
        Daemon { log: directory.path().join("sleep.log"), ..sample() }
    }

    /// What is seen as soon as it is as expected, at the latest after a while.
    fn soon<T: PartialEq>(look: impl Fn() -> T, expected: &T) -> T {
        let deadline = Instant::now() + Duration::from_secs(APPEAR_SECONDS_MAX);
        loop {
            let seen = look();
            if seen == *expected || Instant::now() >= deadline {
                return seen;
            }
            std::thread::sleep(Duration::from_millis(POLL_MILLISECONDS));
        }
    }

    fn mark(name: &str) -> String {
        format!("test-{}/{name}", std::process::id())
    }

    #[test]
    fn a_detached_program_is_found_by_its_mark_and_stopped() {
        let directory = tempfile::tempdir().unwrap();
        let mark = mark("detached");
        let process = sleeper(&directory).start(&mark).unwrap();
        // While it is being replaced by its program, a process shows no environment.
        let found = soon(|| process::marked(&mark).into_iter().collect::<Vec<_>>(), &vec![process]);
        assert_eq!(found, [process]);
        stop(process, Signal::TERM).unwrap();
        assert!(!process.is_running());
    }

    #[test]
    fn a_detached_program_keeps_no_file_of_its_starter_open() {
        let directory = tempfile::tempdir().unwrap();
        let lock = File::create(directory.path().join("lock")).unwrap();
        // Unlike the file, its duplicate is not closed on exec.
        let _inherited = rustix::io::dup(&lock).unwrap();
        let process = sleeper(&directory).start(&mark("inheriting")).unwrap();
        let open = || {
            let open = std::fs::read_dir(format!("/proc/{}/fd", process.pid)).unwrap();
            open.map(|entry| entry.unwrap().file_name()).collect::<BTreeSet<_>>()
        };
        // The loader of a program that has just begun has a library open.
        let expected: BTreeSet<_> = ["0", "1", "2"].map(Into::into).into();
        let open = soon(open, &expected);
        stop(process, Signal::KILL).unwrap();
        assert_eq!(open, expected);
    }

    #[test]
    fn a_tethered_program_ends_with_its_tether() {
        let directory = tempfile::tempdir().unwrap();
        let mark = mark("tethered");
        let mut tether = sleeper(&directory).start_tethered(&mark).unwrap();
        assert!(tether.is_held());
        drop(tether);
        assert!(process::marked(&mark).is_empty());
    }

    #[test]
    fn a_program_of_a_node_enters_both_namespaces() {
        let directory = tempfile::tempdir().unwrap();
        let namespaces = Some(Namespaces { network: "/n".into(), mount: "/m".into() });
        let daemon = Daemon { namespaces, ..sleeper(&directory) };
        assert_eq!(daemon.words(), ["nsenter", "--net=/n", "--mount=/m", "/bin/sleep", "60"]);
    }
}
