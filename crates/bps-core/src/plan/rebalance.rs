//! Brings Pods back to the subsets of the nodes that are to have them, once all is well.
//!
//! Service comes before order: a failover takes the first backup that can serve, wherever it is. Afterwards a hot backup in the
//! subset that lacks a primary swaps roles with a primary elsewhere, so that no Pod restarts and never do fewer serve. Backups
//! in the wrong subset, as after a change of the shares, are recreated in the right one.

use jiff::{SignedDuration, Timestamp};

use super::balance::Balance;
use super::draft::Draft;
use super::seats::{Presence, SeatIndex};
use super::{fill, rollout, select};
use crate::model::{Hold, Lifecycle, NodeHealth, PodView, Reason, Role};

/// How long a hot backup must have been ready before it gets a primary's role for the sake of balance: what was lost there a
/// moment ago may be lost again, and each change of role moves clients.
const REST: SignedDuration = SignedDuration::from_secs(10);

/// How long the status of a new specification may take to be written, before the shares are looked at again.
const SEEN_WITHIN: SignedDuration = SignedDuration::from_secs(1);

/// Takes the next step towards the shares of the subsets.
pub(super) fn restore_shares(draft: &mut Draft<'_>) {
    let desired = &draft.snapshot.desired;
    // In pairs who acts is the agents' affair: roles follow them.
    if !desired.topology.rebalances || draft.snapshot.is_paired() {
        return;
    }
    // What cannot be made again is not taken away.
    if draft.snapshot.storm.is_some() || !desired.can_create {
        return;
    }
    let balance = draft.seats.tally().balance.clone();
    let is_even = balance.misplaced(Role::Primary) == 0
        && [Role::Hot, Role::Cold].iter().all(|role| balance.movable(*role) == 0);
    if is_even {
        return;
    }
    if desired.is_new_generation {
        // A new wish is reconciled first. The write of its status triggers no reconcile, so the hold asks for one.
        let soon = draft.snapshot.now.saturating_add(SEEN_WITHIN).unwrap_or(Timestamp::MAX);
        draft.hold(off_balance(Some(soon)));
        return;
    }
    if let Some(Hold { until, .. }) = rollout::unsettled(draft) {
        // What else is awaited is reported for its own sake.
        if until.is_some() {
            draft.hold(off_balance(until));
        }
        return;
    }

    let swapped = if balance.misplaced(Role::Primary) > 0 { swap(draft, &balance) } else { Swap::Barred };
    match swapped {
        Swap::Done => {}
        Swap::At(at) => draft.hold(off_balance(Some(at))),
        // With hot backups one is made where it is lacking, sooner or later.
        Swap::Impossible if draft.snapshot.desired.hot_backups == 0 => draft.hold(off_balance(None)),
        Swap::Impossible | Swap::Barred => move_backup(draft, &balance),
    }
}

const fn off_balance(until: Option<Timestamp>) -> Hold {
    Hold { reason: Reason::OffBalance, pod: None, until }
}

/// Promotes a hot backup where a primary is lacking; `shrink` demotes one where there are too many, once the new one serves.
fn swap(draft: &mut Draft<'_>, balance: &Balance) -> Swap {
    let Some(is_updated) = alike(draft) else { return Swap::Barred };
    let is_fit = |view: &PodView| {
        let lacks_one = view.subset.is_some_and(|subset| balance.has_lack(subset, Role::Primary));
        lacks_one && fits(draft, view, is_updated)
    };
    let successors = select::ready_hot(draft, is_fit);
    let rested = |index: &SeatIndex| rested_at(draft.seats[*index].view);
    let Some(successor) = successors.into_iter().min_by_key(rested) else { return Swap::Impossible };
    match rested(&successor) {
        at if at > draft.snapshot.now => Swap::At(at),
        _ => {
            draft.convert(successor, Role::Primary, Reason::Rebalanced);
            Swap::Done
        }
    }
}

/// What became of a swap.
enum Swap {
    Done,
    /// A hot backup has been ready for long enough then.
    At(Timestamp),
    /// No hot backup is in a subset that lacks a primary.
    Impossible,
    /// Something else has to end first, which is reported for its own sake.
    Barred,
}

/// When a hot backup has been ready for long enough.
fn rested_at(view: &PodView) -> Timestamp {
    let since = match view.lifecycle {
        Lifecycle::Ready { since } => since,
        Lifecycle::Unscheduled
        | Lifecycle::Starting
        | Lifecycle::Unready { .. }
        | Lifecycle::Finished
        | Lifecycle::Terminating => return Timestamp::MAX,
    };
    since.saturating_add(REST).unwrap_or(Timestamp::MAX)
}

/// Deletes backups of one tier in subsets that have too many, as many as a rollout may; `fill` makes them where they are lacking.
fn move_backup(draft: &mut Draft<'_>, balance: &Balance) {
    let desired = &draft.snapshot.desired;
    for role in [Role::Hot, Role::Cold] {
        let most = desired.update.max_unavailable.of(desired.count(role)).min(balance.movable(role));
        let most = most.min(replaced_in_place(draft, balance, role));
        let mut left = balance.clone();
        let is_spare = |index: &SeatIndex| left.spare(draft.seats[*index].view.subset, role);
        let spare: Vec<SeatIndex> =
            select::surplus(draft, role).into_iter().filter(is_spare).take(most).collect();
        for index in &spare {
            draft.delete(*index, Reason::Rebalanced);
        }
        if !spare.is_empty() {
            return;
        }
        if most == 0 && balance.movable(role) > 0 {
            draft.hold(off_balance(None));
        }
    }
}

/// How many places of a role would be filled in subsets that lack one, if they became free.
///
/// A new Pod is made where it is lacking. A backup is taken for better reasons first: it has started, its node is not cordoned, it
/// is of the present template. Where such a one is in the wrong subset, what is deleted there would come back for ever.
fn replaced_in_place(draft: &Draft<'_>, balance: &Balance, role: Role) -> usize {
    let next = select::foremost(draft, fill::givers(draft, role), role);
    if next.is_empty() {
        return usize::MAX;
    }
    let mut filled = balance.clone();
    next.into_iter().filter(|index| filled.receive(draft.seats[*index].view.subset, role)).count()
}

/// Whether a surplus hot backup becomes a primary instead of being deleted: in its subset one is lacking, and another one has one
/// too many, which goes in a later pass.
pub(super) fn takes_over(draft: &Draft<'_>, view: &PodView) -> bool {
    let balance = &draft.seats.tally().balance;
    draft.snapshot.desired.topology.rebalances
        && !draft.snapshot.is_paired()
        && view.is_ready()
        && draft.count(Role::Primary) == draft.snapshot.desired.replicas
        && view.subset.is_some_and(|subset| balance.has_lack(subset, Role::Primary))
        && balance.has_any_excess(Role::Primary)
        && alike(draft).is_some_and(|is_updated| fits(draft, view, is_updated))
}

/// Whether all primaries that may go are of the present template, or all of former ones; `None` if they differ in that, one is on a
/// node that is not healthy, or there is none. Then one in excess would not be the first to go.
fn alike(draft: &Draft<'_>) -> Option<bool> {
    let primaries = || draft.members(Role::Primary).map(|(_, seat)| seat.view);
    let first = draft.is_updated(primaries().next()?);
    if primaries().all(|view| fits(draft, view, first)) {
        return Some(first);
    }
    swaps_beside_kept(draft).then_some(true)
}

/// Whether the partitions of subsets keep every primary of a former template, and one of the present template is in excess: it goes
/// first. What a partition keeps is not swapped, because a Pod of the present template would take its place.
fn swaps_beside_kept(draft: &Draft<'_>) -> bool {
    let primaries = || draft.members(Role::Primary).map(|(_, seat)| seat.view);
    rollout::replaceable(draft).is_empty()
        && primaries().all(|view| view.node_health() == NodeHealth::Healthy)
        && primaries().any(|view| draft.is_updated(view) && is_misplaced(draft, view))
}

fn fits(draft: &Draft<'_>, view: &PodView, is_updated: bool) -> bool {
    draft.is_updated(view) == is_updated && view.node_health() == NodeHealth::Healthy
}

/// Whether a primary is in a subset that has more of them than its share.
pub(super) fn is_misplaced(draft: &Draft<'_>, view: &PodView) -> bool {
    let desired = &draft.snapshot.desired;
    let has_excess = |subset| draft.seats.tally().balance.has_excess(subset, Role::Primary);
    desired.topology.rebalances && view.subset.is_some_and(has_excess)
}

/// Whether a surplus Pod has found a node of its subset after all, and what filled its place elsewhere is to go for it.
pub(super) fn is_arriving(draft: &Draft<'_>, view: &PodView, role: Role) -> bool {
    let balance = &draft.seats.tally().balance;
    let is_on_its_way = match view.lifecycle {
        Lifecycle::Unscheduled | Lifecycle::Starting => !view.is_available(),
        Lifecycle::Ready { .. }
        | Lifecycle::Unready { .. }
        | Lifecycle::Finished
        | Lifecycle::Terminating => false,
    };
    draft.snapshot.desired.topology.patience.is_some()
        && is_on_its_way
        && view.subset.is_some_and(|subset| !balance.has_excess(subset, role))
        && balance.has_any_excess(role)
}

/// Deletes Pods that wait for a node of a subset which needs no more, once every tier has what it wants.
pub(super) fn delete_useless_reserves(draft: &mut Draft<'_>) {
    let is_complete = Role::ALL.iter().all(|role| draft.count(*role) >= draft.snapshot.desired.count(*role));
    // What a rollout makes beyond the wish is awaited, too.
    if draft.seats.tally().reserved == 0 || !is_complete || rollout::surge(draft) > 0 {
        return;
    }
    for index in 0..draft.seats.len() {
        let seat = &draft.seats[index];
        // Down to the last tier: what waits may get any role.
        let has_lack = |subset| draft.seats.tally().balance.has_lack(subset, Role::Cold);
        let is_useless = seat.presence == Presence::Reserved && !seat.view.subset.is_some_and(has_lack);
        // A primary loses its role first.
        if is_useless && !seat.is_claimed && seat.role != Role::Primary {
            draft.delete(index, Reason::SubsetFull);
        }
    }
}
