//! An application that goes on for a while after its tenure has passed to the peer.
//!
//! Never decides whether it may: who asks for it accepts that two act. What ends it is time: when the peer serves, when the
//! bound has passed, or when this agent acts again and needs the room.

use std::io;
use std::time::Duration;

use bps_protocol::BootTime;
use tracing::error;

use super::{Running, Tenant};
use crate::application::Application;
use crate::hook::Occasion;
use crate::world::{Kernel, Machine};

/// Longest time that an application goes on after its tenure.
///
/// 10 s: its successor may take some seconds to start. With [`ENDING_MAX`] it is half of the 30 s that the kubelet waits by
/// default for a Pod to end (`terminationGracePeriodSeconds`).
pub(crate) const LINGER_MAX: Duration = Duration::from_secs(10);
/// Longest time from when it is asked to end until nothing of it is left.
///
/// 5 s: nothing waits for it, so that requests which it still answers may take longer than in a tenure.
const ENDING_MAX: Duration = Duration::from_secs(5);

/// Longest time before the end of a lingering application at which it is killed, however long stopping one may take in a
/// tenure: most of [`ENDING_MAX`] is for what it still answers.
pub(crate) const KILLED_BEFORE_MAX: Duration = Duration::from_secs(1);

/// See the module.
#[derive(Debug)]
pub(super) struct Lingering<On: Machine = Kernel> {
    pub(super) application: Application<On>,
    /// When it is asked to end; that is due no more once the tenant has a time to kill it.
    pub(super) ends_at: BootTime,
}

impl<On: Machine> Tenant<On> {
    /// Lets the application of a tenure that has passed to the peer go on, at most [`LINGER_MAX`]; without effect unless
    /// it is promoted.
    pub fn linger(&mut self, now: BootTime) {
        if !self.is_promoted() {
            return;
        }
        let running = std::mem::replace(&mut self.running, Running::Nothing);
        let Running::Application(application) = running else {
            self.running = running;
            return;
        };
        self.running = Running::Lingering(Lingering { application, ends_at: now + LINGER_MAX });
        self.assignment.end_tenure();
        self.ties.show(None);
    }

    /// Whether an application goes on that was not asked to end yet, although its tenure has passed to the peer.
    pub fn is_lingering(&self) -> bool {
        matches!(self.running, Running::Lingering(_)) && !self.deadlines.is_ending()
    }

    /// When nothing may be left of an application whose tenure has passed to the peer, if there is one.
    pub fn lingers_until(&self) -> Option<BootTime> {
        match &self.running {
            Running::Lingering(Lingering { ends_at, .. }) => Some(*ends_at + ENDING_MAX),
            Running::Nothing | Running::Waiting(_) | Running::Application(_) | Running::Stillborn => None,
        }
    }

    /// Asks a lingering application to end at this time, if that is earlier than it would be.
    pub fn relieve(&mut self, at: BootTime) {
        if let Running::Lingering(Lingering { ends_at, .. }) = &mut self.running {
            *ends_at = at.min(*ends_at);
        }
    }

    /// A tenure begins before the application of an earlier one has ended: it is to be gone as soon as stopping one allows.
    pub(super) fn make_room(&mut self, now: BootTime) {
        let Running::Lingering(Lingering { ends_at, .. }) = &mut self.running else { return };
        *ends_at = now.min(*ends_at);
        // A hook that ran before it has been ended.
        if let Err(error) = self.ask_to_end() {
            error!(error = &error as &dyn std::error::Error, "Could not ask an earlier application to end");
        }
        self.deadlines.make_room(now);
    }

    /// A tenure ends that waited for room: no other application was started, so that the end of this one is its end.
    pub(super) fn adopt(&mut self) {
        self.end_lingering();
        let running = std::mem::replace(&mut self.running, Running::Nothing);
        self.running = if let Running::Lingering(Lingering { application, .. }) = running {
            Running::Application(application)
        } else {
            running
        };
    }

    fn end_lingering(&mut self) {
        if let Some(lingers_until) = self.lingers_until() {
            self.deadlines.end_lingering(lingers_until);
        }
    }

    /// Its time has come.
    pub(super) fn part(&mut self) -> io::Result<()> {
        self.end_lingering();
        self.end_check();
        if self.run_hook(Occasion::Fence) { Ok(()) } else { self.ask_to_end() }
    }

    /// Nothing is left of it: now there is room for the application of a tenure, or else the Pod is standby.
    pub(super) fn parted(&mut self) {
        if self.assignment.is_tenure() && self.crashes.was_started() {
            let next = self.crashes.next_start(self.machine.now());
            self.running = Running::Waiting(self.deadlines.earliest_start(next));
        } else {
            self.run_hook(Occasion::Standby);
        }
    }
}
