//! Keeps what this agent has read of the Lease: which orders are new, which state directories are in sync,
//! and whether the Lease still needs this agent.
//!
//! Pure. Answers may come out of order: an earlier version never replaces a later one.

use std::collections::BTreeSet;

use bps_api::HandoverOrder;
use bps_protocol::{Agent, AgentId, BootTime, Epoch, Version};
use bps_wire::level::{DirectoryId, Level};
use bps_wire::orders::Orders;

use super::withdrawal::is_idle;

/// The Lease of the pair as its versions have shown it.
#[derive(Debug, Default)]
pub(super) struct LeaseView {
    /// The Lease was deleted or recreated, as far as is known: an answer that there is none may be wrong.
    is_gone: bool,
    asked: LeaseOrders,
    level: Level,
    /// The version in which `level` was read.
    level_version: Version,
}

/// Orders of one version of the Lease, as they concern this agent.
#[derive(Debug, Default)]
pub(super) struct LeaseOrders {
    version: Version,
    orders: Orders,
    is_fenced: bool,
    is_peer_fenced: bool,
}

/// Orders that differ from those of the version before; `None`: no change.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct OrderNews {
    /// Annotations of which something cannot be read.
    pub(super) unreadable: BTreeSet<&'static str>,
    /// Whether the peer must not act.
    pub(super) peer_fenced: Option<bool>,
    /// Whether the application may outlast a planned handover.
    pub(super) handover: Option<HandoverOrder>,
}

impl LeaseOrders {
    /// Orders of this version for the agent `own` and the other member.
    pub(super) fn of(version: Version, orders: Orders, members: [AgentId; 2], own: AgentId) -> Self {
        let is_fenced = orders.fenced.contains(&own);
        let is_peer_fenced = members.iter().any(|member| *member != own && orders.fenced.contains(member));
        Self { version, orders, is_fenced, is_peer_fenced }
    }
}

/// Whether there is a Lease.
impl LeaseView {
    /// Notes that a version was read; `seen` is the version that the protocol has read last.
    pub(super) fn read(&mut self, version: Version, seen: Option<Version>) {
        self.is_gone &= seen.is_none_or(|seen| version <= seen);
    }

    /// Notes that the Lease was deleted or recreated. Returns whether that is news.
    pub(super) fn lose(&mut self) -> bool {
        !std::mem::replace(&mut self.is_gone, true)
    }

    /// Whether no write of the agent is under way or due. No write of a Lease that is gone is ever applied.
    pub(super) fn is_write_settled(&self, agent: &Agent, is_to_clear: bool) -> bool {
        self.is_gone || agent.unresolved.is_none() && !is_to_clear
    }

    /// Whether the agent may forget this Lease, as a restart would: no other agent counts on a promise of it,
    /// and it cannot come to act by a write that is still under way. `copy` is the state directory that it keeps for
    /// the Lease as long as that may be the only one; `None`: it keeps none.
    pub(super) fn is_done_with(&self, agent: &Agent, now: BootTime, copy: Option<DirectoryId>) -> bool {
        let is_kept = copy.is_some_and(|copy| self.may_name(copy));
        let is_unnamed = !is_kept && agent.seen.is_some_and(|seen| !seen.lease.names(agent.id));
        let is_out = self.is_gone || is_unnamed && agent.unresolved.is_none();
        let is_needed = !is_idle(agent.role) || now < agent.promise_end;
        is_out && !is_needed
    }
}

/// Orders.
impl LeaseView {
    /// Changes of the orders by this version; `None`: a later version was read before.
    pub(super) fn news(&self, read: &LeaseOrders) -> Option<OrderNews> {
        let LeaseOrders { version, orders, is_fenced: _, is_peer_fenced } = read;
        if *version < self.asked.version {
            return None;
        }
        let before = &self.asked;
        Some(OrderNews {
            unreadable: orders.unreadable.difference(&before.orders.unreadable).copied().collect(),
            peer_fenced: (*is_peer_fenced != before.is_peer_fenced).then_some(*is_peer_fenced),
            handover: (orders.handover != before.orders.handover).then_some(orders.handover),
        })
    }

    /// Takes over the orders of a version.
    pub(super) fn heed(&mut self, read: LeaseOrders) {
        self.asked = read;
    }

    /// Whether this agent must not act.
    pub(super) fn is_fenced(&self) -> bool {
        self.asked.is_fenced
    }

    /// Whether the application may outlast a planned handover.
    pub(super) fn handover(&self) -> HandoverOrder {
        self.asked.orders.handover
    }

    /// Whether the tenure with this epoch is to end by a handover.
    pub(super) fn asks_to_switch_over(&self, epoch: Epoch) -> bool {
        self.asked.orders.switch_over == Some(epoch)
    }
}

/// State directories.
impl LeaseView {
    /// Takes over which state directories are in sync, unless a later version was read before. Returns
    /// whether it does.
    pub(super) fn learn_level(&mut self, version: Version, level: Level) -> bool {
        let is_news = self.level_version <= version;
        if is_news {
            (self.level_version, self.level) = (version, level);
        }
        is_news
    }

    /// State directories that are in sync.
    pub(super) fn level(&self) -> &Level {
        &self.level
    }

    /// Whether the Lease calls this state directory in sync, as far as it can be read.
    pub(super) fn may_name(&self, directory: DirectoryId) -> bool {
        match &self.level {
            Level::Unsaid => false,
            Level::Only(_) => self.level.names(directory),
            Level::Unreadable => true,
        }
    }

    /// Whether [`LeaseView::level`] was read in this version.
    pub(super) fn is_level_of(&self, version: Version) -> bool {
        self.level_version == version
    }
}

#[cfg(test)]
mod tests {
    use bps_api::keys;
    use bps_protocol::{Hold, Incarnation, Lease, Purpose, Role, Seen, Unresolved, Write};

    use super::*;

    const OWN: AgentId = AgentId(1);
    const OTHER: AgentId = AgentId(2);
    const STRANGER: AgentId = AgentId(3);

    /// Orders that fence these agents.
    fn orders(version: u64, fenced: &[AgentId]) -> LeaseOrders {
        let orders = Orders { fenced: fenced.iter().copied().collect(), ..Orders::default() };
        LeaseOrders::of(Version(version), orders, [OWN, OTHER], OWN)
    }

    fn lease(members: [AgentId; 2]) -> Lease {
        let epoch = Epoch { term: 1, sequence: 0 };
        Lease { epoch, holder: None, members, pending: None, hold: Hold::Api, writes: 0 }
    }

    fn standby(members: [AgentId; 2]) -> Agent {
        let seen = Seen { lease: lease(members), version: Version(7), since: BootTime(0) };
        let promise_end = BootTime::default();
        Agent { seen: Some(seen), role: Role::Standby, promise_end, ..Agent::new(OWN, Incarnation(1)) }
    }

    fn unresolved() -> Unresolved {
        let write = Write { number: 1, base: Version(7), lease: lease([OWN, OTHER]) };
        Unresolved { write, purpose: Purpose::Claim, sent: BootTime(0) }
    }

    #[test]
    fn each_order_is_news_once_and_news_again_when_it_is_taken_back() {
        let mut view = LeaseView::default();
        let mut told = |read: LeaseOrders| {
            let news = view.news(&read);
            view.heed(read);
            news
        };
        assert_eq!(told(orders(1, &[STRANGER])), Some(OrderNews::default()), "it is no member");

        let both = OrderNews { peer_fenced: Some(true), ..OrderNews::default() };
        assert_eq!(told(orders(2, &[OWN, OTHER])), Some(both));
        assert_eq!(told(orders(2, &[OWN, OTHER])), Some(OrderNews::default()));
        assert_eq!(told(orders(3, &[OTHER])), Some(OrderNews::default()), "it is about this agent alone");

        let asked = Orders {
            handover: HandoverOrder::MakeBeforeBreak,
            unreadable: BTreeSet::from([keys::ANNOTATION_HA_FENCED]),
            ..Orders::default()
        };
        let read = || LeaseOrders::of(Version(4), asked.clone(), [OWN, OTHER], OWN);
        let expected = OrderNews {
            unreadable: asked.unreadable.clone(),
            peer_fenced: Some(false),
            handover: Some(HandoverOrder::MakeBeforeBreak),
        };
        assert_eq!(told(read()), Some(expected));
        assert_eq!(told(read()), Some(OrderNews::default()));
    }

    #[test]
    fn an_earlier_version_changes_neither_orders_nor_levels() {
        let mut view = LeaseView::default();
        view.heed(orders(5, &[OWN]));
        assert_eq!(view.news(&orders(4, &[])), None);
        assert!(view.is_fenced());

        assert!(view.learn_level(Version(5), Level::Unreadable));
        assert!(!view.learn_level(Version(4), Level::Unsaid));
        assert_eq!((view.level(), view.is_level_of(Version(5))), (&Level::Unreadable, true));
        assert!(!view.is_level_of(Version(4)));
    }

    #[test]
    fn a_lease_that_is_gone_is_there_again_once_a_later_version_is_read() {
        let mut view = LeaseView::default();
        assert_eq!([view.lose(), view.lose()], [true, false], "it is news once");
        let mut is_settled = |read| {
            view.read(Version(read), Some(Version(7)));
            view.is_write_settled(&Agent { unresolved: Some(unresolved()), ..standby([OWN, OTHER]) }, true)
        };
        assert_eq!([6, 7, 8].map(&mut is_settled), [true, true, false]);

        let mut never_seen = LeaseView::default();
        never_seen.lose();
        never_seen.read(Version(1), None);
        assert!(!never_seen.lose(), "a version of a Lease that the protocol has not read proves nothing");
    }

    #[test]
    fn a_write_is_settled_once_it_is_answered_and_there_is_nothing_to_clear() {
        let view = LeaseView::default();
        let (idle, writing) = (standby([OWN, OTHER]), unresolved());
        assert!(view.is_write_settled(&idle, false) && !view.is_write_settled(&idle, true));
        assert!(!view.is_write_settled(&Agent { unresolved: Some(writing), ..idle }, false));
    }

    #[test]
    fn an_agent_is_done_with_a_lease_that_does_not_name_it_and_counts_on_nothing_of_it() {
        let now = BootTime(10);
        let (named, unnamed) = (standby([OWN, OTHER]), standby([STRANGER, OTHER]));
        let is_done = |agent: Agent| LeaseView::default().is_done_with(&agent, now, None);
        assert!(is_done(unnamed));
        assert!(!is_done(named));
        assert!(!is_done(Agent { seen: None, ..unnamed }), "it has not read the Lease");
        assert!(!is_done(Agent { unresolved: Some(unresolved()), ..unnamed }));
        assert!(!is_done(Agent { promise_end: BootTime(11), ..unnamed }));
        assert!(!is_done(Agent { role: Role::HandedOver, ..unnamed }));

        let mut gone = LeaseView::default();
        gone.lose();
        let writing = Agent { unresolved: Some(unresolved()), ..named };
        assert!(gone.is_done_with(&writing, now, None), "its write is never applied");
        assert!(!gone.is_done_with(&Agent { role: Role::Active, ..named }, now, None));
    }

    #[test]
    fn a_seat_stays_while_its_copy_may_be_the_only_one() {
        let [own, other] = [1, 2].map(DirectoryId);
        let (named, unnamed) = (standby([OWN, OTHER]), standby([STRANGER, OTHER]));
        let table = [
            (Level::Unsaid, true),
            (Level::Only([own, other].into()), false),
            (Level::Only([own].into()), false),
            (Level::Only([other].into()), true),
            (Level::Unreadable, false),
        ];
        for (level, is_done) in table {
            let mut view = LeaseView::default();
            view.learn_level(Version(1), level);
            let told = |view: &LeaseView, agent: &Agent, copy| view.is_done_with(agent, BootTime(10), copy);
            assert_eq!(told(&view, &unnamed, Some(own)), is_done, "{:?}", view.level());
            assert!(!told(&view, &named, Some(own)) && told(&view, &unnamed, None), "{:?}", view.level());
            view.lose();
            assert!(told(&view, &unnamed, Some(own)), "the Lease is gone, and no agent can act by it");
            let is_named = !is_done;
            assert_eq!(view.may_name(own), is_named, "the next Lease may name it: {:?}", view.level());
        }
    }
}
