//! Brings a changed template to the Pods: cold, then hot, then primaries, without losing exposed capacity.
//!
//! Only ever deletes backups and Pods that do not serve; an outdated primary goes when `shrink` sees a ready, updated
//! primary too many.

use jiff::Timestamp;

use crate::model::{Hold, NodeHealth, PodView, Reason, Replaceable, Role, UpdateKind};

use super::draft::Draft;
use super::seats::{Seat, SeatIndex};
use super::{pairs, select};

/// Primaries that may exist beyond the wanted number while a rollout without hot backups replaces them.
pub(super) fn surge(draft: &Draft<'_>) -> usize {
    let desired = &draft.snapshot.desired;
    let next = replaced_at_once(draft);
    let is_needed = !draft.snapshot.is_paired()
        && desired.update.kind == UpdateKind::BackupFirst
        && desired.hot_backups == 0
        && next > 0
        && outdated(draft, Role::Cold).is_empty();
    let is_extra_settled = draft.count(Role::Primary) > desired.replicas
        && draft
            .members(Role::Primary)
            .filter(|(_, seat)| draft.is_updated(seat.view))
            .all(|(_, seat)| is_settled(draft, seat.view));
    if is_needed && !is_extra_settled { next } else { 0 }
}

/// Primaries that a rollout replaces next at the same time.
fn replaced_at_once(draft: &Draft<'_>) -> usize {
    let desired = &draft.snapshot.desired;
    replaceable(draft).count().min(desired.update.max_surge.of(desired.replicas))
}

/// Primaries of a former template that no partition keeps.
pub(super) fn replaceable(draft: &Draft<'_>) -> Replaceable {
    let primaries = draft.members(Role::Primary).map(|(_, seat)| seat);
    let free = primaries.filter(|seat| seat.is_free()).map(|seat| seat.view);
    Replaceable::among(&draft.snapshot.desired, free)
}

/// Whether a rollout replaces a Pod sooner or later.
pub(super) fn is_rolled(draft: &Draft<'_>, view: &PodView) -> bool {
    draft.snapshot.desired.update.kind == UpdateKind::BackupFirst && !draft.is_updated(view)
}

/// Takes the next step of a rollout, if one is under way and every Pod is where it should be.
pub(super) fn replace_outdated(draft: &mut Draft<'_>) {
    if draft.snapshot.desired.update.kind == UpdateKind::OnDelete {
        return;
    }
    delete_idle_outdated(draft);
    let mut is_lower_tier_whole = true;
    for role in [Role::Cold, Role::Hot] {
        if !outdated(draft, role).is_empty() {
            replace_backups(draft, role, is_lower_tier_whole);
            return;
        }
        is_lower_tier_whole &= is_whole(draft, role);
    }
    if replaceable(draft).count() > 0 {
        if draft.snapshot.is_paired() {
            pairs::replace_outdated_primary(draft);
        } else {
            promote_updated(draft);
        }
    }
}

/// Outdated backups that are not available are replaced first: this ends a broken rollout when it is reverted.
///
/// Only while no updated Pod fails: a blip of good old Pods must not hand the set over to a template that does not
/// work. Primaries are left to `failover` and to the surge, so that a rollout never prolongs an outage.
fn delete_idle_outdated(draft: &mut Draft<'_>) {
    let is_failing =
        |seat: &Seat<'_>| seat.is_counted() && draft.is_updated(seat.view) && !seat.view.is_available();
    let failing = draft.seats.iter().filter(|seat| is_failing(seat)).count();
    let desired = &draft.snapshot.desired;
    let most = [Role::Cold, Role::Hot].map(|role| desired.update.max_unavailable.of(desired.count(role)));
    let budget = most.into_iter().max().unwrap_or(0).saturating_sub(failing);
    let mut idle = outdated(draft, Role::Cold);
    idle.extend(outdated(draft, Role::Hot));
    idle.retain(|index| !draft.seats[*index].view.is_available() && !is_acting(draft, *index));
    for index in idle.into_iter().take(budget) {
        draft.delete(index, Reason::TemplateChanged);
    }
}

/// Whether every backup of a tier is where it should be: only then its template has shown that it works.
fn is_whole(draft: &Draft<'_>, role: Role) -> bool {
    available(draft, role) >= draft.snapshot.desired.count(role)
}

fn available(draft: &Draft<'_>, role: Role) -> usize {
    draft.members(role).filter(|(_, seat)| seat.view.is_available() && seat.view.role == role).count()
}

fn replace_backups(draft: &mut Draft<'_>, role: Role, is_lower_tier_whole: bool) {
    let desired = &draft.snapshot.desired;
    let away = desired.count(role).saturating_sub(available(draft, role));
    let most = desired.update.max_unavailable.of(desired.count(role));
    let budget = if is_lower_tier_whole { most.saturating_sub(away) } else { 0 };
    if budget == 0 {
        draft.hold(rollout_waits(None));
    }
    let may_go = |index: &SeatIndex| !draft.is_updated(draft.seats[*index].view) && !is_acting(draft, *index);
    let by_worth = select::surplus(draft, role).into_iter().filter(may_go);
    for index in by_worth.take(budget).collect::<Vec<_>>() {
        draft.delete(index, Reason::TemplateChanged);
    }
}

/// Whether agents say that a Pod of a pair acts; roles follow in a moment.
fn is_acting(draft: &Draft<'_>, index: SeatIndex) -> bool {
    draft.snapshot.is_paired() && draft.seats[index].view.acts()
}

fn promote_updated(draft: &mut Draft<'_>) {
    if let Some(hold) = unsettled(draft) {
        draft.hold(hold);
        return;
    }
    let desired = &draft.snapshot.desired;
    // On a cordoned node it would be demoted again at once, for ever.
    let is_fit = |view: &PodView| desired.is_current(view) && view.node_health() == NodeHealth::Healthy;
    let successors = select::ready_hot(draft, is_fit);
    if successors.is_empty() {
        draft.hold(rollout_waits(None));
    }
    for index in successors.into_iter().take(replaced_at_once(draft)) {
        draft.convert(index, Role::Primary, Reason::TemplateChanged);
    }
}

/// Why the rollout waits while a Pod is missing, surplus, or not available for long enough.
pub(super) fn unsettled(draft: &Draft<'_>) -> Option<Hold> {
    let is_complete = Role::ALL.iter().all(|role| draft.count(*role) == draft.snapshot.desired.count(*role));
    // Also a Pod on its way out: the next one would be surplus at the same time.
    let is_in_motion = draft.makes_a_pod() || draft.seats.iter().any(|seat| seat.is_claimed);
    let mut counted = draft.seats.iter().filter(|seat| seat.is_counted());
    if !is_complete || is_in_motion || counted.any(|seat| !seat.view.is_available()) {
        return Some(rollout_waits(extra_settles_at(draft)));
    }
    let is_young =
        |seat: &&Seat<'_>| seat.is_counted() && seat.role != Role::Cold && !is_settled(draft, seat.view);
    let young = draft.seats.iter().filter(is_young);
    young.map(|seat| settled_at(draft, seat.view)).max().map(rollout_waits)
}

/// When the primary beyond the wish has been available for long enough; no event tells of that moment.
fn extra_settles_at(draft: &Draft<'_>) -> Option<Timestamp> {
    if surge(draft) == 0 {
        return None;
    }
    let updated = draft.members(Role::Primary).filter(|(_, seat)| draft.is_updated(seat.view));
    let settling = updated.filter_map(|(_, seat)| settled_at(draft, seat.view));
    settling.filter(|at| *at > draft.snapshot.now).max()
}

pub(super) const fn rollout_waits(until: Option<Timestamp>) -> Hold {
    Hold { reason: Reason::RolloutWaits, pod: None, until }
}

pub(super) fn is_settled(draft: &Draft<'_>, view: &PodView) -> bool {
    settled_at(draft, view).is_some_and(|at| at <= draft.snapshot.now)
}

pub(super) fn settled_at(draft: &Draft<'_>, view: &PodView) -> Option<Timestamp> {
    view.ready_since()?.saturating_add(draft.snapshot.desired.min_ready).ok()
}

pub(super) fn outdated(draft: &Draft<'_>, role: Role) -> Vec<SeatIndex> {
    let is_outdated = |seat: &Seat<'_>| seat.is_free() && !draft.is_updated(seat.view);
    draft.members(role).filter(|(_, seat)| is_outdated(seat)).map(|(index, _)| index).collect()
}
