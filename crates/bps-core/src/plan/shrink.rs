//! Gives up surplus Pods, in the reverse order of their worth.
//!
//! A ready primary goes only while as many others as are wanted stand as primaries already: never the last one. One that
//! was ready is not deleted in favour of others that never were.

use crate::model::{Gate, Hold, Lifecycle, NodeHealth, PodView, Reason, Role, ScaleIn, UpdateKind};

use super::draft::Draft;
use super::seats::SeatIndex;
use super::{failover, pairs, rebalance, rollout, select};

/// Demotes or deletes primaries beyond the wanted number.
pub(super) fn shrink_primaries(draft: &mut Draft<'_>) {
    if draft.snapshot.is_paired() {
        // The group ends surplus pairs; their Pods are backups then.
        return;
    }
    let wanted = draft.snapshot.desired.replicas;
    let kept = wanted + rollout::surge(draft);
    if draft.count(Role::Primary) <= kept {
        return;
    }
    let has_backup = !select::ready_hot(draft, |_| true).is_empty();
    for index in surplus_primaries(draft) {
        if draft.count(Role::Primary) <= kept {
            return;
        }
        let view = draft.seats[index].view;
        if view.is_ready() && draft.seats.standing_without(index) < wanted {
            return;
        }
        if is_demoted(draft, index) {
            draft.convert(index, Role::Hot, surplus_reason(draft, view));
        } else if !has_backup && may_serve_first(draft, index) {
            return;
        } else {
            draft.delete(index, surplus_reason(draft, view));
        }
    }
}

/// Primaries, the least worth keeping first: before all others those that were given up, because their successors are
/// primaries already.
fn surplus_primaries(draft: &Draft<'_>) -> Vec<SeatIndex> {
    let mut order = select::surplus(draft, Role::Primary);
    order.sort_by_key(|index| !failover::is_given_up(draft, draft.seats[*index].view));
    order
}

/// Whether a primary that stopped being ready may be ready again before the others have started, for example because its
/// node came back; a dead one is ended by its deadline.
///
/// With a primary too many no hot backup is promoted, so one that is ready must not wait for this.
fn may_serve_first(draft: &Draft<'_>, index: SeatIndex) -> bool {
    let is_unready = matches!(draft.seats[index].view.lifecycle, Lifecycle::Unready { .. });
    let others = draft.seats.standing_without(index) + draft.seats.unready_primaries_without(index);
    is_unready && others < draft.snapshot.desired.replicas
}

/// Deletes hot and cold backups beyond the wanted numbers, and cold Pods that started by themselves.
pub(super) fn shrink_backups(draft: &mut Draft<'_>) {
    for role in [Role::Hot, Role::Cold] {
        let surge = if role == Role::Hot { pairs::hot_surge(draft) } else { 0 };
        let surplus = draft.count(role).saturating_sub(draft.snapshot.desired.count(role) + surge);
        for index in pairs::expendable(draft, role).into_iter().take(surplus) {
            let view = draft.seats[index].view;
            if rebalance::is_arriving(draft, view, role) {
                // The one that filled its place goes instead, once this one is available.
                draft.hold(Hold {
                    reason: Reason::AwaitingStart,
                    pod: Some(view.pod.name.clone()),
                    until: None,
                });
            } else if role == Role::Hot && rebalance::takes_over(draft, view) {
                draft.convert(index, Role::Primary, Reason::Rebalanced);
            } else {
                draft.delete(index, surplus_reason(draft, view));
            }
        }
    }
    rebalance::delete_useless_reserves(draft);
    // A running Pod without a gate can carry the label too, by somebody's hand; it can never be cold.
    let runs_unasked =
        |view: &PodView| view.role == Role::Cold && matches!(view.gate, Gate::Passed { .. } | Gate::None);
    for index in 0..draft.seats.len() {
        let seat = &draft.seats[index];
        if seat.is_free() && seat.role == Role::Cold && runs_unasked(seat.view) {
            draft.delete(index, Reason::StartedUnasked);
        }
    }
}

/// Primaries that a later pass demotes once their successors serve: their hot places are kept for them.
pub(super) fn returning_primaries(draft: &Draft<'_>) -> usize {
    let surplus =
        draft.count(Role::Primary).saturating_sub(draft.snapshot.desired.replicas + rollout::surge(draft));
    if draft.snapshot.is_paired() {
        return surplus;
    }
    let is_returning = |index: &SeatIndex| is_worth_demoting(draft, draft.seats[*index].view);
    surplus_primaries(draft).iter().take(surplus).filter(|index| is_returning(index)).count()
}

/// Whether a surplus primary fills a free hot place instead of being deleted.
fn is_demoted(draft: &Draft<'_>, index: SeatIndex) -> bool {
    let has_place = draft.count(Role::Hot) < draft.snapshot.desired.hot_backups;
    has_place && is_worth_demoting(draft, draft.seats[index].view)
}

fn is_worth_demoting(draft: &Draft<'_>, view: &PodView) -> bool {
    let desired = &draft.snapshot.desired;
    // A rollout would replace an outdated hot backup next; with OnDelete nobody does.
    let is_lasting = draft.is_updated(view) || desired.update.kind == UpdateKind::OnDelete;
    is_lasting
        && !failover::is_given_up(draft, view)
        && (desired.scale_in == ScaleIn::Demote || is_swapped(view) || rebalance::is_misplaced(draft, view))
}

/// Whether the Pod is a surplus only because a hot backup took its place.
fn is_swapped(view: &PodView) -> bool {
    matches!(view.lifecycle, Lifecycle::Unready { .. }) || view.node_health() == NodeHealth::Cordoned
}

/// Why a Pod is surplus: the smaller wish, or what made its successor.
fn surplus_reason(draft: &Draft<'_>, view: &PodView) -> Reason {
    let desired = &draft.snapshot.desired;
    if desired.is_new_generation || view.role != Role::Primary {
        return Reason::ScaledIn;
    }
    match (view.lifecycle, view.node_health()) {
        (Lifecycle::Unready { .. }, _) => Reason::PodUnready,
        (_, NodeHealth::Cordoned) => Reason::NodeCordoned,
        _ if !draft.is_updated(view) && desired.update.kind == UpdateKind::BackupFirst => {
            Reason::TemplateChanged
        }
        _ if failover::is_given_up(draft, view) => Reason::UnreadyTooLong,
        _ if rebalance::is_misplaced(draft, view) => Reason::Rebalanced,
        _ => Reason::ScaledIn,
    }
}
