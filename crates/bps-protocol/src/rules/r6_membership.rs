//! R6 Replacing a member: the active admits whom the operator wants, or the operator does it when nobody acts.

use crate::agent::{Agent, Peer, Purpose, Role};
use crate::{BootTime, Hold, Lease, Moment, Write};

impl Agent {
    /// R6: makes the joining agent a member in the place of the peer.
    ///
    /// From the send on a peer hold needs the promises of both, and without a hold it is not sent.
    pub fn r6_admit(&mut self, at: &Moment<'_>) -> Option<Write> {
        let seen = self.own_base().filter(|_| self.role == Role::Active)?;
        let replacement = seen.lease.pending?;
        let before = *self;
        let tenure = self.tenure.as_mut().filter(|tenure| tenure.peer.id == replacement.leaving)?;
        if tenure.joining.is_none_or(|peer| peer.id != replacement.joining) {
            tenure.joining = Some(Peer::new(replacement.joining));
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
/// `unwritten_since` is when the operator first read the Lease as the actives last wrote it, but not before its own
/// request was answered. Nobody acts then, so the write releases the Lease and the new pair starts at once.
pub fn forced_replacement(at: &Moment<'_>, lease: &Lease, unwritten_since: BootTime) -> Option<Lease> {
    let replacement = lease.pending?;
    nobody_acts(at, lease, unwritten_since).then(|| lease.released(lease.epoch).with_replaced(replacement))
}

/// R6: whether nobody acts, and nobody can before a member takes over through the Lease.
///
/// `unwritten_since` is when the asker first read the Lease as the actives last wrote it.
pub fn nobody_acts(at: &Moment<'_>, lease: &Lease, unwritten_since: BootTime) -> bool {
    lease.holder.is_none() || unwritten_since + at.timing.operator_wait <= at.now
}
