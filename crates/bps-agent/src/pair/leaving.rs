//! Lets an agent of a pair leave its process, its Lease, or its tenure. `withdrawal` and `lease_view` decide
//! when it may.

use std::io;

use bps_protocol::{Event, Moment, Order, Role};
use tracing::{error, info, warn};

use super::withdrawal::{Dues, LeaveTimes, is_idle};
use super::{Body, End, Turn};
use crate::replicate::Replica;
use crate::world::Machine;

impl<On: Machine> Turn<'_, On> {
    /// It was asked to end: leaves, but not before a standby that lives has its state, if there is time for that. Its Pod's
    /// volume may go with it. Being asked again changes nothing.
    pub(super) fn ask_to_leave(&mut self) -> io::Result<()> {
        let at = Moment { now: self.now(), timing: &self.body.timing };
        let Some(copy_wait) = self.withdrawal.ask(&at, self.body.end_within) else { return Ok(()) };
        if self.is_only_copy() && self.pair.protocol.has_successor(self.now()) {
            info!(?copy_wait, "Acts on until the standby has the state");
        }
        self.leave_once_copied()
    }

    /// Leaves if it was asked to, and nothing is to be waited for any more.
    pub(super) fn leave_once_copied(&mut self) -> io::Result<()> {
        if !self.withdrawal.is_asked() {
            return Ok(());
        }
        if self.is_only_copy() && self.withdrawal.may_wait_for_copy(self.now()) {
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
        let lacks = |replica: &Replica| !replica.is_copied(self.lease.level(), peer);
        agent.role == Role::Active && self.pair.replica.as_ref().is_some_and(lacks)
    }

    /// Stops acting for good, by a handover if there is a peer. Leaving again changes nothing.
    pub(super) fn leave(&mut self) -> io::Result<()> {
        let at = Moment { now: self.now(), timing: &self.body.timing };
        let Some(LeaveTimes { patience, handed_over_by }) = self.withdrawal.begin(&at) else { return Ok(()) };
        let now = at.now;
        self.pair.protocol.be_patient(patience);
        self.body.tenant.retire(now, handed_over_by)?;
        self.step_forewarned(Event::Ordered(Order::Leave))
    }

    /// Whether the agent leaves, and no other agent, client or write needs it any more.
    pub(super) fn is_over(&self) -> bool {
        if !self.withdrawal.is_leaving() {
            return false;
        }
        let (tenant, protocol) = (&self.body.tenant, &self.pair.protocol);
        let agent = protocol.agent();
        let is_settled = is_idle(agent.role) && self.lease.is_write_settled(agent, protocol.is_to_clear());
        let may_be_shown = self.pair.slice.borrow().is_some() && !self.body.relay.linger().is_zero();
        let dues = Dues {
            has_application: !tenant.is_gone(),
            is_busy: !is_settled || tenant.has_hook(),
            relays_until: self.aftermath.relays_until(agent, may_be_shown),
        };
        self.withdrawal.is_over(self.now(), dues)
    }

    /// Whether the agent may forget this Lease and search for another one. An agent that leaves ends instead.
    pub(super) fn is_dismissed(&self) -> bool {
        let agent = self.pair.protocol.agent();
        let may_look = self.pair.is_of_group && !self.withdrawal.is_leaving();
        let copy = self.pair.replica.as_ref().and_then(Replica::kept);
        may_look && self.lease.is_done_with(agent, self.now(), copy)
    }

    /// Whether nothing of the application is left; asks one that runs as standby to end. Another seat may act next, and
    /// no hook of this one must run beside it.
    pub(super) fn is_empty(&mut self) -> io::Result<bool> {
        let now = self.now();
        let Body { tenant, timing, passage, .. } = &mut *self.body;
        tenant.retire(now, now + timing.hold)?;
        Ok(tenant.is_gone() && !(passage.is_inside() && tenant.has_hook()))
    }

    /// How the loop of an agent that is dismissed ends.
    pub(super) fn dismissal(&self) -> End {
        let copy = self.pair.replica.as_ref().and_then(Replica::kept);
        if copy.is_some_and(|copy| self.lease.may_name(copy)) { End::Bereft } else { End::Dismissed }
    }

    /// Takes back what was done because nobody seemed to need it: the Lease may name it again before it has left.
    pub(super) fn stay(&mut self) {
        if !self.withdrawal.is_leaving() && self.body.tenant.is_retired() {
            self.body.tenant.enlist();
            self.stand_by();
        }
    }

    /// What it means that time has passed, and nothing else happened.
    pub(super) fn as_time_passes(&mut self) -> Event {
        let is_stuck = self.body.tenant.is_stuck(self.now());
        if !self.withdrawal.gives_up(self.pair.protocol.agent(), is_stuck) {
            return Event::Timer;
        }
        error!("The application was killed and does not end: lets the tenure end");
        Event::Ordered(Order::GiveUp)
    }
}
