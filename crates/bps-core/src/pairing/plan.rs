//! The plan: lost places are filled first, then new pairs are made, then labels follow.

use std::collections::BTreeSet;
use std::time::Duration;

use bps_protocol::{AgentId, BootTime, Moment, Replacement, forced_replacement};
use jiff::Timestamp;

use super::apart::StandbyPlace;
use super::cover::covers;
use super::ending::ending;
use super::labels::labels;
use super::reason::PairReason;
use super::roster::Roster;
use super::sharing::{OpenStandby, shared_standbys};
use super::step::{PairAction, PairHold, PairStep, Plan};
use super::view::{Group, Pair, Pod, Seat, VACANT};
use super::withheld::withheld;

/// What follows from what was seen. Total: every group has a plan.
pub fn plan(group: &Group, at: &Moment<'_>) -> Plan {
    drafted(group, at).into_plan()
}

/// The plan, with what it was made from.
pub(super) fn drafted<'a>(group: &'a Group, at: &'a Moment<'a>) -> Draft<'a> {
    let mut draft = Draft::new(group, at);
    withheld(&mut draft);
    if group.is_paused {
        draft.hold(PairReason::Paused, None, None);
        draft.free_keepers();
        draft.vacate_places();
        // A rollout that waits for a standby must not wait for the end of the pause.
        let kept = draft.kept();
        draft.plan.steps.extend(covers(group, &kept));
        return draft;
    }
    for pair in &group.pairs {
        draft.follow_addresses(pair);
        draft.settle_request(pair);
    }
    for lost in &group.lost {
        if lost.may_return {
            draft.step(PairAction::Restore { pair: lost.number }, PairReason::LeaseLost);
        }
        draft.hold(PairReason::LeaseLost, Some(lost.number), Some(lost.until));
    }
    match group.pairs_wanted {
        None => {
            draft.found_again(usize::MAX);
            draft.fill_seats();
            draft.found_pairs();
        }
        Some(wanted) => draft.found_wanted(wanted),
    }
    draft.vacate_places();
    ending(&mut draft);
    draft.leave_nodes();
    draft.free_keepers();
    let kept = draft.kept();
    let labels = labels(group, &draft.roster, &draft.plan.steps, &kept);
    draft.plan.steps.extend(labels);
    draft
}

/// A plan in the making.
pub(super) struct Draft<'a> {
    pub(super) group: &'a Group,
    pub(super) roster: Roster<'a>,
    pub(super) at: &'a Moment<'a>,
    pub(super) plan: Plan,
    /// Pods that could take a place, the oldest first.
    pub(super) free: Vec<&'a Pod>,
    /// Standbys that could take one more place, where a standby may have several.
    pub(super) shared: Vec<OpenStandby<'a>>,
    /// Pods that came back to a pair that has no other ones in their places yet, with a copy of its state.
    returned: Vec<&'a Pod>,
    /// Pairs whose request is open, or whose Lease is written in this plan already.
    asked: BTreeSet<u32>,
}

/// A Pod that may take a place; the best one first.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct PlaceChoice<W> {
    pub(super) worth: W,
    /// How many places it has already.
    pub(super) places: usize,
    /// Where it is in its list.
    pub(super) index: usize,
}

impl<'a> Draft<'a> {
    fn new(group: &'a Group, at: &'a Moment<'a>) -> Self {
        let roster = group.roster();
        let named: BTreeSet<AgentId> = group.pairs.iter().flat_map(|pair| pair.lease.named()).collect();
        let is_free =
            |pod: &&Pod| pod.address.is_some() && !named.contains(&pod.id) && !roster.is_left_alone(pod);
        let homes: BTreeSet<&str> = group.pairs.iter().flat_map(|pair| roster.homes(pair)).collect();
        let is_returned = |pod: &&Pod| homes.contains(pod.name.as_str());
        let (returned, free) = group.staying().into_iter().filter(is_free).partition(is_returned);
        let shared = shared_standbys(group, &roster);
        Self { group, roster, at, plan: Plan::default(), free, shared, returned, asked: BTreeSet::new() }
    }

    pub(super) fn step(&mut self, action: PairAction, reason: PairReason) {
        self.plan.steps.push(PairStep { action, reason });
    }

    /// Notes that something waits, and looks again when it may be over.
    pub(super) fn hold(&mut self, reason: PairReason, pair: Option<u32>, until: Option<BootTime>) {
        self.plan.holds.push(PairHold { reason, pair, until });
        if let Some(until) = until {
            self.look_again(until);
        }
    }

    fn into_plan(mut self) -> Plan {
        self.plan.holds.sort_unstable();
        self.plan
    }

    pub(super) fn look_again(&mut self, when: BootTime) {
        let earliest = self.plan.look_again.map_or(when, |earlier| earlier.min(when));
        self.plan.look_again = Some(earliest);
    }

    /// Whether a request of this pair is open.
    pub(super) fn is_asked(&self, pair: &Pair) -> bool {
        self.asked.contains(&pair.number)
    }

    /// Notes that a Lease is written in this plan.
    pub(super) fn note_asked(&mut self, pair: &Pair) {
        self.asked.insert(pair.number);
    }

    /// Agents find each other by the Lease; nothing else of the pair is changed in the same plan.
    fn follow_addresses(&mut self, pair: &Pair) {
        let moved = pair.addresses.iter().find_map(|(id, known)| {
            let pod = self.roster.pod(*id)?;
            let address = pod.address?;
            (*known != address).then(|| Seat { id: pod.id, pod: pod.name.clone(), address })
        });
        if let Some(seat) = moved {
            self.note_asked(pair);
            self.step(PairAction::Move { pair: pair.number, seat }, PairReason::AddressChanged);
        }
    }

    /// An open request is carried out when nobody acts, and taken back when it makes no sense any more.
    fn settle_request(&mut self, pair: &Pair) {
        let is_open = !pair.is_ending && !self.is_asked(pair);
        let Some(replacement) = pair.lease.pending.filter(|_| is_open) else { return };
        let Replacement { leaving, joining } = replacement;
        if joining == VACANT && !self.roster.is_staying(leaving) {
            // Only the active carries this out, and a Pod that comes may still take the place.
            return;
        }
        self.note_asked(pair);
        let joins_as = pair.names.get(&joining).map(String::as_str);
        let is_wanted = self.roster.is_staying(joining)
            && !self.roster.is_promised(pair, joining)
            && (!self.roster.is_seated(pair, leaving)
                || self.is_silent(pair, leaving)
                || self.is_farther(pair, leaving, joining))
            && self.roster.kept_place(pair).is_none_or(|(id, name)| id != leaving || joins_as == Some(name));
        if !is_wanted {
            self.step(PairAction::Withdraw { pair: pair.number }, PairReason::RequestVoid);
        } else if let Some(lease) = forced_replacement(&pair.at(self.at.now), &pair.lease, pair.evidence()) {
            self.step(PairAction::Force { pair: pair.number, lease }, PairReason::NoneActs);
        } else {
            self.hold(PairReason::Admission, Some(pair.number), Some(pair.over_at()));
        }
    }

    /// Pairs with one member come first: their application runs without a standby.
    pub(super) fn fill_seats(&mut self) {
        let mut pairs: Vec<(usize, &Pair)> = self
            .group
            .pairs
            .iter()
            .filter(|pair| !pair.is_ending && !self.is_asked(pair))
            .map(|pair| (self.roster.staying_members(pair).len(), pair))
            .filter(|(staying, _)| *staying < 2)
            .collect();
        pairs.sort_by_key(|(staying, pair)| {
            (usize::MAX - staying, pair.rank, self.age_rank(pair), pair.number)
        });
        for (staying, pair) in pairs {
            match self.take_apart_from(pair) {
                Some(pod) => self.ask(pair, pod),
                None if staying == 1 => {
                    let is_kept = self.roster.kept_place(pair).is_some();
                    let are_near = self.group.standby_place == StandbyPlace::Required
                        && !(self.free.is_empty() && self.shared.is_empty());
                    let reason =
                        if are_near && !is_kept { PairReason::NoOtherDomain } else { PairReason::NoPod };
                    self.hold(reason, Some(pair.number), None);
                }
                // What is known of its members has to be followed before there is a Pod for them.
                None => pair.ends_known_at.into_iter().for_each(|at| self.look_again(at)),
            }
        }
        self.replace_silent();
        self.replace_beside();
    }

    /// Where not every pair gets a standby, of those with the same rank the oldest active comes first: a rollout replaces it next.
    fn age_rank(&self, pair: &Pair) -> Option<Timestamp> {
        self.group.pairs_wanted?;
        self.staying_pods(pair).map(|pod| pod.created).min()
    }

    pub(super) fn staying_pods(&self, pair: &Pair) -> impl Iterator<Item = &'a Pod> {
        self.roster.staying_members(pair).into_iter().filter_map(|id| self.roster.pod(id))
    }

    fn ask(&mut self, pair: &Pair, joining: Seat) {
        let kept = self.roster.kept_place(pair).filter(|(_, name)| *name != joining.pod);
        let gone = self
            .roster
            .gone_members(pair)
            .into_iter()
            .filter(|member| kept.is_none_or(|(id, _)| id != *member));
        // Who comes back takes its own place. The holder last: as long as it acts it cannot be replaced, but hands over to its
        // peer.
        let is_own = |member: &AgentId| pair.names.get(member) == Some(&joining.pod);
        let leaving = gone.min_by_key(|member| (!is_own(member), pair.lease.holder == Some(*member)));
        if let Some(leaving) = leaving {
            let reason = match leaving {
                VACANT => PairReason::PlaceVacant,
                busy if self.roster.is_busy(pair, busy) => PairReason::StandbyBusy,
                _ => PairReason::MemberGone,
            };
            self.ask_in_place_of(pair, leaving, joining, reason);
        }
    }

    pub(super) fn ask_in_place_of(
        &mut self,
        pair: &Pair,
        leaving: AgentId,
        joining: Seat,
        reason: PairReason,
    ) {
        self.note_asked(pair);
        self.step(PairAction::Ask { pair: pair.number, leaving, joining }, reason);
    }

    /// The oldest free Pod, preferably a ready one, and far from the member that stays: one whose node is lost or whose
    /// containers crash would be no standby. Who comes back to its place goes before.
    fn take_apart_from(&mut self, pair: &Pair) -> Option<Seat> {
        let kept = self.roster.kept_place(pair);
        let mut homes = self.roster.homes(pair);
        homes.sort_by_key(|name| kept.is_none_or(|(_, kept)| kept != *name));
        let mut returned =
            homes.iter().filter_map(|name| self.returned.iter().position(|pod| pod.name == *name));
        if let Some(index) = returned.next() {
            return seat(self.returned.remove(index));
        }
        if self.roster.gone_members(pair).len() <= usize::from(kept.is_some()) {
            return None;
        }
        let group = self.group;
        let staying = self.staying_pods(pair).next();
        let distance = |pod: &Pod| staying.map(|staying| group.distance(staying, pod));
        let is_fit = |pod: &Pod| distance(pod).is_none_or(|distance| group.is_far_enough(distance));
        // One that left the pair may have a copy that is whole.
        let lacks = |pod: &Pod| !pair.level_pods.contains(&pod.id);
        let worth = |pod: &Pod| (group.silent.contains(&pod.id), lacks(pod), !pod.is_ready, distance(pod));
        let free = self.free.iter().enumerate().filter(|(_, pod)| is_fit(pod));
        let free = free.map(|(index, pod)| PlaceChoice { worth: worth(pod), places: 0, index }).min();
        let shared = self.best_shared(pair, |pod| is_fit(pod).then(|| worth(pod)));
        match (free, shared) {
            (Some(free), shared) if shared.as_ref().is_none_or(|shared| free < *shared) => {
                self.take_shareable(free.index)
            }
            (_, Some(shared)) => self.share(shared.index),
            (_, None) => None,
        }
    }

    pub(super) fn take(&mut self, index: usize) -> Option<Seat> {
        if index >= self.free.len() {
            return None;
        }
        seat(self.free.remove(index))
    }

    /// Whether something has lasted long enough; if not, it is waited for.
    pub(super) fn has_waited(&mut self, since: Option<BootTime>, time: Duration, reason: PairReason) -> bool {
        let until = since.unwrap_or(self.at.now) + time;
        if since.is_some() && until <= self.at.now {
            return true;
        }
        self.hold(reason, None, Some(until));
        false
    }
}

pub(super) fn seat(pod: &Pod) -> Option<Seat> {
    Some(Seat { id: pod.id, pod: pod.name.clone(), address: pod.address? })
}
