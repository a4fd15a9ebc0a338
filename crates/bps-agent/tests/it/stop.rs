//! What stops the container of an agent: the signal that its image names, if the container runtime sends it. In a process
//! namespace of its own, as a container has one; the test is the runtime outside of it.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

/// Longest wait for something that takes milliseconds; only a hang lasts as long.
const PATIENCE: Duration = Duration::from_secs(60);

/// A container with an agent that waits for its Lease, which it cannot read.
struct Container {
    runtime: Child,
    /// The first process in it, by its number outside.
    enforcer: Pid,
}

impl Container {
    fn start(folder: &Path) -> Self {
        let [keys, kubeconfig, log] = ["keys", "kubeconfig", "log"].map(|name| folder.join(name));
        fs::write(&keys, "0f".repeat(32)).expect("a file");
        let nowhere = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "no",
            "contexts": [{"name": "no", "context": {"cluster": "no", "user": "no"}}],
            "clusters": [{"name": "no", "cluster": {"server": "http://127.0.0.1:1"}}],
            "users": [{"name": "no"}],
        });
        fs::write(&kubeconfig, nowhere.to_string()).expect("a file");
        let runtime = Command::new("unshare")
            .args(["--map-root-user", "--pid", "--net", "--fork", "--kill-child", "--mount-proc"])
            .arg(env!("CARGO_BIN_EXE_bps-agent"))
            .args(["run", "--group=web", "--peer-bind=127.0.0.1:20001", "--pod-ip=127.0.0.1", "--pod=web-0"])
            .args(["--pod-uid=0a1b2c3d-0000-4000-8000-0123456789ab", "--key-file"])
            .arg(&keys)
            .args(["--", "sleep", "1000"])
            .env("KUBECONFIG", kubeconfig)
            .stdout(Stdio::null())
            .stderr(fs::File::create(&log).expect("a file"))
            .spawn()
            .expect("unshare is installed");
        let children = format!("/proc/{0}/task/{0}/children", runtime.id());
        let began = Instant::now();
        let enforcer = loop {
            let text = fs::read_to_string(&children).unwrap_or_default();
            let said = fs::read_to_string(&log).unwrap_or_default();
            let child =
                text.split_whitespace().next().and_then(|pid| pid.parse().ok()).and_then(Pid::from_raw);
            // It looks for its Lease, so that its handlers and those of its enforcer are there.
            if let Some(child) = child.filter(|_| said.contains("Could not look for the Lease")) {
                break child;
            }
            assert!(began.elapsed() < PATIENCE, "the agent does not look for its Lease: {said}");
            sleep(Duration::from_millis(1));
        };
        Self { runtime, enforcer }
    }

    fn signal_from_outside(&self, signal: Signal) {
        kill_process(self.enforcer, signal).expect("it runs");
    }

    /// Waits until no signal of this number is pending: a second one would be lost in it.
    fn has_taken(&self, signal: Signal) {
        let status = format!("/proc/{}/status", self.enforcer.as_raw_pid());
        let mask = 1_u64 << (signal.as_raw() - 1);
        let began = Instant::now();
        loop {
            let text = fs::read_to_string(&status).expect("it runs");
            let pending =
                text.lines().find_map(|line| line.strip_prefix("ShdPnd:")).expect("signals of the process");
            if u64::from_str_radix(pending.trim(), 16).expect("a mask") & mask == 0 {
                return;
            }
            assert!(began.elapsed() < PATIENCE, "the enforcer does not take {signal:?}");
            sleep(Duration::from_millis(1));
        }
    }

    fn signal_from_inside(&self, name: &str) {
        let target = self.enforcer.as_raw_pid().to_string();
        let sent = Command::new("nsenter")
            .args(["--user", "--pid", "--preserve-credentials", "--target", &target, "kill", "-s", name, "1"])
            .status();
        assert!(sent.expect("nsenter is installed").success());
    }

    fn ended(&mut self) -> ExitStatus {
        let began = Instant::now();
        loop {
            if let Some(status) = self.runtime.try_wait().expect("it was started here") {
                return status;
            }
            assert!(began.elapsed() < PATIENCE, "the agent does not end");
            sleep(Duration::from_millis(1));
        }
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        // What it started is killed with it, if it has not ended.
        drop(self.runtime.kill());
        drop(self.runtime.wait());
    }
}

#[test]
fn whatever_signal_an_image_names_ends_a_container_and_the_same_one_from_inside_does_not() {
    let folder = tempfile::tempdir().expect("a folder");
    for (signal, inside, name) in [
        (Signal::QUIT, Signal::QUIT, "QUIT"),
        (Signal::USR1, Signal::USR1, "USR1"),
        (Signal::WINCH, Signal::WINCH, "WINCH"),
        (Signal::TERM, Signal::HUP, "HUP"),
    ] {
        let mut container = Container::start(folder.path());
        // Passed on to an application, of which there is none: whoever ended by it would end before the next signal.
        container.signal_from_inside(name);
        container.has_taken(inside);
        sleep(Duration::from_millis(50));
        assert_eq!(container.runtime.try_wait().expect("it was started here"), None, "{name}");
        container.signal_from_outside(signal);
        assert_eq!(container.ended().code(), Some(0), "{name}");
    }
}
