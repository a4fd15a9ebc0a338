//! What the loop does about orders in the Lease.

use std::io;

use bps_protocol::{AgentId, Event, Order, Role, Version};
use bps_wire::orders::Orders;
use tracing::warn;

use super::Turn;
use crate::world::Machine;

impl<On: Machine> Turn<'_, On> {
    /// Takes over what a version of the Lease asks, unless a later one was read. Who leaves stays fenced.
    pub(super) fn fence(
        &mut self,
        version: Version,
        (orders, members): (Orders, [AgentId; 2]),
    ) -> io::Result<()> {
        let (known, before) = &self.orders;
        if self.leaving.is_some() || version < *known {
            return Ok(());
        }
        for annotation in orders.unreadable.difference(&before.unreadable) {
            warn!(annotation, "Ignored an order that cannot be read");
        }
        let own = self.pair.protocol.agent().id;
        // First: who is fenced with its peer must not hand over to it.
        let is_peer_fenced = members.iter().any(|member| *member != own && orders.fenced.contains(member));
        if std::mem::replace(&mut self.is_peer_fenced, is_peer_fenced) != is_peer_fenced {
            self.step(Event::Ordered(Order::PeerFenced(is_peer_fenced)))?;
        }
        self.heed_order(orders.handover);
        let (_, before) = &self.orders;
        let (was_fenced, is_fenced) = (before.fenced.contains(&own), orders.fenced.contains(&own));
        self.orders = (version, orders);
        match (was_fenced, is_fenced) {
            (false, true) => self.step_forewarned(Event::Ordered(Order::Fence)),
            (true, false) => self.step(Event::Ordered(Order::Unfence)),
            (false, false) | (true, true) => Ok(()),
        }
    }

    pub(super) fn switch_over(&mut self) -> io::Result<()> {
        let agent = self.pair.protocol.agent();
        let is_wanted = agent.role == Role::Active && self.orders.1.switch_over == Some(agent.epoch);
        if is_wanted && self.may_switch_over() {
            return self.step_forewarned(Event::Ordered(Order::SwitchOver));
        }
        Ok(())
    }
}
