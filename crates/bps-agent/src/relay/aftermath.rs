//! How long to relay after a tenure.
//!
//! Pure. A mistake here costs connections, and never makes anybody act.

use std::time::Duration;

use bps_protocol::{Agent, AgentId, BootTime, Epoch, Message, Ping, Role, TakeoverRecord};

/// How much longer to relay if it is not known that clients are led to whoever acts now. 4 s: a request that hangs is given up after
/// 2 s and repeated, and nodes follow what it wrote.
const UNSHOWN_EXTRA: Duration = Duration::from_secs(4);

/// What is left to do for clients after a tenure: who still comes here is relayed to whoever acts then.
#[derive(Debug, Default)]
pub struct Aftermath {
    /// The last tenure, of its own or delegated by it.
    epoch: Epoch,
    /// The last one of its own.
    own: Epoch,
    /// Until then every node has learnt where to lead clients.
    until: BootTime,
    /// The last tenure of which it is told that clients are led to it.
    shown: Option<Epoch>,
    /// Who has said farewell, as long as nothing later was heard of it.
    parted: Option<(AgentId, Ping)>,
}

impl Aftermath {
    /// It acts, or may still hand over; until then every node will have learnt where to lead clients once that is over.
    pub fn acted(&mut self, (role, epoch): (Role, Epoch), until: BootTime) {
        (self.epoch, self.until) = (epoch, until);
        if role != Role::HandedOver {
            self.own = epoch;
        }
    }

    /// It claims this tenure, and may release it without having acted.
    pub fn claims(&mut self, epoch: Epoch) {
        self.epoch = self.epoch.max(epoch);
    }

    /// What the Lease tells of the last takeover. By `until` every node will have learnt what is told only now: a successor that
    /// starts slowly is shown long after the tenure.
    pub fn sees(&mut self, takeover: Option<TakeoverRecord>, until: BootTime) {
        let shown = takeover.filter(|takeover| takeover.published.is_some()).map(|takeover| takeover.epoch);
        let was_hidden = self.is_hidden();
        self.shown = self.shown.max(shown);
        if was_hidden && !self.is_hidden() {
            self.until = self.until.max(until);
        }
    }

    /// Whether it has acted, and clients may still be led here.
    fn is_hidden(&self) -> bool {
        self.until > BootTime::default() && self.shown <= Some(self.own)
    }

    /// What the other member says.
    pub fn heard(&mut self, from: AgentId, message: &Message) {
        match message {
            Message::Farewell(ping) => self.parted = Some((from, *ping)),
            // A copy of what it said before may come after its farewell.
            Message::Ping(ping) => {
                self.parted = self.parted.filter(|(parted, last)| *parted != from || ping.is_before(last));
            }
            Message::PromiseRequest(_) | Message::Promise(_) | Message::Handover(_) => {}
        }
    }

    /// Until when to relay. Not at all if nobody is left whom clients could be led to: the other member leaves, too, or has
    /// acted since and released the Lease, which an agent does that could not hand back. Longer if there is a slice that may still
    /// lead clients here.
    pub fn relays_until(&self, agent: &Agent, has_slice: bool) -> BootTime {
        let until = if has_slice && self.is_hidden() { self.until + UNSHOWN_EXTRA } else { self.until };
        let Some(seen) = agent.seen else { return until };
        let is_alone = |id: AgentId| {
            id == agent.id || id == AgentId::NOBODY || self.parted.is_some_and(|(parted, _)| parted == id)
        };
        let is_given_up = seen.lease.holder.is_none() && self.epoch < seen.lease.epoch;
        let is_nobody_left = is_given_up || seen.lease.members.into_iter().all(is_alone);
        if is_nobody_left { BootTime::default() } else { until }
    }
}

#[cfg(test)]
mod tests {
    use bps_protocol::{Cause, Incarnation};

    use super::*;
    use crate::relay::testing::{OTHER, OWN, agent, epoch};

    const UNTIL: BootTime = BootTime(7);

    fn ping(incarnation: u64, sent: u64) -> Ping {
        Ping { incarnation: Incarnation(incarnation), sent: BootTime(sent) }
    }

    #[test]
    fn who_may_still_be_shown_relays_longer() {
        let late = UNTIL + UNSHOWN_EXTRA;
        let delegated = Epoch { sequence: 1, ..epoch(3) };
        let successor = agent(3, (3, Some(OTHER)));
        let until = |shown: Option<(Epoch, bool)>, has_slice| {
            let mut aftermath = handed_over(delegated);
            aftermath.sees(shown.map(|(epoch, is_published)| takeover(epoch, is_published)), BootTime(1));
            aftermath.relays_until(&successor, has_slice)
        };
        for unshown in [None, Some((epoch(3), true)), Some((delegated, false))] {
            assert_eq!(
                [true, false].map(|has_slice| until(unshown, has_slice)),
                [late, UNTIL],
                "{unshown:?}"
            );
        }
        for shown in [delegated, epoch(4)] {
            assert_eq!(until(Some((shown, true)), true), UNTIL);
        }
        let never_acted = Aftermath::default();
        assert_eq!(never_acted.relays_until(&successor, true), BootTime::default());
    }

    #[test]
    fn nodes_have_time_to_follow_a_successor_that_was_shown_long_after_the_tenure() {
        let delegated = Epoch { sequence: 1, ..epoch(3) };
        let [late, later] = [1, 2].map(|seconds| UNTIL + Duration::from_secs(seconds));
        let mut aftermath = handed_over(delegated);
        aftermath.sees(Some(takeover(delegated, false)), later);
        aftermath.sees(Some(takeover(delegated, true)), late);
        aftermath.sees(Some(takeover(epoch(4), true)), later);
        let successor = agent(3, (3, Some(OTHER)));
        assert_eq!(aftermath.relays_until(&successor, true), late, "not longer for each that comes after it");
        let mut never_acted = Aftermath::default();
        never_acted.sees(Some(takeover(delegated, true)), late);
        assert_eq!(never_acted.relays_until(&successor, true), BootTime::default());
    }

    /// Acted in term 3, and handed over with this epoch.
    fn handed_over(delegated: Epoch) -> Aftermath {
        let mut aftermath = Aftermath::default();
        aftermath.acted((Role::Active, epoch(3)), BootTime(3));
        aftermath.acted((Role::HandedOver, delegated), UNTIL);
        aftermath
    }

    fn takeover(epoch: Epoch, is_published: bool) -> TakeoverRecord {
        TakeoverRecord {
            epoch,
            cause: Cause::PodDeleted,
            detected: Duration::ZERO,
            fenced: Duration::ZERO,
            granted: None,
            promoted: None,
            published: is_published.then_some(Duration::ZERO),
        }
    }

    /// Whether who acted in term 3 relays, with a Lease that says who holds which term, after these messages.
    fn relays(written: (u32, Option<AgentId>), said: &[(AgentId, Message)]) -> bool {
        let mut aftermath = Aftermath::default();
        aftermath.acted((Role::Active, epoch(3)), UNTIL);
        for (from, message) in said {
            aftermath.heard(*from, message);
        }
        let until = aftermath.relays_until(&agent(written.0.max(3), written), false);
        assert!([UNTIL, BootTime::default()].contains(&until));
        until == UNTIL
    }

    #[test]
    fn nobody_is_relayed_to_who_has_given_up_or_said_farewell() {
        assert!(relays((3, Some(OWN)), &[]), "it handed over, which is not written yet");
        assert!(relays((3, None), &[]), "it released the Lease, and the other one may take it");
        assert!(relays((4, Some(OTHER)), &[]), "the other one acts");
        assert!(!relays((4, None), &[]), "the other one has released the Lease");
        let mut own = Aftermath::default();
        own.acted((Role::Active, epoch(3)), UNTIL);
        own.claims(epoch(4));
        assert_eq!(
            own.relays_until(&agent(4, (4, None)), false),
            UNTIL,
            "it has claimed once more, to release"
        );
        let farewell = (OTHER, Message::Farewell(ping(1, 5)));
        for written in [(3, Some(OWN)), (3, None), (4, Some(OTHER))] {
            assert!(!relays(written, &[farewell]), "{written:?}");
        }
    }

    #[test]
    fn a_farewell_counts_until_something_later_is_heard() {
        let farewell = (OTHER, Message::Farewell(ping(1, 5)));
        let said = |from, ping| relays((3, None), &[farewell, (from, Message::Ping(ping))]);
        assert!(!said(OTHER, ping(1, 4)), "a copy");
        assert!(said(OTHER, ping(1, 6)));
        assert!(said(OTHER, ping(2, 1)), "it has started anew");
        assert!(!said(OWN, ping(1, 6)), "somebody else");
    }
}
