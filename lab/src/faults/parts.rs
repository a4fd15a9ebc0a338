//! Ends and starts the cluster's own programs.

use std::time::Duration;

use rustix::process::Signal;

use super::{Error, acting};
use crate::cluster::{Cluster, StartError, start_recorded};
use crate::daemon::{self, Daemon};
use crate::machine::clock::Instant;
use crate::machine::process::ProcessId;
use crate::node::KUBE_PROXY;
use crate::state::Journal;

/// How often a part is started that ends at once.
const STARTS_MAX: u32 = 5;
/// How long it is watched. 1 s: a kubelet that does not stay ends within some 20 ms of an idle machine.
const WATCHED: Duration = Duration::from_secs(1);
/// Pause between two looks.
const LOOK_PAUSE: Duration = Duration::from_millis(20);

/// Faults of the cluster's own programs.
impl Cluster {
    /// Ends a part of the control plane or of a node: `etcd`, `kube-apiserver`, `n1/kubelet`. It is asked to
    /// end, and killed if it does not; with `is_killed` it is killed at once.
    ///
    /// # Errors
    /// `FindPart`, `FindStarted`; `Act` if it does not end.
    pub fn stop(&self, part: &str, is_killed: bool) -> Result<Instant, Error> {
        let owner = self.part(part)?;
        let recorded = self.state()?.daemons.get(&owner).and_then(|daemon| daemon.process);
        let Some(process) = recorded.filter(|process| process.is_running()) else {
            return Err(Error::FindStarted { part: owner, is_running: false });
        };
        let instant = Instant::now();
        let signal = if is_killed { Signal::KILL } else { Signal::TERM };
        daemon::stop(process, signal).map_err(acting("stop a part"))?;
        Ok(instant)
    }

    /// Starts a stopped part again, as it was started before.
    ///
    /// # Errors
    /// `FindPart`, `FindStarted`; `Act` if it does not start.
    pub fn start(&self, part: &str) -> Result<Instant, Error> {
        let owner = self.part(part)?;
        self.change(|journal| {
            let instant = Instant::now();
            start(journal, &owner)?;
            Ok(instant)
        })
    }

    /// Starts those parts of the control plane again that have ended, as the kubelet does for a control plane of static Pods, and
    /// returns their names. The scheduler of Kubernetes 1.36.4 ends itself if it finds that its cache is wrong.
    ///
    /// # Errors
    /// `Act` if one of them does not start.
    pub fn revive(&self) -> Result<Vec<String>, Error> {
        let has_ended = |daemon: &Daemon| daemon.process.is_some_and(|process| !process.is_running());
        let daemons = self.state()?.daemons.into_iter();
        let ended = daemons.filter(|(owner, daemon)| owner.starts_with("control/") && has_ended(daemon));
        ended.map(|(owner, _)| self.change(|journal| start(journal, &owner)).map(|()| owner)).collect()
    }

    /// Starts kube-proxy anew where it is older than the API server, and returns how often.
    ///
    /// What it was refused while the API server was away it asks for again later and later: client-go 0.36 doubles its pause from
    /// 0.8 to 30 s, adds as much by chance, and forgets that after 2 minutes without a failure. After a second outage within
    /// that time a node leads its clients to a former active for up to a minute.
    ///
    /// # Errors
    /// `Act` if one of them does not end or start.
    pub fn refresh_proxies(&self) -> Result<usize, Error> {
        let daemons = self.state()?.daemons;
        let running = |daemon: &Daemon| daemon.process.filter(|process| process.is_running());
        let server = daemons.get(&self.part("kube-apiserver")?).and_then(running);
        let Some(server) = server else { return Ok(0) };
        let is_older = |daemon: &Daemon| running(daemon).is_some_and(|it| it.start_time < server.start_time);
        let is_proxy = |owner: &str| owner.ends_with(&format!("/{KUBE_PROXY}"));
        let older = daemons.iter().filter(|(owner, daemon)| is_proxy(owner) && is_older(daemon));
        let older: Vec<&String> = older.map(|(owner, _)| owner).collect();
        for owner in &older {
            self.stop(owner, false)?;
            self.start(owner)?;
        }
        Ok(older.len())
    }

    /// The full name of a part: those of the control plane may be named without `control/`, and the parts
    /// named `kube-...` without that.
    fn part(&self, part: &str) -> Result<String, Error> {
        let daemons = self.state()?.daemons;
        let candidates = [part.to_owned(), format!("control/{part}"), format!("control/kube-{part}")];
        let found = candidates.into_iter().find(|name| daemons.contains_key(name));
        found.ok_or_else(|| Error::FindPart {
            part: part.to_owned(),
            known: daemons.into_keys().collect::<Vec<_>>().join(", "),
        })
    }
}

pub(super) fn start(journal: &Journal, owner: &str) -> Result<(), Error> {
    let daemon = journal.snapshot().daemons.remove(owner);
    let daemon = daemon.ok_or_else(|| Error::FindPart { part: owner.to_owned(), known: String::new() })?;
    if daemon.process.is_some_and(ProcessId::is_running) {
        return Err(Error::FindStarted { part: owner.to_owned(), is_running: true });
    }
    start_recorded(journal, owner, &daemon).map_err(|error| match error {
        StartError::Keep(source) => Error::KeepState(source),
        StartError::Machine(source) => acting("start a part")(source),
    })
}

/// Starts a part, and again if it ends at once, as the service manager of a node would: containerd accepts connections before
/// it knows its containers, and a kubelet that asks it just then gives up.
///
/// Whoever waits for the node tells if it did not stay in the end.
pub(super) fn start_and_watch(journal: &Journal, owner: &str) -> Result<(), Error> {
    for _ in 0..STARTS_MAX {
        start(journal, owner)?;
        if stays(journal, owner) {
            break;
        }
    }
    Ok(())
}

fn stays(journal: &Journal, owner: &str) -> bool {
    let process = journal.snapshot().daemons.get(owner).and_then(|daemon| daemon.process);
    let watched_until = std::time::Instant::now() + WATCHED;
    while process.is_some_and(ProcessId::is_running) {
        if watched_until <= std::time::Instant::now() {
            return true;
        }
        std::thread::sleep(LOOK_PAUSE);
    }
    false
}
