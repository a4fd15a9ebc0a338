//! Actives on nodes that somebody is about to take away: the role leaves before the Pod is evicted.
//!
//! A switchover costs less than an eviction, and a budget over actives never lets the Pod of one be evicted.

use bps_protocol::{AgentId, Hold};

use super::plan::{Draft, Step};
use super::view::{Pair, Pod};

impl Draft<'_> {
    /// Orders the actives on such nodes to hand over to standbys elsewhere that can follow at once.
    pub(super) fn leave_nodes(&mut self) {
        let group = self.group;
        let leaves = |pod: &Pod| pod.node.as_ref().is_some_and(|node| group.leaving_nodes.contains(node));
        let find = |id: AgentId| group.pods.iter().find(|pod| pod.id == id);
        for pair in &group.pairs {
            let Some(holder) = pair.lease.holder.filter(|_| pair.is_calm() && !self.is_asked(pair)) else {
                continue;
            };
            let standby = pair.lease.members.into_iter().find(|id| *id != holder).and_then(find);
            let can_follow = standby.is_some_and(|standby| {
                !standby.is_leaving && standby.is_ready && standby.node.is_some() && !leaves(standby)
            });
            let is_ordered = pair.switch_over == Some(pair.lease.epoch)
                || self.plan.steps.contains(&Step::Fence { pair: pair.number });
            if can_follow && !is_ordered && find(holder).is_some_and(leaves) {
                self.plan.steps.push(Step::SwitchOver { pair: pair.number });
            }
        }
    }
}

impl Pair {
    /// Whether its standby answers and has all of the state, and nothing is to be changed about it.
    fn is_calm(&self) -> bool {
        let is_level = self.level.is_none_or(|copies| copies > 1);
        let is_settled = self.lease.pending.is_none() && self.fenced.is_empty() && !self.is_ending;
        self.lease.hold == Hold::Peer && is_level && is_settled
    }
}
