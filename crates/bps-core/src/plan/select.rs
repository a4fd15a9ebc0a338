//! Orders Pods: who is converted first, who is given up first.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use jiff::Timestamp;

use crate::model::{Lifecycle, NodeHealth, NodeName, PodName, PodView, Role, Strategy, Uid};

use super::draft::Draft;
use super::seats::{Seat, SeatIndex};
use super::{pairs, rollout};

/// How soon a candidate can serve in its new role; the soonest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Willingness {
    Ready,
    AtGate,
    Starting,
    Unscheduled,
}

/// Whether a node has room for it.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Room {
    Found,
    /// It may wait for ever, so it is the last choice.
    Awaited,
}

/// Best candidate first; compared field by field, top to bottom.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct CandidateOrder {
    room: Room,
    /// Place of its role among those that give Pods.
    giver: usize,
    is_not_next: bool,
    willingness: Willingness,
    is_on_cordoned_node: bool,
    is_outdated: bool,
    /// How many Pods its subset has in this role beyond its share, once this one has it; 0 up to the share.
    beyond_share: usize,
    crowd: Crowd,
    preference: Preference,
    name: PodName,
}

impl CandidateOrder {
    /// Whether nothing that comes before the share of its subset tells it from another one.
    fn ranks_with(&self, other: &Self) -> bool {
        let rank = |order: &Self| {
            let flags = [order.is_not_next, order.is_on_cordoned_node, order.is_outdated];
            (order.giver, order.willingness, flags)
        };
        rank(self) == rank(other)
    }
}

/// How many Pods of the role are around when this one gets it; 0 where the strategy does not ask for it.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Crowd {
    domain: usize,
    node: usize,
}

/// What the strategy adds; all candidates of one role have the same variant.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Preference {
    Best { ready_since: Option<Timestamp> },
    Random { uid: Uid },
    Oldest { created: Timestamp },
    Newest { created: Reverse<Timestamp> },
    Spread,
}

impl Preference {
    const fn asks_for_crowd(&self) -> bool {
        match self {
            Self::Best { .. } | Self::Spread => true,
            Self::Random { .. } | Self::Oldest { .. } | Self::Newest { .. } => false,
        }
    }
}

/// Whether somebody relies on a backup.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Bond {
    /// Nobody does.
    Free,
    /// It stands by for a Pod that acts.
    Standby,
}

/// Whether a change of the template lets the Pod stay.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Stay {
    /// It is of a former template, and a rollout replaces it sooner or later.
    Replaced,
    /// It is of the present template, or the partition of its subset keeps it.
    Lasting,
}

/// Whether its subset is to have the Pod.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Place {
    /// The subset has more than its share, or there are no subsets.
    Spare,
    /// Without the Pods that go before it the subset has its share or less.
    Shared,
}

/// First to go first; compared field by field, top to bottom.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct SurplusOrder {
    is_available: bool,
    bond: Bond,
    progress: Reverse<Willingness>,
    is_on_healthy_node: bool,
    stay: Stay,
    place: Place,
    is_kept: bool,
    node_crowd: Reverse<usize>,
    domain_crowd: Reverse<usize>,
    created: Reverse<Timestamp>,
    name: PodName,
}

/// Free Pods with one of the roles `givers` that are fit to become `to`, in the order in which they are to be taken; earlier
/// givers go first.
///
/// A Pod that crashed is never a candidate: it comes back where it is, or is replaced.
pub(super) fn candidates(draft: &Draft<'_>, givers: &[Role], to: Role) -> Vec<SeatIndex> {
    candidates_that(draft, givers, to, |_| true)
}

/// Of the candidates of [`candidates`] those that go before all others for a better reason than the share of their subset.
pub(super) fn foremost(draft: &Draft<'_>, givers: &[Role], to: Role) -> Vec<SeatIndex> {
    let candidates = ordered(draft, givers, to, |_| true);
    let Some((first, _)) = candidates.first() else { return Vec::new() };
    let alike = candidates.iter().take_while(|(order, _)| order.ranks_with(first));
    alike.map(|(_, index)| *index).collect()
}

/// Free, ready hot backups that satisfy `is_fit`, in the order in which they are to be promoted.
pub(super) fn ready_hot(draft: &Draft<'_>, is_fit: impl Fn(&PodView) -> bool) -> Vec<SeatIndex> {
    candidates_that(draft, &[Role::Hot], Role::Primary, |view| view.is_ready() && is_fit(view))
}

/// Free cold backups that can be woken at once, in the order in which they are to be.
pub(super) fn at_gate(draft: &Draft<'_>) -> Vec<SeatIndex> {
    candidates_that(draft, &[Role::Cold], Role::Primary, PodView::can_be_woken)
}

fn candidates_that(
    draft: &Draft<'_>,
    givers: &[Role],
    to: Role,
    is_fit: impl Fn(&PodView) -> bool,
) -> Vec<SeatIndex> {
    ordered(draft, givers, to, is_fit).into_iter().map(|(_, index)| index).collect()
}

fn ordered(
    draft: &Draft<'_>,
    givers: &[Role],
    to: Role,
    is_fit: impl Fn(&PodView) -> bool,
) -> Vec<(CandidateOrder, SeatIndex)> {
    let mut candidates: Vec<(CandidateOrder, SeatIndex)> = Vec::new();
    for (giver, from) in givers.iter().enumerate() {
        let fit = free(draft, *from).filter(|(_, seat)| is_fit(seat.view));
        candidates.extend(fit.filter_map(|(index, seat)| Some((order(draft, seat, giver, to)?, index))));
    }
    candidates.sort();
    spread(draft, to, &mut candidates);
    candidates
}

/// Orders candidates as if each were the best of those that are left once the ones before it have the role.
///
/// A Pod that is taken adds to the crowd of its own node, failure domain and subset only, and crowds are those of one
/// subset. So the crowd that each meets is its place among the candidates of its node, then of its domain, then of its
/// subset: four sorts do what a choice among all for each Pod would.
fn spread(draft: &Draft<'_>, to: Role, candidates: &mut [(CandidateOrder, SeatIndex)]) {
    let mut crowds = Crowds::of(draft, to);
    for (order, index) in &mut *candidates {
        let crowd = crowds.join_node(draft.seats[*index].view);
        order.crowd.node = if order.preference.asks_for_crowd() { crowd } else { 0 };
    }
    candidates.sort();
    for (order, index) in &mut *candidates {
        let crowd = crowds.join_domain(draft.seats[*index].view);
        order.crowd.domain = if order.preference.asks_for_crowd() { crowd } else { 0 };
    }
    candidates.sort();
    if draft.snapshot.desired.topology.subsets.is_empty() {
        return;
    }
    let mut balance = draft.balance_for(to);
    for (order, index) in &mut *candidates {
        order.beyond_share = balance.join(draft.seats[*index].view.subset, to);
    }
    candidates.sort();
}

/// Free Pods of a role, the least worth keeping first.
pub(super) fn surplus(draft: &Draft<'_>, role: Role) -> Vec<SeatIndex> {
    let crowds = Crowds::of(draft, role);
    let mut order: Vec<(SurplusOrder, SeatIndex)> =
        free(draft, role).map(|(index, seat)| (surplus_order(draft, &crowds, seat), index)).collect();
    order.sort();
    if !draft.snapshot.desired.topology.subsets.is_empty() {
        if role == Role::Primary {
            keep_partitions(draft, &mut order);
        }
        let mut balance = draft.seats.tally().balance.clone();
        for (order, index) in &mut order {
            let is_spare = balance.spare(draft.seats[*index].view.subset, role);
            order.place = if is_spare { Place::Spare } else { Place::Shared };
        }
        order.sort();
    }
    order.into_iter().map(|(_, index)| index).collect()
}

/// Has primaries of a former template stay that the partitions of their subsets keep: those of each subset that would go last.
///
/// In a subset they go after those of the present template, so that no swap takes what a partition keeps.
fn keep_partitions(draft: &Draft<'_>, order: &mut [(SurplusOrder, SeatIndex)]) {
    let mut replaceable = rollout::replaceable(draft);
    for (order, index) in &mut *order {
        let view = draft.seats[*index].view;
        if !draft.is_updated(view) && !replaceable.take(view.subset) {
            (order.stay, order.is_kept) = (Stay::Lasting, true);
        }
    }
    order.sort();
}

fn free<'d, 'a>(
    draft: &'d Draft<'a>,
    role: Role,
) -> impl Iterator<Item = (SeatIndex, &'d Seat<'a>)> + use<'d, 'a> {
    draft.members(role).filter(|(_, seat)| seat.is_free())
}

fn strategy(draft: &Draft<'_>, from: Role, to: Role) -> Strategy {
    let strategies = draft.snapshot.desired.strategies;
    match (from, to) {
        (Role::Cold, Role::Hot) => strategies.cold_to_hot,
        (Role::Cold, _) => strategies.cold_to_primary,
        (Role::Primary | Role::Hot, _) => strategies.hot_to_primary,
    }
}

fn order(draft: &Draft<'_>, seat: &Seat<'_>, giver: usize, to: Role) -> Option<CandidateOrder> {
    let view = seat.view;
    if to == Role::Primary && pairs::is_bound(draft, view) {
        return None;
    }
    let willingness = willingness(view)?;
    Some(CandidateOrder {
        room: if willingness == Willingness::Unscheduled { Room::Awaited } else { Room::Found },
        giver,
        is_not_next: !(to == Role::Primary && pairs::is_next(draft, view)),
        willingness,
        is_on_cordoned_node: view.node_health() == NodeHealth::Cordoned,
        is_outdated: !draft.is_updated(view),
        beyond_share: 0,
        crowd: Crowd::default(),
        preference: preference(view, strategy(draft, seat.role, to)),
        name: view.pod.name.clone(),
    })
}

fn willingness(view: &PodView) -> Option<Willingness> {
    match view.lifecycle {
        Lifecycle::Ready { .. } => Some(Willingness::Ready),
        Lifecycle::Starting if view.is_at_gate() && !view.has_known_key => None,
        Lifecycle::Starting if view.is_at_gate() => Some(Willingness::AtGate),
        // A new Pod has no gate.
        Lifecycle::Starting if view.gate_trouble.is_some() => None,
        Lifecycle::Starting => Some(Willingness::Starting),
        Lifecycle::Unscheduled => Some(Willingness::Unscheduled),
        Lifecycle::Unready { .. } | Lifecycle::Finished | Lifecycle::Terminating => None,
    }
}

fn preference(view: &PodView, strategy: Strategy) -> Preference {
    match strategy {
        Strategy::Best => Preference::Best { ready_since: view.ready_since() },
        Strategy::Random => Preference::Random { uid: view.pod.uid.clone() },
        Strategy::Oldest => Preference::Oldest { created: view.created },
        Strategy::Newest => Preference::Newest { created: Reverse(view.created) },
        Strategy::Spread => Preference::Spread,
    }
}

fn surplus_order(draft: &Draft<'_>, crowds: &Crowds<'_>, seat: &Seat<'_>) -> SurplusOrder {
    let view = seat.view;
    let crowd = crowds.around(view);
    SurplusOrder {
        is_available: view.is_available(),
        bond: if pairs::is_relied_on(draft, view) { Bond::Standby } else { Bond::Free },
        progress: Reverse(willingness(view).unwrap_or(Willingness::Unscheduled)),
        is_on_healthy_node: view.node_health() == NodeHealth::Healthy,
        stay: if draft.is_updated(view) { Stay::Lasting } else { Stay::Replaced },
        place: Place::Spare,
        is_kept: false,
        node_crowd: Reverse(crowd.node),
        domain_crowd: Reverse(crowd.domain),
        created: Reverse(view.created),
        name: view.pod.name.clone(),
    }
}

/// Pods of one role on each node and in each failure domain; those of each subset by themselves.
struct Crowds<'a> {
    nodes: BTreeMap<Spot<&'a NodeName>, usize>,
    domains: BTreeMap<Spot<&'a str>, usize>,
}

/// A node or a failure domain as one subset has it.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Spot<T> {
    subset: Option<usize>,
    place: T,
}

impl<'a> Crowds<'a> {
    fn of(draft: &Draft<'a>, role: Role) -> Self {
        let mut crowds = Self { nodes: BTreeMap::new(), domains: BTreeMap::new() };
        for (_, seat) in draft.members(role) {
            crowds.join_node(seat.view);
            crowds.join_domain(seat.view);
        }
        crowds
    }

    /// Counts a Pod for its node; returns how many were counted before. A Pod without a node meets nobody.
    fn join_node(&mut self, view: &'a PodView) -> usize {
        node(view).map_or(0, |node| join(self.nodes.entry(node).or_default()))
    }

    /// Counts a Pod for its failure domain; returns how many were counted before. A Pod in no known one meets none.
    fn join_domain(&mut self, view: &'a PodView) -> usize {
        domain(view).map_or(0, |domain| join(self.domains.entry(domain).or_default()))
    }

    /// How many others are around a Pod that was counted.
    fn around(&self, view: &PodView) -> Crowd {
        let node = node(view).and_then(|node| self.nodes.get(&node));
        let domain = domain(view).and_then(|domain| self.domains.get(&domain));
        let others = |counted: Option<&usize>| counted.map_or(0, |counted| counted - 1);
        Crowd { domain: others(domain), node: others(node) }
    }
}

fn node(view: &PodView) -> Option<Spot<&NodeName>> {
    view.node.as_ref().map(|node| Spot { subset: view.subset, place: &node.name })
}

fn domain(view: &PodView) -> Option<Spot<&str>> {
    let domain = view.node.as_ref()?.domain.as_deref()?;
    Some(Spot { subset: view.subset, place: domain })
}

const fn join(crowd: &mut usize) -> usize {
    *crowd += 1;
    *crowd - 1
}
