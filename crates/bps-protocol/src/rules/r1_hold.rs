//! R1 Hold: until when an active may act, and when it begins to stop.

use crate::agent::{Agent, Purpose, Role};
use crate::{BootTime, Hold, Moment};

impl Agent {
    /// Until when it may act; in the past if it has no tenure.
    ///
    /// The API hold stands alone, but not from the send of a switch to Peer mode on. Promises count within the grace,
    /// and only if everyone who may be the other member has promised: two agents while an admission is unresolved.
    pub fn hold_end(&self) -> BootTime {
        let Some(tenure) = &self.tenure else { return BootTime::default() };
        let joining = tenure.joining.filter(|_| self.is_writing(Purpose::Admit));
        let promised = joining.map_or(tenure.peer.hold_end, |peer| peer.hold_end.min(tenure.peer.hold_end));
        let written = if self.is_entering_peer_mode() { BootTime::default() } else { tenure.api_hold_end };
        written.max(promised.min(tenure.grace_end))
    }

    /// Whether its hold is valid; one that lapsed is not revived.
    pub(super) fn is_held(&self, at: &Moment<'_>) -> bool {
        at.now < self.hold_end()
    }

    /// Whether there is enough of the hold left to act: stopping in time must remain possible.
    pub(super) fn is_held_long_enough(&self, at: &Moment<'_>) -> bool {
        at.now + at.timing.stop < self.hold_end()
    }

    /// A write that gives no API hold is on its way.
    pub(super) fn is_entering_peer_mode(&self) -> bool {
        self.unresolved.is_some_and(|unresolved| unresolved.write.lease.hold == Hold::Peer)
    }

    /// R1: the application begins to stop X before the hold ends. Must be asked whenever time has passed.
    ///
    /// The supervisor sees to it that a stopping application has ended when the hold does.
    pub fn r1_enforce(&mut self, at: &Moment<'_>) {
        let is_held = self.is_held(at);
        match self.role {
            Role::Active if !self.is_held_long_enough(at) => self.role = Role::Stopping,
            Role::Ended if !is_held => self.end_tenure(at, Role::Lapsed),
            Role::HandedOver if !is_held => self.end_tenure(at, Role::Standby),
            Role::Standby | Role::Lapsed | Role::HandedOver | Role::Active | Role::Stopping | Role::Ended => {
            }
        }
    }

    /// An active may begin to stop at any time.
    pub fn r1_stop(&mut self) -> bool {
        let is_active = self.role == Role::Active;
        if is_active {
            self.role = Role::Stopping;
        }
        is_active
    }

    /// The last process of the application has ended, for whatever reason.
    ///
    /// Must be told before a ping of another incarnation of the peer that arrived later: who was there at the end may
    /// have taken over with a certificate, and only its memory keeps it from accepting a handover afterwards.
    pub fn r1_application_ended(&mut self, at: &Moment<'_>) {
        if !self.role.is_acting() {
            return;
        }
        if !self.is_held(at) {
            self.end_tenure(at, Role::Lapsed);
            return;
        }
        self.role = Role::Ended;
        if let Some(tenure) = &mut self.tenure {
            tenure.peer.witness = tenure.peer.ping.map(|ping| ping.incarnation);
        }
        self.r1_overtaken(at);
    }

    /// R1: somebody took over with a certificate; what the hold was good for is over.
    pub(super) fn r1_overtaken(&mut self, at: &Moment<'_>) {
        let Some(seen) = self.seen else { return };
        if self.role == Role::Ended && self.epoch < seen.lease.epoch {
            self.end_tenure(at, Role::Standby);
            self.learn(at, seen.lease.epoch);
        }
    }
}
