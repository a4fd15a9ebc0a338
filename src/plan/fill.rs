//! Fills shortages from the tier below, and creates what no tier below can give.
//!
//! Priority of the BPS paper: hot -> primary, cold -> primary, create; cold -> hot, create; create cold.

use crate::model::{Reason, Role};

use super::draft::{Draft, Presence};
use super::{rollout, select, shrink};

/// Fills free primary places.
pub(super) fn fill_primaries(draft: &mut Draft<'_>) {
    let wanted = draft.snapshot.desired.replicas + rollout::surge(draft);
    fill(draft, Role::Primary, wanted);
}

/// Fills free hot, then cold places.
pub(super) fn fill_backups(draft: &mut Draft<'_>) {
    let returning = shrink::returning_primaries(draft);
    fill(draft, Role::Hot, draft.snapshot.desired.hot_backups.saturating_sub(returning));
    fill(draft, Role::Cold, draft.snapshot.desired.cold_backups);
}

fn fill(draft: &mut Draft<'_>, role: Role, wanted: usize) {
    let reason = shortage_reason(draft, role);
    for _ in draft.count(role)..wanted {
        match select::best(draft, givers(role), role) {
            Some(index) => draft.convert(index, role, reason),
            None if draft.create(role, reason) => {}
            None => return,
        }
    }
}

/// Roles that give Pods to this one, the quickest first.
const fn givers(role: Role) -> &'static [Role] {
    match role {
        Role::Primary => &[Role::Hot, Role::Cold],
        Role::Hot => &[Role::Cold],
        Role::Cold => &[],
    }
}

/// Why Pods of this role are missing, by the traces they left.
fn shortage_reason(draft: &Draft<'_>, role: Role) -> Reason {
    if draft.snapshot.desired.is_new_generation {
        return Reason::ScaledOut;
    }
    let of_role = || draft.seats.iter().filter(|seat| seat.view.role == role);
    let left = of_role().find_map(|seat| match seat.presence {
        Presence::Leaving(reason) => Some(reason),
        Presence::Lost => Some(Reason::NodeLost),
        Presence::Counted => None,
    });
    let gave = of_role().any(|seat| seat.is_counted() && seat.role != role);
    match left {
        Some(reason) => reason,
        None if gave => Reason::Refilled,
        None => Reason::PodMissing,
    }
}
