//! What a pair costs while nothing happens: writes to the API server, memory and processor time of its agents.

use std::net::{Ipv4Addr, UdpSocket};
use std::time::{Duration, Instant};
use std::{fmt, io};

use bps_api::keys;
use k8s_openapi::api::coordination::v1::Lease;
use kube::ResourceExt as _;
use rustix::time::{ClockId, clock_gettime};
use tokio::task::spawn_blocking;
use tokio::time::sleep;

use super::Course;
use super::report::Report;
use super::site::Site;
use crate::bench::Error;
use crate::bench::requests;
use crate::bench::rounds::Bench;
use crate::machine::process::ProcessId;

/// Name of the lines.
pub const WHAT: &str = "pair: idle";
/// Ticks of processor time in a second. Source: `USER_HZ`, 100 on every architecture that Kubernetes runs on.
const TICKS_PER_SECOND: f64 = 100.0;
/// Pause between two datagrams of what an agent is compared with. 75 ms: an idle active is woken 13 times a second, by its
/// timers, its peer and the kubelet's probe.
const WAKE_EVERY: Duration = Duration::from_millis(75);

/// The costs of one pair.
#[derive(Debug, Clone, PartialEq)]
pub struct Idle {
    watched: Duration,
    /// Requests that may change something, whoever sends them, accepted or not. Unit: per minute.
    requests: f64,
    /// Writes of the Lease. Unit: per minute.
    writes: f64,
    /// Most resident memory of an agent, pages that its two processes share counted once. Unit: KiB.
    memory: u64,
    /// Most processor time of an agent. Unit: percent of one core.
    processor: f64,
    /// Processor time of a program that does nothing but send a datagram each [`WAKE_EVERY`]. Unit: percent of one core.
    least: f64,
    /// Whether the same tenure lasted.
    is_undisturbed: bool,
}

/// Watches, if it is wanted.
///
/// # Errors
/// As [`watch`].
pub async fn run(course: &Course<'_>, site: &Site, report: &mut Report) -> Result<(), Error> {
    if !course.options.wants(WHAT) {
        return Ok(());
    }
    eprintln!("{WHAT:<60} {} s", course.options.idle.as_secs());
    let idle = watch(course.bench, site, course.options.idle).await?;
    course.note(report, idle.to_string());
    Ok(())
}

/// Watches a settled pair for a while.
///
/// # Errors
/// `Request`, `Find`.
pub async fn watch(bench: &Bench, site: &Site, time: Duration) -> Result<Idle, Error> {
    let serving = site.settled().await?;
    // The active goes into Peer mode, and kubelets and operator have nothing left to say.
    sleep(Duration::from_secs(5)).await;
    let agents = agents(bench, site, &serving.pod)?;
    let (epoch, writes, ticks) = (epoch(site).await?, writes(site).await?, processor(&agents)?);
    let asked = requests::writes(&bench.client).await?;
    let least = spawn_blocking(move || cost_of_waking(time));
    sleep(time).await;
    let requests = requests::writes(&bench.client).await? - asked;
    let least = least.await.ok().and_then(Result::ok);
    let least = least.ok_or_else(|| Error::Find { what: "what waking costs".to_owned() })?;
    let (later, written, used) = (self::epoch(site).await?, self::writes(site).await?, processor(&agents)?);
    let memory = agents.iter().map(|agent| memory(agent)).collect::<Result<Vec<_>, _>>()?;
    let seconds = time.as_secs_f64();
    let used =
        ticks.iter().zip(used).map(|(before, after)| (after - before) / TICKS_PER_SECOND / seconds * 100.0);
    Ok(Idle {
        watched: time,
        requests: requests / seconds * 60.0,
        writes: (written - writes) / seconds * 60.0,
        memory: memory.into_iter().max().unwrap_or_default(),
        processor: used.fold(0.0, f64::max),
        least: least / seconds * 100.0,
        is_undisturbed: later == epoch,
    })
}

impl fmt::Display for Idle {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.watched.as_secs();
        writeln!(formatter, "An idle pair, watched for {seconds} s (target):")?;
        let Self { requests, writes, .. } = self;
        writeln!(
            formatter,
            "  API write requests    {requests:.1} /min (at most 2), of its Lease {writes:.1}"
        )?;
        #[expect(clippy::cast_precision_loss, reason = "memory of a process has fewer digits")]
        let mebibytes = self.memory as f64 / 1024.0;
        writeln!(formatter, "  memory of an agent    {mebibytes:.1} MiB (at most 8)")?;
        let Self { processor, least, .. } = self;
        writeln!(
            formatter,
            "  processor             {processor:.2} % of a core (below 0.2); {least:.2} % to wake as often for one datagram"
        )?;
        write!(
            formatter,
            "  failovers             {}",
            if self.is_undisturbed { "none" } else { "there was one" }
        )
    }
}

/// The processes of both agents, enforcers included.
fn agents(bench: &Bench, site: &Site, active: &str) -> Result<Vec<Vec<ProcessId>>, Error> {
    let other = if active.ends_with('0') { active.replace("-0", "-1") } else { active.replace("-1", "-0") };
    let agent = |pod: String| Ok(bench.cluster.aim_at_init(&site.aim(&pod))?.processes().to_vec());
    [active.to_owned(), other].into_iter().map(agent).collect()
}

async fn lease(site: &Site) -> Result<Lease, Error> {
    site.api::<Lease>().get(&site.lease_name()).await.map_err(Error::request("read", "the Lease"))
}

/// Term and sequence of the tenure that the Lease shows.
///
/// # Errors
/// `Request`.
pub(super) async fn epoch(site: &Site) -> Result<(Option<i32>, Option<String>), Error> {
    let lease = lease(site).await?;
    let sequence = lease.annotations().get(keys::ANNOTATION_HA_SEQUENCE).cloned();
    Ok((lease.spec.and_then(|spec| spec.lease_transitions), sequence))
}

async fn writes(site: &Site) -> Result<f64, Error> {
    let lease = lease(site).await?;
    let writes = lease.annotations().get(keys::ANNOTATION_HA_WRITES).and_then(|text| text.parse().ok());
    writes.ok_or_else(|| Error::Find { what: "the number of writes in the Lease".to_owned() })
}

/// Processor time of each agent. Unit: ticks.
fn processor(agents: &[Vec<ProcessId>]) -> Result<Vec<f64>, Error> {
    let ticks = |agent: &ProcessId| {
        let text = std::fs::read_to_string(format!("/proc/{}/stat", agent.pid)).ok()?;
        // Behind the name, which may hold spaces: user time is the 12th field, system time the 13th.
        let fields: Vec<&str> = text.rsplit(')').next()?.split_whitespace().collect();
        Some(fields.get(11)?.parse::<f64>().ok()? + fields.get(12)?.parse::<f64>().ok()?)
    };
    let sums = agents.iter().map(|processes| processes.iter().map(ticks).sum::<Option<f64>>());
    sums.collect::<Option<_>>().ok_or_else(|| Error::Find { what: "an agent".to_owned() })
}

/// Processor time that a thread takes in this time to send a datagram each [`WAKE_EVERY`]. Unit: seconds.
fn cost_of_waking(time: Duration) -> io::Result<f64> {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    let own = socket.local_addr()?;
    let (began, used) = (Instant::now(), clock_gettime(ClockId::ThreadCPUTime));
    while began.elapsed() < time {
        std::thread::sleep(WAKE_EVERY);
        // Nobody reads them: what finds no room is dropped.
        socket.send_to(&[0; 120], own)?;
    }
    let used = clock_gettime(ClockId::ThreadCPUTime) - used;
    Ok(Duration::try_from(used).unwrap_or_default().as_secs_f64())
}

/// Proportional set size of all processes of an agent. Unit: KiB.
fn memory(processes: &[ProcessId]) -> Result<u64, Error> {
    let share = |process: &ProcessId| {
        let text = std::fs::read_to_string(format!("/proc/{}/smaps_rollup", process.pid)).ok()?;
        text.lines().find_map(|line| line.strip_prefix("Pss:"))?.trim().split(' ').next()?.parse::<u64>().ok()
    };
    let sum = processes.iter().map(share).sum::<Option<u64>>();
    sum.ok_or_else(|| Error::Find { what: "the memory of an agent".to_owned() })
}
