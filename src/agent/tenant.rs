//! The application of a pair: runs from the beginning of a tenure until nothing of it is left, at the latest when told.

use std::ffi::OsString;
use std::io;
use std::net::IpAddr;
use std::os::fd::AsRawFd as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rustix::process::Signal;
use tokio::sync::watch;
use tracing::{error, warn};

use super::application::{Application, KILL_PERIOD};
use super::lifeline::bond::Bond;
use super::tree::Environment;
use crate::api::keys;
use crate::ha::{BootTime, Epoch};

/// Shortest time between two starts by the same agent. 1 s: an application that cannot start is handed to and fro at
/// most twice a second, and the Lease is written as rarely.
const STARTS_APART: Duration = Duration::from_secs(1);

/// The application, if it runs.
#[derive(Debug)]
pub struct Tenant {
    launcher: PathBuf,
    command: Vec<OsString>,
    /// How long before the given end SIGTERM gives way to SIGKILL.
    kill_before: Duration,
    running: Running,
    kill_at: Option<BootTime>,
    last_start: Option<BootTime>,
    /// The bond with the application, as long as it runs.
    bonds: watch::Sender<Option<Arc<Bond>>>,
}

#[derive(Debug)]
enum Running {
    Nothing,
    /// It was started only just before, and is started again at this time.
    Waiting(BootTime, Epoch, Environment),
    Application(Application),
    /// It was to be started and was not: it has ended already, and nobody was told yet.
    Stillborn,
}

impl Tenant {
    /// An application that does not run. `stop` is how long stopping it may take.
    pub fn new(launcher: PathBuf, command: Vec<OsString>, stop: Duration) -> Self {
        // Half of it for an application that obeys, half of it for the kernel with one that does not.
        let (running, kill_before) = (Running::Nothing, stop / 2);
        let bonds = watch::Sender::new(None);
        Self { launcher, command, kill_before, running, kill_at: None, last_start: None, bonds }
    }

    /// The bond with the application, as it changes.
    pub fn bonds(&self) -> watch::Receiver<Option<Arc<Bond>>> {
        self.bonds.subscribe()
    }

    /// Starts it for a tenure, at once unless it was started only just before.
    pub fn activate(&mut self, now: BootTime, epoch: Epoch, peer: Option<IpAddr>) {
        let mut environment = Environment::from([
            (keys::ENV_HA_EPOCH, u64::from(epoch).to_string()),
            (keys::ENV_HA_ROLE, keys::HA_ROLE_ACTIVE.to_owned()),
        ]);
        environment.extend(peer.map(|peer| (keys::ENV_HA_PEER, peer.to_string())));
        self.kill_at = None;
        match self.last_start.map(|last| last + STARTS_APART).filter(|earliest| now < *earliest) {
            None => self.start(now, epoch, environment),
            Some(earliest) => self.running = Running::Waiting(earliest, epoch, environment),
        }
    }

    fn start(&mut self, now: BootTime, epoch: Epoch, mut environment: Environment) {
        self.last_start = Some(now);
        let bond = Bond::new(epoch).inspect_err(|source| {
            warn!(error = source as &dyn std::error::Error, "Could not make a lifeline for the application");
        });
        // The application's end is open here only until the start, so that the application alone inherits it.
        let (bond, inherited) = bond.ok().unzip();
        let number = inherited.as_ref().map(|inherited| inherited.as_raw_fd().to_string());
        environment.extend(number.map(|number| (keys::ENV_HA_LIFELINE_FD, number)));
        self.running = match Application::start(&self.launcher, &self.command, &environment) {
            Ok(application) => {
                self.bonds.send_replace(bond.map(Arc::new));
                Running::Application(application)
            }
            Err(source) => {
                error!(error = &source as &dyn std::error::Error, "Could not start the application");
                Running::Stillborn
            }
        };
    }

    /// Nothing of it is left.
    fn end(&mut self) {
        self.running = Running::Nothing;
        self.bonds.send_replace(None);
    }

    /// Asks it to end, and sees to it that nothing is left of it at the given time.
    ///
    /// # Errors
    /// What the kernel refused.
    pub fn stop(&mut self, now: BootTime, by: BootTime) -> io::Result<()> {
        if matches!(self.running, Running::Waiting(..)) {
            self.running = Running::Stillborn;
        }
        self.kill_at = Some(by.before(self.kill_before));
        self.pass(Signal::TERM)?;
        self.go_on(now)
    }

    /// When [`Tenant::go_on`] has something to do.
    pub fn due(&self) -> Option<BootTime> {
        match &self.running {
            Running::Nothing | Running::Stillborn => None,
            Running::Waiting(at, ..) => Some(*at),
            Running::Application(_) => self.kill_at,
        }
    }

    /// Once it is time, starts what waits for its start, or kills all that is left of what was asked to end.
    ///
    /// # Errors
    /// The process list cannot be read.
    pub fn go_on(&mut self, now: BootTime) -> io::Result<()> {
        if self.due().is_none_or(|at| now < at) {
            return Ok(());
        }
        match &mut self.running {
            Running::Nothing | Running::Stillborn => {}
            Running::Waiting(_, epoch, environment) => {
                let (epoch, environment) = (*epoch, std::mem::take(environment));
                self.start(now, epoch, environment);
            }
            Running::Application(application) => {
                application.kill_once()?;
                // More may have been started meanwhile.
                self.kill_at = Some(now + KILL_PERIOD);
            }
        }
        Ok(())
    }

    /// Passes a signal on, if it runs.
    ///
    /// # Errors
    /// What the kernel refused.
    pub fn pass(&self, signal: Signal) -> io::Result<()> {
        match &self.running {
            Running::Application(application) => application.pass(signal),
            Running::Nothing | Running::Waiting(..) | Running::Stillborn => Ok(()),
        }
    }

    /// Waits until nothing of it is left; for ever if it does not run. May be dropped and called again.
    ///
    /// # Errors
    /// What the kernel refused.
    pub async fn ended(&mut self) -> io::Result<()> {
        match &mut self.running {
            Running::Nothing | Running::Waiting(..) => std::future::pending().await,
            Running::Application(application) => drop(application.ended().await?),
            Running::Stillborn => {}
        }
        self.end();
        Ok(())
    }

    /// Whether it ended since this was asked last; each end is told once, here or by [`Tenant::ended`].
    ///
    /// # Errors
    /// What the kernel refused.
    pub fn has_just_ended(&mut self) -> io::Result<bool> {
        let has_ended = match &mut self.running {
            Running::Nothing | Running::Waiting(..) => false,
            Running::Application(application) => application.has_ended()?,
            Running::Stillborn => true,
        };
        if has_ended {
            self.end();
        }
        Ok(has_ended)
    }

    /// Whether there is nothing of it, and everybody knows.
    pub fn is_gone(&self) -> bool {
        matches!(self.running, Running::Nothing)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EPOCH: Epoch = Epoch { term: 1, sequence: 0 };

    fn tenant(launcher: &str) -> Tenant {
        Tenant::new(launcher.into(), vec!["true".into()], Duration::from_millis(200))
    }

    #[tokio::test]
    async fn an_application_that_cannot_be_started_has_ended_once() {
        let mut tenant = tenant("/no/such/launcher");
        tenant.activate(BootTime(0), EPOCH, None);
        assert!(!tenant.is_gone());
        tenant.ended().await.unwrap();
        assert!(tenant.is_gone());
        assert!(!tenant.has_just_ended().unwrap());
    }

    #[tokio::test]
    async fn a_second_start_waits_and_is_never_made_once_it_was_told_to_stop() {
        let mut tenant = tenant("/no/such/launcher");
        tenant.activate(BootTime(0), EPOCH, None);
        assert!(tenant.has_just_ended().unwrap());

        tenant.activate(BootTime(1), EPOCH, None);
        assert_eq!(tenant.due(), Some(BootTime(0) + STARTS_APART));
        tenant.go_on(BootTime(2)).unwrap();
        assert!(!tenant.has_just_ended().unwrap());
        tenant.stop(BootTime(3), BootTime(4)).unwrap();
        assert!(tenant.has_just_ended().unwrap());

        tenant.activate(BootTime(5), EPOCH, None);
        tenant.go_on(BootTime(0) + STARTS_APART).unwrap();
        assert!(tenant.has_just_ended().unwrap(), "the start was tried");
        assert_eq!(tenant.due(), None);
    }
}
