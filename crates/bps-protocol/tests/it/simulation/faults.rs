//! How each fault of the simulated world begins and ends.

use bps_protocol::{AgentId, Event, Lease, Order, Replacement};

use super::{Fault, Happening, Simulation};

impl Simulation {
    fn kill(&mut self, node: usize) {
        self.nodes[node].protocol = None;
        self.nodes[node].timer += 1;
    }

    pub(super) fn fail(&mut self, fault: Fault) {
        match fault {
            Fault::ApplicationCrashes(node) => {
                let epoch = self.nodes[node].acting;
                if let Some(epoch) = epoch {
                    self.end_application(node, epoch);
                }
            }
            Fault::ContainerDies(node) => {
                self.kill(node);
                self.fail(Fault::ApplicationCrashes(node));
            }
            Fault::NodeDies { node, .. } => {
                self.kill(node);
                if self.nodes[node].acting.take().is_some() {
                    self.ended.push((self.now, node));
                }
            }
            Fault::Partition(..) | Fault::ApiUnreachable(_) | Fault::Storm => self.broken.push(fault),
            Fault::Order(node, order) => self.give(node, self.nodes[node].incarnation, Event::Ordered(order)),
            Fault::Annotate => self.put(self.lease),
            Fault::Vacate(node) => {
                let leaving = self.nodes[node].id;
                let may_leave = self.lease.members.contains(&leaving) && !self.lease.is_lone();
                if may_leave && self.lease.pending.is_none() {
                    self.unwritten_since = self.now;
                    let pending = Some(Replacement { leaving, joining: AgentId::NOBODY });
                    self.put(Lease { pending, ..self.lease });
                }
            }
            Fault::Replace(node) => {
                let leaving = self.nodes[node].id;
                if self.nodes[2].incarnation == 0 && self.lease.members.contains(&leaving) {
                    self.schedule(self.now, Happening::Starts { node: 2 });
                    self.unwritten_since = self.now;
                    let pending = Some(Replacement { leaving, joining: self.nodes[2].id });
                    self.put(Lease { pending, ..self.lease });
                }
            }
        }
    }

    pub(super) fn mend(&mut self, fault: Fault) {
        match fault {
            Fault::Partition(..) | Fault::ApiUnreachable(_) | Fault::Storm => {
                if let Some(place) = self.broken.iter().position(|broken| *broken == fault) {
                    self.broken.swap_remove(place);
                }
            }
            Fault::ContainerDies(node) | Fault::NodeDies { node, is_for_ever: false } => {
                if self.nodes[node].protocol.is_none() {
                    self.start(node);
                }
            }
            Fault::Order(node, Order::Fence) => {
                let unfence = Event::Ordered(Order::Unfence);
                self.give(node, self.nodes[node].incarnation, unfence);
            }
            Fault::NodeDies { .. }
            | Fault::ApplicationCrashes(_)
            | Fault::Order(..)
            | Fault::Annotate
            | Fault::Replace(_)
            | Fault::Vacate(_) => {}
        }
    }
}
