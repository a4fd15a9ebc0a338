//! R6 Replacing a member: the active admits whom the operator wants, or the operator does it when nobody acts.

use crate::agent::{Agent, Peer, Purpose, Role};
use crate::{AgentId, BootTime, Hold, Lease, Moment, Timing, Write};

/// What the operator knows of those who may act by a Lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndEvidence {
    /// When it first read the Lease as the actives last wrote it, but not before its own request was answered.
    pub unwritten_since: BootTime,
    /// Every member has ended, and none ever comes back: told by whoever ended their containers, or by whoever answers for it that
    /// their machines are off, or presumed of a kubelet that had time for it (rule 7 of the implementation).
    pub have_ended: bool,
}

impl Agent {
    /// R6: makes the joining agent a member in the place of the peer.
    ///
    /// From the send on a peer hold needs the promises of both, and without a hold it is not sent. A place that becomes
    /// vacant counts as if its member had promised for the lone hold.
    pub fn r6_admit(&mut self, at: &Moment<'_>) -> Option<Write> {
        let seen = self.own_base().filter(|_| self.role == Role::Active)?;
        let replacement = seen.lease.pending?;
        let before = *self;
        let tenure = self.tenure.as_mut().filter(|tenure| tenure.peer.id == replacement.leaving)?;
        if replacement.joining == AgentId::NOBODY {
            // It cannot take over, and the operator waits for as long before it replaces who acts alone.
            let hold_end = at.now + at.timing.lone_hold;
            tenure.joining = Some(Peer { hold_end, ..Peer::new(AgentId::NOBODY) });
        } else if tenure.joining.is_none_or(|peer| peer.id != replacement.joining) {
            tenure.joining = Some(Peer::new(replacement.joining));
        }
        if tenure.peer.id == AgentId::NOBODY {
            // From now on there may be somebody who takes over, Ta after reading this.
            tenure.api_hold_end = tenure.api_hold_end.min(at.now + at.timing.api_hold);
        }
        let lease = seen.lease.held_by(self.id, self.epoch, Hold::Api).with_replaced(replacement);
        let write = self.begin_write(at, Purpose::Admit, (seen, lease));
        if !self.is_held_long_enough(at) {
            *self = before;
            return None;
        }
        Some(write)
    }
}

/// R6: the Lease as the operator may write it to replace a member itself; `None`: not yet, or nothing is asked.
///
/// Nobody acts then, so the write releases the Lease and the new pair starts at once. It must be refused unless the Lease still has the
/// version that the evidence is about: whoever was admitted since is no part of it.
pub fn forced_replacement(at: &Moment<'_>, lease: &Lease, evidence: EndEvidence) -> Option<Lease> {
    let replacement = lease.pending?;
    nobody_acts(at, lease, evidence).then(|| lease.released(lease.epoch).with_replaced(replacement))
}

/// R6: whether nobody acts, and nobody can before a member takes over through the Lease.
pub fn nobody_acts(at: &Moment<'_>, lease: &Lease, evidence: EndEvidence) -> bool {
    lease.holder.is_none() || evidence.have_ended || nobody_acts_after(at.timing, lease, evidence) <= at.now
}

/// R6: when nobody acts any more, if nobody writes the Lease.
pub fn nobody_acts_after(timing: &Timing, lease: &Lease, evidence: EndEvidence) -> BootTime {
    evidence.unwritten_since + if lease.is_lone() { timing.lone_wait } else { timing.operator_wait }
}
