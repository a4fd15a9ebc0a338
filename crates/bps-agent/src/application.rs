//! One run of the application, from its start until its last process has ended.
//!
//! Nothing here decides when it runs.

use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;

use bps_protocol::BootTime;
use rustix::process::Signal;
use tokio::time::{sleep, timeout};

use super::relay::RelaySettings;
use super::tree::{Ending, Environment};
use super::world::{Endings as _, Kernel, Machine, Processes as _};

/// How often a tree that is being killed is searched for processes that were started meanwhile.
///
/// 5 ms: a process that forks in a loop is found again within a few rounds, and a look at a hundred processes takes
/// less than a millisecond.
pub(super) const KILL_PERIOD: Duration = Duration::from_millis(5);

/// A running application. Whatever is left of it is killed when this value is dropped.
#[derive(Debug)]
pub struct Application<On: Machine = Kernel> {
    machine: On,
    tree: On::Tree,
    endings: On::Endings,
    ending: Option<Ending>,
    /// When the end of the command was noticed first.
    end_seen: Option<BootTime>,
    is_over: bool,
}

impl Application {
    /// Number of the process of the command.
    pub fn process(&self) -> i32 {
        self.tree.command()
    }
}

impl<On: Machine> Application<On> {
    /// Starts it; see [`super::tree::Tree::start`] for the thread that this must be called on.
    ///
    /// # Errors
    /// The launcher could not be started, or the process cannot listen for the end of its children.
    pub fn start(
        machine: On,
        launcher: &Path,
        command: &[OsString],
        environment: &Environment,
    ) -> io::Result<Self> {
        // Before the start, so that no end is missed.
        let endings = machine.endings()?;
        let tree = machine.start(launcher, command, environment)?;
        Ok(Self { machine, tree, endings, ending: None, end_seen: None, is_over: false })
    }

    /// Passes a signal on to the command and its group.
    ///
    /// # Errors
    /// What the kernel refused.
    pub fn pass(&self, signal: Signal) -> io::Result<()> {
        self.tree.signal(signal)
    }

    /// The sockets on which it listens for those who come there, see [`super::world::Processes::listening`].
    ///
    /// # Errors
    /// They may not be had.
    pub fn listening(&self, at: &RelaySettings) -> io::Result<Vec<OwnedFd>> {
        self.tree.listening(at)
    }

    /// Waits until the command has ended by itself; kills what it left behind and returns when nothing is left.
    ///
    /// Orphans are reaped while it waits. May be dropped and called again.
    ///
    /// # Errors
    /// What the kernel refused.
    pub async fn ended(&mut self) -> io::Result<Ending> {
        let ending = self.command_ended().await?;
        if self.is_over { Ok(ending) } else { self.kill().await }
    }

    /// Waits until the command has ended by itself; something that it started may be left. May be dropped and called again.
    ///
    /// # Errors
    /// What the kernel refused.
    pub(super) async fn command_ended(&mut self) -> io::Result<Ending> {
        loop {
            self.look()?;
            if let Some(ending) = self.ending {
                return Ok(ending);
            }
            self.endings.next().await;
        }
    }

    /// Whether it has ended by now, and nothing of it is left.
    ///
    /// # Errors
    /// What the kernel refused.
    pub fn has_ended(&mut self) -> io::Result<bool> {
        Ok(self.look()?.is_some())
    }

    /// Sends SIGKILL to everything that is there now; to be repeated until it has ended.
    ///
    /// # Errors
    /// The process list cannot be read, or something may not be killed.
    pub fn kill_once(&self) -> io::Result<()> {
        self.tree.kill().map(drop)
    }

    /// Kills everything, but tries for this long only: what may not be killed, as it has changed its user, or does not end,
    /// as it waits for a disk, ends with the container, whose first process the caller is and ends as well.
    ///
    /// # Errors
    /// What the kernel refused, or `TimedOut` if not all of it has ended: so that this is left to the kernel.
    pub(super) async fn kill_within(&mut self, bound: Duration) -> io::Result<()> {
        match timeout(bound, self.kill()).await {
            Ok(killed) => killed.map(drop),
            Err(_) => Err(io::Error::new(io::ErrorKind::TimedOut, "not all of it ends")),
        }
    }

    /// Kills everything, as often as it takes.
    ///
    /// # Errors
    /// What the kernel refused, as if something has changed its user.
    pub(super) async fn kill(&mut self) -> io::Result<Ending> {
        loop {
            self.tree.kill()?;
            if let Some(ending) = self.look()? {
                return Ok(ending);
            }
            tokio::select! {
                () = self.endings.next() => {}
                () = sleep(KILL_PERIOD) => {}
            }
        }
    }

    /// When the end of the command was noticed; more of the application may have been left then.
    pub fn end_seen(&self) -> Option<BootTime> {
        self.end_seen
    }

    /// How the command ended, if it has.
    pub fn ending(&self) -> Option<Ending> {
        self.ending
    }

    /// How the command ended, once nothing is left.
    fn look(&mut self) -> io::Result<Option<Ending>> {
        let reaped = self.tree.reap()?;
        self.ending = self.ending.or(reaped.command);
        if self.ending.is_some() {
            self.end_seen.get_or_insert_with(|| self.machine.now());
        }
        self.is_over = reaped.is_empty;
        Ok(self.ending.filter(|_| reaped.is_empty))
    }
}

impl<On: Machine> Drop for Application<On> {
    fn drop(&mut self) {
        if !self.is_over {
            // The process is about to end, which kills the command in any case.
            drop(self.tree.kill());
        }
    }
}
