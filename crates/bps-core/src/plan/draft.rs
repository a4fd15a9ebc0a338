//! The plan while it is being made: each Pod's seat with its planned role, and the steps so far.
//!
//! Rules read the draft as if their predecessors' steps were done. The storm brake sits here, so that no rule can
//! forget it.

use std::collections::BTreeMap;

use jiff::Timestamp;

use crate::model::{
    Action, EarlyEnds, Hold, Plan, PodName, PodView, Reason, Replaceable, Role, Snapshot, Step,
};

use super::balance::Balance;
use super::names::Places;
use super::seats::{Presence, Seat, SeatIndex, Seats};

/// A plan in the making.
pub(super) struct Draft<'a> {
    pub(super) snapshot: &'a Snapshot,
    pub(super) seats: Seats<'a>,
    /// New Pods of each role.
    created: BTreeMap<Role, usize>,
    /// Where new Pods go; known once there is one.
    places: Option<Places<'a>>,
    /// Pods that this plan gives up because they were woken in vain.
    timeouts: usize,
    /// Creations that wait because Pods ended early, and until when as far as that is known.
    delayed: Vec<Option<Timestamp>>,
    steps: Vec<Step>,
    holds: Vec<Hold>,
}

impl<'a> Draft<'a> {
    pub(super) fn new(snapshot: &'a Snapshot) -> Self {
        let seats = Seats::new(snapshot);
        let mut delayed: Vec<Option<Timestamp>> = Vec::new();
        if let Some(EarlyEnds { until, words: _ }) = &snapshot.recent.early_ends {
            let ends = seats.iter().filter(|seat| seat.presence == Presence::Leaving(Reason::PodFinished));
            // Their time is told once they are deleted.
            delayed.extend(ends.filter(|seat| seat.view.signs.has_ended_early).map(|_| None));
            delayed
                .extend(until.iter().rev().filter(|until| **until > snapshot.now).map(|until| Some(*until)));
        }
        Self {
            snapshot,
            seats,
            created: BTreeMap::new(),
            places: None,
            timeouts: 0,
            delayed,
            steps: Vec::new(),
            holds: Vec::new(),
        }
    }

    /// Pods that will have this role after the plan, new ones included.
    pub(super) fn count(&self, role: Role) -> usize {
        self.seats.tally().counted(role) + self.created.get(&role).copied().unwrap_or(0)
    }

    /// Seats of Pods that will have this role and count.
    pub(super) fn members(&self, role: Role) -> impl Iterator<Item = (SeatIndex, &Seat<'a>)> {
        self.seats.iter().enumerate().filter(move |(_, seat)| seat.is_counted() && seat.role == role)
    }

    /// Whether a Pod was made from the template as it stands.
    pub(super) fn is_updated(&self, view: &PodView) -> bool {
        self.snapshot.desired.is_current(view)
    }

    /// What each subset has while `role` is given away: if that makes a primary too many, without those of a former template that no
    /// partition keeps, whose places a rollout gives away.
    pub(super) fn balance_for(&self, role: Role) -> Balance {
        let mut balance = self.seats.tally().balance.clone();
        if role != Role::Primary || self.count(Role::Primary) < self.snapshot.desired.replicas {
            return balance;
        }
        let primaries = self.members(Role::Primary).map(|(_, seat)| seat.view);
        let mut replaceable = Replaceable::among(&self.snapshot.desired, primaries);
        for subset in 0..self.snapshot.desired.topology.subsets.len() {
            while replaceable.take(Some(subset)) {
                balance.leave(subset, Role::Primary);
            }
        }
        balance
    }

    /// The subset that a new Pod is made for, if the set has subsets; it is counted there from now on.
    fn subset_of_new(&mut self, role: Role) -> Option<usize> {
        if self.snapshot.desired.topology.subsets.is_empty() {
            return None;
        }
        let subset = self.balance_for(role).neediest(role)?;
        self.seats.enter_new(subset, role);
        Some(subset)
    }

    /// Whether the plan makes a Pod.
    pub(super) fn makes_a_pod(&self) -> bool {
        !self.created.is_empty()
    }

    /// Pods in a row that were woken in vain, those of this plan included.
    pub(super) const fn timeouts_in_a_row(&self) -> usize {
        self.snapshot.recent.timeouts_in_a_row + self.timeouts
    }

    pub(super) fn convert(&mut self, index: SeatIndex, to: Role, reason: Reason) {
        let view = self.seats[index].view;
        self.seats.change(index, |seat| seat.role = to);
        self.claim(index, Action::Convert { pod: view.pod.clone(), from: view.role, to }, reason);
    }

    pub(super) fn delete(&mut self, index: SeatIndex, reason: Reason) {
        let view = self.seats[index].view;
        // That a Pod has ended is no matter of what its node says now, and its place is better free.
        if reason != Reason::PodFinished && self.is_kept_back(&view.pod.name) {
            return;
        }
        self.seats.change(index, |seat| seat.presence = Presence::Leaving(reason));
        self.timeouts += usize::from(reason == Reason::WakeTimedOut);
        let action = Action::Delete { pod: view.pod.clone(), role: view.role, is_ready: view.is_ready() };
        self.claim(index, action, reason);
    }

    /// Makes a Pod in the lowest free slot, or has it wait; returns false when no Pod may be made at all.
    pub(super) fn create(&mut self, role: Role, reason: Reason) -> bool {
        let snapshot = self.snapshot;
        let place = self.places.get_or_insert_with(|| Places::new(snapshot)).next();
        let is_certain = self.snapshot.desired.can_create && self.is_short_for_certain();
        if !is_certain && self.is_kept_back(&place.name) {
            return false;
        }
        if !self.has_room_for_another() {
            self.hold(Hold { reason: Reason::SubsetFull, pod: Some(place.name), until: None });
            return false;
        }
        if let Some(places) = &mut self.places {
            places.take(&place);
        }
        // What ended early is made again later; a Pod that was lost beside it is not kept waiting for that.
        if let Some(until) = self.delayed.pop() {
            self.hold(Hold { reason: Reason::BackingOff, pod: Some(place.name), until });
            return true;
        }
        let subset = self.subset_of_new(role);
        *self.created.entry(role).or_default() += 1;
        let subset = subset.map(|index| snapshot.desired.topology.subsets[index].name.clone());
        self.step(Action::Create { name: place.name, role, slot: place.slot, subset }, reason);
        true
    }

    /// Adds a step about a Pod that no other step names.
    pub(super) fn claim(&mut self, index: SeatIndex, action: Action, reason: Reason) {
        debug_assert!(!self.seats[index].is_claimed, "a Pod is named by at most one step");
        self.seats.change(index, |seat| seat.is_claimed = true);
        self.step(action, reason);
    }

    pub(super) fn step(&mut self, action: Action, reason: Reason) {
        self.steps.push(Step { action, reason });
    }

    pub(super) fn hold(&mut self, hold: Hold) {
        self.holds.push(hold);
    }

    pub(super) fn into_plan(mut self) -> Plan {
        self.holds.sort();
        self.holds.dedup();
        Plan { steps: self.steps, holds: self.holds }
    }

    /// Whether a new Pod may find a node: not if Pods wait for one in every subset. So in each subset no more wait than were made
    /// at once, which is no more than are wanted.
    fn has_room_for_another(&self) -> bool {
        !self.seats.tally().balance.is_full()
    }

    /// Whether more Pods are wanted than there would be if all lost ones came back.
    fn is_short_for_certain(&self) -> bool {
        let desired = &self.snapshot.desired;
        let wanted: usize = Role::ALL.iter().map(|role| desired.count(*role)).sum();
        self.seats.tally().staying + self.created.values().sum::<usize>() < wanted
    }

    /// Whether nothing may be destroyed or made now, and holds the step.
    ///
    /// A mass loss is more often a fault of what we see than of what is: that ends, or lasts for so long that it is believed.
    /// And what no Pod can replace is not taken away.
    fn is_kept_back(&mut self, pod: &PodName) -> bool {
        let (reason, until) = match &self.snapshot.storm {
            Some(storm) => (Reason::StormBrake, Some(storm.until)),
            None if !self.snapshot.desired.can_create => (Reason::InvalidSpec, None),
            None => return false,
        };
        self.hold(Hold { reason, pod: Some(pod.clone()), until });
        true
    }
}
