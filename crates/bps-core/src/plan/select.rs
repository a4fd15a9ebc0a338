//! Orders Pods: who is converted first, who is given up first.

use std::cmp::Reverse;

use jiff::Timestamp;

use crate::model::{Lifecycle, NodeHealth, PodName, PodView, Role, Strategy, Uid};

use super::draft::{Draft, Seat, SeatIndex};
use super::pairs;

/// How soon a candidate can serve in its new role; the soonest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Willingness {
    Ready,
    AtGate,
    Starting,
    Unscheduled,
}

/// Best candidate first; compared field by field, top to bottom.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct CandidateOrder {
    is_not_next: bool,
    willingness: Willingness,
    is_on_cordoned_node: bool,
    is_outdated: bool,
    preference: Preference,
    name: PodName,
}

/// What the strategy adds; all candidates of one choice have the same variant.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Preference {
    Best { zone_crowd: usize, node_crowd: usize, ready_since: Option<Timestamp> },
    Random { uid: Uid },
    Oldest { created: Timestamp },
    Newest { created: Reverse<Timestamp> },
    Spread { zone_crowd: usize, node_crowd: usize },
}

/// Whether somebody relies on a backup.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Bond {
    /// Nobody does.
    Free,
    /// It stands by for a Pod that acts.
    Standby,
}

/// First to go first; compared field by field, top to bottom.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct SurplusOrder {
    is_available: bool,
    bond: Bond,
    progress: Reverse<Willingness>,
    is_on_healthy_node: bool,
    is_updated: bool,
    node_crowd: Reverse<usize>,
    zone_crowd: Reverse<usize>,
    created: Reverse<Timestamp>,
    name: PodName,
}

/// The best free Pod with one of the roles `givers` to become `to`, if one is fit for it; earlier givers go first.
///
/// A Pod that crashed is never a candidate: it comes back where it is, or is replaced. A Pod that no node has room for
/// may wait for ever, so it is the last choice.
pub(super) fn best(draft: &Draft<'_>, givers: &[Role], to: Role) -> Option<SeatIndex> {
    let bests = givers.iter().filter_map(|from| best_of(draft, (*from, to), |_| true));
    bests.min_by_key(|(order, _)| order.willingness == Willingness::Unscheduled).map(|(_, index)| index)
}

/// The best free, ready hot backup that satisfies `is_fit`.
pub(super) fn best_ready_hot(draft: &Draft<'_>, is_fit: impl Fn(&PodView) -> bool) -> Option<SeatIndex> {
    let best = best_of(draft, (Role::Hot, Role::Primary), |view| view.is_ready() && is_fit(view));
    best.map(|(_, index)| index)
}

/// The best free cold backup that can be woken at once.
pub(super) fn best_at_gate(draft: &Draft<'_>) -> Option<SeatIndex> {
    best_of(draft, (Role::Cold, Role::Primary), PodView::can_be_woken).map(|(_, index)| index)
}

/// The best free Pod with role `from` that satisfies `is_fit`, to get role `to`; with its place among others.
fn best_of(
    draft: &Draft<'_>,
    (from, to): (Role, Role),
    is_fit: impl Fn(&PodView) -> bool,
) -> Option<(CandidateOrder, SeatIndex)> {
    let strategy = strategy(draft, from, to);
    candidates(draft, from)
        .filter(|(_, seat)| is_fit(seat.view))
        .filter_map(|(index, seat)| Some((candidate_order(draft, seat, (to, strategy))?, index)))
        .min()
}

/// Free Pods of a role, the least worth keeping first.
pub(super) fn surplus(draft: &Draft<'_>, role: Role) -> Vec<SeatIndex> {
    let mut order: Vec<(SurplusOrder, SeatIndex)> =
        candidates(draft, role).map(|(index, seat)| (surplus_order(draft, seat), index)).collect();
    order.sort();
    order.into_iter().map(|(_, index)| index).collect()
}

fn candidates<'d, 'a>(
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

fn candidate_order(
    draft: &Draft<'_>,
    seat: &Seat<'_>,
    (to, strategy): (Role, Strategy),
) -> Option<CandidateOrder> {
    let view = seat.view;
    if to == Role::Primary && pairs::is_bound(draft, view) {
        return None;
    }
    Some(CandidateOrder {
        is_not_next: !(to == Role::Primary && pairs::is_next(draft, view)),
        willingness: willingness(view)?,
        is_on_cordoned_node: view.node_health() == NodeHealth::Cordoned,
        is_outdated: !draft.is_updated(view),
        preference: preference(draft, view, (to, strategy)),
        name: view.pod.name.clone(),
    })
}

fn willingness(view: &PodView) -> Option<Willingness> {
    match view.lifecycle {
        Lifecycle::Ready { .. } => Some(Willingness::Ready),
        Lifecycle::Starting if view.is_at_gate() && !view.has_known_key => None,
        Lifecycle::Starting if view.is_at_gate() => Some(Willingness::AtGate),
        Lifecycle::Starting => Some(Willingness::Starting),
        Lifecycle::Unscheduled => Some(Willingness::Unscheduled),
        Lifecycle::Unready { .. } | Lifecycle::Finished | Lifecycle::Terminating => None,
    }
}

fn preference(draft: &Draft<'_>, view: &PodView, (to, strategy): (Role, Strategy)) -> Preference {
    match strategy {
        Strategy::Best => Preference::Best {
            zone_crowd: zone_crowd(draft, view, to),
            node_crowd: node_crowd(draft, view, to),
            ready_since: match view.lifecycle {
                Lifecycle::Ready { since } => Some(since),
                Lifecycle::Unscheduled
                | Lifecycle::Starting
                | Lifecycle::Unready { .. }
                | Lifecycle::Finished
                | Lifecycle::Terminating => None,
            },
        },
        Strategy::Random => Preference::Random { uid: view.pod.uid.clone() },
        Strategy::Oldest => Preference::Oldest { created: view.created },
        Strategy::Newest => Preference::Newest { created: Reverse(view.created) },
        Strategy::Spread => Preference::Spread {
            zone_crowd: zone_crowd(draft, view, to),
            node_crowd: node_crowd(draft, view, to),
        },
    }
}

fn surplus_order(draft: &Draft<'_>, seat: &Seat<'_>) -> SurplusOrder {
    let view = seat.view;
    SurplusOrder {
        is_available: view.is_available(),
        bond: if pairs::is_bound(draft, view) { Bond::Standby } else { Bond::Free },
        progress: Reverse(willingness(view).unwrap_or(Willingness::Unscheduled)),
        is_on_healthy_node: view.node_health() == NodeHealth::Healthy,
        is_updated: draft.is_updated(view),
        node_crowd: Reverse(node_crowd(draft, view, seat.role)),
        zone_crowd: Reverse(zone_crowd(draft, view, seat.role)),
        created: Reverse(view.created),
        name: view.pod.name.clone(),
    }
}

/// Other Pods of the role on the same node.
fn node_crowd(draft: &Draft<'_>, view: &PodView, role: Role) -> usize {
    let Some(node) = &view.node else { return 0 };
    let is_beside = |seat: &Seat<'_>| {
        seat.view.pod != view.pod && seat.view.node.as_ref().is_some_and(|other| other.name == node.name)
    };
    draft.members(role).filter(|(_, seat)| is_beside(seat)).count()
}

/// Other Pods of the role in the same zone; 0 where nodes have no zone.
fn zone_crowd(draft: &Draft<'_>, view: &PodView, role: Role) -> usize {
    let Some(zone) = view.node.as_ref().and_then(|node| node.zone.as_ref()) else { return 0 };
    let is_beside = |seat: &Seat<'_>| {
        seat.view.pod != view.pod
            && seat.view.node.as_ref().and_then(|other| other.zone.as_ref()) == Some(zone)
    };
    draft.members(role).filter(|(_, seat)| is_beside(seat)).count()
}
