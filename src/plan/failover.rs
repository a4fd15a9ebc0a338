//! Gets primaries off Pods and nodes that fail although the Pod still exists.
//!
//! A crashed Pod is not thrown away: it swaps roles with a ready hot backup and is one itself when it is back.

use jiff::{SignedDuration, Timestamp};

use crate::model::{Hold, Lifecycle, NodeHealth, PodView, Reason, Role};

use super::draft::{Draft, Presence, SeatIndex};
use super::{pairs, select};

/// Swaps primaries that stopped being ready, or never became it, with ready hot backups; one that no node has room for
/// gives its place to a cold one, if there is no such backup.
pub(super) fn replace_unready_primaries(draft: &mut Draft<'_>) {
    for index in 0..draft.seats.len() {
        let seat = &draft.seats[index];
        if !seat.is_free() || seat.role != Role::Primary {
            continue;
        }
        let Some((due, reason)) = swap_due(draft, seat.view) else { continue };
        if due > draft.snapshot.now {
            let pod = Some(seat.view.pod.name.clone());
            draft.hold(Hold { reason, pod, until: Some(due) });
        } else {
            swap(draft, index);
        }
    }
}

/// When a primary that does not serve may give its role away, and why not yet; `None` while there is nothing to swap.
fn swap_due(draft: &Draft<'_>, view: &PodView) -> Option<(Timestamp, Reason)> {
    let desired = &draft.snapshot.desired;
    let is_paired = draft.snapshot.is_paired();
    if is_paired && view.acts() {
        return None;
    }
    let failover_delay =
        if is_paired { desired.failover_delay.max(pairs::AGENTS_FIRST) } else { desired.failover_delay };
    let (since, delay, reason) = match view.lifecycle {
        Lifecycle::Unready { since } => (since, failover_delay, Reason::WithinFailoverDelay),
        Lifecycle::Starting | Lifecycle::Unscheduled => {
            let (patience, reason) = patience(draft, view)?;
            (waits_since(view), failover_delay.max(patience), reason)
        }
        Lifecycle::Ready { .. } | Lifecycle::Finished | Lifecycle::Terminating => return None,
    };
    Some((since.saturating_add(delay).unwrap_or(Timestamp::MAX), reason))
}

/// How long a primary may take to start while somebody could serve in its place, and what that is called; `None` while
/// nobody could.
///
/// Pods that were created together become ready almost together: swapping them would be noise. But a primary that cannot
/// start must not keep a ready hot backup from serving. For a cold backup it is given up altogether, and that takes as
/// long as with a Pod that does not come back.
fn patience(draft: &Draft<'_>, view: &PodView) -> Option<(SignedDuration, Reason)> {
    let desired = &draft.snapshot.desired;
    let of_hot = select::best_ready_hot(draft, |_| true);
    let of_hot = of_hot.map(|_| (desired.wakeup_timeout, Reason::WithinFailoverDelay));
    // Without a deadline nobody is given up.
    let of_cold = || cold_successor(draft, view).filter(|_| desired.unready_deadline < SignedDuration::MAX);
    of_hot.or_else(|| of_cold().map(|_| (desired.unready_deadline, Reason::AwaitingStart)))
}

fn swap(draft: &mut Draft<'_>, lost: SeatIndex) {
    // With a primary too many there is nothing to replace; `shrink` demotes this one.
    if draft.count(Role::Primary) > draft.snapshot.desired.replicas {
        return;
    }
    match select::best_ready_hot(draft, |_| true) {
        Some(successor) => {
            draft.convert(successor, Role::Primary, Reason::PodUnready);
            draft.convert(lost, Role::Hot, Reason::PodUnready);
        }
        None => match cold_successor(draft, draft.seats[lost].view) {
            Some(successor) => {
                draft.convert(successor, Role::Primary, Reason::UnreadyTooLong);
                draft.delete(lost, Reason::UnreadyTooLong);
            }
            None => {
                let pod = Some(draft.seats[lost].view.pod.name.clone());
                draft.hold(Hold { reason: Reason::NoReadyBackup, pod, until: None });
            }
        },
    }
}

/// The cold backup at its gate for whose sake a primary that no node has room for is given up: it holds its room already.
///
/// Not for one that has a node: its init containers may be at work, and the gate stands before those of the backup. Agents
/// choose for themselves.
fn cold_successor(draft: &Draft<'_>, stuck: &PodView) -> Option<SeatIndex> {
    let is_homeless = stuck.lifecycle == Lifecycle::Unscheduled && !draft.snapshot.is_paired();
    // What could not be deleted after it must not be converted first.
    if is_homeless && draft.snapshot.storm.is_none() { select::best_at_gate(draft) } else { None }
}

/// Since when a Pod that has not started is to start in its role.
fn waits_since(view: &PodView) -> Timestamp {
    view.role_since.max(view.created)
}

/// Whether a primary waits for a node for so long that a cold backup may take its place.
pub(super) fn is_given_up(draft: &Draft<'_>, view: &PodView) -> bool {
    let deadline = waits_since(view).saturating_add(draft.snapshot.desired.unready_deadline);
    view.lifecycle == Lifecycle::Unscheduled && deadline.is_ok_and(|deadline| deadline <= draft.snapshot.now)
}

/// Promotes a hot backup on a healthy node for a primary on a cordoned one, before somebody drains it.
///
/// The old primary is demoted by `shrink` in a later pass, once the new one is seen to be primary and ready.
pub(super) fn leave_cordoned_nodes(draft: &mut Draft<'_>) {
    if draft.snapshot.is_paired() {
        // A drain deletes the active, which hands over; a label would not make it do so.
        return;
    }
    let is_endangered = draft.members(Role::Primary).any(|(_, seat)| {
        seat.is_free() && seat.view.is_ready() && seat.view.node_health() == NodeHealth::Cordoned
    });
    if !is_endangered || draft.count(Role::Primary) > draft.snapshot.desired.replicas {
        return;
    }
    if let Some(successor) = select::best_ready_hot(draft, |view| view.node_health() == NodeHealth::Healthy) {
        draft.convert(successor, Role::Primary, Reason::NodeCordoned);
    }
}

/// Takes the primary label from Pods on lost nodes whose successors serve, so that labels never show too many.
///
/// Until then the label stays: if the node comes back first, its Pod is the only primary that serves.
pub(super) fn relabel_lost_primaries(draft: &mut Draft<'_>) {
    if draft.snapshot.storm.is_some()
        || draft.standing_primaries_without(None) < draft.snapshot.desired.replicas
    {
        return;
    }
    for index in 0..draft.seats.len() {
        let seat = &draft.seats[index];
        let may_act = draft.snapshot.is_paired() && seat.view.acts();
        if seat.presence == Presence::Lost && !seat.is_claimed && seat.role == Role::Primary && !may_act {
            draft.convert(index, Role::Hot, Reason::NodeLost);
        }
    }
}
