//! How long to relay after a tenure.
//!
//! Pure. A mistake here costs connections, and never makes anybody act.

use crate::ha::{Agent, AgentId, BootTime, Epoch, Message, Ping};

/// What is left to do for clients after a tenure: who still comes here is relayed to whoever acts then.
#[derive(Debug, Default)]
pub struct Aftermath {
    /// The last tenure.
    epoch: Epoch,
    /// Until then every node has learnt where to lead clients.
    until: BootTime,
    /// Who has said farewell, as long as nothing later was heard of it.
    parted: Option<(AgentId, Ping)>,
}

impl Aftermath {
    /// It acts, or may still hand over; until then every node will have learnt where to lead clients once that is over.
    pub fn acted(&mut self, epoch: Epoch, until: BootTime) {
        (self.epoch, self.until) = (epoch, until);
    }

    /// It claims this tenure, and may release it without having acted.
    pub fn claims(&mut self, epoch: Epoch) {
        self.epoch = self.epoch.max(epoch);
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
    /// acted since and released the Lease, which an agent does that could not hand back.
    pub fn relays_until(&self, agent: &Agent) -> BootTime {
        let Some(seen) = agent.seen else { return self.until };
        let is_alone = |id: AgentId| {
            id == agent.id || id == AgentId::NOBODY || self.parted.is_some_and(|(parted, _)| parted == id)
        };
        let is_given_up = seen.lease.holder.is_none() && self.epoch < seen.lease.epoch;
        let is_nobody_left = is_given_up || seen.lease.members.into_iter().all(is_alone);
        if is_nobody_left { BootTime::default() } else { self.until }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::relay::testing::{OTHER, OWN, agent, epoch};
    use crate::ha::Incarnation;

    const UNTIL: BootTime = BootTime(7);

    fn ping(incarnation: u64, sent: u64) -> Ping {
        Ping { incarnation: Incarnation(incarnation), sent: BootTime(sent) }
    }

    /// Whether who acted in term 3 relays, with a Lease that says who holds which term, after these messages.
    fn relays(written: (u32, Option<AgentId>), said: &[(AgentId, Message)]) -> bool {
        let mut aftermath = Aftermath::default();
        aftermath.acted(epoch(3), UNTIL);
        for (from, message) in said {
            aftermath.heard(*from, message);
        }
        let until = aftermath.relays_until(&agent(written.0.max(3), written));
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
        own.acted(epoch(3), UNTIL);
        own.claims(epoch(4));
        assert_eq!(own.relays_until(&agent(4, (4, None))), UNTIL, "it has claimed once more, to release");
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
