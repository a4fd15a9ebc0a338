//! Brings a changed template to the Pods: cold, then hot, then primaries, without losing exposed capacity.
//!
//! Only ever deletes backups and Pods that do not serve; an outdated primary goes when `shrink` sees a ready, updated
//! primary too many.

use jiff::Timestamp;

use crate::model::{Hold, Lifecycle, NodeHealth, PodView, Reason, Role, UpdateKind};

use super::draft::{Draft, Seat, SeatIndex};
use super::select;

/// Primaries that may exist beyond the wanted number while a rollout without hot backups replaces them: 0 or 1.
pub(super) fn surge(draft: &Draft<'_>) -> usize {
    let desired = &draft.snapshot.desired;
    let is_needed = desired.update.kind == UpdateKind::BackupFirst
        && desired.hot_backups == 0
        && outdated(draft, Role::Primary).len() > desired.update.partition
        && outdated(draft, Role::Cold).is_empty();
    let settled = draft.members(Role::Primary).filter(|(_, seat)| is_settled(draft, seat.view)).count();
    usize::from(is_needed && settled <= desired.replicas)
}

/// Takes the next step of a rollout, if one is under way and every Pod is where it should be.
pub(super) fn replace_outdated(draft: &mut Draft<'_>) {
    if draft.snapshot.desired.update.kind == UpdateKind::OnDelete {
        return;
    }
    delete_idle_outdated(draft);
    for role in [Role::Cold, Role::Hot] {
        if !outdated(draft, role).is_empty() {
            replace_backups(draft, role);
            return;
        }
    }
    if outdated(draft, Role::Primary).len() > draft.snapshot.desired.update.partition {
        promote_updated(draft);
    }
}

/// Outdated Pods that serve nobody are replaced at once: this also ends a broken rollout when it is reverted.
fn delete_idle_outdated(draft: &mut Draft<'_>) {
    for role in Role::ALL {
        let kept = if role == Role::Primary { draft.snapshot.desired.update.partition } else { 0 };
        let outdated = outdated(draft, role);
        let spare = outdated.len().saturating_sub(kept);
        let idle = outdated.into_iter().filter(|index| !draft.seats[*index].view.is_available());
        for index in idle.take(spare).collect::<Vec<_>>() {
            draft.delete(index, Reason::TemplateChanged);
        }
    }
}

fn replace_backups(draft: &mut Draft<'_>, role: Role) {
    let desired = &draft.snapshot.desired;
    let available =
        draft.members(role).filter(|(_, seat)| seat.view.is_available() && seat.view.role == role);
    let away = desired.count(role).saturating_sub(available.count());
    let budget = desired.update.max_unavailable.saturating_sub(away);
    if budget == 0 {
        draft.hold(Hold { reason: Reason::RolloutWaits, pod: None, until: None });
    }
    let outdated = outdated(draft, role);
    let by_worth = select::surplus(draft, role).into_iter().filter(|index| outdated.contains(index));
    for index in by_worth.take(budget).collect::<Vec<_>>() {
        draft.delete(index, Reason::TemplateChanged);
    }
}

fn promote_updated(draft: &mut Draft<'_>) {
    if let Some(until) = unsettled_until(draft) {
        draft.hold(Hold { reason: Reason::RolloutWaits, pod: None, until });
        return;
    }
    let revision = draft.snapshot.desired.revision.clone();
    // On a cordoned node it would be demoted again at once, for ever.
    let is_fit =
        |view: &PodView| view.revision == revision && view.node_health() == NodeHealth::Healthy;
    match select::best_ready_hot(draft, is_fit) {
        Some(index) => draft.convert(index, Role::Primary, Reason::TemplateChanged),
        None => draft.hold(Hold { reason: Reason::RolloutWaits, pod: None, until: None }),
    }
}

/// `Some` while a Pod is missing, surplus, or not available for long enough; the inner value is when to look again.
fn unsettled_until(draft: &Draft<'_>) -> Option<Option<Timestamp>> {
    let is_complete = Role::ALL.iter().all(|role| draft.count(*role) == draft.snapshot.desired.count(*role));
    if !is_complete || draft.seats.iter().any(|seat| seat.is_claimed && seat.is_counted()) {
        return Some(None);
    }
    let mut until = None;
    for seat in draft.seats.iter().filter(|seat| seat.is_counted()) {
        if !seat.view.is_available() {
            return Some(None);
        }
        if seat.role != Role::Cold && !is_settled(draft, seat.view) {
            until = until.max(settled_at(draft, seat.view));
        }
    }
    until.map(Some)
}

fn is_settled(draft: &Draft<'_>, view: &PodView) -> bool {
    settled_at(draft, view).is_some_and(|at| at <= draft.snapshot.now)
}

fn settled_at(draft: &Draft<'_>, view: &PodView) -> Option<Timestamp> {
    match view.lifecycle {
        Lifecycle::Ready { since } => since.saturating_add(draft.snapshot.desired.min_ready).ok(),
        Lifecycle::Unscheduled
        | Lifecycle::Starting
        | Lifecycle::Unready { .. }
        | Lifecycle::Finished
        | Lifecycle::Terminating => None,
    }
}

fn outdated(draft: &Draft<'_>, role: Role) -> Vec<SeatIndex> {
    let is_outdated = |seat: &Seat<'_>| seat.is_free() && !draft.is_updated(seat.view);
    draft.members(role).filter(|(_, seat)| is_outdated(seat)).map(|(index, _)| index).collect()
}
