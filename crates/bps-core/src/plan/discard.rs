//! Clears the table: adopts Pods without a controller and deletes Pods that cannot serve any more.
//!
//! Never decides who takes a deleted Pod's place; see `fill`.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};

use crate::model::{Action, Gate, Hold, Lifecycle, NodeHealth, NodeName, Ownership, PodView, Reason, Role};

use super::draft::Draft;
use super::fill::TIMEOUTS_MAX;
use super::rollout;
use super::seats::{Presence, SeatIndex};

/// How often the patience with woken Pods is doubled at most.
const DOUBLINGS_MAX: usize = 3;

/// How long the gate of a cold Pod may fail to start at least, before another Pod is tried in its place.
///
/// 300 s: what fails may be mended meanwhile, and a new Pod for it each five minutes is no load.
const GATE_PATIENCE: SignedDuration = SignedDuration::from_secs(300);

/// Takes Pods that carry the set's label and have no controller.
pub(super) fn adopt_orphans(draft: &mut Draft<'_>) {
    for index in 0..draft.seats.len() {
        let view = draft.seats[index].view;
        if view.ownership == Ownership::Orphan && view.lifecycle != Lifecycle::Terminating {
            draft.claim(index, Action::Adopt { pod: view.pod.clone() }, Reason::Orphaned);
        }
    }
}

/// Deletes Pods that ended, that a deadline gave up, or whose node is gone.
pub(super) fn delete_hopeless(draft: &mut Draft<'_>) {
    let wakeable = draft.members(Role::Cold).filter(|(_, seat)| seat.is_free() && seat.view.can_be_woken());
    let substitutes: BTreeSet<Option<&NodeName>> =
        wakeable.map(|(_, seat)| seat.view.node.as_ref().map(|node| &node.name)).collect();
    for index in 0..draft.seats.len() {
        if draft.seats[index].is_claimed {
            continue;
        }
        match verdict(draft, index, &substitutes) {
            Verdict::Keep => {}
            Verdict::KeepUntil(until, reason) => {
                let pod = Some(draft.seats[index].view.pod.name.clone());
                draft.hold(Hold { reason, pod, until: Some(until) });
            }
            Verdict::Delete(reason) => draft.delete(index, reason),
        }
    }
}

enum Verdict {
    Keep,
    KeepUntil(Timestamp, Reason),
    Delete(Reason),
}

fn verdict(draft: &Draft<'_>, index: SeatIndex, substitutes: &BTreeSet<Option<&NodeName>>) -> Verdict {
    let seat = &draft.seats[index];
    let view = seat.view;
    match seat.presence {
        Presence::Leaving(Reason::PodFinished) => Verdict::Delete(Reason::PodFinished),
        Presence::Leaving(_) => Verdict::Keep,
        // It serves no client, and the edit may have mended what kept it from a node.
        Presence::Reserved if rollout::is_rolled(draft, view) => Verdict::Delete(Reason::TemplateChanged),
        Presence::Reserved => Verdict::Keep,
        Presence::Lost if view.node_health() == NodeHealth::Gone => Verdict::Delete(Reason::NodeGone),
        // The node may come back with the Pod still running; its place is filled meanwhile.
        Presence::Lost => Verdict::Keep,
        Presence::Counted => match view.lifecycle {
            Lifecycle::Unready { since } => unready_verdict(draft, since),
            Lifecycle::Starting => starting_verdict(draft, view, substitutes),
            Lifecycle::Unscheduled => match draft.snapshot.reserved_from(view) {
                Some(from) => Verdict::KeepUntil(from, Reason::AwaitingStart),
                None => Verdict::Keep,
            },
            Lifecycle::Ready { .. } | Lifecycle::Finished | Lifecycle::Terminating => Verdict::Keep,
        },
    }
}

fn unready_verdict(draft: &Draft<'_>, since: Timestamp) -> Verdict {
    let deadline = since.saturating_add(draft.snapshot.desired.unready_deadline).unwrap_or(Timestamp::MAX);
    if deadline <= draft.snapshot.now {
        Verdict::Delete(Reason::UnreadyTooLong)
    } else {
        Verdict::KeepUntil(deadline, Reason::PodUnready)
    }
}

/// A woken Pod has to pass its gate before the wake-up timeout, and then to come further; the clock starts at the gate and with
/// the first ticket, not at the scheduler. It is given up only for something better. No ticket helps one whose gate does not start.
fn starting_verdict(draft: &Draft<'_>, view: &PodView, substitutes: &BTreeSet<Option<&NodeName>>) -> Verdict {
    let started = match view.gate {
        Gate::Listening { since } => since,
        // How long an init container takes is the user's affair.
        Gate::Passed { .. } if view.is_running || view.signs.is_at_work => return Verdict::Keep,
        Gate::Passed { since } => view.signs.progressed.map_or(since, |progressed| progressed.max(since)),
        Gate::Ahead => match &view.gate_trouble {
            Some(trouble) => trouble.since,
            // Its images may be on their way.
            None => return Verdict::Keep,
        },
        Gate::None => return Verdict::Keep,
    };
    if view.role == Role::Cold {
        let is_locked_out = view.is_at_gate() && !view.has_known_key;
        return if is_locked_out {
            Verdict::Delete(Reason::GateKeyRetired)
        } else if view.gate_trouble.is_some() {
            let patience = draft.snapshot.desired.unready_deadline.max(GATE_PATIENCE);
            by_deadline(draft, after(started, patience), Reason::GateFails, Reason::GateFails)
        } else {
            Verdict::Keep
        };
    }
    // The role may have been written long before a ticket could be sent: the answer to that was lost, another operator
    // wrote it, or the set was paused. A Pod that nobody asked is not late, and this very plan asks it.
    if view.can_be_woken() && view.first_ticket.is_none() {
        return Verdict::Keep;
    }
    let awake = started.max(view.role_since);
    let asked = view.first_ticket.map_or(awake, |ticket| ticket.max(awake));
    let timeouts = draft.snapshot.recent.timeouts_in_a_row;
    let has_passed = matches!(view.gate, Gate::Passed { .. });
    let patience = match (has_substitute(draft, view, substitutes), has_passed) {
        (true, _) => patience(draft, timeouts),
        // A new Pod has the same way to go, and this one has made a part of it: only one that hangs is given up.
        (false, true) => draft.snapshot.desired.unready_deadline.max(patience(draft, timeouts)),
        // A new Pod would need no gate.
        (false, false) => patience(draft, timeouts.max(1)),
    };
    by_deadline(draft, after(asked, patience), Reason::WakeTimedOut, Reason::AwaitingStart)
}

/// The end of a time; `None` if that never comes.
fn after(since: Timestamp, time: SignedDuration) -> Option<Timestamp> {
    since.saturating_add(time).ok().filter(|end| *end < Timestamp::MAX)
}

/// Gives a Pod up at its deadline, if it has one, and says until then what is waited for.
fn by_deadline(draft: &Draft<'_>, deadline: Option<Timestamp>, given_up: Reason, awaited: Reason) -> Verdict {
    match deadline {
        None => Verdict::Keep,
        Some(deadline) if deadline <= draft.snapshot.now => Verdict::Delete(given_up),
        Some(deadline) => Verdict::KeepUntil(deadline, awaited),
    }
}

/// How long a woken Pod may take for its next step after so many in a row did not take it: double for each, because the cause is
/// less and less likely to be this one.
fn patience(draft: &Draft<'_>, timeouts: usize) -> SignedDuration {
    draft.snapshot.desired.wakeup_timeout.saturating_mul(1 << timeouts.min(DOUBLINGS_MAX))
}

/// Whether another Pod can be woken in the place of this one, on another node; given the nodes of those that can be woken.
fn has_substitute(draft: &Draft<'_>, view: &PodView, substitutes: &BTreeSet<Option<&NodeName>>) -> bool {
    let is_another_given_up = draft.timeouts_in_a_row() > draft.snapshot.recent.timeouts_in_a_row;
    // One at a time: a substitute replaces one Pod, and whether it starts tells whether waking is in vain.
    if draft.snapshot.recent.timeouts_in_a_row >= TIMEOUTS_MAX || is_another_given_up {
        return false;
    }
    let node = view.node.as_ref().map(|node| &node.name);
    substitutes.iter().any(|other| *other != node)
}
