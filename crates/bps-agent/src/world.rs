//! What an agent of a pair needs of the machine below it: a clock, timers, datagrams, and processes.
//!
//! [`Kernel`] is the machine that agents run on. Everything above it is generic, so that the same code runs on a
//! simulated machine, too (`crates/bps-agent/tests/it/turmoil`). Decides nothing.

use std::ffi::OsString;
use std::fmt::Debug;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::path::Path;

use bps_protocol::BootTime;
use rustix::process::Signal;
use tokio::signal::unix::{self, SignalKind, signal};

use super::clock::{self, Alarm};
use super::exchange::Extension;
use super::lifeline::bond::Bond;
use super::peer::Socket;
use super::relay::RelaySettings;
use super::tree::{Environment, Reaped, Tree};

/// A machine that an agent runs on.
pub trait Machine: Clone + Debug + Send + Sync + 'static {
    /// Wakes the agent's loop.
    type Alarm: AlarmClock;
    /// The enforcer's timer, in the hand of the agent.
    type Timer: Timer;
    /// Talks to other agents.
    type Socket: Datagrams;
    /// What one start has made.
    type Tree: Processes;
    /// Tells that a child has ended.
    type Endings: Endings;

    /// The present moment.
    fn now(&self) -> BootTime;

    /// Starts a command by way of the launcher, see [`Tree::start`].
    ///
    /// # Errors
    /// The launcher could not be started.
    fn start(
        &self,
        launcher: &Path,
        command: &[OsString],
        environment: &Environment,
    ) -> io::Result<Self::Tree>;

    /// Listens for the end of children, from this call on.
    ///
    /// # Errors
    /// What the kernel refused.
    fn endings(&self) -> io::Result<Self::Endings>;

    /// A bond, see [`Bond::new`].
    ///
    /// # Errors
    /// What the kernel refused; the application then runs without a lifeline.
    fn bond(&self) -> io::Result<(Bond, OwnedFd)>;
}

/// Something that goes off at one moment of the machine's clock.
pub trait Timer: Debug {
    /// Sets it to this moment instead of the one before, or switches it off; it goes off at once if the moment has passed.
    ///
    /// # Errors
    /// What the kernel refused.
    fn set(&self, at: Option<BootTime>) -> io::Result<()>;
}

/// A timer that can be waited for.
pub trait AlarmClock: Timer {
    /// Waits until it goes off. May be dropped and called again.
    ///
    /// # Errors
    /// What the kernel refused.
    fn rung(&self) -> impl Future<Output = io::Result<()>>;
}

/// A socket for datagrams.
pub trait Datagrams: Debug {
    /// Sends without waiting. The datagram may get lost, by a full buffer and an unreachable network, too.
    fn send(&self, bytes: &[u8], to: SocketAddr);

    /// Waits for the next datagram; its length, at most that of the buffer. May be dropped and called again.
    ///
    /// # Errors
    /// Of an earlier datagram that was sent.
    fn receive(&self, buffer: &mut [u8]) -> impl Future<Output = io::Result<usize>>;
}

/// The processes below this one.
pub trait Processes: Debug {
    /// Sends a signal to the command and the processes of its group.
    ///
    /// # Errors
    /// What the kernel refused; a group that has ended is no error.
    fn signal(&self, signal: Signal) -> io::Result<()>;

    /// Copies of the sockets on which these processes listen for those who come there, so that they outlive them.
    ///
    /// # Errors
    /// The kernel lets nobody have them.
    fn listening(&self, at: &RelaySettings) -> io::Result<Vec<OwnedFd>>;

    /// Takes note of every process that has ended.
    ///
    /// # Errors
    /// What the kernel refused.
    fn reap(&self) -> io::Result<Reaped>;

    /// Sends SIGKILL to every process below this one; returns how many there were.
    ///
    /// A process may have started another one meanwhile: repeat it until [`Processes::reap`] finds the tree empty.
    ///
    /// # Errors
    /// The process list cannot be read.
    fn kill(&self) -> io::Result<usize>;

    /// Kills the command and all that is below it, and nothing else.
    ///
    /// The command must adopt its orphans, so that all that it started is below it as long as it lives.
    ///
    /// # Errors
    /// The process list cannot be read.
    fn kill_command(&self) -> io::Result<()>;
}

/// Tells that children have ended.
pub trait Endings: Debug {
    /// Waits until another one has ended. May be dropped and called again.
    fn next(&mut self) -> impl Future<Output = ()>;
}

/// The machine of the kernel that this process runs on.
#[derive(Clone, Copy, Debug, Default)]
pub struct Kernel;

impl Machine for Kernel {
    type Alarm = Alarm;
    type Timer = OwnedFd;
    type Socket = Extension<Socket>;
    type Tree = Tree;
    type Endings = unix::Signal;

    fn now(&self) -> BootTime {
        clock::now()
    }

    fn start(&self, launcher: &Path, command: &[OsString], environment: &Environment) -> io::Result<Tree> {
        Tree::start(launcher, command, environment)
    }

    fn endings(&self) -> io::Result<unix::Signal> {
        signal(SignalKind::child())
    }

    fn bond(&self) -> io::Result<(Bond, OwnedFd)> {
        Bond::new()
    }
}

impl Endings for unix::Signal {
    async fn next(&mut self) {
        self.recv().await;
    }
}
