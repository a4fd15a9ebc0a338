//! The journal that applications write, and the times in it.

use std::fs;
use std::net::Ipv4Addr;
use std::path::Path;
use std::time::{Duration, SystemTime};

use rustix::process::{Pid, Signal, kill_process};

/// One start of an application.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Start {
    pub(super) epoch: u64,
    pub(super) agent: usize,
    pub(super) pid: i32,
    /// Since 1970.
    pub(super) at: Duration,
    pub(super) peer: Option<Ipv4Addr>,
}

impl Start {
    /// Kills the application; returns when that was.
    pub(super) fn kill(self) -> Duration {
        let killed = now();
        let pid = Pid::from_raw(self.pid).expect("a process");
        kill_process(pid, Signal::KILL).expect("it runs");
        killed
    }
}

/// Every line that begins with this word.
pub(super) fn lines(journal: &Path, word: &str) -> Vec<Start> {
    let text = fs::read_to_string(journal).unwrap_or_default();
    // The last line may be on its way.
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    let lines = whole.lines().map(|line| line.split(' ').collect::<Vec<_>>());
    lines.filter(|fields| fields[0] == word).map(|fields| entry(&fields)).collect()
}

fn entry(fields: &[&str]) -> Start {
    let [_, epoch, agent, pid, at, peer] = fields else { panic!("{fields:?} in the journal") };
    Start {
        epoch: epoch.parse().expect("an epoch"),
        agent: agent.parse().expect("an agent"),
        pid: pid.parse().expect("a process"),
        at: Duration::from_nanos(at.parse().expect("a time")),
        peer: peer.parse().ok(),
    }
}

pub(super) fn now() -> Duration {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("it is later than 1970")
}

/// From the fault, or the end of the old application, to the start of the new one: the time of its shell included.
pub(super) fn print_outages(what: &str, outages: &mut [Duration]) {
    outages.sort();
    let (median, worst) = (outages[outages.len() / 2], outages[outages.len() - 1]);
    println!("{what}: n = {}, median {median:.1?}, worst {worst:.1?}", outages.len());
}
