//! The application of a pair: runs from the beginning of a tenure until nothing of it is left, at the latest when told.

use std::ffi::OsString;
use std::io;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use rustix::process::Signal;
use tracing::error;

use super::application::{Application, KILL_PERIOD};
use super::tree::Environment;
use crate::api::keys;
use crate::ha::{BootTime, Epoch};

/// The application, if it runs.
#[derive(Debug)]
pub struct Tenant {
    launcher: PathBuf,
    command: Vec<OsString>,
    /// How long before the given end SIGTERM gives way to SIGKILL.
    kill_before: Duration,
    running: Running,
    kill_at: Option<BootTime>,
}

#[derive(Debug)]
enum Running {
    Nothing,
    Application(Application),
    /// It was to be started and could not be: it has ended already, and nobody was told yet.
    Stillborn,
}

impl Tenant {
    /// An application that does not run. `stop` is how long stopping it may take.
    pub fn new(launcher: PathBuf, command: Vec<OsString>, stop: Duration) -> Self {
        // Half of it for an application that obeys, half of it for the kernel with one that does not.
        Self { launcher, command, kill_before: stop / 2, running: Running::Nothing, kill_at: None }
    }

    /// Starts it for a tenure.
    pub fn activate(&mut self, epoch: Epoch, peer: Option<IpAddr>) {
        let mut environment = Environment::from([
            (keys::ENV_HA_EPOCH, u64::from(epoch).to_string()),
            (keys::ENV_HA_ROLE, keys::HA_ROLE_ACTIVE.to_owned()),
        ]);
        environment.extend(peer.map(|peer| (keys::ENV_HA_PEER, peer.to_string())));
        self.kill_at = None;
        self.running = match Application::start(&self.launcher, &self.command, &environment) {
            Ok(application) => Running::Application(application),
            Err(source) => {
                error!(error = &source as &dyn std::error::Error, "Could not start the application");
                Running::Stillborn
            }
        };
    }

    /// Asks it to end, and sees to it that nothing is left of it at the given time.
    ///
    /// # Errors
    /// What the kernel refused.
    pub fn stop(&mut self, now: BootTime, by: BootTime) -> io::Result<()> {
        self.kill_at = Some(by.before(self.kill_before));
        self.pass(Signal::TERM)?;
        self.kill_if_due(now)
    }

    /// When [`Tenant::kill_if_due`] has something to do.
    pub fn kill_at(&self) -> Option<BootTime> {
        self.kill_at.filter(|_| matches!(self.running, Running::Application(_)))
    }

    /// Kills everything that is left, once it is time, and again a little later: more may have been started meanwhile.
    ///
    /// # Errors
    /// The process list cannot be read.
    pub fn kill_if_due(&mut self, now: BootTime) -> io::Result<()> {
        if let (Some(at), Running::Application(application)) = (self.kill_at, &self.running)
            && at <= now
        {
            application.kill_once()?;
            self.kill_at = Some(now + KILL_PERIOD);
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
            Running::Nothing | Running::Stillborn => Ok(()),
        }
    }

    /// Waits until nothing of it is left; for ever if it does not run. May be dropped and called again.
    ///
    /// # Errors
    /// What the kernel refused.
    pub async fn ended(&mut self) -> io::Result<()> {
        match &mut self.running {
            Running::Nothing => std::future::pending().await,
            Running::Application(application) => drop(application.ended().await?),
            Running::Stillborn => {}
        }
        self.running = Running::Nothing;
        Ok(())
    }

    /// Whether it ended since this was asked last; each end is told once, here or by [`Tenant::ended`].
    ///
    /// # Errors
    /// What the kernel refused.
    pub fn has_just_ended(&mut self) -> io::Result<bool> {
        let has_ended = match &mut self.running {
            Running::Nothing => false,
            Running::Application(application) => application.has_ended()?,
            Running::Stillborn => true,
        };
        if has_ended {
            self.running = Running::Nothing;
        }
        Ok(has_ended)
    }

    /// Whether there is nothing of it, and everybody knows.
    pub fn is_gone(&self) -> bool {
        matches!(self.running, Running::Nothing)
    }
}
