//! Gets primaries off Pods and nodes that fail although the Pod still exists.
//!
//! A crashed Pod is not thrown away: it swaps roles with a ready hot backup and is one itself when it is back.

use jiff::{SignedDuration, Timestamp};

use crate::model::{Hold, Lifecycle, NodeHealth, PodView, Reason, Role};

use super::draft::Draft;
use super::seats::{Presence, SeatIndex};
use super::{pairs, rollout, select};

/// Who can serve in the place of a primary that does not.
#[derive(Clone, Copy)]
enum Successor {
    /// A ready hot backup; the primary is one itself when it is back.
    Hot(SeatIndex),
    /// A cold backup at its gate, for whose sake the primary is given up.
    Cold(SeatIndex),
}

/// Who can serve in the places of primaries that do not; the best one last.
struct Successors {
    hot: Vec<SeatIndex>,
    cold: Vec<SeatIndex>,
    /// What a rollout makes beyond the wanted number of primaries.
    surge: usize,
}

impl Successors {
    fn of(draft: &Draft<'_>) -> Self {
        let (mut hot, mut cold) = (select::ready_hot(draft, |_| true), select::at_gate(draft));
        hot.reverse();
        cold.reverse();
        Self { hot, cold, surge: rollout::surge(draft) }
    }

    /// Who is to serve in this primary's place. A cold backup does so only for one that no node has room for, because it
    /// holds its own room already.
    ///
    /// Not for one that has a node: its init containers may be at work, and the gate stands before those of the backup. Agents
    /// choose for themselves. Without a deadline nobody is given up.
    fn next(&self, draft: &Draft<'_>, view: &PodView) -> Option<Successor> {
        // What could not be deleted after it must not be converted first.
        let may_be_given_up = view.lifecycle == Lifecycle::Unscheduled
            && draft.snapshot.storm.is_none()
            && draft.snapshot.desired.can_create
            && !draft.snapshot.is_paired()
            && draft.snapshot.desired.unready_deadline < SignedDuration::MAX;
        let cold = || if may_be_given_up { self.cold.last().copied().map(Successor::Cold) } else { None };
        self.hot.last().copied().map(Successor::Hot).or_else(cold)
    }

    fn take(&mut self, successor: Successor) {
        match successor {
            Successor::Hot(_) => self.hot.pop(),
            Successor::Cold(_) => self.cold.pop(),
        };
    }
}

/// Swaps primaries that stopped being ready, or never became it, with ready hot backups; one that no node has room for
/// gives its place to a cold one, if there is no such backup.
pub(super) fn replace_unready_primaries(draft: &mut Draft<'_>) {
    let primaries = draft.members(Role::Primary);
    let waited_for = primaries.filter(|(_, seat)| seat.is_free() && is_waited_for(draft, seat.view));
    let waited_for: Vec<SeatIndex> = waited_for.map(|(index, _)| index).collect();
    if waited_for.is_empty() {
        return;
    }
    let mut successors = Successors::of(draft);
    for index in waited_for {
        let view = draft.seats[index].view;
        let successor = successors.next(draft, view);
        let Some((due, reason)) = swap_due(draft, view, successor) else { continue };
        if due > draft.snapshot.now {
            draft.hold(Hold { reason, pod: Some(view.pod.name.clone()), until: Some(due) });
        } else {
            swap(draft, index, successor, &mut successors);
        }
    }
}

/// Whether somebody else may have to serve in this primary's place.
fn is_waited_for(draft: &Draft<'_>, view: &PodView) -> bool {
    let serves_not =
        matches!(view.lifecycle, Lifecycle::Unready { .. } | Lifecycle::Starting | Lifecycle::Unscheduled);
    serves_not && !(draft.snapshot.is_paired() && view.acts())
}

/// When a primary that does not serve may give its role away, and why not yet; `None` while nobody waits for that.
///
/// Pods that were created together become ready almost together: swapping them would be noise. But a primary that cannot
/// start must not keep a ready hot backup from serving.
fn swap_due(draft: &Draft<'_>, view: &PodView, successor: Option<Successor>) -> Option<(Timestamp, Reason)> {
    let desired = &draft.snapshot.desired;
    let first = if draft.snapshot.is_paired() { pairs::AGENTS_FIRST } else { SignedDuration::ZERO };
    let failover_delay = desired.failover_delay.max(first);
    let (since, delay) = match (view.lifecycle, successor) {
        (Lifecycle::Unready { since }, _) => (since, failover_delay),
        (_, Some(Successor::Hot(_))) => (waits_since(view), failover_delay.max(desired.wakeup_timeout)),
        (_, Some(Successor::Cold(_))) => return Some((given_up_at(draft, view), Reason::AwaitingStart)),
        (_, None) => return None,
    };
    Some((since.saturating_add(delay).unwrap_or(Timestamp::MAX), Reason::WithinFailoverDelay))
}

fn swap(draft: &mut Draft<'_>, lost: SeatIndex, successor: Option<Successor>, successors: &mut Successors) {
    // With a primary too many there is nothing to replace; `shrink` demotes this one. What a rollout makes beyond the wanted
    // number is none too many for one that is given up: the rollout waits for it.
    let surge = if matches!(successor, Some(Successor::Cold(_))) { successors.surge } else { 0 };
    if draft.count(Role::Primary) > draft.snapshot.desired.replicas + surge {
        return;
    }
    let Some(successor) = successor else {
        let pod = Some(draft.seats[lost].view.pod.name.clone());
        draft.hold(Hold { reason: Reason::NoReadyBackup, pod, until: None });
        return;
    };
    successors.take(successor);
    match successor {
        Successor::Hot(successor) => {
            // One that never served is no loss.
            let was_ready = matches!(draft.seats[lost].view.lifecycle, Lifecycle::Unready { .. });
            let reason = if was_ready { Reason::PodUnready } else { Reason::SlowStart };
            draft.convert(successor, Role::Primary, reason);
            draft.convert(lost, Role::Hot, reason);
        }
        Successor::Cold(successor) => {
            draft.convert(successor, Role::Primary, Reason::UnreadyTooLong);
            draft.delete(lost, Reason::UnreadyTooLong);
        }
    }
}

/// Since when a Pod that has not started is to start in its role.
fn waits_since(view: &PodView) -> Timestamp {
    view.role_since.max(view.created)
}

/// When a primary that waits for a node has waited for as long as one that does not come back.
fn given_up_at(draft: &Draft<'_>, view: &PodView) -> Timestamp {
    let desired = &draft.snapshot.desired;
    let patience = desired.failover_delay.max(desired.unready_deadline);
    waits_since(view).saturating_add(patience).unwrap_or(Timestamp::MAX)
}

/// Whether a primary waits for a node for so long that a cold backup may take its place.
pub(super) fn is_given_up(draft: &Draft<'_>, view: &PodView) -> bool {
    view.lifecycle == Lifecycle::Unscheduled && given_up_at(draft, view) <= draft.snapshot.now
}

/// Promotes a hot backup on a healthy node for a primary on a cordoned one, before somebody drains it.
///
/// The old primary is demoted by `shrink` in a later pass, once the new one is seen to be primary and ready.
pub(super) fn leave_cordoned_nodes(draft: &mut Draft<'_>) {
    if draft.snapshot.is_paired() {
        // The group of its pairs orders the active to hand over; a label would not make it do so.
        return;
    }
    let is_endangered = draft.members(Role::Primary).any(|(_, seat)| {
        seat.is_free() && seat.view.is_ready() && seat.view.node_health() == NodeHealth::Cordoned
    });
    if !is_endangered || draft.count(Role::Primary) > draft.snapshot.desired.replicas {
        return;
    }
    let elsewhere = select::ready_hot(draft, |view| view.node_health() == NodeHealth::Healthy);
    if let Some(successor) = elsewhere.first() {
        draft.convert(*successor, Role::Primary, Reason::NodeCordoned);
    }
}

/// Takes the primary label from Pods that are on lost nodes, or wait for one, and whose successors serve, so that labels never
/// show too many.
///
/// Until then the label stays: if the node comes back first, its Pod is the only primary that serves.
pub(super) fn relabel_lost_primaries(draft: &mut Draft<'_>) {
    if draft.snapshot.storm.is_some() || draft.seats.tally().standing < draft.snapshot.desired.replicas {
        return;
    }
    for index in 0..draft.seats.len() {
        let seat = &draft.seats[index];
        let may_act = draft.snapshot.is_paired() && seat.view.acts();
        let reason = match seat.presence {
            Presence::Lost => Reason::NodeLost,
            Presence::Reserved if rollout::surge(draft) == 0 => Reason::SubsetFull,
            Presence::Reserved => continue,
            Presence::Counted | Presence::Leaving(_) => continue,
        };
        if !seat.is_claimed && seat.role == Role::Primary && !may_act {
            draft.convert(index, Role::Hot, reason);
        }
    }
}
