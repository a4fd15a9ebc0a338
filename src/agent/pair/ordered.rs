//! What the loop does about orders in the Lease.

use std::io;

use tracing::warn;

use super::Turn;
use crate::agent::orders::Orders;
use crate::agent::world::Machine;
use crate::ha::{AgentId, Event, Order, Role, Version};

/// Whether the protocol knows its peer to be fenced; `None`: it was not told yet.
#[derive(Debug, Default)]
pub(super) struct PeerFence(Option<bool>);

impl PeerFence {
    /// Whether that is news, which it is not a second time.
    fn changes_to(&mut self, is_fenced: bool) -> bool {
        self.0.replace(is_fenced) != Some(is_fenced)
    }
}

impl<On: Machine> Turn<'_, On> {
    /// Takes over what a version of the Lease asks, unless a later one was read. Who leaves stays fenced.
    pub(super) fn fence(
        &mut self,
        version: Version,
        (orders, members): (Orders, [AgentId; 2]),
    ) -> io::Result<()> {
        let (known, before) = &self.orders;
        if self.leave_by.is_some() || version < *known {
            return Ok(());
        }
        for annotation in orders.unreadable.difference(&before.unreadable) {
            warn!(annotation, "Ignored an order that cannot be read");
        }
        let own = self.pair.protocol.agent().id;
        // First: who is fenced with its peer must not hand over to it.
        let is_peer_fenced = members.iter().any(|member| *member != own && orders.fenced.contains(member));
        if self.peer_fence.changes_to(is_peer_fenced) {
            self.step(Event::Ordered(Order::PeerFenced(is_peer_fenced)))?;
        }
        self.heed_order(orders.handover);
        let (_, before) = &self.orders;
        let (was_fenced, is_fenced) = (before.fenced.contains(&own), orders.fenced.contains(&own));
        self.orders = (version, orders);
        match (was_fenced, is_fenced) {
            (false, true) => self.step(Event::Ordered(Order::Fence)),
            (true, false) => self.step(Event::Ordered(Order::Unfence)),
            (false, false) | (true, true) => Ok(()),
        }
    }

    pub(super) fn switch_over(&mut self) -> io::Result<()> {
        let agent = self.pair.protocol.agent();
        let is_wanted = agent.role == Role::Active && self.orders.1.switch_over == Some(agent.epoch);
        if is_wanted && self.may_switch_over() {
            return self.step(Event::Ordered(Order::SwitchOver));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_becomes_of_the_peer_is_told_at_first_and_whenever_it_changes() {
        let mut fence = PeerFence::default();
        let seen = [false, false, true, true, false];
        assert_eq!(seen.map(|is_fenced| fence.changes_to(is_fenced)), [true, false, true, false, true]);
    }
}
