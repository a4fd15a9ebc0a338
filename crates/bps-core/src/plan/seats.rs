//! The seats of a plan: each Pod with what the plan makes of it, and numbers that stay true while seats change.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Index;

use super::balance::Balance;
use crate::model::{Lifecycle, NodeHealth, PodName, PodView, Reason, Role, Snapshot, Uid};

/// Whether a Pod counts for its tier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Presence {
    /// It counts.
    Counted,
    /// Its node is not heard of: it may run on, but nobody relies on it.
    Lost,
    /// It waits for a node of its subset for so long that another Pod fills its place; it counts again once it has a node.
    Reserved,
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
    /// Whether clients are sent to it, as far as that is ours to say.
    ///
    /// The write of the addresses may have failed, and steps come in any order: a successor counts once it is seen.
    is_exposed: bool,
    /// Whether a step names it already.
    pub(super) is_claimed: bool,
}

impl<'a> Seat<'a> {
    fn new(snapshot: &Snapshot, view: &'a PodView, is_exposed: bool) -> Self {
        let presence = match (view.lifecycle, view.node_health()) {
            (Lifecycle::Terminating, _) => Presence::Leaving(Reason::PodDeleted),
            (_, NodeHealth::NotReady | NodeHealth::Gone) => Presence::Lost,
            (Lifecycle::Finished, _) => Presence::Leaving(Reason::PodFinished),
            (Lifecycle::Unscheduled, _) if snapshot.is_reserved(view) => Presence::Reserved,
            (
                Lifecycle::Unscheduled
                | Lifecycle::Starting
                | Lifecycle::Ready { .. }
                | Lifecycle::Unready { .. },
                NodeHealth::Healthy | NodeHealth::Cordoned,
            ) => Presence::Counted,
        };
        Self { view, role: view.role, presence, is_exposed, is_claimed: false }
    }

    pub(super) fn is_counted(&self) -> bool {
        self.presence == Presence::Counted
    }

    /// Whether a rule may still decide about it.
    pub(super) fn is_free(&self) -> bool {
        self.is_counted() && !self.is_claimed
    }

    fn is_member(&self, role: Role) -> bool {
        self.is_counted() && self.role == role
    }

    /// Whether it is a primary by label, ready and exposed, and stays so by this plan.
    fn stands(&self) -> bool {
        let is_primary = self.is_member(Role::Primary) && self.view.role == Role::Primary;
        is_primary && self.view.is_ready() && self.is_exposed
    }

    /// Whether it is a primary that stopped being ready, and stays one by this plan.
    fn is_unready_primary(&self) -> bool {
        self.is_member(Role::Primary) && matches!(self.view.lifecycle, Lifecycle::Unready { .. })
    }
}

/// Position of a seat.
pub(super) type SeatIndex = usize;

/// Every seat, sorted by the names of the Pods.
///
/// Each visit of a seat is counted: how the work of a plan grows with the Pods is asserted by that number.
pub(super) struct Seats<'a> {
    all: Vec<Seat<'a>>,
    tally: Tally,
    visits: Cell<usize>,
}

impl<'a> Seats<'a> {
    pub(super) fn new(snapshot: &'a Snapshot) -> Self {
        let exposed = exposed(snapshot);
        let is_exposed =
            |view: &PodView| exposed.as_ref().is_none_or(|exposed| exposed.contains(&view.pod.uid));
        let mut all: Vec<Seat<'a>> =
            snapshot.pods.iter().map(|view| Seat::new(snapshot, view, is_exposed(view))).collect();
        // Rules that serve one Pod after another must not depend on the order of a cache.
        all.sort_by(|left, right| left.view.pod.name.cmp(&right.view.pod.name));
        let mut tally = Tally { balance: Balance::of(&snapshot.desired), ..Tally::default() };
        for seat in &all {
            tally.enter(seat);
        }
        Self { all, tally, visits: Cell::new(0) }
    }

    pub(super) const fn len(&self) -> usize {
        self.all.len()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Seat<'a>> {
        self.all.iter().inspect(|_| self.visit())
    }

    /// The seat of the Pod with this name.
    pub(super) fn position(&self, name: &PodName) -> Option<SeatIndex> {
        let compared = |seat: &Seat<'_>| {
            self.visit();
            seat.view.pod.name.cmp(name)
        };
        self.all.binary_search_by(compared).ok()
    }

    /// Changes what the plan makes of a Pod.
    pub(super) fn change(&mut self, index: SeatIndex, change: impl FnOnce(&mut Seat<'a>)) {
        self.visit();
        self.tally.leave(&self.all[index]);
        change(&mut self.all[index]);
        self.tally.enter(&self.all[index]);
    }

    pub(super) const fn tally(&self) -> &Tally {
        &self.tally
    }

    /// Counts a Pod that the plan makes for a subset.
    pub(super) fn enter_new(&mut self, subset: usize, role: Role) {
        self.tally.balance.enter(subset, role);
    }

    /// Primaries by label, ready and exposed, that stay so by this plan; without this one Pod.
    pub(super) fn standing_without(&self, left_out: SeatIndex) -> usize {
        self.tally.standing - usize::from(self[left_out].stands())
    }

    /// Primaries that stopped being ready; without this one Pod.
    pub(super) fn unready_primaries_without(&self, left_out: SeatIndex) -> usize {
        self.tally.unready_primaries - usize::from(self[left_out].is_unready_primary())
    }

    /// How often a seat was looked at so far.
    #[cfg(test)]
    pub(super) const fn visits(&self) -> usize {
        self.visits.get()
    }

    fn visit(&self) {
        self.visits.set(self.visits.get() + 1);
    }
}

impl<'a> Index<SeatIndex> for Seats<'a> {
    type Output = Seat<'a>;

    fn index(&self, index: SeatIndex) -> &Seat<'a> {
        self.visit();
        &self.all[index]
    }
}

/// Numbers of seats, kept up to date so that no rule counts all Pods for each Pod.
#[derive(Default)]
pub(super) struct Tally {
    counted: BTreeMap<Role, usize>,
    /// Primaries by label, ready and exposed, that stay so by this plan.
    pub(super) standing: usize,
    unready_primaries: usize,
    /// Pods that are not on their way out, those on silent nodes included.
    pub(super) staying: usize,
    /// Pods that wait for a node of their subset while others fill their places.
    pub(super) reserved: usize,
    /// Pods that count in each subset, new ones included.
    pub(super) balance: Balance,
}

impl Tally {
    /// Pods that count and have this role after the plan, without new ones.
    pub(super) fn counted(&self, role: Role) -> usize {
        self.counted.get(&role).copied().unwrap_or(0)
    }

    fn enter(&mut self, seat: &Seat<'_>) {
        *self.counted.entry(seat.role).or_default() += usize::from(seat.is_counted());
        self.standing += usize::from(seat.stands());
        self.unready_primaries += usize::from(seat.is_unready_primary());
        self.staying += usize::from(!matches!(seat.presence, Presence::Leaving(_)));
        if let Some(subset) = seat.view.subset.filter(|_| seat.is_counted()) {
            self.balance.enter(subset, seat.role);
        }
        self.reserved += usize::from(seat.presence == Presence::Reserved);
        if let Some(subset) = seat.view.subset.filter(|_| seat.presence == Presence::Reserved) {
            self.balance.close(subset);
        }
    }

    fn leave(&mut self, seat: &Seat<'_>) {
        *self.counted.entry(seat.role).or_default() -= usize::from(seat.is_counted());
        self.standing -= usize::from(seat.stands());
        self.unready_primaries -= usize::from(seat.is_unready_primary());
        self.staying -= usize::from(!matches!(seat.presence, Presence::Leaving(_)));
        if let Some(subset) = seat.view.subset.filter(|_| seat.is_counted()) {
            self.balance.leave(subset, seat.role);
        }
        // A subset stays closed for the whole plan.
        self.reserved -= usize::from(seat.presence == Presence::Reserved);
    }
}

/// Pods to which clients are sent; `None` if whom they are sent to is not ours to say.
fn exposed(snapshot: &Snapshot) -> Option<BTreeSet<&Uid>> {
    let exposure = snapshot.exposure.as_ref()?;
    (!exposure.is_foreign()).then(|| exposure.reached(&snapshot.pods))
}
