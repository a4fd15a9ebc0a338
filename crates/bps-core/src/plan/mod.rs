//! Decides what to do for one BackupPodSet: a pure function from a snapshot to a plan.
//!
//! The order of [`RULES`] is the order of importance. A rule only adds to the draft; it never takes back what an
//! earlier rule claimed, so a Pod is named by at most one step.

mod balance;
mod budget;
mod check;
mod discard;
mod draft;
mod expose;
mod failover;
mod fill;
mod labels;
mod names;
mod pairs;
mod rebalance;
mod rollout;
mod seats;
mod select;
mod shrink;
mod wake;

#[cfg(test)]
mod growth;
#[cfg(test)]
mod tests;

pub use check::{Violation, check};

use crate::model::{Action, Hold, ObjectState, Plan, Reason, Snapshot, Step};
use draft::Draft;

/// A rule looks at the draft so far and adds steps and holds to it.
type Rule = fn(&mut Draft<'_>);

/// Every rule, most important first.
const RULES: [Rule; 18] = [
    pairs::publish_group,
    discard::adopt_orphans,
    discard::delete_hopeless,
    pairs::follow,
    fill::fill_primaries,
    failover::replace_unready_primaries,
    failover::leave_cordoned_nodes,
    failover::relabel_lost_primaries,
    shrink::shrink_primaries,
    fill::fill_backups,
    shrink::shrink_backups,
    rollout::replace_outdated,
    rebalance::restore_shares,
    wake::send_tickets,
    labels::put_right,
    expose::expose_ready_primaries,
    expose::retire_leftovers,
    budget::keep_budget,
];

/// What to do for this set now, and what not yet.
///
/// Total: every snapshot has a plan. A converged snapshot has an empty one.
pub fn plan(snapshot: &Snapshot) -> Plan {
    let mut draft = Draft::new(snapshot);
    let rules = match snapshot.group {
        // A Pod that somebody else's group takes in could not be told from its own.
        Some(ObjectState::Absent | ObjectState::Foreign) => &RULES[..1],
        Some(ObjectState::Current | ObjectState::Outdated) | None => &RULES[..],
    };
    for rule in rules {
        rule(&mut draft);
    }
    let plan = draft.into_plan();
    if snapshot.desired.paused { paused(snapshot, plan) } else { plan }
}

/// What keeps clients safe with the roles as they are, whatever keeps the rest of a plan back: addresses of Pods that are
/// gone leave the Service, those of ready primaries get into it, and Pods that were let through get their ticket.
pub fn protect(snapshot: &Snapshot) -> Plan {
    let mut draft = Draft::new(snapshot);
    if !matches!(snapshot.group, Some(ObjectState::Absent | ObjectState::Foreign)) {
        wake::send_tickets(&mut draft);
        expose::expose_ready_primaries(&mut draft);
    }
    let Plan { mut steps, holds } = draft.into_plan();
    steps.retain(|step| step.action.protects());
    Plan { steps, holds }
}

/// A paused set keeps its plan as a list of holds: the status says what would be done. Clients are protected, and its
/// group is told.
fn paused(snapshot: &Snapshot, plan: Plan) -> Plan {
    let hold = |pod| Hold { reason: Reason::Paused, pod, until: None };
    let is_told =
        |step: &Step| step.action == Action::PublishGroup && snapshot.group == Some(ObjectState::Outdated);
    let (mut steps, mut kept_back): (Vec<Step>, Vec<Step>) = plan.steps.into_iter().partition(is_told);
    let protection = protect(snapshot);
    kept_back.retain(|step| !step.action.protects());
    steps.extend(protection.steps);
    let mut holds: Vec<Hold> = kept_back.iter().map(|step| hold(step.action.pod_name().cloned())).collect();
    if holds.is_empty() {
        holds.push(hold(None));
    }
    holds.extend(protection.holds);
    holds.sort();
    holds.dedup();
    Plan { steps, holds }
}
