//! Actives that no controller of a workload may delete for now, because no standby could take over.
//!
//! A rollout deletes by readiness, and not always: of a `StatefulSet` with `podManagementPolicy: Parallel`, Kubernetes 1.36
//! deletes the Pod with the highest number whatever the others do, and 1.37 at once all outdated ones that are not available.
//! A controller does not know which Pod can take over from which. So an active that is not covered is kept. The operator
//! annotates it, and an admission policy (`backuppodset-kept`) refuses its deletion to the controllers of workloads. They
//! retry once the annotation is gone. The policy lets evictions, users and the garbage collector delete the Pod.
//!
//! While no Pod acts that stays, because the application starts again or the Pod that acts goes away, the same holds for the only one
//! that has every acknowledged write.

use std::collections::BTreeSet;
use std::time::Duration;

use bps_protocol::{AgentId, BootTime, Hold};

use super::labels::label;
use super::plan::Draft;
use super::roster::{Roster, Unseated};
use super::step::PairStep;
use super::view::{Group, Pair, Pod, Shown, is_lasting};

/// How long an active has to be uncovered before its Pod is kept. 1 s: after most takeovers the other one answers again within
/// that, and nothing has to be written.
const KEPT_AFTER: Duration = Duration::from_secs(1);

/// How long an active is kept that nobody follows. 10 min, the deadline of a Deployment's progress: what prevents the standby
/// for longer may be what the rollout is to put right. One with replicated state is kept until a Pod that stays has it, too.
const KEPT_MAX: Duration = Duration::from_secs(600);

/// How long one is kept while there is no other Pod. 2 s: a workload makes the next one at once, unless it becomes smaller, and
/// that is to take no longer than it must.
const KEPT_ALONE_MAX: Duration = Duration::from_secs(2);

/// Time since which no standby could take over from the active of a pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Uncovered {
    /// Whose end would leave the pair without a Pod that can act.
    pub held: AgentId,
    /// Since then without a break.
    pub since: BootTime,
    /// Who could follow it later.
    pub successor: Successor,
}

/// The Pod that could take over later from an active without a standby that can now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Successor {
    /// A Pod that is there and stays.
    There,
    /// The next one in the place of a Pod that goes away.
    Expected,
    /// No Pod.
    Nobody {
        /// Since then without a break.
        since: BootTime,
    },
}

impl Uncovered {
    /// How long the active is kept, without end if none is named.
    fn kept_until(self, has_state: bool) -> Option<BootTime> {
        match self.successor {
            Successor::There if has_state => None,
            Successor::There | Successor::Expected => Some(self.since + KEPT_MAX),
            Successor::Nobody { since } => Some(since + KEPT_ALONE_MAX),
        }
    }
}

impl Roster<'_> {
    /// The Pod whose end would leave a pair without one that can act, unless its standby can follow: the active, or while none acts
    /// that stays, the only one that stays and has all of the state.
    fn irreplaceable(&self, pair: &Pair) -> Option<AgentId> {
        let mut keepers = pair.level_pods.iter().copied().filter(|id| self.is_staying(*id));
        let keeper = keepers.next().filter(|_| pair.level.is_some() && keepers.next().is_none());
        let holder = pair.lease.holder;
        holder.filter(|id| self.is_staying(*id)).or(keeper).or(holder)
    }

    /// What is known of a pair whose active nobody could follow now, after what was known `before`.
    pub fn uncovered(&self, pair: &Pair, before: Option<Uncovered>, now: BootTime) -> Option<Uncovered> {
        let held = self.irreplaceable(pair)?;
        // Not by its readiness, of which the controller hears before the annotation is gone: it would meet a refusal each time.
        if pair.lease.holder == Some(held) && self.standby_that_can_follow(pair).is_some() {
            return None;
        }
        let others = pair.lease.members.into_iter().filter(|id| *id != held);
        let mut others =
            others.filter(|id| !self.is_claimed_elsewhere(pair, *id)).filter_map(|id| self.pod(id));
        let member = others.next().map(|pod| pod.is_leaving);
        let before = before.filter(|before| before.held == held);
        let Unseated { is_any_staying, is_any_leaving } = self.unseated();
        let successor = match before.map(|before| before.successor) {
            _ if is_any_staying || member == Some(false) => Successor::There,
            _ if is_any_leaving || member == Some(true) => Successor::Expected,
            Some(nobody @ Successor::Nobody { .. }) => nobody,
            Some(Successor::There | Successor::Expected) | None => Successor::Nobody { since: now },
        };
        Some(Uncovered { held, since: before.map_or(now, |before| before.since), successor })
    }

    /// The standby of a pair, if it could follow at once.
    pub(super) fn standby_that_can_follow(&self, pair: &Pair) -> Option<&Pod> {
        let holder = pair.lease.holder.filter(|_| pair.is_calm())?;
        let standby = pair.lease.members.into_iter().find(|id| *id != holder)?;
        // A Pod that acts in another pair cannot follow in this one.
        let standby = self.pod(standby).filter(|pod| !self.is_claimed_elsewhere(pair, pod.id))?;
        (!standby.is_leaving && pair.has_whole_state(standby.id)).then_some(standby)
    }

    /// The same, if it is ready: one that an active may be ordered to hand over to. One with several places is not ready while it lacks
    /// the state of another pair; that it answers its active and has all of the state here is enough.
    pub(super) fn standby_that_runs(&self, pair: &Pair) -> Option<&Pod> {
        let standby = self.standby_that_can_follow(pair).filter(|standby| standby.node.is_some());
        standby.filter(|standby| standby.is_ready || self.may_share())
    }
}

impl Pair {
    /// Whether its standby answers and has all of the state, and nothing is to be changed about it.
    fn is_calm(&self) -> bool {
        // One whose node is late lives on writes although it is answered.
        let is_answered = self.lease.hold == Hold::Peer || self.is_late;
        let is_level = self.level.is_none_or(|copies| copies > 1);
        let is_settled = self.lease.pending.is_none() && self.fenced.is_empty() && !self.is_ending;
        is_answered && is_level && is_settled
    }
}

/// Annotates the Pods that are kept, and no others; all else that labels say stays as it is.
pub(super) fn covers(group: &Group, kept: &BTreeSet<AgentId>) -> Vec<PairStep> {
    let cover = |pod: &Pod| label(pod, Shown { is_kept: kept.contains(&pod.id), ..pod.shown.clone() });
    // What contradicts itself cannot be written as it is.
    group.pods.iter().filter(|pod| !pod.shown.is_contradictory).filter_map(cover).collect()
}

impl Draft<'_> {
    /// Pods that are kept for now. Those of a set are deleted by the operator alone, which looks at their standbys itself; those
    /// whose pair ends are worth no wait, nor those whose application ends soon after each start: the rollout may put it right. Only
    /// a Pod that takes all of the state along when it is deleted, because the next one has another name, is kept in that case, too.
    /// So are those that act in one pair and have the only copy of another one's state.
    pub(super) fn kept(&mut self) -> BTreeSet<AgentId> {
        let group = self.group;
        // They are to act there next.
        let busy: Vec<AgentId> = group.pairs.iter().filter_map(|pair| self.busy_keeper(pair)).collect();
        let is_of_workload = |id: &AgentId| self.roster.pod(*id).is_some_and(|pod| pod.role.is_none());
        let mut kept: BTreeSet<AgentId> = busy.into_iter().filter(is_of_workload).collect();
        for pair in &group.pairs {
            let Some((held, uncovered)) = self.roster.irreplaceable(pair).zip(pair.uncovered) else {
                continue;
            };
            let crash_loops = group.crash_looping.contains(&pair.number);
            let is_worth_it = |pod: &&Pod| {
                let is_only_copy =
                    !pair.level_pods.iter().any(|id| *id != held && self.roster.is_staying(*id));
                let takes_state_along = pair.level.is_some() && is_only_copy && !is_lasting(&pod.name);
                let is_of_workload = pod.role.is_none();
                is_of_workload && !pod.is_leaving && !pair.is_ending && (!crash_loops || takes_state_along)
            };
            let Some(held) = self.roster.pod(held).filter(is_worth_it) else { continue };
            let (from, until) = (uncovered.since + KEPT_AFTER, uncovered.kept_until(pair.level.is_some()));
            if until.is_some_and(|until| until <= self.at.now) {
                continue;
            }
            // Whoever is kept by the word of the operator before this one is kept on.
            if self.at.now < from && !held.shown.is_kept {
                self.look_again(from);
                continue;
            }
            if let Some(until) = until {
                self.look_again(until);
            }
            kept.insert(held.id);
        }
        kept
    }
}
