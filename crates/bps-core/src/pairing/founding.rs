//! Makes pairs of Pods that belong to none.

use std::collections::BTreeSet;
use std::time::Duration;

use super::plan::Draft;
use super::reason::PairReason;
use super::step::PairAction;
use super::view::{Pod, Seat, is_lasting};

/// How long a single Pod waits for another one before it acts alone. 5 s: Pods of one workload start within a second or
/// two of each other, and a pair that is made at once needs no admission.
const ALONE_MIN: Duration = Duration::from_secs(5);

impl Draft<'_> {
    /// Makes as many pairs as are wanted, and fills their seats.
    ///
    /// A primary of a set begins alone, so that it is the one who acts; its standby is admitted a moment later.
    pub(super) fn found_wanted(&mut self, wanted: usize) {
        let lasting = self.group.pairs.iter().filter(|pair| !pair.is_ending).count();
        let mut missing = wanted.saturating_sub(lasting + self.group.left_alone().count());
        missing -= self.found_again(missing);
        let mut numbers = self.free_numbers();
        while missing > 0 && self.free.first().is_some_and(|pod| pod.is_primary()) {
            self.found_alone(numbers.remove(0), PairReason::PrimaryFirst);
            missing -= 1;
        }
        self.fill_seats();
        let has_roles = self.group.staying().iter().any(|pod| pod.role.is_some());
        while !has_roles && missing > 0 && self.free.len() >= 2 {
            self.found_two(numbers.remove(0));
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
                let second = seats.next().unwrap_or_else(|| Seat::vacant(String::new()));
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
            self.found_two(numbers.remove(0));
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

    fn found_two(&mut self, number: u32) {
        let node = self.free[0].node.clone();
        let apart = self.free.iter().position(|pod| pod.node != node).unwrap_or(1);
        let Some(second) = self.take(apart) else { return };
        let Some(first) = self.take(0) else { return };
        self.found(number, [first, second], PairReason::PodsUnpaired);
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
