//! Runs one part of the suite: a program in a process group of its own, with its output in a file, for a bounded time.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group, setpriority_process};

use crate::needs::{Needs, Share};

/// Time for a part that is asked to end. Source: a cluster with three nodes is removed in 10 s.
const END_WITHIN: Duration = Duration::from_secs(60);
/// Pause between two looks at a part: a part that takes seconds is not delayed noticeably, and a look costs microseconds.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// Niceness of a part that keeps processors busy: what waits most of the time gets one at once when it wants one, as it
/// would on a machine of its own.
const BUSY_NICENESS: i32 = 10;

/// What Cargo tells this program about this program, and make about itself: others would take it for theirs.
const FOREIGN_VARIABLES: [&str; 5] =
    ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_BIN_", "MAKEFLAGS", "MAKELEVEL"];

/// One part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Part {
    /// Tells it from the others.
    pub(crate) name: String,
    /// What it needs of the machine.
    pub(crate) needs: Needs,
    /// What is run.
    pub(crate) work: Work,
}

/// A program to run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Work {
    /// Its file.
    pub(crate) program: PathBuf,
    /// What it is started with.
    pub(crate) arguments: Vec<String>,
    /// Where it is started.
    pub(crate) directory: PathBuf,
    /// Variables besides those of this program.
    pub(crate) environment: BTreeMap<String, String>,
    /// Where its standard output goes, if not to the same file as its standard error.
    pub(crate) output: Option<PathBuf>,
}

/// How a part ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It says that all is well.
    Passed,
    /// It says that something is not, or says nothing any more.
    Failed(String),
    /// It was not run.
    LeftOut(String),
}

impl Part {
    /// Where its output is kept.
    pub(crate) fn log(&self, folder: &Path) -> PathBuf {
        let plain =
            |letter: char| if letter.is_alphanumeric() || "-_".contains(letter) { letter } else { '.' };
        folder.join(format!("{}.log", self.name.chars().map(plain).collect::<String>()))
    }

    /// Runs it to its end, or until its time is over or the suite is to end.
    pub(crate) fn run(&self, log: &Path, is_stopping: &AtomicBool) -> Outcome {
        let mut child = match self.start(log) {
            Ok(child) => child,
            Err(error) => return Outcome::Failed(format!("start {}: {error}", self.work.program.display())),
        };
        if self.needs.share == Share::Processor {
            // Best effort: a part that is not nice is only in the way of others.
            let _ = setpriority_process(Some(Pid::from_child(&child)), BUSY_NICENESS);
        }
        let deadline = Instant::now() + self.needs.within;
        loop {
            match child.try_wait() {
                Ok(Some(status)) => return outcome(status),
                Ok(None) => {}
                Err(error) => return Outcome::Failed(format!("wait for its end: {error}")),
            }
            if is_stopping.load(Ordering::Relaxed) {
                end(&mut child);
                return Outcome::Failed("the suite was told to end".to_owned());
            }
            if Instant::now() >= deadline {
                end(&mut child);
                let seconds = self.needs.within.as_secs();
                return Outcome::Failed(format!("it was ended after {seconds} s, the most it may take"));
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }

    fn start(&self, log: &Path) -> io::Result<Child> {
        let errors = File::create(log)?;
        let output = match &self.work.output {
            Some(file) => File::create(file)?,
            None => errors.try_clone()?,
        };
        let mut command = Command::new(&self.work.program);
        let is_foreign = |name: &str| FOREIGN_VARIABLES.iter().any(|foreign| name.starts_with(foreign));
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_str().is_some_and(is_foreign)) {
            command.env_remove(name);
        }
        command
            .args(&self.work.arguments)
            .current_dir(&self.work.directory)
            .envs(&self.work.environment)
            .stdin(Stdio::null())
            .stdout(output)
            .stderr(errors)
            .process_group(0)
            .spawn()
    }
}

fn outcome(status: ExitStatus) -> Outcome {
    if status.success() { Outcome::Passed } else { Outcome::Failed(format!("it ended with {status}")) }
}

/// Ends a part and all processes that it has not put into groups of their own: asked first, so that a cluster is removed.
fn end(child: &mut Child) {
    let group = Pid::from_child(child);
    // A group that is gone is what is wanted.
    let _ = kill_process_group(group, Signal::TERM);
    let deadline = Instant::now() + END_WITHIN;
    while matches!(child.try_wait(), Ok(None)) && Instant::now() < deadline {
        std::thread::sleep(LOOK_EVERY);
    }
    let _ = kill_process_group(group, Signal::KILL);
    let _ = child.wait();
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(script: &str, within: Duration) -> Part {
        let work = Work {
            program: "sh".into(),
            arguments: vec!["-c".to_owned(), script.to_owned()],
            directory: "/".into(),
            environment: [("WORD".to_owned(), "said".to_owned())].into(),
            output: None,
        };
        Part { name: "lab/some part".to_owned(), needs: Needs { within, ..Needs::DEFAULT }, work }
    }

    /// How a script ended, and what it said.
    fn run(script: &str, within: Duration) -> (Outcome, String) {
        let folder = tempfile::tempdir().unwrap();
        let part = part(script, within);
        let log = part.log(folder.path());
        let outcome = part.run(&log, &AtomicBool::new(false));
        (outcome, std::fs::read_to_string(log).unwrap())
    }

    #[test]
    fn a_part_says_how_it_ended_and_its_log_has_all_it_said() {
        let (outcome, said) = run("echo $WORD; echo more >&2", needs_within());
        assert_eq!((outcome, said.as_str()), (Outcome::Passed, "said\nmore\n"));
        let (outcome, _) = run("exit 3", needs_within());
        assert_eq!(outcome, Outcome::Failed("it ended with exit status: 3".to_owned()));
    }

    fn needs_within() -> Duration {
        Needs::DEFAULT.within
    }

    #[test]
    fn a_part_past_its_bound_is_ended_with_all_that_it_started() {
        let (outcome, said) = run("sleep 1000 & echo $!; wait", Duration::from_millis(500));
        assert_eq!(outcome, Outcome::Failed("it was ended after 0 s, the most it may take".to_owned()));
        let deadline = Instant::now() + END_WITHIN;
        while is_running(said.trim()) {
            assert!(Instant::now() < deadline, "a child outlived its part");
            std::thread::sleep(LOOK_EVERY);
        }
    }

    /// A process that has ended and that nobody has waited for does not run.
    fn is_running(pid: &str) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.rsplit_once(") ").is_some_and(|(_, state)| !state.starts_with('Z'))
    }

    #[test]
    fn a_suite_that_is_told_to_end_ends_its_parts() {
        let folder = tempfile::tempdir().unwrap();
        let part = part("sleep 1000", needs_within());
        let outcome = part.run(&part.log(folder.path()), &AtomicBool::new(true));
        assert_eq!(outcome, Outcome::Failed("the suite was told to end".to_owned()));
    }

    #[test]
    fn a_log_is_one_file_in_its_folder_whatever_the_part_is_called() {
        let log = part("", needs_within()).log(Path::new("/target/suite"));
        assert_eq!(log, Path::new("/target/suite/lab.some.part.log"));
    }
}
