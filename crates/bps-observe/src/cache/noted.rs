//! What the operator has noted of Pods by its own clock: those of the nodes may be minutes ahead or behind.
//!
//! A note ends with its Pod, so that there are never more than the cache has Pods, but for tickets that were answered
//! after that.

use std::collections::BTreeMap;

use bps_core::model::Uid;
use jiff::{SignedDuration, Timestamp};

use super::Cache;
use crate::pod;
use crate::slim::SlimPod;

/// How long tickets to a gate are remembered after the time for the next one has come.
///
/// 300 s: a look at a set sends it, and refused writes put off a look by 60 s at most. A Pod that got none for longer,
/// as in a paused set, is given its whole time once more. The answer to a ticket may also come after the Pod is gone.
const TICKETS_KEPT: SignedDuration = SignedDuration::from_secs(300);

/// Tickets that were tried on one gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tickets {
    /// When the first one had its answer, or got none in time.
    pub(crate) first: Timestamp,
    /// Not before then another one is sent.
    pub(crate) next: Timestamp,
}

/// Notes about the Pods of the cache.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Noted {
    /// Since when each Pod that is not ready any more is known to be so.
    unready: BTreeMap<Uid, Timestamp>,
    /// Tickets to each Pod that does not run yet.
    tickets: BTreeMap<Uid, Tickets>,
}

impl Noted {
    /// Since when the Pod is known to be unready.
    pub(crate) fn unready_since(&self, pod: &Uid) -> Option<Timestamp> {
        self.unready.get(pod).copied()
    }

    /// Tickets that were tried on the Pod's gate.
    pub(crate) fn tickets_to(&self, pod: &Uid) -> Option<Tickets> {
        self.tickets.get(pod).copied()
    }

    /// A ticket was tried on a gate; the next one waits until then.
    pub(crate) fn tried_ticket(&mut self, pod: Uid, next: Timestamp, now: Timestamp) {
        self.tickets.retain(|_, tickets| now.duration_since(tickets.next) < TICKETS_KEPT);
        let first = self.tickets.get(&pod).map_or(now, |tickets| tickets.first);
        self.tickets.insert(pod, Tickets { first, next });
    }

    /// A version of a Pod came into the cache, in the place of an older one if there was one.
    pub(super) fn see(&mut self, new: &SlimPod, old: Option<&SlimPod>, now: Timestamp) {
        let former = old.filter(|old| old.metadata.uid == new.metadata.uid);
        if let (Some(predecessor), None) = (old, former) {
            self.forget(predecessor);
        }
        let uid = pod::uid(new);
        if pod::is_running(new) {
            self.tickets.remove(&uid);
        }
        let Some(recorded) = pod::unready_since(new) else {
            self.unready.remove(&uid);
            return;
        };
        let since = match former {
            // We did not see it stop being ready, so that its record is all there is; but it cannot be to come.
            None => recorded.min(now),
            Some(former) if pod::is_still_unready(former, new) => return,
            Some(_) => now,
        };
        self.unready.insert(uid, since);
    }

    /// A Pod is gone.
    pub(super) fn forget(&mut self, pod: &SlimPod) {
        let uid = pod::uid(pod);
        self.unready.remove(&uid);
        self.tickets.remove(&uid);
    }
}

impl Cache {
    /// A ticket was tried on a gate: further ones are held back until then.
    pub fn hold_tickets(&mut self, pod: Uid, until: Timestamp, now: Timestamp) {
        self.noted.tried_ticket(pod, until, now);
    }
}
