//! R4 Delegation: an active whose application has ended hands over to its peer, with no write of the Lease.

use crate::agent::{Agent, Peer, Purpose, Role, Tenure};
use crate::{AgentId, BootTime, Handover, Moment};

impl Agent {
    /// R4: hands over, or repeats the handover with the newest ping of the same incarnation.
    ///
    /// Only while its own hold lasts, which proves that nobody else took over, and while it is sure who its peer is.
    /// Sending is a promise to the peer.
    pub fn r4_hand_over(&mut self, at: &Moment<'_>) -> Option<(AgentId, Handover)> {
        let epoch = match self.role {
            Role::Ended => self.epoch.delegation()?,
            Role::HandedOver => self.epoch,
            Role::Standby | Role::Lapsed | Role::Active | Role::Stopping => return None,
        };
        let is_permitted = self.is_held(at) && !self.is_writing(Purpose::Admit);
        let is_entering_peer_mode = self.is_entering_peer_mode();
        let tenure = self.tenure.as_mut().filter(|_| is_permitted)?;
        let echo = tenure.peer.ping.filter(|ping| Some(ping.incarnation) == tenure.peer.witness)?;
        if is_entering_peer_mode {
            tenure.api_hold_end = BootTime::default();
        }
        let handover = Handover { epoch, echo, grace_left: tenure.grace_end.since(at.now) };
        let peer = tenure.peer.id;
        self.role = Role::HandedOver;
        self.epoch = epoch;
        self.unresolved = None;
        self.promise_end = at.now + at.timing.watch;
        Some((peer, handover))
    }

    /// R4: accepts a handover that answers a ping of its own, and acts at once.
    ///
    /// The hold counts from the send of that ping, and the grace is what the sender had left: a chain of delegations
    /// without a write of the Lease must not outlive G.
    pub fn r4_accept(&mut self, at: &Moment<'_>, from: AgentId, handover: Handover) {
        let Handover { epoch, echo, grace_left } = handover;
        let is_answer = echo.incarnation == self.incarnation && echo.sent <= at.now;
        let is_news = self.epoch < epoch && !self.is_writing(Purpose::Claim);
        if !self.role.is_standby() || !is_answer || !is_news {
            return;
        }
        let tenure = Tenure {
            api_hold_end: BootTime::default(),
            grace_end: echo.sent + grace_left,
            peer: Peer { hold_end: echo.sent + at.timing.hold, ..Peer::new(from) },
            joining: None,
        };
        let before = *self;
        self.end_tenure(at, Role::Standby);
        self.begin_tenure(epoch, tenure);
        if !self.is_held_long_enough(at) {
            *self = before;
        }
    }
}
