//! The agent as the init of real processes: signals, orphans, exit codes, and nothing left behind.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Longest wait for something that takes milliseconds; only a hang lasts as long.
const PATIENCE: Duration = Duration::from_secs(60);

fn agent(script: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bps-agent"));
    command.args(["run", "--", "sh", "-c", script]);
    command
}

fn ended(script: &str) -> Output {
    agent(script).output().expect("the agent starts")
}

fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < PATIENCE, "never: {what}");
        sleep(Duration::from_millis(1));
    }
}

/// Whether a process runs; one that has ended and waits to be reaped does not.
fn runs(pid: &str) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z'))
}

fn signal(name: &str, pid: &str) {
    let sent = Command::new("kill").args(["-s", name, pid]).status().expect("kill is installed");
    assert!(sent.success());
}

/// A running agent and the first line that its application wrote.
struct Running {
    agent: Child,
    said: String,
}

impl Running {
    fn start(script: &str) -> Self {
        let mut agent =
            agent(script).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("the agent starts");
        let mut said = String::new();
        let output = agent.stdout.take().expect("it is piped");
        BufReader::new(output).read_line(&mut said).expect("a line");
        Self { agent, said: said.trim().to_owned() }
    }

    fn send(&self, name: &str) {
        signal(name, &self.agent.id().to_string());
    }

    /// The code it ends with once its input is closed.
    fn code(mut self) -> Option<i32> {
        self.agent.wait().expect("it was started here").code()
    }
}

#[test]
fn it_ends_with_the_code_of_its_application() {
    assert_eq!(ended("exit 0").status.code(), Some(0));
    assert_eq!(ended("exit 7").status.code(), Some(7));
    assert_eq!(ended("kill -KILL $$").status.code(), Some(137));
    assert_eq!(ended("kill -TERM $$").status.code(), Some(143));
}

#[test]
fn a_command_that_cannot_be_started_is_named() {
    for (command, code, said) in [
        (
            "/no/such/program",
            127,
            "bps-agent: execute /no/such/program: No such file or directory (os error 2)\n",
        ),
        ("/etc/passwd", 126, "bps-agent: execute /etc/passwd: Permission denied (os error 13)\n"),
    ] {
        let mut agent = Command::new(env!("CARGO_BIN_EXE_bps-agent"));
        let output = agent.args(["run", "--", command]).output().expect("the agent starts");
        assert_eq!(
            (output.status.code(), String::from_utf8_lossy(&output.stderr).as_ref()),
            (Some(code), said)
        );
    }
}

#[test]
fn signals_reach_the_application() {
    for (name, code) in [("TERM", 41), ("HUP", 42), ("USR1", 43), ("INT", 44)] {
        let running =
            Running::start(&format!("trap 'exit {code}' {name}; echo ready; while :; do sleep 1; done"));
        running.send(name);
        assert_eq!(running.code(), Some(code), "{name}");
    }
}

#[test]
fn what_the_application_leaves_behind_ends_with_it() {
    // In a session of its own and without a parent: no signal to a group or to children finds it.
    let running = Running::start("setsid sh -c 'trap \"\" TERM HUP; echo $$; exec sleep 1000' & cat; exit 5");
    let orphan = running.said.clone();
    assert_eq!(running.code(), Some(5));
    assert!(!runs(&orphan), "{orphan} was left behind");
}

/// The kernel asks nobody for permission when the first process of a container ends.
#[test]
fn what_has_changed_its_user_and_may_not_be_killed_ends_with_the_container() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("not tested: only root can give a process another user");
        return;
    }
    // The worker says that it is another user now, and keeps its output open as long as it lives.
    let script = "setpriv --reuid=65534 --clear-groups sh -c 'echo; exec sleep 1000' & read word; exit 5";
    let mut container = Command::new("unshare")
        .args(["--pid", "--fork", "--kill-child", "--mount-proc", "setpriv"])
        .args(["--bounding-set=-kill", "--inh-caps=-kill", env!("CARGO_BIN_EXE_bps-agent")])
        .args(["run", "--", "sh", "-c", script])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("unshare is installed");
    let mut left = BufReader::new(container.stdout.take().expect("it is piped"));
    assert_eq!(left.read_line(&mut String::new()).expect("a line"), 1);
    container.stdin.take().expect("it is piped").write_all(b"\n").expect("the application reads it");
    let began = Instant::now();
    let status = loop {
        if let Some(status) = container.try_wait().expect("it was started here") {
            break status;
        }
        if began.elapsed() > PATIENCE {
            container.kill().expect("it runs");
            container.wait().expect("it was started here");
            panic!("never: the container ends");
        }
        sleep(Duration::from_millis(1));
    };
    assert_eq!(status.code(), Some(5));
    assert_eq!(left.read(&mut [0]).expect("an end"), 0, "the worker has ended");
}

#[test]
fn orphans_are_reaped_while_the_application_runs() {
    let running =
        Running::start("(sh -c 'sleep 0.05 & echo $!' &); trap 'exit 0' TERM; while :; do sleep 1; done");
    let orphan = format!("/proc/{}", running.said);
    wait_until("the orphan is reaped", || !Path::new(&orphan).exists());
    running.send("TERM");
    assert_eq!(running.code(), Some(0));
}

#[test]
fn the_application_dies_with_its_agent() {
    let mut running = Running::start("echo $$; exec sleep 1000");
    assert!(runs(&running.said));
    running.agent.kill().expect("it runs");
    running.agent.wait().expect("it was started here");
    wait_until("the application has ended", || !runs(&running.said));
}

#[test]
fn a_process_that_multiplies_while_it_is_killed_is_killed_all_the_same() {
    let running = Running::start("(while :; do sleep 1000 & echo one; done) & cat > /dev/null; exit 3");
    assert_eq!((running.said.as_str(), runs(&running.agent.id().to_string())), ("one", true));
    assert_eq!(running.code(), Some(3));
}

/// Runs a hook that may take a second. Its output ends when the last process that it started has ended.
fn hooked(script: &str) -> Output {
    let mut hook = Command::new(env!("CARGO_BIN_EXE_bps-agent"));
    hook.args(["hook", "1", "--", "sh", "-c", script]).output().expect("the hook starts")
}

#[test]
fn a_hook_ends_with_its_own_code_and_takes_along_what_it_left_behind() {
    let ended = hooked("setsid sleep 1000 & exit 3");
    assert_eq!(ended.status.code(), Some(3));
}

#[test]
fn a_hook_whose_time_is_over_is_killed_with_all_that_it_started() {
    let began = Instant::now();
    let ended = hooked("trap '' TERM; setsid sh -c 'echo $$; exec sleep 1000' & sleep 1000");
    assert_eq!(ended.status.code(), Some(124));
    assert!(began.elapsed() >= Duration::from_secs(1));
    let detached = String::from_utf8(ended.stdout).expect("a number");
    assert!(!runs(detached.trim()), "{detached}");
}
