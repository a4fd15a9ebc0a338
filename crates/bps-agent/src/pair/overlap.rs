//! Makes before it breaks, where the group wants that: in a planned handover the old application goes on until the new one
//! serves.
//!
//! After every handover the new active shows its address when its application listens: until then the old Pod serves its
//! clients, by the old application or by its agent, which relays to the new one.
//!
//! The rules of the protocol are what they were. To them the application ends at the moment of the order, and the peer
//! acts as after any handover: that two act meanwhile is what the group asked for. Failures take another way, in which
//! the application has certainly ended first.

use std::io;

use bps_api::HandoverOrder;
use bps_protocol::{BootTime, Effect, Event, Moment};
use tracing::{info, warn};

use super::Turn;
use super::succession::{HasCome, hands_over_as_planned};
use crate::relay::LINGER;
use crate::relay::aim::Aim;
use crate::world::Machine;

impl<On: Machine> Turn<'_, On> {
    /// Whether the group wants it, and nothing that both applications would need is only for one of them.
    pub(super) fn may_overlap(&self) -> bool {
        let order = self.body.handover.unwrap_or(self.lease.handover());
        order == HandoverOrder::MakeBeforeBreak && self.has_room_for_two()
    }

    fn has_room_for_two(&self) -> bool {
        self.pair.replica.is_none() && !self.body.tenant.runs_in_standby()
    }

    /// Logs that the agent ignores a new order of the Lease.
    pub(super) fn warn_of_overlap(&self, news: Option<HandoverOrder>) {
        if news == Some(HandoverOrder::MakeBeforeBreak) && !self.has_room_for_two() {
            warn!(
                "Ignored handover MakeBeforeBreak: the state of the application is replicated, or it runs in both roles"
            );
        }
    }

    /// Whether the application goes on after the handover that this event leads to.
    pub(super) fn is_outlasted(&self, now: BootTime, event: Event) -> bool {
        self.may_overlap()
            && self.body.tenant.is_promoted()
            && hands_over_as_planned(&self.pair.protocol, now, event)
    }

    /// The protocol is told at once that the application has ended; what it wants then follows what it wanted before.
    pub(super) fn let_linger(&mut self, now: BootTime, effects: &mut Vec<Effect>) {
        info!("Let the application go on until its successor serves");
        self.keep_ports();
        self.body.tenant.linger(now);
        effects.retain(|effect| !matches!(effect, Effect::Stop { .. } | Effect::Kill));
        effects.extend(self.pair.protocol.step(now, Event::ApplicationEnded));
    }

    /// Looks whether the successor serves, as soon as it says that it acts.
    pub(super) fn watch_successor(&mut self) {
        if !self.succession.seeks_successor(self.body.tenant.is_lingering()) {
            return;
        }
        let at = Moment { now: self.now(), timing: &self.body.timing };
        let Aim { active, .. } =
            self.succession.aim(self.pair.protocol.agent(), self.body.peers.directory(), &at);
        if let Some(serves) = active.map(|active| self.body.relay.served(active)) {
            self.succession.await_successor(serves);
        }
    }

    /// Reacts to an event of a handover.
    pub(super) fn arrived(&mut self, come: HasCome) -> io::Result<()> {
        match come {
            HasCome::Successor => self.relieve(),
            HasCome::Debut => {
                self.show();
                Ok(())
            }
        }
    }

    /// The successor serves. The rules of the nodes lead clients here for a while yet.
    fn relieve(&mut self) -> io::Result<()> {
        info!("The successor serves");
        self.body.tenant.relieve(self.now() + LINGER);
        self.step(Event::Timer)
    }

    /// Has clients led here, or not any more.
    pub(super) fn show(&mut self) {
        let (role, wanted) = (self.pair.protocol.agent().role, self.pair.protocol.showing());
        let showing = self.succession.shown(role, wanted);
        self.pair.showing.send_if_modified(|shown| std::mem::replace(shown, showing) != showing);
    }
}
