//! What the loop tells about a takeover: to the peer how the old tenure ended, to the Lease how the new one began.

use bps_api::{CrashLoop, keys};
use bps_protocol::{Agent, AgentId, BootTime, Event, Message, Purpose, Turn as Step, Write};
use bps_wire::crash_loop::{self, ToldCrashLoop};
use bps_wire::takeover;
use tracing::warn;

use super::Turn;
use crate::marks::word;
use crate::store::Annotations;
use crate::tenant::CrashLoopSeen;
use crate::world::Machine;

/// What shells report of a command that cannot be started.
const NOT_STARTED: i32 = 126;

impl<On: Machine> Turn<'_, On> {
    /// Who finds a takeover without a fault shall see that the machine was one.
    pub(super) fn tell_lateness(&mut self, now: BootTime) {
        if let Some(late) = self.timetable.rung(now, &self.body.timing) {
            self.body.tenant.metrics().late_wakes.inc();
            let role = word(self.pair.protocol.agent().role);
            let late_ms = late.as_millis();
            warn!(role, late_ms, "Was woken late: the node had no processor time for it, or stood still");
        }
    }

    /// Keeps the times of what a step changed.
    pub(super) fn follow(&mut self, now: BootTime, event: &Event, before: &Agent) {
        let step = Step { now, event, before, after: self.pair.protocol.agent() };
        self.chronicle.follow(&step, &self.body.timing);
        let (metrics, after) = (self.body.tenant.metrics(), self.pair.protocol.agent());
        metrics.follow(now, event, (before, after));
        metrics.show_lifeline(*self.pair.lifelines.watching.borrow());
        if let (true, false, Some(record)) =
            (after.role.is_acting(), before.role.is_acting(), self.chronicle.last())
        {
            metrics.took_over(record.cause);
        }
        if let (Event::ApplicationEnded, Some(at)) = (event, self.body.tenant.end_seen()) {
            self.chronicle.saw_end(at);
        }
    }

    /// Keeps what the application and the slice have reached, and has it written when there is nothing more to come.
    pub(super) fn note_progress(&mut self) {
        let Agent { role, epoch, .. } = *self.pair.protocol.agent();
        if !role.is_acting() {
            return;
        }
        if self.body.tenant.take_crash_news() {
            self.pair.protocol.renew_for_news();
        }
        if self.body.tenant.is_promoted() {
            self.chronicle.promoted(epoch, self.now());
        }
        if let Some((epoch, at)) = *self.pair.shown.borrow() {
            self.chronicle.published(epoch, at);
        }
        let record = self.chronicle.last().filter(|record| record.epoch == epoch);
        let is_whole = record.is_some_and(|record| {
            record.promoted.is_some() && (record.published.is_some() || self.pair.slice.borrow().is_none())
        });
        if is_whole {
            self.pair.protocol.renew_early();
        }
    }

    /// What a write says beside what the protocol reads: how the takeover went, and who is level from then on.
    pub(super) fn says_beside(&mut self, write: &Write) -> Annotations {
        let takeover = self.chronicle.record(write).and_then(|record| takeover::text(&record));
        let takeover = takeover.map(|text| (keys::ANNOTATION_HA_TAKEOVER, Some(text)));
        let crash_loop = (keys::ANNOTATION_HA_CRASH_LOOP, self.says_of_crash_loop(write));
        let is_late = self.timetable.is_too_late(self.now());
        let late = (keys::ANNOTATION_HA_LATE, is_late.then(|| u64::from(write.lease.epoch).to_string()));
        self.says_of_directories(write).into_iter().chain(takeover).chain([crash_loop, late]).collect()
    }

    /// How the own application ends again and again; nothing of what was said before, once it does not here, or nobody is to start it.
    fn says_of_crash_loop(&self, write: &Write) -> Option<String> {
        let id = self.pair.protocol.agent().id;
        let is_wanted = !self.withdrawal.is_leaving() && !self.lease.is_fenced();
        let CrashLoopSeen { ends, exit_code } =
            self.body.tenant.crash_loop(self.now()).filter(|_| is_wanted)?;
        crash_loop::text(&ToldCrashLoop {
            epoch: write.lease.epoch.into(),
            crash_loop: CrashLoop {
                pod: self.body.peers.directory().get(&id)?.pod.clone(),
                ends: i32::try_from(ends).unwrap_or(i32::MAX),
                exit_code: exit_code.map_or(NOT_STARTED, i32::from),
                last_lines: self.body.tenant.last_lines(),
            },
        })
    }

    /// Before a handover: how the tenure ended.
    pub(super) fn tell_end(&self, to: AgentId, message: &Message) {
        let Message::Handover(handover) = message else { return };
        if let Some(account) = self.chronicle.account(self.now(), handover.epoch) {
            self.body.peers.send(to, account);
        }
    }

    /// Before a write, if it is a release: the same, to the other member.
    pub(super) fn tell_write(&self, write: &Write) {
        self.body.tenant.metrics().lease_writes.inc();
        let agent = self.pair.protocol.agent();
        if agent.unresolved.is_none_or(|unresolved| unresolved.purpose != Purpose::Release) {
            return;
        }
        if let Some(account) = self.chronicle.account(self.now(), write.lease.epoch) {
            let others = write.lease.members.into_iter().filter(|member| *member != agent.id);
            others.for_each(|other| self.body.peers.send(other, account));
        }
    }
}
