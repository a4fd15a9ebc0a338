//! Makes pairs of Pods that belong to none.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::apart::Distance;
use super::plan::Draft;
use super::reason::PairReason;
use super::step::PairAction;
use super::view::{HaState, Pod, Seat, is_lasting};

/// How long a single Pod waits for another one before it acts alone. 5 s: Pods of one workload start within a second or
/// two of each other, and a pair that is made at once needs no admission.
const ALONE_MIN: Duration = Duration::from_secs(5);

impl Draft<'_> {
    /// Makes as many pairs as are wanted, and fills their seats.
    ///
    /// A primary of a set begins alone, so that it is the one who acts; its standby is admitted a moment later. So does any Pod where
    /// a standby may have several places: it would leave the others if it were the first to act in one.
    pub(super) fn found_wanted(&mut self, wanted: usize) {
        let lasting = self.group.pairs.iter().filter(|pair| !pair.is_ending).count();
        let mut missing = wanted.saturating_sub(lasting + self.group.left_alone().count());
        missing -= self.found_again(missing);
        let mut numbers = self.free_numbers();
        let shares = self.group.further_places > 0;
        let has_roles = self.group.staying().iter().any(|pod| pod.role.is_some());
        let begins = |pod: &&Pod| pod.is_primary() || shares && !has_roles;
        if shares && !has_roles {
            // A former standby has copies of several states, and would begin a pair with any one of them.
            self.free.sort_by_key(|pod| pod.shown.state == Some(HaState::Standby));
        }
        while missing > 0 && self.free.first().is_some_and(begins) {
            self.found_alone(numbers.remove(0), PairReason::PrimaryFirst);
            missing -= 1;
        }
        self.fill_seats();
        while !has_roles && missing > 0 && self.free.len() >= 2 {
            if !self.found_two(numbers[0]) {
                self.hold(PairReason::NoOtherDomain, None, None);
                break;
            }
            numbers.remove(0);
            missing -= 1;
        }
        if missing == 0 || self.free.is_empty() || !self.may_found_alone() {
            return;
        }
        while missing > 0 && !self.free.is_empty() {
            self.found_alone(numbers.remove(0), PairReason::PodAlone);
            missing -= 1;
        }
    }

    /// Makes pairs anew whose Leases are lost, at most so many, of the Pods that they had: in another pair a Pod's copy of
    /// the state would be replaced. Returns how many.
    pub(super) fn found_again(&mut self, most: usize) -> usize {
        let group = self.group;
        let shares = group.further_places > 0;
        let mut count = 0;
        for lost in &group.remembered {
            let is_there = |pod: &&Pod| lost.pods.contains(&pod.name);
            if count == most || !self.free.iter().any(is_there) {
                continue;
            }
            let mut seats = lost.pods.iter().filter_map(|name| {
                let index = self.free.iter().position(|pod| pod.name == *name)?;
                self.take(index)
            });
            if let Some(first) = seats.next() {
                // A standby of several joins the pair of each of its actives later.
                let second = if shares { None } else { seats.next() };
                let second = second.unwrap_or_else(|| Seat::vacant(String::new()));
                self.found(lost.number, [first, second], PairReason::LeaseLost);
                count += 1;
            }
        }
        count
    }

    /// Two by two, the oldest first; the partner is preferably on another node.
    pub(super) fn found_pairs(&mut self) {
        let mut numbers = self.free_numbers();
        while self.free.len() >= 2 {
            if !self.found_two(numbers[0]) {
                self.hold(PairReason::NoOtherDomain, None, None);
                break;
            }
            numbers.remove(0);
        }
        let has_pair = !self.group.pairs.is_empty()
            || !self.plan.steps.is_empty()
            || self.group.left_alone().next().is_some();
        if has_pair || self.free.is_empty() || !self.may_found_alone() {
            return;
        }
        self.found_alone(numbers.remove(0), PairReason::PodAlone);
    }

    /// Whether a single Pod has waited long enough for others, if there are any to come.
    fn may_found_alone(&mut self) -> bool {
        self.group.staying().len() <= 1
            || self.has_waited(self.group.alone_since, ALONE_MIN, PairReason::PodAlone)
    }

    /// Pairs the oldest free Pod that may have a partner; `false` if there is none.
    fn found_two(&mut self, number: u32) -> bool {
        let found = (0..self.free.len()).find_map(|first| Some((first, self.partner(first)?)));
        let Some((first, second)) = found else { return false };
        let partner = self.take(second);
        let oldest = self.take(first - usize::from(second < first));
        let Some(seats) = oldest.zip(partner) else { return false };
        self.found(number, seats.into(), PairReason::PodsUnpaired);
        true
    }

    /// Place of the free Pod that one is best paired with, if there is one that may be: the farthest; of several in other domains
    /// one of the domain with most free Pods, so that as many as possible find a partner; then the oldest.
    fn partner(&self, of: usize) -> Option<usize> {
        let (group, first) = (self.group, *self.free.get(of)?);
        let mut crowds: BTreeMap<Option<&String>, usize> = BTreeMap::new();
        for pod in &self.free {
            *crowds.entry(pod.domain.as_ref()).or_default() += 1;
        }
        let order = |(index, pod): &(usize, &&Pod)| {
            let distance = group.distance(first, pod);
            let is_elsewhere = distance == Distance::OtherDomain;
            let crowd = if is_elsewhere { crowds[&pod.domain.as_ref()] } else { 0 };
            (distance, Reverse(crowd), *index)
        };
        let others = self.free.iter().enumerate().filter(|(index, _)| *index != of);
        let (index, partner) = others.min_by_key(order)?;
        group.is_far_enough(group.distance(first, partner)).then_some(index)
    }

    fn found_alone(&mut self, number: u32, reason: PairReason) {
        let Some(first) = self.take(0) else { return };
        self.found(number, [first, Seat::vacant(String::new())], reason);
    }

    fn found(&mut self, number: u32, seats: [Seat; 2], reason: PairReason) {
        let lost = self.group.remembered.iter().find(|lost| lost.number == number);
        let level = lost.and_then(|lost| lost.level.clone());
        let term = self.group.highest_term;
        self.step(PairAction::Found { number, term, seats, level }, reason);
    }

    /// The lowest numbers that no pair has, one for each pair that can be made.
    fn free_numbers(&self) -> Vec<u32> {
        let pairs = self.group.pairs.iter().map(|pair| pair.number);
        // Pods of these names come back, mostly with their volumes; nobody else gets what the Lease said of those.
        let left = self.group.remembered.iter().filter(|lost| lost.pods.iter().any(|pod| is_lasting(pod)));
        let lost = self.group.left_alone().chain(left).map(|lost| lost.number);
        let founded = self.plan.steps.iter().filter_map(|step| {
            if let PairAction::Found { number, .. } = &step.action { Some(*number) } else { None }
        });
        let taken: BTreeSet<u32> = pairs.chain(lost).chain(founded).collect();
        (0..).filter(|number| !taken.contains(number)).take(self.free.len()).collect()
    }
}
