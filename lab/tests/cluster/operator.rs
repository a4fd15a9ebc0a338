//! An operator that runs as a process of this machine, with its log.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use bps_api::keys;
use lab::cluster::Cluster;
use lab::image::{AGENT_IMAGE, WAKEUP_IMAGE};
use lab::machine::process::MARK_VARIABLE;

use crate::ledger::namespace_of;

/// Lines of a log that are shown after a failure.
const TAIL_LINES: usize = 60;

/// Words that are in a log only if the operator has a bug, lacks a permission, or panicked.
const COMPLAINTS: [&str; 4] = ["is forbidden: User", "panicked", "breaks an invariant", "Refused a plan"];

static STARTED: AtomicU32 = AtomicU32::new(1);

/// A running operator; dropping it kills it.
pub(crate) struct Operator {
    child: Child,
    name: String,
    log: PathBuf,
    /// Bytes of the log that were looked at.
    seen: usize,
}

impl Operator {
    pub(crate) fn start(program: &Path, kubeconfig: &Path, cluster: &Cluster) -> Self {
        let name = format!("operator-{}", STARTED.fetch_add(1, Ordering::Relaxed));
        let log = cluster.run_directory().logs().join(format!("{name}.log"));
        let file = File::create(&log).unwrap();
        let child = Command::new(program)
            .args(["--pod", &name, "--namespace", keys::OPERATOR_NAMESPACE, "--wakeup-image", WAKEUP_IMAGE])
            .args(["--agent-image", AGENT_IMAGE])
            .env("KUBECONFIG", kubeconfig)
            .env("RUST_LOG", "info,backuppodset=debug")
            // So that it ends with the cluster, whatever becomes of this process.
            .env(MARK_VARIABLE, format!("{}/claims/{name}", cluster.state().unwrap().run))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(file)
            .spawn()
            .unwrap();
        Self { child, name, log, seen: 0 }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// SIGKILL, as the kernel does when memory runs out.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// New whole lines of the log that must not be in it.
    pub(crate) fn complaints(&mut self, secrets: &[String]) -> Vec<String> {
        let text = fs::read_to_string(&self.log).unwrap_or_default();
        let new = text.get(self.seen..).unwrap_or_default();
        let new = &new[..new.rfind('\n').map_or(0, |last| last + 1)];
        let is_bad = |line: &&str| {
            COMPLAINTS.iter().any(|word| line.contains(word))
                || secrets.iter().any(|secret| line.contains(secret))
        };
        let bad = new.lines().filter(is_bad).map(str::to_owned).collect();
        self.seen += new.len();
        bad
    }

    /// The last lines of its log that are not about another namespace.
    pub(crate) fn tail(&self, namespace: &str) -> String {
        let text = fs::read_to_string(&self.log).unwrap_or_default();
        let is_own = |line: &&str| namespace_of(line).is_none_or(|of| of == namespace);
        let lines: Vec<&str> = text.lines().filter(is_own).collect();
        let tail = &lines[lines.len().saturating_sub(TAIL_LINES)..];
        format!("log of {}:\n{}", self.name, tail.join("\n"))
    }
}

impl Drop for Operator {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
