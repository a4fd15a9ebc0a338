//! R2 Renew and promise: how an active extends its hold, by writes of the Lease and by promises of its peer.

use crate::agent::{Agent, Peer, Purpose, Role, Seen, Unresolved};
use crate::{AgentId, Hold, Lease, Moment, Promise, PromiseRequest, Write};

impl Agent {
    /// Begins a write; none other may be under way.
    pub(super) fn begin_write(
        &mut self,
        at: &Moment<'_>,
        purpose: Purpose,
        (seen, lease): (Seen, Lease),
    ) -> Write {
        self.last_write += 1;
        let write = Write { number: self.last_write, base: seen.version, lease };
        self.unresolved = Some(Unresolved { write, purpose, sent: at.now });
        write
    }

    /// The Lease to base a write of this tenure on: nothing is under way, and nobody took over.
    pub(super) fn own_base(&self) -> Option<Seen> {
        self.seen.filter(|seen| self.unresolved.is_none() && seen.lease.epoch <= self.epoch)
    }

    /// R2: whoever acts writes the Lease to live on, or to switch what it lives on; also while its application is being stopped.
    ///
    /// Into Peer mode only if the promises suffice from the send on.
    pub fn r2_renew(&mut self, at: &Moment<'_>, hold: Hold) -> Option<Write> {
        let seen = self.own_base().filter(|_| self.role.is_acting() && self.is_held(at))?;
        let lease = seen.lease.held_by(self.id, self.epoch, hold);
        let before = *self;
        let write = self.begin_write(at, Purpose::Renew, (seen, lease));
        if hold == Hold::Peer && !self.is_held_long_enough(at) {
            *self = before;
            return None;
        }
        Some(write)
    }

    /// The agents that may promise: the peer, and the agent that is to replace it. A vacant place has none.
    pub fn r2_promisers(&self) -> impl Iterator<Item = AgentId> {
        let tenure = self.tenure.filter(|_| self.role.is_acting());
        let admitted = tenure.and_then(|tenure| tenure.joining).filter(|_| self.is_writing(Purpose::Admit));
        let joining = admitted.map(|peer| peer.id).or_else(|| self.joining());
        let named = tenure.map(|tenure| tenure.peer.id).into_iter().chain(joining);
        named.filter(|id| *id != AgentId::NOBODY)
    }

    /// Who is to replace the peer, as far as the Lease says.
    fn joining(&self) -> Option<AgentId> {
        let (tenure, seen) = (self.tenure?, self.seen?);
        let replacement = seen.lease.pending.filter(|replacement| replacement.leaving == tenure.peer.id)?;
        Some(replacement.joining)
    }

    /// R2: whoever acts asks for promises that carry its epoch.
    pub fn r2_request(&self, at: &Moment<'_>) -> Option<PromiseRequest> {
        (self.role.is_acting() && self.is_held(at))
            .then_some(PromiseRequest { epoch: self.epoch, sent: at.now })
    }

    /// R2: a standby grants unless it knows a higher epoch or that this one's application has ended.
    ///
    /// It will not take over for T from now on. It refuses while a claim of its own is unresolved.
    pub fn r2_grant(&mut self, at: &Moment<'_>, request: PromiseRequest) -> Option<Promise> {
        let is_over = request.epoch < self.epoch || (request.epoch == self.epoch && self.is_certified);
        if !self.role.is_standby() || self.is_writing(Purpose::Claim) || is_over {
            return None;
        }
        self.end_tenure(at, Role::Standby);
        self.learn(at, request.epoch);
        self.promise_end = at.now + at.timing.watch;
        Some(Promise { request })
    }

    /// R2: a promise gives a hold from the send of its request, unless the hold has lapsed meanwhile.
    pub fn r2_promised(&mut self, at: &Moment<'_>, from: AgentId, promise: Promise) {
        let PromiseRequest { epoch, sent } = promise.request;
        let joining = self.joining();
        if epoch != self.epoch || sent > at.now || !self.is_held(at) || self.role == Role::HandedOver {
            return;
        }
        let Some(tenure) = &mut self.tenure else { return };
        if joining == Some(from) && tenure.joining.is_none_or(|peer| peer.id != from) {
            tenure.joining = Some(Peer::new(from));
        }
        for peer in [Some(&mut tenure.peer), tenure.joining.as_mut()].into_iter().flatten() {
            if peer.id == from {
                peer.hold_end = peer.hold_end.max(sent + at.timing.hold);
            }
        }
    }
}
