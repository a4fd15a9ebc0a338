//! A simulated machine: a clock that runs at its own rate, alarms on it, datagrams of turmoil.

use std::ffi::OsString;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bps_agent::exchange::Extension;
use bps_agent::lifeline::bond::Bond;
use bps_agent::tree::Environment;
use bps_agent::world::{AlarmClock, Datagrams, Endings, Machine, Timer};
use bps_protocol::BootTime;
use rand::rngs::SmallRng;
use rand::{Rng as _, SeedableRng as _};
use tokio::sync::watch;
use tokio::time::sleep;
use turmoil::net::UdpSocket;

use crate::turmoil::processes::{Table, Tree};
use crate::turmoil::record::{Journal, What};

/// Millionths.
const MILLION: i128 = 1_000_000;

/// How a machine's clock differs from true time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Skew {
    /// What it shows when the run begins.
    pub(crate) offset: Duration,
    /// How much faster it runs than true time, in millionths.
    pub(crate) drift_ppm: i32,
}

/// What a run assumes of its machines; anything else than the default breaks what the protocol assumes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Flaw {
    /// The Pod whose machine alone has it; `None`: all have it.
    pub(crate) only: Option<usize>,
    /// How long an application goes on after its processes seem to have ended.
    pub(crate) outlives: Duration,
    /// How late the agent's alarm is, beside a few milliseconds.
    pub(crate) is_late_by: Duration,
    /// By how much the kernel's timers are slower than the protocol's clock. Unit: percent.
    pub(crate) slews_timers_by: u32,
    /// Whether nothing ends an agent that is late itself.
    pub(crate) lacks_enforcer: bool,
    /// Whether no seat asks what another one does.
    pub(crate) lacks_turnstile: bool,
}

/// A machine; clones share it. It outlives the agents that run on it one after the other.
#[derive(Clone)]
pub(crate) struct Computer(Arc<Inner>);

struct Inner {
    name: &'static str,
    skew: Skew,
    flaw: Flaw,
    random: Mutex<SmallRng>,
    table: Mutex<Table>,
    /// Counts the processes that have ended.
    ends: watch::Sender<u64>,
    journal: Journal,
}

impl fmt::Debug for Computer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.0.name)
    }
}

/// True time since the start of the run, on a host.
pub(crate) fn true_time() -> Duration {
    turmoil::sim_elapsed().expect("it is called on a host")
}

impl Computer {
    pub(crate) fn new(name: &'static str, seed: u64, (skew, flaw): (Skew, Flaw), journal: Journal) -> Self {
        let random = Mutex::new(SmallRng::seed_from_u64(seed));
        let (table, ends) = (Mutex::default(), watch::Sender::new(0));
        Self(Arc::new(Inner { name, skew, flaw, random, table, ends, journal }))
    }

    pub(crate) fn name(&self) -> &'static str {
        self.0.name
    }

    pub(crate) fn flaw(&self) -> Flaw {
        self.0.flaw
    }

    pub(crate) fn table(&self) -> MutexGuard<'_, Table> {
        self.0.table.lock().expect("a panic under the lock fails the test anyway")
    }

    /// A number from 0 to this one.
    pub(crate) fn draw(&self, most: u64) -> u64 {
        self.0.random.lock().expect("a panic under the lock fails the test anyway").random_range(0..=most)
    }

    pub(crate) fn draw_milliseconds(&self, most: u64) -> Duration {
        Duration::from_millis(self.draw(most))
    }

    pub(crate) fn write(&self, at: Duration, what: What) {
        self.0.journal.write(at, self.0.name, what);
    }

    pub(crate) fn note(&self, text: impl Into<String>) {
        self.0.journal.note(true_time(), self.0.name, text);
    }

    /// Tells that a process has ended.
    pub(crate) fn tell_end(&self) {
        self.0.ends.send_modify(|ends| *ends += 1);
    }

    /// How long until its clock shows this moment.
    fn until(&self, at: BootTime) -> Duration {
        let Skew { offset, drift_ppm } = self.0.skew;
        let shown = i128::from(at.0) - nanoseconds(offset);
        let rate = MILLION + i128::from(drift_ppm);
        let nanoseconds = (shown * MILLION).div_euclid(rate) + 1 - nanoseconds(true_time());
        Duration::from_nanos(u64::try_from(nanoseconds.max(0)).unwrap_or(u64::MAX))
    }
}

fn nanoseconds(time: Duration) -> i128 {
    i128::try_from(time.as_nanos()).expect("a run is short")
}

impl Machine for Computer {
    type Alarm = Bell;
    type Timer = Bell;
    type Socket = Extension<Mailbox>;
    type Tree = Tree;
    type Endings = Ends;

    fn now(&self) -> BootTime {
        let Skew { offset, drift_ppm } = self.0.skew;
        let passed = nanoseconds(true_time()) * (MILLION + i128::from(drift_ppm)) / MILLION;
        BootTime(u64::try_from(nanoseconds(offset) + passed).expect("a run is short"))
    }

    fn start(&self, _: &Path, command: &[OsString], environment: &Environment) -> io::Result<Tree> {
        Tree::start(self, command, environment)
    }

    fn endings(&self) -> io::Result<Ends> {
        Ok(Ends(self.0.ends.subscribe()))
    }

    /// Lifelines are descriptors of the kernel; here the machine itself certifies an end.
    fn bond(&self) -> io::Result<(Bond, OwnedFd)> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

/// Hears of processes that end.
#[derive(Debug)]
pub(crate) struct Ends(watch::Receiver<u64>);

impl Endings for Ends {
    async fn next(&mut self) {
        self.0.changed().await.expect("its machine counts them");
    }
}

/// An alarm, or a timer that the enforcer waits for; clones share it.
#[derive(Clone, Debug)]
pub(crate) struct Bell {
    computer: Computer,
    is_late_by: Duration,
    /// When it is to ring, and how late it does so.
    set_to: Arc<watch::Sender<Option<(BootTime, Duration)>>>,
}

impl Bell {
    /// Longest time that an alarm is late by itself, in milliseconds; with one of [`Flaw`] it is as late as that.
    const LATE_MAX: u64 = 20;

    pub(crate) fn new(computer: Computer, is_late_by: Duration) -> Self {
        Self { computer, is_late_by, set_to: Arc::default() }
    }
}

impl Timer for Bell {
    fn set(&self, at: Option<BootTime>) -> io::Result<()> {
        // Late now and then only: a machine that is always late would hide what happens on time.
        let is_late = self.computer.draw(7) == 0;
        let late = if is_late { self.computer.draw_milliseconds(Self::LATE_MAX) } else { Duration::ZERO };
        let late = late + self.is_late_by;
        let slewed = |wait: Duration| wait * self.computer.flaw().slews_timers_by / 100;
        self.set_to.send_replace(at.map(|at| (at, late + slewed(self.computer.until(at)))));
        Ok(())
    }
}

impl AlarmClock for Bell {
    async fn rung(&self) -> io::Result<()> {
        let mut news = self.set_to.subscribe();
        loop {
            let set_to = *news.borrow_and_update();
            tokio::select! {
                // One that is put off in time does not ring.
                biased;
                changed = news.changed() => changed.expect("it holds the sender itself"),
                () = reached(&self.computer, set_to) => {
                    self.set_to.send_replace(None);
                    return Ok(());
                }
            }
        }
    }
}

async fn reached(computer: &Computer, set_to: Option<(BootTime, Duration)>) {
    let Some((at, late)) = set_to else { return std::future::pending().await };
    let wait = computer.until(at);
    if wait + late > Duration::ZERO {
        sleep(wait + late).await;
    }
    assert!(computer.now() >= at, "an alarm never rings early");
}

/// A socket of turmoil.
#[derive(Debug)]
pub(crate) struct Mailbox(pub(crate) UdpSocket);

impl Datagrams for Mailbox {
    fn send(&self, bytes: &[u8], to: SocketAddr) {
        // A host that is not there loses it.
        drop(self.0.try_send_to(bytes, to));
    }

    async fn receive(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.recv_from(buffer).await.map(|(length, _)| length)
    }
}
