//! The application of a pair: runs from the beginning of a tenure until nothing of it is left, at the latest when told;
//! or in both roles, and then is ended as a whole with each tenure.
//!
//! Never decides who acts. What it reports as the end of a tenure is that no process is left that was there in it.
//!
//! The tenant keeps its state in parts, and carries out what follows from them:
//!
//! | part | what it decides |
//! |---|---|
//! | `running` | what there is of the application |
//! | `assignment` | whether it belongs to a tenure or is a standby, whether it may run, and its environment |
//! | `deadlines` | when it is promoted, and when it is killed |
//! | `crashes` | how often it ended by itself, and when it may be started again |
//! | `helpers` | which hook and which check run beside it |
//! | `ties` | when lifelines may use its bond |

use std::ffi::OsString;
use std::io;
use std::net::IpAddr;
use std::os::fd::AsRawFd as _;
use std::path::PathBuf;
use std::time::Duration;

use bps_api::keys;
use bps_protocol::{BootTime, Epoch};
use rustix::process::Signal;
use tokio::sync::watch;
use tracing::{error, warn};

use self::assignment::Assignment;
use self::crashes::Crashes;
use self::deadlines::Deadlines;
use self::helpers::{HelperEnd, Helpers};
use self::lingering::Lingering;
use self::running::Running;
use self::ties::Ties;
use super::application::Application;
use super::hook::{Hooks, Occasion};
use super::last_lines::{LastLines, OUTPUT};
use super::launch::{ACTIVE_LINK, LEFT_OUT};
use super::lifeline::Tenancy;
use super::metrics::AgentMetrics;
use super::world::{Kernel, Machine};

pub(super) use self::crashes::PAUSE_MAX;
pub(super) use self::lingering::{KILLED_BEFORE_MAX, LINGER_MAX};

/// How long until it is looked again whether the lifeline of a former application is void. 10 ms: a task of this process says so, and
/// needs one turn for it.
const VOID_WITHIN: Duration = Duration::from_millis(10);

/// The application, if it runs.
#[derive(Debug)]
pub struct Tenant<On: Machine = Kernel> {
    machine: On,
    launcher: PathBuf,
    command: Vec<OsString>,
    hooks: Hooks,
    running: Running<On>,
    /// Its part in the pair.
    assignment: Assignment,
    /// When it is promoted or killed.
    deadlines: Deadlines,
    /// How often in a row it ended by itself.
    crashes: Crashes,
    /// The processes beside it.
    helpers: Helpers<On>,
    /// Its bond, shown to the lifelines during a tenure.
    ties: Ties,
    metrics: AgentMetrics,
    end_seen: Option<BootTime>,
    /// What is removed before each start.
    left_out: Option<String>,
    /// Where the link to its state leads before each start, if it is that of one of several seats.
    active_link: Option<String>,
    /// What it wrote last, if that may be told.
    last_lines: Option<LastLines>,
}

/// What an application and its hooks are told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Posture {
    /// The epoch of the tenure, or for a standby the highest that is known.
    pub epoch: Epoch,
    /// Address of the other Pod.
    pub peer: Option<IpAddr>,
}

/// An application that ends by itself again and again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CrashLoopSeen {
    /// How often in a row that was soon after its start.
    pub ends: u32,
    /// What it ended with last; `None` if it could not be started.
    pub exit_code: Option<u8>,
}

/// The beginning and the end of a tenure.
impl<On: Machine> Tenant<On> {
    /// An application that does not run. `stop` is how long stopping it may take.
    pub fn new(
        machine: On,
        (launcher, command): (PathBuf, Vec<OsString>),
        hooks: Hooks,
        stop: Duration,
    ) -> Self {
        Self {
            machine,
            launcher,
            command,
            hooks,
            running: Running::Nothing,
            assignment: Assignment::default(),
            deadlines: Deadlines::new(stop),
            crashes: Crashes::default(),
            helpers: Helpers::default(),
            ties: Ties::default(),
            metrics: AgentMetrics::default(),
            end_seen: None,
            left_out: None,
            active_link: None,
            last_lines: None,
        }
    }

    /// Waits at most so long before it starts an application again that ends by itself again and again.
    #[must_use]
    pub fn pausing_at_most(mut self, pause_max: Duration) -> Self {
        self.crashes.limit(pause_max);
        self
    }

    /// Has these files of the run before removed before each start, as [`LeftOut::text`](crate::replicate::left_out::LeftOut)
    /// says them.
    #[must_use]
    pub fn leaving_out(self, left_out: Option<String>) -> Self {
        Self { left_out, ..self }
    }

    /// Replaces the metrics in which the tenant counts starts, failed hooks and the like.
    #[must_use]
    pub fn counting(self, metrics: AgentMetrics) -> Self {
        Self { metrics, ..self }
    }

    /// Has the link to its state point there before each start, as
    /// [`ActiveLink::text`](crate::seats::link::ActiveLink) says it.
    #[must_use]
    pub fn pointing(self, active_link: Option<String>) -> Self {
        Self { active_link, ..self }
    }

    /// Tells what the application wrote last once it ends by itself again and again, if that is permitted.
    #[must_use]
    pub fn telling_last_lines(self, is_permitted: bool) -> Self {
        Self { last_lines: is_permitted.then(LastLines::default), ..self }
    }

    /// Whether the application ends by itself again and again soon after its start.
    pub fn is_crash_looping(&self, now: BootTime) -> bool {
        self.crashes.is_loop(now)
    }

    /// How often in a row it ended so, if it does, and what it ended with last.
    pub fn crash_loop(&self, now: BootTime) -> Option<CrashLoopSeen> {
        self.crashes.seen(now)
    }

    /// Whether that has gone on since this was asked last.
    pub fn take_crash_news(&mut self) -> bool {
        self.crashes.take_news()
    }

    /// What it wrote last before it ended so, the oldest line first; nothing if that may not be told.
    pub fn last_lines(&self) -> Vec<String> {
        self.last_lines.as_ref().map(LastLines::told).unwrap_or_default()
    }

    /// Whether a tenure that waits for the next start of the application is to end, because somebody came who may do better. To be
    /// asked whenever time has passed; `has_successor` tells whether a standby would take over.
    pub fn is_relieved(&mut self, has_successor: bool) -> bool {
        let is_pausing = self.assignment.is_tenure() && matches!(self.running, Running::Waiting(_));
        self.crashes.is_relieved(is_pausing, has_successor)
    }

    /// Belongs to this pair from now on, in which stopping may take so long.
    pub fn join(&mut self, pair: String, stop: Duration) {
        self.assignment.join(pair);
        self.deadlines.set_stop(stop);
    }

    /// The bond with the application of a tenure, as it changes.
    pub fn bonds(&self) -> watch::Receiver<Tenancy> {
        self.ties.subscribe()
    }

    /// Begins a tenure: promotes what runs, or starts it, at once unless it was started only just before.
    pub fn activate(&mut self, now: BootTime, posture: Posture) {
        self.assignment.begin(posture);
        self.crashes.begin_tenure();
        // A hook for a standby is over before anything of the tenure begins.
        self.end_hook();
        match self.running {
            Running::Application(_) if !self.deadlines.is_ending() => {
                self.ties.show(self.assignment.tenure());
                self.deadlines.promote();
                self.promote_once_due(now);
            }
            // It is being ended; its end is that of the tenure.
            Running::Application(_) => {}
            Running::Lingering(_) => self.make_room(now),
            Running::Nothing | Running::Waiting(_) | Running::Stillborn => self.start_soon(now),
        }
    }

    /// It is standby from now on; no tenure may be under way.
    pub fn stand_by(&mut self, now: BootTime, posture: Posture) {
        self.assignment.stand_by(posture);
        match self.running {
            Running::Nothing if self.hooks.runs_in_standby && !self.assignment.is_retired() => {
                self.start_soon(now);
            }
            Running::Nothing if !self.hooks.runs_in_standby => drop(self.run_hook(Occasion::Standby)),
            Running::Nothing
            | Running::Waiting(_)
            | Running::Application(_)
            | Running::Lingering(_)
            | Running::Stillborn => {}
        }
    }

    /// The other Pod has this address now: an application that runs as standby follows it, by the hook for standbys.
    pub fn follow(&mut self, peer: Option<IpAddr>) {
        if !self.assignment.follow(peer) {
            return;
        }
        let is_running = matches!(self.running, Running::Application(_)) && !self.deadlines.is_ending();
        if is_running && self.hooks.runs_in_standby {
            self.run_hook(Occasion::Standby);
        }
    }

    /// Asks it to end, and sees to it that nothing is left of it at the given time.
    ///
    /// # Errors
    /// What the kernel refused.
    pub fn stop(&mut self, now: BootTime, by: BootTime) -> io::Result<()> {
        self.deadlines.stop(by);
        self.close();
        // What the hook does comes first; the application is asked to end after it.
        let is_running =
            matches!(self.running, Running::Application(_)) && self.being_killed_since().is_none();
        if is_running && !self.run_hook(Occasion::Fence) {
            self.ask_to_end()?;
        }
        self.go_on(now)
    }

    /// What was asked to end has until then; what is being killed already, or sooner for another reason, goes on being so.
    ///
    /// # Errors
    /// The process list cannot be read.
    pub fn stop_by(&mut self, now: BootTime, by: BootTime) -> io::Result<()> {
        if self.being_killed_since().is_none() {
            self.deadlines.stop_by(now, by);
        }
        self.go_on(now)
    }

    /// Ends it at once, whatever it or a hook does.
    ///
    /// # Errors
    /// The process list cannot be read.
    pub fn kill(&mut self, now: BootTime) -> io::Result<()> {
        self.deadlines.kill(now);
        self.close();
        self.go_on(now)
    }

    /// Lets nothing of a tenure begin any more.
    fn close(&mut self) {
        self.end_check();
        match self.running {
            Running::Waiting(_) => self.running = Running::Stillborn,
            Running::Lingering(_) => self.adopt(),
            Running::Nothing | Running::Application(_) | Running::Stillborn => {}
        }
    }

    /// Ends it as standby, and does not start it as that again until [`Tenant::enlist`] or the next tenure.
    /// A tenure goes on.
    ///
    /// # Errors
    /// What the kernel refused.
    pub fn retire(&mut self, now: BootTime, by: BootTime) -> io::Result<()> {
        let is_lingering = matches!(self.running, Running::Lingering(_));
        if !self.assignment.retire() || is_lingering {
            return Ok(());
        }
        self.deadlines.retire(by);
        self.end_check();
        match self.running {
            Running::Waiting(_) | Running::Stillborn => self.running = Running::Nothing,
            Running::Application(_) => self.ask_to_end()?,
            Running::Nothing | Running::Lingering(_) => {}
        }
        self.go_on(now)
    }

    /// There is a pair to stand by for.
    pub fn enlist(&mut self) {
        self.assignment.enlist();
    }

    /// Whether it stays ended as standby.
    pub fn is_retired(&self) -> bool {
        self.assignment.is_retired()
    }
}

/// The course of time.
impl<On: Machine> Tenant<On> {
    fn start_soon(&mut self, now: BootTime) {
        self.deadlines.spare();
        let earliest = self.deadlines.earliest_start(self.crashes.next_start(now));
        if earliest <= now && !self.assignment.is_held_back() {
            self.start(now);
        } else {
            self.running = Running::Waiting(earliest.max(now));
        }
    }

    fn start(&mut self, now: BootTime) {
        self.crashes.started(now);
        self.metrics.starts.inc();
        let bond = self.machine.bond().inspect_err(|source| {
            warn!(error = source as &dyn std::error::Error, "Could not make a lifeline for the application");
        });
        // The application's end is open here only until the start, so that nothing else inherits it.
        let (bond, inherited) = bond.ok().unzip();
        let occasion = self.assignment.occasion();
        let mut environment = self.environment(occasion);
        let number = inherited.as_ref().map(|inherited| inherited.as_raw_fd().to_string());
        environment.extend(number.map(|number| (keys::ENV_HA_LIFELINE_FD, number)));
        let mut own = environment.clone();
        own.extend(self.left_out.clone().map(|text| (LEFT_OUT, text)));
        own.extend(self.active_link.clone().map(|text| (ACTIVE_LINK, text)));
        own.extend(self.follow_output(now).map(|text| (OUTPUT, text)));
        let started = Application::start(self.machine.clone(), &self.launcher, &self.command, &own);
        if started.is_ok() {
            // It lives as long as the application, so it holds the lifelines, too.
            self.start_check(&environment);
        }
        drop(inherited);
        match started {
            Ok(application) => {
                self.running = Running::Application(application);
                self.ties.tie(bond);
                self.ties.show(self.assignment.tenure());
                self.run_hook(occasion);
            }
            Err(source) => {
                error!(error = &source as &dyn std::error::Error, "Could not start the application");
                self.running = Running::Stillborn;
            }
        }
    }

    /// Routes the output of the next run through this process, if its end may be reported; returns the variable for the launcher.
    fn follow_output(&mut self, now: BootTime) -> Option<String> {
        let last_lines = self.last_lines.as_mut().filter(|_| self.crashes.is_near_loop(now))?;
        let followed = last_lines.follow().inspect_err(|error| {
            warn!(
                error = error as &dyn std::error::Error,
                "Could not follow what the application writes: its last lines are not told"
            );
        });
        followed.ok()
    }

    /// When [`Tenant::go_on`] has something to do.
    pub fn due(&self) -> Option<BootTime> {
        match &self.running {
            Running::Nothing | Running::Stillborn => None,
            Running::Waiting(_) if self.assignment.is_held_back() => None,
            Running::Waiting(at) => Some(*at),
            Running::Application(_) => self.deadlines.next(),
            Running::Lingering(Lingering { ends_at, .. }) => {
                Some(self.deadlines.kill_at().unwrap_or(*ends_at))
            }
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
            Running::Waiting(_) if !self.ties.may_tie(self.assignment.tenure()) => {
                self.running = Running::Waiting(now + VOID_WITHIN);
            }
            Running::Waiting(_) => self.start(now),
            Running::Lingering(_) if !self.deadlines.is_ending() => self.part()?,
            Running::Application(_) if !self.deadlines.is_kill_due(now) => self.promote_once_due(now),
            Running::Application(application) | Running::Lingering(Lingering { application, .. }) => {
                application.kill_once()?;
                self.deadlines.killed(now);
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
            Running::Application(application) | Running::Lingering(Lingering { application, .. }) => {
                application.pass(signal)
            }
            Running::Nothing | Running::Waiting(_) | Running::Stillborn => Ok(()),
        }
    }
}

/// Ends.
impl<On: Machine> Tenant<On> {
    /// Waits until something has ended: `true` if that was the last process of a tenure. May be dropped and called again.
    ///
    /// # Errors
    /// What the kernel refused.
    pub async fn ended(&mut self) -> io::Result<bool> {
        let Self { running, helpers, .. } = self;
        let is_fencing = helpers.is_fencing();
        tokio::select! {
            // Nothing of the others is left either when the application has ended.
            biased;
            ended = running.ended(), if !is_fencing => ended.map(|()| self.end()),
            ended = helpers.ended() => {
                match ended? {
                    HelperEnd::Hook(occasion, ending) => self.hooked(occasion, ending)?,
                    HelperEnd::Check(ending) => self.checked(ending),
                }
                Ok(false)
            }
        }
    }

    /// Whether a tenure ended since this was asked last; each end is told once, here or by [`Tenant::ended`].
    ///
    /// # Errors
    /// What the kernel refused.
    pub fn has_just_ended(&mut self) -> io::Result<bool> {
        let has_ended = match &mut self.running {
            Running::Nothing | Running::Waiting(_) => false,
            Running::Application(application) | Running::Lingering(Lingering { application, .. }) => {
                application.has_ended()?
            }
            Running::Stillborn => true,
        };
        Ok(has_ended && self.end())
    }

    /// Nothing of it is left. A standby is started again, and is nobody else's business.
    fn end(&mut self) -> bool {
        let exit_code = self.note_end();
        let now = self.machine.now();
        let is_crash = self.crashes.ended(now, self.deadlines.is_ending(), exit_code);
        if self.crashes.is_loop(now) {
            let pause = self.crashes.pause(now);
            warn!(
                ?pause,
                "The application ends again and again soon after its start: waits longer each time"
            );
        }
        if let Some(last_lines) = &mut self.last_lines {
            last_lines.is_over();
        }
        let has_lingered = matches!(self.running, Running::Lingering(_));
        self.running = Running::Nothing;
        self.ties.untie();
        self.helpers.end();
        self.deadlines.end();
        if has_lingered {
            self.parted();
            return false;
        }
        if is_crash && self.assignment.is_tenure() && self.crashes.stays(now) {
            // The tenure goes on without an application for now, as one does that begins with a pause.
            self.ties.show(None);
            self.running = Running::Waiting(self.crashes.next_start(now));
            return false;
        }

        let was_tenure = self.assignment.end_tenure();
        self.ties.show(None);
        if !was_tenure && !self.assignment.is_retired() && self.crashes.was_started() {
            self.running = Running::Waiting(self.crashes.next_start(now));
        }
        was_tenure
    }

    /// Whether there is nothing of it, and everybody knows.
    pub fn is_gone(&self) -> bool {
        matches!(self.running, Running::Nothing)
    }

    /// Whether a hook runs.
    pub fn has_hook(&self) -> bool {
        self.helpers.has_hook()
    }
}

mod assignment;
mod crashes;
mod deadlines;
mod helpers;
mod running;
mod ties;

mod checks;
mod held;
mod hooks;
mod lingering;
mod milestones;
mod ports;
mod stuck;
#[cfg(test)]
mod tests;
