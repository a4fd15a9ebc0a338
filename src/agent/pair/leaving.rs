//! When an agent of a pair may leave: its process, or only its Lease.

use std::io;

use super::Turn;
use crate::agent::world::Machine;
use crate::ha::Role;

impl<On: Machine> Turn<'_, On> {
    /// Whether it was asked to end and owes nobody anything any more.
    pub(super) fn is_over(&self) -> bool {
        let Some(leave_by) = self.leave_by else { return false };
        let is_settled =
            self.is_idle() && self.pair.protocol.agent().unresolved.is_none() && !self.body.tenant.has_hook();
        let over_at = if is_settled { self.relay_until.min(leave_by) } else { leave_by };
        self.body.tenant.is_gone() && over_at <= self.now()
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
        self.pair.is_of_group && is_out && !is_needed && self.leave_by.is_none()
    }

    /// Whether nothing of the application is left; asks one that runs as standby to end.
    pub(super) fn is_empty(&mut self) -> io::Result<bool> {
        let now = self.now();
        self.body.tenant.retire(now, now + self.body.timing.hold)?;
        Ok(self.body.tenant.is_gone())
    }

    /// Whether it neither acts nor may still hand over.
    pub(super) fn is_idle(&self) -> bool {
        match self.pair.protocol.agent().role {
            Role::Standby | Role::Lapsed => true,
            Role::HandedOver | Role::Active | Role::Stopping | Role::Ended => false,
        }
    }
}
