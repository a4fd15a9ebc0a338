//! Standbys that do not answer their active, and who takes their place.
//!
//! What a Pod's object says comes late: a node that lost its power counts as ready for half a minute and more, and its Pods are
//! deleted after five. The Lease tells within a second that no standby answers whoever acts, because that one then lives on
//! writes. Only the active makes another Pod a member, so that a mistake here costs a standby, and no safety.

use std::time::Duration;

use bps_protocol::{AgentId, BootTime, Hold};

use super::plan::Draft;
use super::reason::PairReason;
use super::view::{Pair, Pod, Seat, VACANT};

/// How long a standby is silent before that is told, and a spare takes its place. 5 s: an agent that was started again
/// answers within that, and a lost Pod is replaced within 15 s of its last answer.
pub const SILENCE_MAX: Duration = Duration::from_secs(5);

/// The same where state is replicated. 60 s: a spare has to be given all of the state, and one that comes back what it lacks.
pub(super) const SILENCE_WITH_STATE_MAX: Duration = Duration::from_secs(60);

/// A standby that does not answer its active.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Silence {
    /// Who it is.
    pub standby: AgentId,
    /// Since when its Lease tells so without a break.
    pub since: BootTime,
}

impl Pair {
    /// Who should answer whoever acts, and does not by what the Lease says.
    ///
    /// It says so of one that has just begun to act as well: only what lasts is told.
    pub fn silent_standby(&self) -> Option<AgentId> {
        let is_told = self.lease.hold == Hold::Api && !self.is_late;
        let holder = self.lease.holder.filter(|_| is_told)?;
        self.lease.members.into_iter().find(|id| *id != holder && *id != VACANT)
    }

    /// When its standby counts as silent, if that goes on.
    fn counts_as_silent_at(&self) -> Option<BootTime> {
        let silence = self.silence.filter(|silence| self.silent_standby() == Some(silence.standby))?;
        Some(silence.since + SILENCE_MAX)
    }
}

impl Draft<'_> {
    /// Whether this member counts as silent.
    pub(super) fn is_silent(&self, pair: &Pair, member: AgentId) -> bool {
        let is_it = pair.silence.is_some_and(|silence| silence.standby == member);
        is_it && pair.counts_as_silent_at().is_some_and(|at| at <= self.at.now)
    }

    /// Asks for spares in the places of standbys that have been silent for long.
    pub(super) fn replace_silent(&mut self) {
        for pair in self.group.ranked() {
            let is_whole = self.roster.staying_members(pair).len() == 2;
            let is_stable = is_whole && !pair.is_ending;
            let Some((at, silence)) = pair.counts_as_silent_at().zip(pair.silence).filter(|_| is_stable)
            else {
                continue;
            };
            if self.at.now < at {
                self.look_again(at);
                continue;
            }
            self.hold(PairReason::StandbySilent, Some(pair.number), None);
            if self.is_asked(pair) {
                continue;
            }
            // Whose level copies are not known may be the only ones.
            let may_be_level = pair.level.is_some() && pair.level_pods.is_empty();
            let patience = if pair.level.is_some() { SILENCE_WITH_STATE_MAX } else { SILENCE_MAX };
            if self.at.now < silence.since + patience {
                self.look_again(silence.since + patience);
            } else if !may_be_level
                && !pair.level_pods.contains(&silence.standby)
                && let Some(spare) = self.take_spare(pair, silence.standby)
            {
                self.ask_in_place_of(pair, silence.standby, spare, PairReason::StandbySilent);
            }
        }
    }

    /// The oldest free Pod that was not silent itself a moment ago, best on a node of its own and far from the active, and rather on
    /// the active's node than on the silent one's.
    ///
    /// Whether it is ready tells nothing: a spare is not as long as a pair needs one, but for one whose node is lost.
    fn take_spare(&mut self, pair: &Pair, standby: AgentId) -> Option<Seat> {
        let group = self.group;
        let node = |id: AgentId| self.roster.pod(id).and_then(|pod| pod.node.as_ref());
        let (lost, active) = (node(standby), pair.lease.holder.and_then(|id| self.roster.pod(id)));
        let distance = |pod: &Pod| active.map(|active| group.distance(active, pod));
        let free = self.free.iter().enumerate().filter(|(_, pod)| !group.silent.contains(&pod.id));
        let free = free.filter(|(_, pod)| distance(pod).is_none_or(|distance| group.is_far_enough(distance)));
        let place = |(index, pod): &(usize, &&Pod)| (pod.node.as_ref() == lost, distance(pod), *index);
        if let Some((index, _)) = free.min_by_key(place) {
            return self.take_shareable(index);
        }
        let worth = |pod: &Pod| {
            let is_apart = distance(pod).is_none_or(|distance| group.is_far_enough(distance));
            let answers = pod.node.as_ref() != lost && !group.silent.contains(&pod.id);
            (is_apart && answers).then(|| distance(pod))
        };
        let shared = self.best_shared(pair, worth).map(|shared| shared.index);
        if shared.is_none() && !(self.free.is_empty() && self.shared.is_empty()) {
            // Nothing tells when one of them counts as silent no more.
            self.look_again(self.at.now + SILENCE_MAX);
        }
        self.share(shared?)
    }
}
