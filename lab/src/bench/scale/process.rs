//! The operator as a process of this machine, and what the kernel and its own metrics say about it.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::time::Duration;

use kube::Client;
use rustix::process::Signal;
use tokio::time::{Instant, sleep};

use crate::bench::Error;
use crate::bench::metrics::Reader;
use crate::daemon::{Daemon, Tether};
use crate::machine;
use crate::machine::process::{ProcessId, marked};
use crate::stage::journal::{self, Line};

/// How long the operator may take to start, to have looked at everything, or to have nothing to do. Source: 6,000
/// Pods are made at some 50 a second on two busy cores.
pub const WITHIN: Duration = Duration::from_secs(600);
/// How long it may take to stop.
const STOP_WITHIN: Duration = Duration::from_secs(20);
/// Pause between two looks.
const POLL: Duration = Duration::from_millis(20);
/// Name of the process (`/proc/<pid>/comm`).
const COMM: &str = "bps-operator";
/// Clock ticks in a second, as `/proc/<pid>/stat` counts (`USER_HZ`, 100 on every Linux of this project).
const TICKS_PER_SECOND: f64 = 100.0;

/// How an operator is started.
#[derive(Debug, Clone)]
pub struct Program {
    /// The binary.
    pub program: PathBuf,
    /// Its cluster.
    pub kubeconfig: PathBuf,
    /// Where its log goes.
    pub log: PathBuf,
}

/// An operator that runs; ends with this value.
pub struct Operator {
    process: ProcessId,
    started: Instant,
    log: PathBuf,
    /// Bytes of the log that an earlier operator wrote.
    log_offset: usize,
    metrics: Reader,
    _tether: Tether,
}

impl Operator {
    /// Starts an operator; returns at once.
    ///
    /// # Errors
    /// `Machine` if it does not start.
    pub async fn start(program: &Program, client: &Client) -> Result<Self, Error> {
        let failed = |source| Error::Machine { action: "start the operator", source: Box::new(source) };
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|it| it.local_addr());
        let address: SocketAddr =
            port.map_err(|error| failed(machine::Error::file("find a port for", &program.program, error)))?;
        let metrics = Reader::at(client, address).await?;
        let log_offset =
            std::fs::metadata(&program.log).map_or(0, |it| usize::try_from(it.len()).unwrap_or(0));
        let words = [
            format!("KUBECONFIG={}", program.kubeconfig.display()),
            program.program.display().to_string(),
            "--pod=bench".to_owned(),
            "--log-format=json".to_owned(),
            "--wakeup-image=registry.local/bps-wakeup:dev".to_owned(),
            format!("--metrics-bind={address}"),
        ];
        let daemon = Daemon {
            program: "/usr/bin/env".into(),
            arguments: words.to_vec(),
            log: program.log.clone(),
            namespaces: None,
            process: None,
        };
        let mark = format!("bench-{}/{}/operator", std::process::id(), address.port());
        let started = Instant::now();
        let tether = daemon.start_tethered(&mark).map_err(failed)?;
        let process = await_process(&mark).await.ok_or_else(|| Error::Find {
            what: format!("the operator's process; its log says: {}", daemon.log_tail()),
        })?;
        Ok(Self { process, started, log: program.log.clone(), log_offset, metrics, _tether: tether })
    }

    /// Waits until it has looked at so many sets and nothing waits; returns the time since its start.
    ///
    /// # Errors
    /// `Find` if that takes too long.
    pub async fn await_looked_at(&self, sets: u32) -> Result<Duration, Error> {
        let is_done = |reconciles: f64, under_way: f64| reconciles >= f64::from(sets) && under_way == 0.0;
        self.await_counters("the end of the operator's start", is_done).await?;
        Ok(self.started.elapsed())
    }

    /// Waits until it has had nothing to do for this long.
    ///
    /// # Errors
    /// `Find` if that takes too long.
    pub async fn settle(&self, quiet: Duration) -> Result<(), Error> {
        let deadline = Instant::now() + WITHIN;
        let mut last = f64::NAN;
        while Instant::now() < deadline {
            let counters = self.metrics.read().await;
            if let Ok(counters) = counters {
                if counters.reconciles() - last == 0.0 && counters.under_way() == 0.0 {
                    return Ok(());
                }
                last = counters.reconciles();
            }
            sleep(quiet).await;
        }
        Err(Error::Find { what: "an operator that has nothing to do".to_owned() })
    }

    async fn await_counters(&self, what: &str, is_done: impl Fn(f64, f64) -> bool) -> Result<(), Error> {
        let deadline = Instant::now() + WITHIN;
        while Instant::now() < deadline {
            let counters = self.metrics.read().await;
            if counters.is_ok_and(|it| is_done(it.reconciles(), it.under_way())) {
                return Ok(());
            }
            sleep(POLL).await;
        }
        Err(Error::Find { what: what.to_owned() })
    }

    /// Number of looks in which something was done, since its start.
    pub fn handled(&self) -> usize {
        let bytes = std::fs::read(&self.log).unwrap_or_default();
        let text = String::from_utf8_lossy(bytes.get(self.log_offset..).unwrap_or_default()).into_owned();
        journal::parse(&text).iter().filter(|line| Line::is_handled(line)).count()
    }

    /// A field of `/proc/<pid>/status` in MiB.
    ///
    /// # Errors
    /// `Find` if the process has ended.
    pub fn memory(&self, field: &str) -> Result<f64, Error> {
        let status =
            std::fs::read_to_string(format!("/proc/{}/status", self.process.pid)).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
        let kibibytes = line.and_then(|text| text.trim().trim_end_matches(" kB").parse::<f64>().ok());
        kibibytes
            .map(|it| it / 1024.0)
            .ok_or_else(|| Error::Find { what: format!("{field} of the operator") })
    }

    /// CPU time so far, of all threads, in seconds.
    ///
    /// # Errors
    /// `Find` if the process has ended.
    pub fn cpu_seconds(&self) -> Result<f64, Error> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.process.pid)).unwrap_or_default();
        // After the name come field 3 and so on (proc(5)); user and system time are fields 14 and 15.
        let fields: Vec<_> = stat.rsplit_once(") ").map(|it| it.1.split(' ').collect()).unwrap_or_default();
        let ticks = |field: usize| fields.get(field - 3).and_then(|text| text.parse::<f64>().ok());
        let both = ticks(14).zip(ticks(15)).map(|(user, system)| (user + system) / TICKS_PER_SECOND);
        both.ok_or_else(|| Error::Find { what: "CPU time of the operator".to_owned() })
    }

    /// Asks it to stop, so that it releases its lease, and waits until it has.
    ///
    /// # Errors
    /// `Find` if it does not stop.
    pub async fn stop(self) -> Result<(), Error> {
        let failed = |source| Error::Machine { action: "stop the operator", source: Box::new(source) };
        self.process.signal(Signal::TERM).map_err(failed)?;
        let deadline = Instant::now() + STOP_WITHIN;
        while self.process.is_running() {
            if Instant::now() >= deadline {
                return Err(Error::Find { what: "the end of the operator".to_owned() });
            }
            sleep(POLL).await;
        }
        Ok(())
    }
}

async fn await_process(mark: &str) -> Option<ProcessId> {
    let deadline = Instant::now() + STOP_WITHIN;
    while Instant::now() < deadline {
        let is_operator = |process: &ProcessId| {
            let comm = std::fs::read_to_string(format!("/proc/{}/comm", process.pid));
            comm.is_ok_and(|comm| comm.trim() == COMM)
        };
        if let Some(process) = marked(mark).into_iter().find(is_operator) {
            return Some(process);
        }
        sleep(POLL).await;
    }
    None
}
