//! Fills shortages from the tier below, and creates what no tier below can give.
//!
//! Priority of the BPS paper: hot -> primary, cold -> primary, create; cold -> hot, create; create cold.

use crate::model::{PodView, Reason, Role};

use super::draft::Draft;
use super::seats::Presence;
use super::{pairs, rollout, select, shrink};

/// After so many Pods in a row that were woken in vain no other is woken.
///
/// 2: the first may have met a bad node; the second one on another node says that it is not the node.
pub(super) const TIMEOUTS_MAX: usize = 2;

/// Fills free primary places.
pub(super) fn fill_primaries(draft: &mut Draft<'_>) {
    // A Pod that waits for a node is the one beyond the wish already.
    let surge = rollout::surge(draft).saturating_sub(draft.seats.tally().reserved);
    fill(draft, Role::Primary, draft.snapshot.desired.replicas + surge);
}

/// Fills free hot, then cold places.
pub(super) fn fill_backups(draft: &mut Draft<'_>) {
    let returning = shrink::returning_primaries(draft);
    let hot_backups = draft.snapshot.desired.hot_backups + pairs::hot_surge(draft);
    fill(draft, Role::Hot, hot_backups.saturating_sub(returning));
    fill(draft, Role::Cold, draft.snapshot.desired.cold_backups);
}

fn fill(draft: &mut Draft<'_>, role: Role, wanted: usize) {
    let missing = wanted.saturating_sub(draft.count(role));
    if missing == 0 {
        return;
    }
    let cause = shortage_reason(draft, role);
    let mut candidates = select::candidates(draft, givers(draft, role), role).into_iter();
    for _ in 0..missing {
        let reason = if is_surge(draft, role) { Reason::TemplateChanged } else { cause };
        match candidates.next() {
            Some(index) => draft.convert(index, role, reason),
            None if draft.create(role, reason) => {}
            None => return,
        }
    }
}

/// Whether another Pod of this role would be the one beyond the wish that a rollout makes.
fn is_surge(draft: &Draft<'_>, role: Role) -> bool {
    let desired = &draft.snapshot.desired;
    role == Role::Primary && !desired.is_new_generation && draft.count(role) >= desired.replicas
}

/// Roles that give Pods to this one, the quickest first.
///
/// Cold backups do not while waking them is in vain: a Pod without a gate needs nothing that they lack.
pub(super) fn givers(draft: &Draft<'_>, role: Role) -> &'static [Role] {
    match (role, draft.timeouts_in_a_row() < TIMEOUTS_MAX) {
        (Role::Primary, true) => &[Role::Hot, Role::Cold],
        (Role::Primary, false) => &[Role::Hot],
        (Role::Hot, true) => &[Role::Cold],
        (Role::Hot, false) | (Role::Cold, _) => &[],
    }
}

/// Why the operator itself deleted the last Pod of this role, if one has to take its place.
fn deleted_for(draft: &Draft<'_>, role: Role) -> Option<Reason> {
    draft.snapshot.recent.deleted.get(&role).copied().filter(|reason| {
        matches!(
            reason,
            Reason::PodFinished
                | Reason::NodeGone
                | Reason::WakeTimedOut
                | Reason::GateFails
                | Reason::UnreadyTooLong
                | Reason::TemplateChanged
        ) || role != Role::Primary && *reason == Reason::Rebalanced
    })
}

/// Why Pods of this role are missing, by the traces they left.
fn shortage_reason(draft: &Draft<'_>, role: Role) -> Reason {
    if draft.snapshot.desired.is_new_generation {
        return Reason::ScaledOut;
    }
    let desired = &draft.snapshot.desired;
    let of_role = || draft.seats.iter().filter(|seat| seat.view.role == role);
    let is_rolled = |view: &PodView| view.role != Role::Primary && rollout::is_rolled(draft, view);
    let is_moved = deleted_for(draft, role) == Some(Reason::Rebalanced);
    let left = of_role().find_map(|seat| match seat.presence {
        Presence::Leaving(Reason::PodDeleted) if is_rolled(seat.view) => Some(Reason::TemplateChanged),
        Presence::Leaving(Reason::PodDeleted) if is_moved => Some(Reason::Rebalanced),
        Presence::Leaving(reason) => Some(reason),
        Presence::Lost => Some(Reason::NodeLost),
        Presence::Counted | Presence::Reserved => None,
    });
    let is_lent = || of_role().any(|seat| seat.presence == Presence::Reserved);
    // With a primary too many, a hot backup was promoted in an earlier pass: by a rollout or off a cordoned node.
    let primaries = draft.seats.iter().filter(|seat| seat.view.role == Role::Primary).count();
    // A primary that was demoted, because it stands by for another one, gave its place up rather than away.
    let gave = of_role().any(|seat| seat.is_counted() && seat.role < role)
        || (role == Role::Hot && primaries > desired.replicas);
    match left {
        Some(reason) => reason,
        None if gave => Reason::Refilled,
        None if is_lent() => Reason::SubsetFull,
        None => deleted_for(draft, role).unwrap_or(Reason::PodMissing),
    }
}
