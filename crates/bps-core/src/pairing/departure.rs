//! Actives on nodes that somebody is about to take away: the role leaves before the Pod is evicted.
//!
//! A switchover costs less than an eviction, and a budget over actives never lets the Pod of one be evicted.

use super::plan::Draft;
use super::reason::PairReason;
use super::step::{PairAction, PairStep};
use super::view::{Pair, Pod};

impl Draft<'_> {
    /// Orders the actives on such nodes to hand over to standbys elsewhere that can follow at once.
    pub(super) fn leave_nodes(&mut self) {
        let group = self.group;
        let leaves = |pod: &Pod| pod.node.as_ref().is_some_and(|node| group.leaving_nodes.contains(node));
        for pair in &group.pairs {
            let Some(holder) = pair.lease.holder.filter(|_| !self.is_asked(pair)) else { continue };
            let can_follow = self.roster.standby_that_runs(pair).is_some_and(|standby| !leaves(standby));
            if can_follow && self.roster.pod(holder).is_some_and(leaves) {
                self.switch_over(pair, PairReason::NodeLeaving);
            }
        }
    }

    /// Orders the active of a pair to hand over, unless this tenure was told to already, or the pair ends. A standby of several actives
    /// can follow one of them, so that the others are told when that one's successor has a standby of its own. An order that its
    /// standby cannot follow any more stops no other one.
    pub(super) fn switch_over(&mut self, pair: &Pair, reason: PairReason) {
        let heir = self.roster.standby_that_can_follow(pair).map(|standby| standby.id);
        let others = |heir| self.roster.stands_by_elsewhere(pair, heir);
        let can_follow =
            |heir, other| self.roster.standby_that_can_follow(other).is_some_and(|pod| pod.id == heir);
        let is_promised = heir
            .is_some_and(|heir| others(heir).any(|other| self.is_ordered(other) && can_follow(heir, other)));
        if !self.is_ordered(pair) && !is_promised {
            self.step(PairAction::SwitchOver { pair: pair.number }, reason);
        }
    }

    /// Whether the active of a pair was told to hand over, or is in this plan.
    fn is_ordered(&self, pair: &Pair) -> bool {
        let [fence, order] =
            [PairAction::Fence { pair: pair.number }, PairAction::SwitchOver { pair: pair.number }];
        let is_told = |step: &PairStep| step.action == fence || step.action == order;
        pair.switch_over == Some(pair.lease.epoch) || self.plan.steps.iter().any(is_told)
    }
}
