//! How far the two Pods of a pair are from each other: what fails together takes an active with its standby.
//!
//! A Pod never moves, so that what is decided when a standby is chosen lasts as long as the standby. Pods may come where there
//! was no better place. The operator moves a standby only to another Pod that is there and ready already.

use bps_protocol::AgentId;

use super::plan::Draft;
use super::reason::PairReason;
use super::view::{Group, Pair, Pod};

/// Whether a standby may be in the failure domain of its active.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StandbyPlace {
    /// It may; another node is better.
    Anywhere,
    /// Another domain is better, then another node.
    #[default]
    Preferred,
    /// It is in another domain, or there is none.
    Required,
}

/// How far two Pods are from each other; the farthest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Distance {
    /// In two domains, both known.
    OtherDomain,
    /// On two nodes.
    OtherNode,
    /// On one node, or at least one of them has none yet.
    SameNode,
}

impl Group {
    /// How far two Pods are from each other, as far as this group asks.
    pub(super) fn distance(&self, one: &Pod, other: &Pod) -> Distance {
        let asks = self.standby_place != StandbyPlace::Anywhere;
        let are_known = one.domain.is_some() && other.domain.is_some();
        if asks && are_known && one.domain != other.domain {
            Distance::OtherDomain
        } else if one.node == other.node {
            Distance::SameNode
        } else {
            Distance::OtherNode
        }
    }

    /// Whether a Pod at this distance may stand by.
    pub(super) fn is_far_enough(&self, distance: Distance) -> bool {
        self.standby_place != StandbyPlace::Required || distance == Distance::OtherDomain
    }
}

impl Draft<'_> {
    /// Whether a Pod is in another domain than the active of a pair, and the standby in whose place it would come is in the same.
    /// One whose domain is not known keeps its place: its node may have no object for a moment.
    pub(super) fn is_farther(&self, pair: &Pair, leaving: AgentId, joining: AgentId) -> bool {
        let (group, pod) = (self.group, |id| self.roster.pod(id));
        let standby = Some(leaving).filter(|id| pair.lease.holder != Some(*id));
        let (active, standby) = (pair.lease.holder.and_then(pod), standby.and_then(pod));
        let (Some(active), Some(standby), Some(joining)) = (active, standby, pod(joining)) else {
            return false;
        };
        group.distance(active, joining) == Distance::OtherDomain && active.domain == standby.domain
    }

    /// Whether the Pod of a pair could stand by in another one that has no standby.
    pub(super) fn could_join_another(&self, pair: &Pair) -> bool {
        let group = self.group;
        let Some(own) = self.staying_pods(pair).next() else { return true };
        group.pairs.iter().filter(|other| other.number != pair.number && !other.is_ending).any(|other| {
            let mut members = self.staying_pods(other);
            let alone = members.next().filter(|_| members.next().is_none());
            alone.is_some_and(|alone| group.is_far_enough(group.distance(alone, own)))
        })
    }

    /// Asks for ready spares in other domains in the places of standbys beside their actives. A copy of replicated state is given
    /// up for that only if the group requires it: until the next one is whole, there is none.
    pub(super) fn replace_beside(&mut self) {
        let group = self.group;
        for pair in group.ranked().into_iter().filter(|_| group.standby_place != StandbyPlace::Anywhere) {
            let may_move = pair.level.is_none() || group.standby_place == StandbyPlace::Required;
            let is_due = may_move && !self.is_asked(pair) && self.roster.staying_members(pair).len() == 2;
            let Some(standby) = self.roster.standby_that_can_follow(pair).filter(|_| is_due) else {
                continue;
            };
            let leaving = standby.id;
            let is_better = |pod: &&Pod| {
                let is_there = pod.is_ready && !group.silent.contains(&pod.id);
                is_there && self.is_farther(pair, leaving, pod.id)
            };
            let seat = match self.free.iter().position(is_better) {
                Some(index) => self.take_shareable(index),
                None => {
                    let shared = self.best_shared(pair, |pod| is_better(&pod).then_some(()));
                    shared.and_then(|shared| self.share(shared.index))
                }
            };
            if let Some(seat) = seat {
                self.ask_in_place_of(pair, leaving, seat, PairReason::StandbyBeside);
            }
        }
    }
}
