//! When an agent of a pair may leave: its process, its Lease, or its tenure.

use std::io;
use std::time::Duration;

use bps_protocol::{Agent, BootTime, Event, Order, Role};
use tracing::{error, info, warn};

use super::Turn;
use crate::replicate::Replica;
use crate::world::Machine;

/// How many round trips an agent that leaves stays at least. 2: a handover that crossed its farewell is repeated after one,
/// and only who answers it can release what was delegated.
const ROUND_TRIPS_MIN: u32 = 2;

/// Which part of a Pod's grace period its standby may take to copy the state: one of so many.
const COPY_WAIT_ONE_OF: u32 = 3;

/// What is left of a Pod's time for its last steps, besides two holds and the relay's time. 1 s: the kubelet kills in the moment
/// that the grace period is over, and the signal may have come late.
const SPARE: Duration = Duration::from_secs(1);

/// What it means that the Pod was asked to end.
#[derive(Clone, Copy, Debug)]
pub(super) struct AskedToLeave {
    /// Until then the agent may act on, so that its standby has the state.
    acts_until: BootTime,
    /// Then the Pod must have ended.
    ends_by: BootTime,
}

/// When an agent that was asked to end does so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Leaving {
    /// Until then somebody may hand over to it who did not hear yet that it leaves.
    not_before: BootTime,
    /// Then at last, even if it could not hand over.
    by: BootTime,
}

/// How long an active that is asked to end may act on: a third of what its Pod has, and what its end may take is left.
fn copy_wait(end_within: Duration, afterwards: Duration) -> Duration {
    (end_within / COPY_WAIT_ONE_OF).min(end_within.saturating_sub(afterwards))
}

/// What an agent may take to hand over, to release the Lease, and to relay, once the application has had its time.
fn afterwards(hold: Duration, linger: Duration) -> Duration {
    2 * hold + linger + SPARE
}

impl<On: Machine> Turn<'_, On> {
    /// It was asked to end: leaves, but not before a standby that lives has its state, if there is time for that. Its Pod's
    /// volume may go with it. Being asked again changes nothing.
    pub(super) fn ask_to_leave(&mut self) -> io::Result<()> {
        if self.leaving.is_some() || self.asked_to_leave.is_some() {
            return Ok(());
        }
        let (end_within, now) = (self.body.end_within, self.now());
        let copy_wait = copy_wait(end_within, self.afterwards());
        self.asked_to_leave = Some(AskedToLeave { acts_until: now + copy_wait, ends_by: now + end_within });
        if self.is_only_copy() && self.pair.protocol.has_successor(self.now()) {
            info!(?copy_wait, "Acts on until the standby has the state");
        }
        self.leave_once_copied()
    }

    /// Leaves if it was asked to, and nothing is to be waited for any more.
    pub(super) fn leave_once_copied(&mut self) -> io::Result<()> {
        let Some(asked) = self.asked_to_leave.filter(|_| self.leaving.is_none()) else { return Ok(()) };
        if self.is_only_copy() && self.now() < asked.acts_until {
            // This process may have stood still, and not heard yet who lives.
            self.waiting().into_iter().try_for_each(|(from, content)| self.heard(from, content))?;
            if self.pair.protocol.has_successor(self.now()) {
                return Ok(());
            }
        }
        if self.is_only_copy() {
            warn!("Leaves although nobody else has all of the state");
        }
        self.leave()
    }

    /// Whether it acts with state that its standby does not have, as far as it knows.
    fn is_only_copy(&self) -> bool {
        let agent = self.pair.protocol.agent();
        let peer = agent.tenure.map(|tenure| tenure.peer.id);
        let lacks = |replica: &Replica| !replica.is_copied(&self.level.1, peer);
        agent.role == Role::Active && self.pair.replica.as_ref().is_some_and(lacks)
    }

    fn afterwards(&self) -> Duration {
        afterwards(self.body.timing.hold, self.body.relay.linger())
    }

    /// How long an application may take that somebody wants to end, if its Pod has so long.
    pub(super) fn time_to_end(&self, end_within: Duration) -> Duration {
        end_within.saturating_sub(self.afterwards())
    }

    /// Stops acting for good, by a handover if there is a peer. Leaving again changes nothing.
    pub(super) fn leave(&mut self) -> io::Result<()> {
        if self.leaving.is_none() {
            // Who was not asked leaves because something failed.
            let (now, timing) = (self.now(), &self.body.timing);
            let left = self.asked_to_leave.map(|asked| asked.ends_by.since(now)).unwrap_or_default();
            let patience = self.time_to_end(left);
            // A hold for the application to end in at least, and as long again to repeat the handover or the release.
            let (not_before, handed_over_by) =
                (now + ROUND_TRIPS_MIN * timing.round_trip, now + patience + 2 * timing.hold);
            self.pair.protocol.be_patient(patience);
            self.leaving = Some(Leaving { not_before, by: handed_over_by + self.body.relay.linger() });
            self.body.tenant.retire(now, handed_over_by)?;
            self.step_forewarned(Event::Ordered(Order::Leave))?;
        }
        Ok(())
    }

    /// When to look again whether it may end, if only for the time.
    pub(super) fn stays_until(&self, now: BootTime) -> Option<BootTime> {
        self.leaving.map(|leaving| leaving.not_before).filter(|time| now < *time)
    }

    /// Whether it was asked to end and owes nobody anything any more.
    pub(super) fn is_over(&self) -> bool {
        let Some(Leaving { not_before, by }) = self.leaving else { return false };
        let is_settled = self.is_idle() && self.owes_no_write() && !self.body.tenant.has_hook();
        let may_be_shown = self.pair.slice.borrow().is_some() && !self.body.relay.linger().is_zero();
        let relays_until = self.aftermath.relays_until(self.pair.protocol.agent(), may_be_shown);
        let over_at = if is_settled { relays_until.max(not_before).min(by) } else { by };
        self.body.tenant.is_gone() && over_at <= self.now()
    }

    fn owes_no_write(&self) -> bool {
        let protocol = &self.pair.protocol;
        // No write of a Lease that is gone is ever applied.
        self.is_gone || protocol.agent().unresolved.is_none() && !protocol.is_to_clear()
    }

    /// Whether it may forget this Lease, as a restart would: nobody counts on a promise of it, and it cannot come to
    /// act by a write that is still under way.
    pub(super) fn is_dismissed(&self) -> bool {
        let agent = self.pair.protocol.agent();
        let is_unnamed = agent.seen.is_some_and(|seen| !seen.lease.names(agent.id));
        // No write of a Lease that is gone is ever applied.
        let is_out = self.is_gone || is_unnamed && agent.unresolved.is_none();
        let is_needed = !self.is_idle() || self.now() < agent.promise_end;
        // Who leaves ends, and looks for no other Lease.
        self.pair.is_of_group && is_out && !is_needed && self.leaving.is_none()
    }

    /// Whether nothing of the application is left; asks one that runs as standby to end.
    pub(super) fn is_empty(&mut self) -> io::Result<bool> {
        let now = self.now();
        self.body.tenant.retire(now, now + self.body.timing.hold)?;
        Ok(self.body.tenant.is_gone())
    }

    /// Takes back what was done because nobody seemed to need it: the Lease may name it again before it has left.
    pub(super) fn stay(&mut self) {
        if self.leaving.is_none() && self.body.tenant.is_retired() {
            self.body.tenant.enlist();
            self.stand_by();
        }
    }

    /// What it means that time has passed, and nothing else happened.
    pub(super) fn as_time_passes(&mut self) -> Event {
        let Agent { role, epoch, .. } = *self.pair.protocol.agent();
        let is_told = self.gave_up == Some(epoch);
        if !role.is_acting() || is_told || !self.body.tenant.is_stuck(self.now()) {
            return Event::Timer;
        }
        self.gave_up = Some(epoch);
        error!("The application was killed and does not end: lets the tenure end");
        Event::Ordered(Order::GiveUp)
    }

    /// Whether it neither acts nor may still hand over.
    pub(super) fn is_idle(&self) -> bool {
        match self.pair.protocol.agent().role {
            Role::Standby | Role::Lapsed => true,
            Role::HandedOver | Role::Active | Role::Stopping | Role::Ended => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use bps_api::keys;
    use bps_protocol::Timing;

    use super::*;
    use crate::relay::LINGER;

    #[test]
    fn what_manifests_leave_for_a_handover_is_what_it_takes() {
        let (told, taken) = (keys::LEAVING_SECONDS, afterwards(Timing::default().hold, LINGER));
        assert!(taken <= Duration::from_secs(told) && Duration::from_secs(told - 1) < taken, "{taken:?}");
    }

    #[test]
    fn a_standby_gets_a_third_of_the_time_but_nothing_of_what_the_end_takes() {
        let wait = |end_within, afterwards| {
            copy_wait(Duration::from_secs(end_within), Duration::from_secs(afterwards)).as_secs()
        };
        assert_eq!(wait(30, 6), 10);
        assert_eq!(wait(8, 6), 2);
        assert_eq!(wait(35, 62), 0, "a hold of 30 s");
        assert_eq!(wait(0, 6), 0);
    }
}
