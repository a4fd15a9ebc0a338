//! What the loop does about orders in the Lease.

use std::io;

use bps_protocol::{Event, Order, Role};
use tracing::warn;

use super::Turn;
use super::lease_view::{LeaseOrders, OrderNews};
use crate::world::Machine;

impl<On: Machine> Turn<'_, On> {
    /// Takes over what a version of the Lease asks, unless a later one was read. An agent that leaves stays
    /// fenced.
    pub(super) fn obey(&mut self, asked: LeaseOrders) -> io::Result<()> {
        if self.withdrawal.is_leaving() {
            return Ok(());
        }
        let Some(news) = self.lease.news(&asked) else { return Ok(()) };
        let OrderNews { unreadable, peer_fenced, handover } = news;
        for annotation in unreadable {
            warn!(annotation, "Ignored an order that cannot be read");
        }

        // First: an agent that is fenced with its peer must not hand over to it.
        if let Some(is_peer_fenced) = peer_fenced {
            self.step(Event::Ordered(Order::PeerFenced(is_peer_fenced)))?;
        }
        self.warn_of_overlap(handover);
        self.lease.heed(asked);

        self.fence().map_or(Ok(()), |order| self.step_forewarned(Event::Ordered(order)))
    }

    /// The order that the protocol needs before its next step, because the Lease asks for it or another seat of this
    /// Pod is inside; `None`: it has it already.
    pub(super) fn fence(&mut self) -> Option<Order> {
        let is_wanted = self.lease.is_fenced();
        self.body.passage.order(is_wanted)
    }

    pub(super) fn switch_over(&mut self) -> io::Result<()> {
        let agent = self.pair.protocol.agent();
        let is_wanted = agent.role == Role::Active && self.lease.asks_to_switch_over(agent.epoch);
        if is_wanted && self.may_switch_over() {
            return self.step_forewarned(Event::Ordered(Order::SwitchOver));
        }
        Ok(())
    }
}
