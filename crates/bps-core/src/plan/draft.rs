//! The plan while it is being made: each Pod's seat with its planned role, and the steps so far.
//!
//! Rules read the draft as if their predecessors' steps were done. The storm brake sits here, so that no rule can
//! forget it.

use jiff::Timestamp;

use crate::model::{
    Action, EarlyEnds, Hold, Lifecycle, NodeHealth, ObjectState, Plan, PodName, PodView, Reason, Role,
    Snapshot, Step,
};

use super::names;

/// Whether a Pod counts for its tier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Presence {
    /// It counts.
    Counted,
    /// Its node is not heard of: it may run on, but nobody relies on it.
    Lost,
    /// It goes away: terminating, finished or to be deleted by this plan.
    Leaving(Reason),
}

/// One Pod with what this plan makes of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seat<'a> {
    pub(super) view: &'a PodView,
    /// Role after this plan.
    pub(super) role: Role,
    pub(super) presence: Presence,
    /// Whether a step names it already.
    pub(super) is_claimed: bool,
}

impl Seat<'_> {
    pub(super) fn is_counted(&self) -> bool {
        self.presence == Presence::Counted
    }

    /// Whether a rule may still decide about it.
    pub(super) fn is_free(&self) -> bool {
        self.is_counted() && !self.is_claimed
    }
}

/// Position of a seat in the draft.
pub(super) type SeatIndex = usize;

/// A plan in the making.
pub(super) struct Draft<'a> {
    pub(super) snapshot: &'a Snapshot,
    pub(super) seats: Vec<Seat<'a>>,
    created: Vec<(Role, u32)>,
    /// Creations that wait because Pods ended early, and until when as far as that is known.
    delayed: Vec<Option<Timestamp>>,
    /// Slots of Pods whose creation was delayed by this plan.
    reserved: Vec<u32>,
    steps: Vec<Step>,
    holds: Vec<Hold>,
}

impl<'a> Draft<'a> {
    pub(super) fn new(snapshot: &'a Snapshot) -> Self {
        let mut seats: Vec<Seat<'_>> = snapshot.pods.iter().map(seat).collect();
        // Rules that serve one Pod after another must not depend on the order of a cache.
        seats.sort_by(|left, right| left.view.pod.name.cmp(&right.view.pod.name));
        let mut delayed: Vec<Option<Timestamp>> = Vec::new();
        if let Some(EarlyEnds { until, words: _ }) = &snapshot.recent.early_ends {
            let ends = seats.iter().filter(|seat| seat.presence == Presence::Leaving(Reason::PodFinished));
            // Their time is told once they are deleted.
            delayed.extend(ends.filter(|seat| seat.view.signs.has_ended_early).map(|_| None));
            delayed
                .extend(until.iter().rev().filter(|until| **until > snapshot.now).map(|until| Some(*until)));
        }
        let (created, reserved) = (Vec::new(), Vec::new());
        Self { snapshot, seats, created, delayed, reserved, steps: Vec::new(), holds: Vec::new() }
    }

    /// Pods that will have this role after the plan, new ones included.
    pub(super) fn count(&self, role: Role) -> usize {
        let seated = self.seats.iter().filter(|seat| seat.is_counted() && seat.role == role).count();
        seated + self.created.iter().filter(|(created, _)| *created == role).count()
    }

    /// Seats of Pods that will have this role and count.
    pub(super) fn members(&self, role: Role) -> impl Iterator<Item = (SeatIndex, &Seat<'a>)> {
        self.seats.iter().enumerate().filter(move |(_, seat)| seat.is_counted() && seat.role == role)
    }

    /// Primaries by label, ready and exposed, that stay so by this plan; without this one Pod.
    pub(super) fn standing_primaries_without(&self, left_out: Option<SeatIndex>) -> usize {
        let stands = |seat: &Seat<'_>| {
            seat.view.role == Role::Primary && seat.view.is_ready() && self.is_exposed(seat.view)
        };
        self.members(Role::Primary).filter(|(index, seat)| Some(*index) != left_out && stands(seat)).count()
    }

    /// Whether clients are sent to it, as far as that is ours to say.
    ///
    /// The write of the addresses may have failed, and steps come in any order: a successor counts once it is seen.
    fn is_exposed(&self, view: &PodView) -> bool {
        self.snapshot.exposure.as_ref().is_none_or(|exposure| {
            [exposure.service, exposure.slice].contains(&ObjectState::Foreign)
                || exposure.endpoints.iter().any(|endpoint| endpoint.uid == view.pod.uid && endpoint.is_ready)
        })
    }

    /// Whether a Pod was made from the template as it stands.
    pub(super) fn is_updated(&self, view: &PodView) -> bool {
        view.revision == self.snapshot.desired.revision
    }

    /// Pods in a row that were woken in vain, those of this plan included.
    pub(super) fn timeouts_in_a_row(&self) -> usize {
        let given_up = |step: &&Step| {
            step.reason == Reason::WakeTimedOut && matches!(step.action, Action::Delete { .. })
        };
        self.snapshot.recent.timeouts_in_a_row + self.steps.iter().filter(given_up).count()
    }

    pub(super) fn convert(&mut self, index: SeatIndex, to: Role, reason: Reason) {
        let view = self.seats[index].view;
        self.seats[index].role = to;
        self.claim(index, Action::Convert { pod: view.pod.clone(), from: view.role, to }, reason);
    }

    pub(super) fn delete(&mut self, index: SeatIndex, reason: Reason) {
        let view = self.seats[index].view;
        // That a Pod has ended is no matter of what its node says now, and its place is better free.
        if reason != Reason::PodFinished && self.is_kept_back(&view.pod.name) {
            return;
        }
        self.seats[index].presence = Presence::Leaving(reason);
        let action = Action::Delete { pod: view.pod.clone(), role: view.role, is_ready: view.is_ready() };
        self.claim(index, action, reason);
    }

    /// Makes a Pod in the lowest free slot, or has it wait; returns false when no Pod may be made at all.
    pub(super) fn create(&mut self, role: Role, reason: Reason) -> bool {
        let planned = self.created.iter().map(|(_, slot)| *slot).chain(self.reserved.iter().copied());
        let (slot, name) = names::next_place(self.snapshot, planned);
        let is_certain = self.snapshot.desired.can_create && self.is_short_for_certain();
        if !is_certain && self.is_kept_back(&name) {
            return false;
        }
        // What ended early is made again later; a Pod that was lost beside it is not kept waiting for that.
        if let Some(until) = self.delayed.pop() {
            self.reserved.push(slot);
            self.hold(Hold { reason: Reason::BackingOff, pod: Some(name), until });
            return true;
        }
        self.created.push((role, slot));
        self.step(Action::Create { name, role, slot }, reason);
        true
    }

    /// Adds a step about a Pod that no other step names.
    pub(super) fn claim(&mut self, index: SeatIndex, action: Action, reason: Reason) {
        debug_assert!(!self.seats[index].is_claimed, "a Pod is named by at most one step");
        self.seats[index].is_claimed = true;
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

    /// Whether more Pods are wanted than there would be if all lost ones came back.
    fn is_short_for_certain(&self) -> bool {
        let desired = &self.snapshot.desired;
        let wanted: usize = Role::ALL.iter().map(|role| desired.count(*role)).sum();
        let may_stay =
            self.seats.iter().filter(|seat| !matches!(seat.presence, Presence::Leaving(_))).count();
        may_stay + self.created.len() < wanted
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

fn seat(view: &PodView) -> Seat<'_> {
    let presence = match (view.lifecycle, view.node_health()) {
        (Lifecycle::Terminating, _) => Presence::Leaving(Reason::PodDeleted),
        (_, NodeHealth::NotReady | NodeHealth::Gone) => Presence::Lost,
        (Lifecycle::Finished, _) => Presence::Leaving(Reason::PodFinished),
        (
            Lifecycle::Unscheduled
            | Lifecycle::Starting
            | Lifecycle::Ready { .. }
            | Lifecycle::Unready { .. },
            NodeHealth::Healthy | NodeHealth::Cordoned,
        ) => Presence::Counted,
    };
    Seat { view, role: view.role, presence, is_claimed: false }
}
