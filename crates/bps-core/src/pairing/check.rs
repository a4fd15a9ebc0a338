//! Refuses plans that break an invariant of pairs: a second opinion, written without looking at the rules.
//!
//! A violation is a bug in a rule. It is counted, and no step of the plan is taken. Agents see to it that two never act, by any
//! plan; what is checked is what agents rely on, and what people count on.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use bps_protocol::{AgentId, BootTime, Lease};
use bps_wire::uid::format_uid;

use super::apart::StandbyPlace;
use super::roster::Roster;
use super::step::{PairAction, Plan};
use super::view::{Group, HaState, LevelText, Lost, Pair, Seat, Shown, VACANT, is_lasting};

/// An invariant that a plan for a group would break.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PairViolation {
    /// A paused group would be changed.
    PausedGroupChanged,
    /// Two steps write the Lease of this pair.
    WrittenTwice(u32),
    /// Two steps write the labels of this Pod.
    LabelledTwice(AgentId),
    /// A step is about a pair that has no Lease.
    NoSuchPair(u32),
    /// A pair would be made under a number that another one has, or had while its members may still act.
    NumberTaken(u32),
    /// A Lease would be made again that may have had a successor.
    NotToRestore(u32),
    /// A Pod would join that is gone, goes, or belongs to a pair whose Lease is lost.
    NotFree(AgentId),
    /// A Pod would be in two pairs.
    SeatedTwice(AgentId),
    /// A Lease would be changed from outside, or deleted, although a member may act.
    MayAct(u32),
    /// Epochs of a pair would begin below one that was seen.
    EpochLowered(u32),
    /// A pair would be made again without what its Lease said of the copies of its state.
    StateForgotten(u32),
    /// A member that stays and answers would be replaced.
    MemberReplaced(u32),
    /// The place of the only Pod with every acknowledged write would go to another one.
    LastCopyReplaced(u32),
    /// A pair with replicated state would end although the group does not want fewer pairs.
    StateEnded(u32),
    /// The active would hand over although its standby cannot follow.
    NoSuccessor(u32),
    /// There would be more pairs than are wanted.
    TooManyPairs(usize),
    /// There would be fewer pairs than are wanted, or than Pods can fill.
    TooFewPairs(usize),
    /// A Pod would be called active that does not hold a Lease.
    WrongActive(AgentId),
}

impl fmt::Display for PairViolation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PausedGroupChanged => write!(formatter, "the group is paused"),
            Self::WrittenTwice(pair) => write!(formatter, "two steps write the Lease of pair {pair}"),
            Self::LabelledTwice(pod) => {
                write!(formatter, "two steps write the labels of pod {}", format_uid(pod.0))
            }
            Self::NoSuchPair(pair) => write!(formatter, "pair {pair} has no Lease"),
            Self::NumberTaken(pair) => write!(formatter, "the number {pair} is taken"),
            Self::NotToRestore(pair) => {
                write!(formatter, "the Lease of pair {pair} may have had a successor")
            }
            Self::NotFree(pod) => write!(formatter, "pod {} cannot join a pair", format_uid(pod.0)),
            Self::SeatedTwice(pod) => {
                write!(formatter, "pod {} would be in too many pairs", format_uid(pod.0))
            }
            Self::MayAct(pair) => write!(formatter, "a member of pair {pair} may act"),
            Self::EpochLowered(pair) => write!(formatter, "epochs of pair {pair} would begin too low"),
            Self::StateForgotten(pair) => {
                write!(formatter, "pair {pair} would forget which copies of its state are whole")
            }
            Self::MemberReplaced(pair) => {
                write!(formatter, "a member of pair {pair} stays and answers, and would be replaced")
            }
            Self::LastCopyReplaced(pair) => {
                write!(formatter, "pair {pair} would lose the only Pod that has every acknowledged write")
            }
            Self::StateEnded(pair) => write!(formatter, "pair {pair} would end with its state"),
            Self::NoSuccessor(pair) => write!(formatter, "pair {pair} has no standby that can follow"),
            Self::TooManyPairs(count) => write!(formatter, "there would be {count} pairs"),
            Self::TooFewPairs(count) => write!(formatter, "only {count} pairs would be left"),
            Self::WrongActive(pod) => {
                write!(formatter, "pod {} holds no Lease and would be called active", format_uid(pod.0))
            }
        }
    }
}

/// Every invariant that this plan would break for this group at this time.
pub fn check(group: &Group, plan: &Plan, now: BootTime) -> Vec<PairViolation> {
    let roster = group.roster();
    let sight = Sight { group, roster: &roster, now };
    let mut violations = Vec::new();
    if group.is_paused && !plan.steps.iter().all(|step| is_due_in_a_pause(&roster, &step.action)) {
        violations.push(PairViolation::PausedGroupChanged);
    }
    violations.extend(written_twice(plan));
    violations.extend(plan.steps.iter().flat_map(|step| sight.wrongs(&step.action)));
    violations.extend(seated_twice(group, &roster, plan));
    violations.extend(wrong_count(group, plan));
    violations
}

/// Whether a step only protects the active of a pair: from a rollout, or from an API server that is slow.
fn is_due_in_a_pause(roster: &Roster<'_>, action: &PairAction) -> bool {
    if matches!(action, PairAction::Vacate { .. }) {
        return true;
    }
    let PairAction::Label { pod, shown } = action else { return false };
    let said = roster.pod(*pod).map(|known| &known.shown);
    said.is_some_and(|said| said.names_same_part(shown))
}

fn written_twice(plan: &Plan) -> Vec<PairViolation> {
    let (mut pairs, mut pods) = (BTreeSet::new(), BTreeSet::new());
    let twice = |action: &PairAction| {
        if let PairAction::Label { pod, .. } = action {
            return (!pods.insert(*pod)).then_some(PairViolation::LabelledTwice(*pod));
        }
        action.pair().filter(|pair| !pairs.insert(*pair)).map(PairViolation::WrittenTwice)
    };
    plan.steps.iter().map(|step| &step.action).filter_map(twice).collect()
}

/// What is seen of a group, and when.
struct Sight<'a> {
    group: &'a Group,
    roster: &'a Roster<'a>,
    now: BootTime,
}

impl Sight<'_> {
    /// What is wrong with one step, without regard to the others.
    fn wrongs(&self, action: &PairAction) -> Vec<PairViolation> {
        match action {
            PairAction::Found { number, term, seats, level } => {
                let mut wrongs = self.founded(*number, level.as_ref());
                wrongs.extend(
                    (*term < self.group.highest_term).then_some(PairViolation::EpochLowered(*number)),
                );
                wrongs.extend(seats.iter().filter_map(|seat| self.unfree(seat)));
                wrongs
            }
            PairAction::Restore { pair } => {
                let may_return = |lost: &Lost| lost.number == *pair && lost.may_return;
                let is_lost = self.group.lost.iter().any(may_return) && self.pair(*pair).is_none();
                (!is_lost).then_some(PairViolation::NotToRestore(*pair)).into_iter().collect()
            }
            PairAction::Ask { pair, leaving, joining } => {
                let mut wrongs = self.of_pair(*pair, |pair| self.left(pair, *leaving, Some(joining)));
                wrongs.extend(self.unfree(joining));
                wrongs
            }
            PairAction::Vacate { pair, leaving } => {
                self.of_pair(*pair, |pair| self.left(pair, *leaving, None))
            }
            PairAction::Withdraw { pair } | PairAction::Move { pair, .. } => {
                self.of_pair(*pair, |_| Vec::new())
            }
            PairAction::Force { pair, lease } => self.of_pair(*pair, |pair| self.forced(pair, lease)),
            PairAction::SwitchOver { pair } => self.of_pair(*pair, |pair| {
                (!self.has_successor(pair))
                    .then_some(PairViolation::NoSuccessor(pair.number))
                    .into_iter()
                    .collect()
            }),
            PairAction::Fence { pair } => self.of_pair(*pair, |pair| {
                let is_state_ended = pair.level.is_some()
                    && !pair.is_ending
                    && self.group.pairs_wanted.is_none()
                    && !self.roster.staying_members(pair).is_empty();
                is_state_ended.then_some(PairViolation::StateEnded(pair.number)).into_iter().collect()
            }),
            PairAction::End { pair } => self.of_pair(*pair, |pair| self.may_act(pair).into_iter().collect()),
            PairAction::Label { pod, shown: Shown { state, .. } } => {
                let holds = self.roster.holds(*pod);
                let is_wrong = *state == Some(HaState::Active) && !holds;
                is_wrong.then_some(PairViolation::WrongActive(*pod)).into_iter().collect()
            }
        }
    }

    fn pair(&self, number: u32) -> Option<&Pair> {
        self.roster.pair(number)
    }

    fn of_pair(&self, number: u32, wrongs: impl FnOnce(&Pair) -> Vec<PairViolation>) -> Vec<PairViolation> {
        self.pair(number).map_or_else(|| vec![PairViolation::NoSuchPair(number)], wrongs)
    }

    fn may_act(&self, pair: &Pair) -> Option<PairViolation> {
        (!pair.is_over(self.now)).then_some(PairViolation::MayAct(pair.number))
    }

    /// A Pod that cannot take a place. A vacant place has no Pod.
    fn unfree(&self, seat: &Seat) -> Option<PairViolation> {
        let pod = self.roster.pod(seat.id).filter(|pod| !pod.is_leaving);
        let can_join = seat.id == VACANT || pod.is_some_and(|pod| !self.roster.is_left_alone(pod));
        (!can_join).then_some(PairViolation::NotFree(seat.id))
    }

    fn founded(&self, number: u32, level: Option<&LevelText>) -> Vec<PairViolation> {
        let mut wrongs = Vec::new();
        let is_taken =
            self.pair(number).is_some() || self.group.left_alone().any(|lost| lost.number == number);
        wrongs.extend(is_taken.then_some(PairViolation::NumberTaken(number)));
        let said = self.group.remembered.iter().find(|lost| lost.number == number);
        let is_forgotten = said.is_some_and(|lost| lost.level.as_ref() != level);
        wrongs.extend(is_forgotten.then_some(PairViolation::StateForgotten(number)));
        wrongs
    }

    /// A member leaves, and a Pod joins, if any does.
    fn left(&self, pair: &Pair, leaving: AgentId, joining: Option<&Seat>) -> Vec<PairViolation> {
        let mut wrongs = Vec::new();
        let is_silent = pair.silence.is_some_and(|silence| silence.standby == leaving);
        let stays = self.roster.staying_members(pair).contains(&leaving);
        // A silent standby may make room for another one. Only the place of a standby that is gone becomes vacant.
        let is_needed = match joining {
            Some(joining) => stays && !is_silent && !self.is_moved_apart(pair, leaving, joining.id),
            None => stays || pair.lease.holder == Some(leaving),
        };
        wrongs.extend(is_needed.then_some(PairViolation::MemberReplaced(pair.number)));
        let name = joining.map(|joining| joining.pod.as_str());
        let is_lost = pair.level.is_some() && self.loses_last_copy(pair, leaving, name);
        wrongs.extend(is_lost.then_some(PairViolation::LastCopyReplaced(pair.number)));
        wrongs
    }

    /// Whether a standby gives its place, in the domain of the active, to a Pod in another one.
    fn is_moved_apart(&self, pair: &Pair, leaving: AgentId, joining: AgentId) -> bool {
        let domain = |id: AgentId| self.roster.pod(id).and_then(|pod| pod.domain.as_ref());
        let of_active = pair.lease.holder.filter(|holder| *holder != leaving).and_then(domain);
        let asks = self.group.standby_place != StandbyPlace::Anywhere;
        asks && of_active.is_some()
            && domain(leaving) == of_active
            && domain(joining).is_some_and(|own| Some(own) != of_active)
    }

    /// Whether no member would be left that has every acknowledged write, or may come back with it.
    fn loses_last_copy(&self, pair: &Pair, leaving: AgentId, joining: Option<&str>) -> bool {
        let name = |id: &AgentId| pair.names.get(id).map(String::as_str).unwrap_or_default();
        let staying = self.roster.staying_members(pair);
        let has_copy = |id: &AgentId| {
            let may_come_back = !self.roster.is_staying(*id) && is_lasting(name(id));
            let has_it = staying.contains(id) || self.roster.is_busy(pair, *id);
            pair.level_pods.contains(id) && (has_it || may_come_back)
        };
        let members = || pair.lease.members.iter().filter(|id| has_copy(id));
        let comes_back = members().any(|id| joining == Some(name(id)));
        members().any(|id| *id == leaving) && !comes_back && members().all(|id| *id == leaving)
    }

    /// A Lease that is changed from outside keeps its epoch and has no holder.
    fn forced(&self, pair: &Pair, lease: &Lease) -> Vec<PairViolation> {
        let mut wrongs: Vec<PairViolation> = self.may_act(pair).into_iter().collect();
        let is_lowered = lease.epoch < pair.lease.epoch || lease.holder.is_some();
        wrongs.extend(is_lowered.then_some(PairViolation::EpochLowered(pair.number)));
        let new = lease.members.into_iter().filter(|id| !pair.lease.members.contains(id));
        wrongs.extend(new.filter(|id| !self.roster.is_staying(*id)).map(PairViolation::NotFree));
        wrongs
    }

    fn has_successor(&self, pair: &Pair) -> bool {
        let standby = pair.lease.members.into_iter().find(|id| Some(*id) != pair.lease.holder);
        let standby = standby.and_then(|standby| self.roster.pod(standby));
        pair.lease.holder.is_some()
            && pair.level.is_none_or(|copies| copies > 1)
            && standby.is_some_and(|pod| {
                let is_up = (pod.is_ready || self.roster.may_share()) && !pod.is_leaving;
                is_up && pair.has_whole_state(pod.id) && !self.roster.is_claimed_elsewhere(pair, pod.id)
            })
    }
}

/// Pods that would get more places than they may have. One that has them already is no fault of this plan.
fn seated_twice(group: &Group, roster: &Roster<'_>, plan: &Plan) -> Vec<PairViolation> {
    let place = |pair: &Pair| {
        // The active of a pair that ends admits no other Pod.
        let joining = pair.lease.named().filter(|id| !pair.is_ending || pair.lease.members.contains(id));
        (pair.number, joining.collect())
    };
    let mut places: BTreeMap<u32, BTreeSet<AgentId>> = group.pairs.iter().map(place).collect();
    let members = |number: u32| {
        roster
            .pair(number)
            .map(|pair| pair.lease.members.into_iter().collect::<BTreeSet<_>>())
            .unwrap_or_default()
    };
    let mut joining: Vec<AgentId> = Vec::new();
    for action in plan.steps.iter().map(|step| &step.action) {
        let Some(pair) = action.pair() else { continue };
        match action {
            PairAction::Withdraw { .. } => drop(places.insert(pair, members(pair))),
            PairAction::Force { .. } | PairAction::End { .. } => drop(places.remove(&pair)),
            PairAction::Found { .. }
            | PairAction::Restore { .. }
            | PairAction::Ask { .. }
            | PairAction::Vacate { .. }
            | PairAction::Move { .. }
            | PairAction::SwitchOver { .. }
            | PairAction::Fence { .. }
            | PairAction::Label { .. } => {}
        }
        let seated = action.seated();
        if seated.is_empty() {
            continue;
        }
        joining.extend(seated.iter().filter(|id| !members(pair).contains(id)));
        places.entry(pair).or_default().extend(seated);
    }
    joining.retain(|id| *id != VACANT);

    let mut pairs_of: BTreeMap<AgentId, usize> = BTreeMap::new();
    for id in places.into_values().flatten() {
        *pairs_of.entry(id).or_default() += 1;
    }
    let most = |id: &AgentId| if roster.holds(*id) { 1 } else { 1 + group.further_places };
    let is_twice = |id: &AgentId| pairs_of.get(id).is_some_and(|pairs| *pairs > most(id));
    joining.into_iter().filter(is_twice).map(PairViolation::SeatedTwice).collect()
}

/// Whether the plan makes more pairs than are wanted, or ends one that is.
fn wrong_count(group: &Group, plan: &Plan) -> Option<PairViolation> {
    let actions = || plan.steps.iter().map(|step| &step.action);
    let founded = actions().filter(|action| matches!(action, PairAction::Found { .. })).count();
    let is_end = |action: &&PairAction| matches!(action, PairAction::Fence { .. } | PairAction::End { .. });
    let ended: BTreeSet<u32> = actions().filter(is_end).filter_map(PairAction::pair).collect();
    let lasting = || group.pairs.iter().filter(|pair| !pair.is_ending);
    let ends_one = lasting().any(|pair| ended.contains(&pair.number));
    let left = lasting().filter(|pair| !ended.contains(&pair.number)).count();
    let fillable = group.staying().len().div_ceil(2);
    if ends_one && left < group.pairs_wanted.unwrap_or(fillable) {
        return Some(PairViolation::TooFewPairs(left));
    }
    let most = group.pairs_wanted.unwrap_or(usize::MAX);
    (founded > 0 && left + founded > most).then_some(PairViolation::TooManyPairs(left + founded))
}
