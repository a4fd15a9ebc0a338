//! Who serves at the ports of the application: it, or the relay to the Pod that acts.

use bps_protocol::{BootTime, Moment, Role};

use super::withdrawal::is_idle;
use super::{Body, Turn};
use crate::world::Machine;

impl<On: Machine> Turn<'_, On> {
    /// Relays as long as it does not act. Also while the application is being stopped: it may have left its ports.
    pub(super) fn relay(&mut self, now: BootTime) {
        let Body { relay, peers, tenant, timing, .. } = &*self.body;
        let agent = self.pair.protocol.agent();
        let aim = || self.succession.aim(agent, peers.directory(), &Moment { now, timing });
        match agent.role {
            Role::Active => relay.close(),
            Role::Stopping => relay.open(aim()),
            // Its ports are still the application's, and the relay is closed as it was before the handover.
            Role::Standby | Role::Lapsed | Role::HandedOver if tenant.is_lingering() => {}
            // As in a tenure that is stopped: what was kept is not the relay's before nothing of the application is left.
            Role::Standby | Role::Lapsed | Role::HandedOver if tenant.lingers_until().is_some() => {
                relay.open(aim());
            }
            Role::Standby | Role::Lapsed | Role::HandedOver | Role::Ended => {
                relay.inherit();
                relay.open(aim());
            }
        }
        if !is_idle(agent.role) {
            self.aftermath.acted((agent.role, agent.epoch), now + self.body.relay.linger());
        }
    }

    /// Keeps the ports of an application that is about to end, so that nobody who connects meanwhile is refused.
    pub(super) fn keep_ports(&self) {
        let Body { relay, tenant, .. } = &*self.body;
        if let Some(at) = relay.settings() {
            relay.keep(tenant.listening(&at));
        }
    }
}
