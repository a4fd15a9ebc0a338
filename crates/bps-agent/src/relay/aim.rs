//! Where to relay: who acts as far as this agent knows, and from whom nothing is relayed.
//!
//! Pure. A mistake here costs connections, and never makes anybody act.

use std::net::IpAddr;
use std::time::Duration;

use bps_protocol::{Agent, AgentId, BootTime, Epoch};
use bps_wire::lease::Directory;

/// What the relay needs to know of the pair.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Aim {
    /// The Pod that acts; `None`: nobody is known to.
    pub active: Option<IpAddr>,
    /// All other Pods of the pair. What comes from one was relayed already, and would go round for ever.
    pub others: Vec<IpAddr>,
}

impl Aim {
    /// What an agent knows; `asker` is who asked for a promise last, and the epoch that it acts with. Whoever acts asks or writes
    /// within the time `watch`: of one that did neither the address may be somebody else's by now.
    pub fn of(
        (agent, asker): (&Agent, Option<(Epoch, AgentId)>),
        directory: &Directory,
        (now, watch): (BootTime, Duration),
    ) -> Self {
        let is_alive = now < agent.promise_end || agent.seen.is_some_and(|seen| now < seen.since + watch);
        let address = |id: AgentId| directory.get(&id)?.ip().map(|ip| ip.to_canonical());
        let others = directory.keys().filter(|id| **id != agent.id).filter_map(|id| address(*id)).collect();
        Self { active: active(agent, asker).filter(|_| is_alive).and_then(address), others }
    }
}

/// Who acts with the highest epoch that this agent knows of: by its own word, which is the first to come, or the Lease's.
///
/// Not whom it handed over to: until that one says that it acts, it may still relay itself.
fn active(agent: &Agent, asker: Option<(Epoch, AgentId)>) -> Option<AgentId> {
    let holder = agent.seen.and_then(|seen| Some((seen.lease.epoch, seen.lease.holder?)));
    let known = asker.into_iter().chain(holder).max_by_key(|(epoch, _)| *epoch);
    let (_, active) = known.filter(|(epoch, _)| agent.epoch <= *epoch && !agent.is_certified)?;
    (active != agent.id).then_some(active)
}

#[cfg(test)]
mod tests {
    use bps_protocol::Seen;
    use bps_wire::lease::Member;

    use super::*;
    use crate::relay::testing::{OTHER, OWN, agent, epoch};

    const WATCH: Duration = Duration::from_secs(2);

    fn directory() -> Directory {
        let member = |id: u128| {
            let address = format!("10.0.0.{id}:20001").parse().unwrap();
            (AgentId(id), Member { pod: format!("web-{id}"), address })
        };
        Directory::from([member(1), member(2)])
    }

    #[test]
    fn who_acts_is_known_by_its_own_word_or_by_the_lease_and_no_longer_than_its_tenure() {
        let aimed = |agent: &Agent, asker: Option<u32>| {
            let asker = asker.map(|term| (epoch(term), OTHER));
            Aim::of((agent, asker), &directory(), (BootTime::default(), WATCH)).active.is_some()
        };
        let by_lease = agent(3, (3, Some(OTHER)));
        assert!(aimed(&by_lease, None));
        assert!(!aimed(&Agent { is_certified: true, ..by_lease }, None));
        assert!(!aimed(&agent(3, (3, None)), None));
        let handed_over = agent(4, (3, Some(OWN)));
        assert!(!aimed(&handed_over, None));
        assert!(!aimed(&handed_over, Some(2)));
        assert!(aimed(&handed_over, Some(4)));
    }

    #[test]
    fn who_neither_asked_nor_wrote_for_long_is_not_aimed_at() {
        let since = BootTime::default() + WATCH;
        let mut known = agent(3, (3, Some(OTHER)));
        known.seen = known.seen.map(|seen| Seen { since, ..seen });
        let aimed = |agent: &Agent, now| {
            Aim::of((agent, Some((epoch(3), OTHER))), &directory(), (now, WATCH)).active.is_some()
        };
        let over = since + WATCH;
        assert_eq!([since, over].map(|now| aimed(&known, now)), [true, false]);
        let promised = Agent { promise_end: over + WATCH, ..known };
        assert_eq!([over, over + WATCH].map(|now| aimed(&promised, now)), [true, false]);
    }

    #[test]
    fn everybody_else_is_known_by_address() {
        let others = vec!["10.0.0.2".parse().unwrap()];
        let aim = Aim::of((&agent(3, (3, None)), None), &directory(), (BootTime::default(), WATCH));
        assert_eq!(aim, Aim { active: None, others });
    }
}
