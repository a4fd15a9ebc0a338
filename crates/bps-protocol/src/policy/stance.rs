//! Whether an agent is ready to act, fenced, or about to end; and what it does about its last tenure before that.

use super::Protocol;
use crate::{Agent, Lease, Moment, Role};

/// Whether the agent may act.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stance {
    Ready,
    Fenced,
    Leaving,
}

impl Protocol {
    /// Follows an order. Who leaves goes on to.
    pub(super) fn fence(&mut self, at: &Moment<'_>, stance: Stance) {
        if self.stance != Stance::Leaving {
            self.stance = stance;
            // A standby says so at once: its last ping would have the peer hand over to it for a while.
            self.next_ping = at.now;
        }
    }

    /// Whether it shall not act.
    pub(super) fn is_fenced(&self) -> bool {
        self.stance != Stance::Ready
    }

    /// Whether the agent leaves and its last tenure lapsed before it could be released. The Lease names that tenure, or the one
    /// that was delegated to it, and nobody acts by them. So it is claimed for the release that follows: else the operator
    /// would wait for W.
    pub fn is_to_clear(&self) -> bool {
        let Agent { role, epoch, seen, .. } = self.agent;
        let is_own = |Lease { holder, epoch: written, .. }: Lease| {
            holder.is_some() && written.term == epoch.term && written <= epoch
        };
        let is_left_over = role == Role::Lapsed && seen.is_some_and(|seen| is_own(seen.lease));
        self.stance == Stance::Leaving && is_left_over && !self.copies.is_withheld
    }
}
