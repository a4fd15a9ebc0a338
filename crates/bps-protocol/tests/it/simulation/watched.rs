//! Every step of an agent, for whoever judges it.

use bps_protocol::{Agent, BootTime, Effect, Event, Order, Version};

use super::Simulation;
use crate::trail::Taken;

impl Simulation {
    /// What an agent makes of an event; nothing if there is none.
    pub(super) fn step(&mut self, node: usize, event: Event) -> Vec<Effect> {
        let now = self.local(node, self.now);
        let whole = &mut self.nodes[node];
        let Some(protocol) = &mut whole.protocol else { return Vec::new() };
        if let Event::Ordered(order @ (Order::Fence | Order::Leave | Order::Unfence)) = event {
            whole.is_fenced = order != Order::Unfence;
        }
        let before = *protocol.agent();
        let effects = protocol.step(now, event);
        let after = *protocol.agent();
        self.watch(node, (before, after), (event, &effects));
        effects
    }

    fn watch(&mut self, node: usize, (before, after): (Agent, Agent), (event, effects): (Event, &[Effect])) {
        let (clocks, lease) = (self.clocks(), (self.lease, Version(self.version)));
        let is_fenced = self.nodes[node].is_fenced;
        if let Some(trail) = &mut self.trail {
            trail.follow(&Taken { before, event, effects, after, is_fenced, clocks, lease });
        }
    }

    pub(super) fn watch_restart(&mut self, node: usize) {
        let (clocks, lease) = (self.clocks(), (self.lease, Version(self.version)));
        let agent = self.nodes[node].protocol.as_ref().map(|protocol| *protocol.agent());
        if let (Some(trail), Some(after)) = (&mut self.trail, agent) {
            let event = Event::Timer;
            let taken = Taken { before: after, event, effects: &[], after, is_fenced: false, clocks, lease };
            trail.restarted(&taken);
        }
    }

    /// Now, on each clock.
    fn clocks(&self) -> [BootTime; 3] {
        std::array::from_fn(|node| self.local(node, self.now))
    }
}
