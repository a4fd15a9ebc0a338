//! Standbys with places in several pairs: who has one left, and what happens when such a Pod acts.
//!
//! A Pod that takes one active over acts in that pair alone. Its places in the others are lost to it, and other Pods take them;
//! meanwhile it keeps its copies of their states. Where an active is lost as well before that, the only whole copy is on a Pod
//! that is busy: it hands over where it acts as soon as a standby can follow there, and acts with that copy next. Why:
//! `docs/adr/0048-a-standby-has-a-seat-in-each-pair-it-stands-by-for.md`.

use bps_protocol::AgentId;

use super::plan::{Draft, PlaceChoice, seat};
use super::reason::PairReason;
use super::roster::Roster;
use super::silence::SILENCE_MAX;
use super::view::{Group, Pair, Pod, Seat};

/// A standby that has places left.
#[derive(Clone, Copy, Debug)]
pub(super) struct OpenStandby<'a> {
    pub(super) pod: &'a Pod,
    /// How many it has taken.
    pub(super) places: usize,
}

/// Standbys that could stand by for one more active, the oldest first.
pub(super) fn shared_standbys<'a>(group: &'a Group, roster: &Roster<'a>) -> Vec<OpenStandby<'a>> {
    if group.further_places == 0 {
        return Vec::new();
    }
    let shared = |pod: &'a Pod| {
        let has_one_left = |places: &usize| (1..=group.further_places).contains(places);
        let places = roster.places_taken(pod.id).filter(has_one_left)?;
        let can_join = pod.address.is_some() && !roster.is_left_alone(pod) && !roster.is_fenced(pod.id);
        can_join.then_some(OpenStandby { pod, places })
    };
    group.staying().into_iter().filter_map(shared).collect()
}

impl Draft<'_> {
    /// Has a free Pod stand by, and maybe for further actives in the same plan.
    pub(super) fn take_shareable(&mut self, index: usize) -> Option<Seat> {
        let pod = *self.free.get(index)?;
        if self.group.further_places > 0 {
            self.shared.push(OpenStandby { pod, places: 1 });
        }
        self.take(index)
    }

    /// The best standby that has a place left for a pair: the one of the least `worth`, then the one with the fewest places, as the
    /// fewer actives rely on one standby, the fewer have none when it takes one over; then the oldest. One without a worth is not fit.
    pub(super) fn best_shared<W: Ord>(
        &self,
        pair: &Pair,
        worth: impl Fn(&Pod) -> Option<W>,
    ) -> Option<PlaceChoice<W>> {
        let choice = |(index, OpenStandby { pod, places }): (usize, &OpenStandby<'_>)| {
            let is_named = pair.lease.named().any(|named| named == pod.id);
            let worth = worth(pod).filter(|_| !is_named)?;
            Some(PlaceChoice { worth, places: *places, index })
        };
        self.shared.iter().enumerate().filter_map(choice).min()
    }

    /// Has a standby stand by for one more active.
    pub(super) fn share(&mut self, index: usize) -> Option<Seat> {
        let shared = self.shared.get_mut(index)?;
        shared.places += 1;
        let OpenStandby { pod, places } = *shared;
        if places > self.group.further_places {
            self.shared.remove(index);
        }
        seat(pod)
    }

    /// Orders Pods that act in one pair, and have the only whole copy of another one's state, to hand over in the former; in a pause
    /// it only tells of them.
    pub(super) fn free_keepers(&mut self) {
        let group = self.group;
        for pair in &group.pairs {
            let Some(keeper) = self.busy_keeper(pair) else { continue };
            self.hold(PairReason::KeeperBusy, Some(pair.number), None);
            let acts = self.roster.acts_in(keeper).filter(|acts| !group.is_paused && !self.is_asked(acts));
            let Some(acts) = acts else { continue };
            if self.roster.standby_that_runs(acts).is_some() {
                self.switch_over(acts, PairReason::KeeperBusy);
            }
        }
    }

    /// The Pod that has every acknowledged write of a pair and acts in another one, while no other Pod could act in this one: no other
    /// member is to be seen, or none has written for so long that it is lost.
    pub(super) fn busy_keeper(&mut self, pair: &Pair) -> Option<AgentId> {
        if self.group.further_places == 0 || pair.level.is_none() || pair.is_ending {
            return None;
        }
        let (roster, members) = (&self.roster, pair.lease.members);
        let is_keeper = |id: &AgentId| pair.level_pods.contains(id) && roster.is_busy(pair, *id);
        let keeper = members.into_iter().find(is_keeper)?;
        let may_act = |id: &AgentId| pair.level_pods.contains(id) || pair.lease.holder == Some(*id);
        if !members.into_iter().any(|id| may_act(&id) && roster.is_seated(pair, id)) {
            return Some(keeper);
        }
        // An active hears at once that its standby is busy, and lives on writes from then on. One that was lost before it heard
        // that has written nothing since.
        let busy_since = pair.uncovered.map_or(self.at.now, |uncovered| uncovered.since);
        let lost_at = pair.unwritten_since.max(busy_since) + SILENCE_MAX;
        if lost_at <= self.at.now {
            return Some(keeper);
        }
        self.look_again(lost_at);
        None
    }
}
