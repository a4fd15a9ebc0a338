//! The plan while it is being made: each Pod's seat with its planned role, and the steps so far.
//!
//! Rules read the draft as if their predecessors' steps were done. The storm brake sits here, so that no rule can
//! forget it.

use crate::model::{
    Action, Hold, Lifecycle, NodeHealth, ObjectState, Plan, PodName, PodView, Reason, Role, Snapshot, Step,
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
    steps: Vec<Step>,
    holds: Vec<Hold>,
}

impl<'a> Draft<'a> {
    pub(super) fn new(snapshot: &'a Snapshot) -> Self {
        let mut seats: Vec<Seat<'_>> = snapshot.pods.iter().map(seat).collect();
        // Rules that serve one Pod after another must not depend on the order of a cache.
        seats.sort_by(|left, right| left.view.pod.name.cmp(&right.view.pod.name));
        Self { snapshot, seats, created: Vec::new(), steps: Vec::new(), holds: Vec::new() }
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

    pub(super) fn convert(&mut self, index: SeatIndex, to: Role, reason: Reason) {
        let view = self.seats[index].view;
        self.seats[index].role = to;
        self.claim(index, Action::Convert { pod: view.pod.clone(), from: view.role, to }, reason);
    }

    pub(super) fn delete(&mut self, index: SeatIndex, reason: Reason) {
        if self.is_braked(&self.seats[index].view.pod.name.clone()) {
            return;
        }
        let view = self.seats[index].view;
        self.seats[index].presence = Presence::Leaving(reason);
        let action = Action::Delete { pod: view.pod.clone(), role: view.role, is_ready: view.is_ready() };
        self.claim(index, action, reason);
    }

    /// Makes a Pod in the lowest free slot; returns false when the storm brake forbids it.
    pub(super) fn create(&mut self, role: Role, reason: Reason) -> bool {
        let (slot, name) = names::next_place(self.snapshot, self.created.iter().map(|(_, slot)| *slot));
        if self.is_braked(&name) {
            return false;
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

    // A mass loss is more often a fault of what we see than of what is: nothing is destroyed or made until it ends.
    fn is_braked(&mut self, pod: &PodName) -> bool {
        if self.snapshot.storm.is_none() {
            return false;
        }
        self.hold(Hold { reason: Reason::StormBrake, pod: Some(pod.clone()), until: None });
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
