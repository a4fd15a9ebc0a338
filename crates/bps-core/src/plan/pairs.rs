//! Sets whose primaries are actives and whose hot backups are their standbys.
//!
//! Who acts is decided by the agents, and which Pods form a pair by the group of the set: roles only follow. So nothing
//! here gives up a Pod that acts, but for a rollout that hands over to a standby which is as it should be.

use std::collections::BTreeSet;

use jiff::SignedDuration;

use crate::model::{Action, Hold, Lifecycle, ObjectState, Part, PodName, PodView, Reason, Role, UpdateKind};

use super::draft::Draft;
use super::seats::{Presence, Seat, SeatIndex};
use super::{rollout, select};

/// How long a primary may be unready at least before its role is given away: agents take over within 3 s, and their
/// choice is the better one.
pub(super) const AGENTS_FIRST: SignedDuration = SignedDuration::from_secs(3);

/// Writes the group of the set's pairs; without one of its own nothing else is done.
pub(super) fn publish_group(draft: &mut Draft<'_>) {
    match draft.snapshot.group {
        // What a group should be follows from a spec that can be used.
        Some(ObjectState::Absent | ObjectState::Outdated) if !draft.snapshot.desired.can_create => {
            draft.hold(Hold { reason: Reason::InvalidSpec, pod: None, until: None });
        }
        Some(ObjectState::Absent | ObjectState::Outdated) => {
            draft.step(Action::PublishGroup, Reason::GroupChanged);
        }
        Some(ObjectState::Foreign) => {
            draft.hold(Hold { reason: Reason::ForeignObject, pod: None, until: None });
        }
        Some(ObjectState::Current) | None => {}
    }
}

/// Gives the role of a primary to whoever acts, and takes it from surplus primaries that do not.
pub(super) fn follow(draft: &mut Draft<'_>) {
    if !draft.snapshot.is_paired() {
        return;
    }
    let acting = draft.members(Role::Hot).filter(|(_, seat)| seat.is_free() && seat.view.acts());
    let acting: Vec<SeatIndex> = acting.map(|(index, _)| index).collect();
    if !acting.is_empty() {
        promote_acting(draft, &acting);
    }
    demote_bound(draft);
    demote_idle(draft);
}

fn promote_acting(draft: &mut Draft<'_>, acting: &[SeatIndex]) {
    let wanted = draft.snapshot.desired.replicas;
    let mut by_worth = select::surplus(draft, Role::Primary).into_iter().peekable();
    for index in acting {
        let successor = draft.seats[*index].view;
        let reason = takeover_reason(draft, successor);
        if draft.count(Role::Primary) < wanted {
            draft.convert(*index, Role::Primary, reason);
            continue;
        }
        while by_worth.next_if(|primary| !is_idle(draft, *primary)).is_some() {}
        if let Some(idle) = idle_peer(draft, successor).or(by_worth.peek().copied()) {
            draft.convert(*index, Role::Primary, reason);
            let reason = if reason == Reason::PodUnready { reason } else { Reason::TookOver };
            draft.convert(idle, Role::Hot, reason);
        }
    }
}

/// Takes the role from primaries that stand by for another one: they cannot act, and another Pod can.
fn demote_bound(draft: &mut Draft<'_>) {
    for index in 0..draft.seats.len() {
        let seat = &draft.seats[index];
        let has_primary = || peers(draft, seat.view).any(|peer| peer.role == Role::Primary);
        if seat.is_free() && seat.role == Role::Primary && is_bound(draft, seat.view) && has_primary() {
            draft.convert(index, Role::Hot, Reason::TookOver);
        }
    }
}

/// Takes the role from primaries that do not act while as many as are wanted do.
fn demote_idle(draft: &mut Draft<'_>) {
    let wanted = draft.snapshot.desired.replicas;
    let acting = draft.members(Role::Primary).filter(|(_, seat)| seat.view.acts()).count();
    if acting < wanted {
        return;
    }
    for index in select::surplus(draft, Role::Primary) {
        if draft.count(Role::Primary) <= wanted {
            return;
        }
        if !draft.seats[index].view.acts() {
            draft.convert(index, Role::Hot, Reason::ScaledIn);
        }
    }
}

/// Whether it is a primary whose place an acting hot backup may take.
fn is_idle(draft: &Draft<'_>, index: SeatIndex) -> bool {
    let seat = &draft.seats[index];
    seat.is_free() && seat.role == Role::Primary && !seat.view.acts()
}

/// The primary for which an acting hot backup stood by: before all others its place is free.
fn idle_peer(draft: &Draft<'_>, successor: &PodView) -> Option<SeatIndex> {
    let peer = draft.seats.position(successor.part.peer_of_active()?)?;
    is_idle(draft, peer).then_some(peer)
}

/// Why the standby acts: what became of the Pod that acted before.
fn takeover_reason(draft: &Draft<'_>, view: &PodView) -> Reason {
    match peers(draft, view).next().map(|peer| (peer.presence, peer.view.lifecycle)) {
        Some((Presence::Leaving(Reason::PodDeleted), _)) => Reason::PodDeleted,
        Some((Presence::Leaving(Reason::PodFinished), _)) => Reason::PodFinished,
        Some((Presence::Lost, _)) => Reason::NodeLost,
        Some((Presence::Counted, Lifecycle::Unready { .. })) => Reason::PodUnready,
        Some((Presence::Counted | Presence::Reserved | Presence::Leaving(_), _)) | None => Reason::TookOver,
    }
}

/// The other Pods of its pairs, as far as they are there.
fn peers<'d, 'a>(draft: &'d Draft<'a>, view: &'d PodView) -> impl Iterator<Item = &'d Seat<'a>> {
    view.part.peers().iter().filter_map(|peer| draft.seats.position(peer)).map(|index| &draft.seats[index])
}

/// Whether a Pod stands by for Pods that all act and stay: it cannot act before one of them ends.
pub(super) fn is_bound(draft: &Draft<'_>, view: &PodView) -> bool {
    let count = view.part.peers().len();
    is_standby(draft, view) && count > 0 && peers(draft, view).filter(|peer| is_served(peer)).count() == count
}

/// Whether a Pod stands by for any that acts and stays: that one relies on it.
pub(super) fn is_relied_on(draft: &Draft<'_>, view: &PodView) -> bool {
    is_standby(draft, view) && peers(draft, view).any(is_served)
}

fn is_standby(draft: &Draft<'_>, view: &PodView) -> bool {
    draft.snapshot.is_paired() && matches!(view.part, Part::Standby { .. })
}

/// Whether a Pod acts and stays, and clients can use it.
fn is_served(peer: &Seat<'_>) -> bool {
    peer.is_counted() && peer.view.acts() && peer.view.is_ready()
}

/// Whether one that a Pod stands by for does not act any more, so that it acts next.
pub(super) fn is_next(draft: &Draft<'_>, view: &PodView) -> bool {
    is_standby(draft, view) && !is_bound(draft, view)
}

/// Free Pods of a role that may be given up as surplus, the least worth keeping first: in a set of pairs one that acts never,
/// no backup before surplus pairs have ended, and no standby while there is a spare.
pub(super) fn expendable(draft: &Draft<'_>, role: Role) -> Vec<SeatIndex> {
    let mut surplus = select::surplus(draft, role);
    if !draft.snapshot.is_paired() {
        return surplus;
    }
    let has_surplus = draft.count(Role::Primary) > draft.snapshot.desired.replicas;
    // A Pod that has just become a backup goes in a later pass.
    let has_later =
        draft.members(Role::Hot).any(|(_, other)| other.is_claimed && !is_relied_on(draft, other.view));
    let is_kept = |seat: &Seat<'_>| {
        seat.role == Role::Hot && (has_surplus || has_later && is_relied_on(draft, seat.view))
    };
    surplus.retain(|index| !draft.seats[*index].view.acts() && !is_kept(&draft.seats[*index]));
    surplus
}

/// Hot backups beyond the wanted number while a rollout reaches actives without a standby of their own: one more than
/// there are, until an outdated active has one.
pub(super) fn hot_surge(draft: &Draft<'_>) -> usize {
    let desired = &draft.snapshot.desired;
    let is_needed = draft.snapshot.is_paired()
        && desired.update.kind == UpdateKind::BackupFirst
        && desired.hot_backups.saturating_mul(desired.standby_for) < desired.replicas
        && rollout::replaceable(draft).count() > 0
        && [Role::Cold, Role::Hot].into_iter().all(|role| rollout::outdated(draft, role).is_empty());
    if !is_needed {
        return 0;
    }
    let hot = || draft.seats.iter().filter(|seat| seat.is_counted() && seat.view.role == Role::Hot);
    let bound = || hot().filter(|standby| is_bound(draft, standby.view));
    let served: BTreeSet<&PodName> = bound().flat_map(|standby| standby.view.part.peers()).collect();
    // The group chooses whom a lent standby stands by for; one beside an updated active does not help.
    let is_served = |index: &SeatIndex| served.contains(&draft.seats[*index].view.pod.name);
    let needed =
        if replaceable_primaries(draft).iter().any(is_served) { hot().count() } else { bound().count() + 1 };
    needed.min(desired.replicas).saturating_sub(desired.hot_backups)
}

/// Deletes one outdated primary whose standby is as it should be: it hands over while it ends.
pub(super) fn replace_outdated_primary(draft: &mut Draft<'_>) {
    if let Some(hold) = unsettled(draft) {
        draft.hold(hold);
        return;
    }
    let is_ready = |index: &SeatIndex| has_good_standby(draft, draft.seats[*index].view);
    match replaceable_primaries(draft).into_iter().find(is_ready) {
        Some(index) => draft.delete(index, Reason::TemplateChanged),
        None => draft.hold(rollout::rollout_waits(None)),
    }
}

/// Outdated primaries in subsets whose partitions do not keep all of them.
fn replaceable_primaries(draft: &Draft<'_>) -> Vec<SeatIndex> {
    let replaceable = rollout::replaceable(draft);
    let mut outdated = rollout::outdated(draft, Role::Primary);
    outdated.retain(|index| replaceable.has_one_in(draft.seats[*index].view.subset));
    outdated
}

fn has_good_standby(draft: &Draft<'_>, view: &PodView) -> bool {
    let is_good = |peer: &Seat<'_>| {
        peer.is_free()
            && matches!(peer.view.part, Part::Standby { .. })
            && peer.view.is_ready()
            && draft.is_updated(peer.view)
            && draft.snapshot.is_level(&view.pod.name)
    };
    view.acts() && peers(draft, view).next().is_some_and(is_good)
}

/// Why the rollout waits while a Pod is missing, surplus, in motion or not available for long enough.
fn unsettled(draft: &Draft<'_>) -> Option<Hold> {
    let wanted = |role: Role| {
        draft.snapshot.desired.count(role) + if role == Role::Hot { hot_surge(draft) } else { 0 }
    };
    let is_complete = Role::ALL.iter().all(|role| draft.count(*role) == wanted(*role));
    let is_in_motion = draft.seats.iter().any(|seat| seat.is_claimed);
    let counted = || draft.seats.iter().filter(|seat| seat.is_counted());
    if !is_complete || is_in_motion || counted().any(|seat| !seat.view.is_available()) {
        return Some(rollout::rollout_waits(None));
    }
    let young = counted().filter(|seat| seat.role != Role::Cold && !rollout::is_settled(draft, seat.view));
    young.map(|seat| rollout::settled_at(draft, seat.view)).max().map(rollout::rollout_waits)
}
