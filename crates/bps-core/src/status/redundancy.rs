//! What the counts of a set amount to as a model of redundancy, and whether the model that it promises is held.
//!
//! The text depends on the specification alone, so that it does not change with each Pod. Admission has refused the fields that
//! contradict a promise. What remains are the counts, which a scale may change, and the Pods that are there.

use super::tally::{Tally, noun};
use crate::model::{Desired, PodView, RedundancyPromise, Role, Snapshot};

/// Fewest primaries of which others serve on when one is lost.
const N_WAY_MIN: usize = 2;

/// Advice about unready Pods.
const REPAIR: &str =
    "the condition Ready names the unready Pods; if they stay so, check their logs and nodes";

/// The model that the counts amount to, and the spares beside it; for example `2N x 3, 1 spare`.
pub(super) fn of_counts(snapshot: &Snapshot) -> String {
    let desired = &snapshot.desired;
    let Amount { model, spares } = if desired.replicas == 0 {
        Amount { model: "no primaries".to_owned(), spares: desired.hot_backups }
    } else if snapshot.is_paired() {
        of_pairs(desired)
    } else {
        of_peers(desired)
    };
    let counted = |count: usize, what: &str| match count {
        0 => String::new(),
        1 => format!(", 1 {what}"),
        _ => format!(", {count} {what}s"),
    };
    format!("{model}{}{}", counted(spares, "spare"), counted(desired.cold_backups, "cold spare"))
}

/// A model, and the hot backups that are spares beside it.
struct Amount {
    model: String,
    spares: usize,
}

/// The model of a set whose hot backups are standbys.
fn of_pairs(desired: &Desired) -> Amount {
    let (primaries, hot) = (desired.replicas, desired.hot_backups);
    if desired.standby_for > 1 {
        return of_shared_standbys(desired);
    }
    let standbys = primaries.min(hot);
    let model = match (standbys, primaries - standbys) {
        (0, _) => "no redundancy".to_owned(),
        (_, 0) => format!("2N x {primaries}"),
        (_, alone) => format!("2N x {standbys}, {alone} {} without a standby", noun(Role::Primary, alone)),
    };
    Amount { model, spares: hot - standbys }
}

/// The model of a set whose hot backups stand by for several primaries each. They share them evenly, so that only those beyond one for
/// each primary are spares.
fn of_shared_standbys(desired: &Desired) -> Amount {
    let (primaries, hot) = (desired.replicas, desired.hot_backups);
    let alone = primaries.saturating_sub(hot.saturating_mul(desired.standby_for));
    let standbys = hot.min(primaries);
    let model = match (hot, alone) {
        (0, _) => "no redundancy".to_owned(),
        (_, 0) => format!("N+M {primaries}+{standbys} with standbys"),
        (_, alone) => {
            format!(
                "N+M {primaries}+{standbys} with standbys, {alone} {} without one",
                noun(Role::Primary, alone)
            )
        }
    };
    Amount { model, spares: hot.saturating_sub(primaries) }
}

/// The model of a set whose hot backups are for any primary.
///
/// Two primaries may serve the same clients or not, and a hot backup beside them may be there to take a place or to be one more:
/// what is promised says which.
fn of_peers(desired: &Desired) -> Amount {
    let (primaries, hot) = (desired.replicas, desired.hot_backups);
    let serves_on = primaries >= N_WAY_MIN;
    match desired.promise {
        Some(RedundancyPromise::NoRedundancy) => Amount { model: "no redundancy".to_owned(), spares: hot },
        Some(RedundancyPromise::NWayActive) if serves_on => {
            Amount { model: format!("N-way active x {primaries}"), spares: hot }
        }
        Some(RedundancyPromise::NWayActive | RedundancyPromise::NPlusM | RedundancyPromise::TwoN) | None => {
            let model = match (hot, serves_on) {
                (0, false) => "no redundancy".to_owned(),
                (0, true) => format!("N-way active x {primaries}"),
                (_, _) => format!("N+M {primaries}+{hot}"),
            };
            Amount { model, spares: 0 }
        }
    }
}

/// Reason for which the counts never hold the promise, and what to write; `None` if they do.
///
/// Only what a scale can bring about: the rest is refused by the rules of `bps_api::redundancy`.
pub(super) fn short_of_counts(desired: &Desired) -> Option<String> {
    let (replicas, hot_backups) = (desired.replicas, desired.hot_backups);
    match desired.promise? {
        RedundancyPromise::NoRedundancy => None,
        RedundancyPromise::NPlusM => {
            let places = hot_backups.saturating_mul(desired.standby_for);
            let needed = replicas.div_ceil(desired.standby_for);
            (desired.standby_for > 1 && places < replicas).then(|| {
                format!(
                    "NPlusM promises a standby for each primary, but {hot_backups} hotBackups stand by for {places} of {replicas} \
                     primaries: write {needed} hotBackups or more; if an autoscaler writes replicas, enough for its maximum"
                )
            })
        }
        RedundancyPromise::NWayActive => (replicas == 1).then(|| {
            format!(
                "NWayActive promises that other primaries serve on, but spec.replicas is 1: write {N_WAY_MIN} or more; if an \
                 autoscaler writes it, raise its minimum"
            )
        }),
        RedundancyPromise::TwoN => (hot_backups < replicas).then(|| {
            format!(
                "TwoN promises a standby for each primary, but spec.hotBackups ({hot_backups}) is less than spec.replicas \
                 ({replicas}): write {replicas} hotBackups or more; if an autoscaler writes replicas, as many as its maximum"
            )
        }),
    }
}

/// Part of the promise that the present Pods do not hold, and what to do about it; `None` if they hold all of it.
///
/// A set without primaries has none to lose.
pub(super) fn short_of_pods(snapshot: &Snapshot, tally: &Tally<'_>) -> Option<String> {
    let desired = &snapshot.desired;
    let promise = desired.promise.filter(|_| desired.replicas > 0)?;
    let (primaries, hot) = (tally.tier(Role::Primary), tally.tier(Role::Hot));
    match promise {
        RedundancyPromise::NoRedundancy => None,
        RedundancyPromise::NWayActive => (primaries.available() < N_WAY_MIN).then(|| {
            format!(
                "NWayActive promises that other primaries serve on, but only {} ready: {REPAIR}",
                are(primaries.available(), primaries.wanted, Role::Primary)
            )
        }),
        RedundancyPromise::NPlusM if desired.standby_for > 1 => short_of_standbys("NPlusM", snapshot, tally),
        RedundancyPromise::NPlusM => (hot.available() == 0).then(|| {
            format!(
                "NPlusM promises a hot backup that takes the place of a lost primary, but {} ready: {REPAIR}, or write coldBackups, \
                 which fill such a gap sooner than new Pods",
                are(0, hot.wanted, Role::Hot)
            )
        }),
        RedundancyPromise::TwoN => short_of_standbys("TwoN", snapshot, tally),
    }
}

/// Primaries that are not ready, or without a standby that could take over.
fn short_of_standbys(model: &str, snapshot: &Snapshot, tally: &Tally<'_>) -> Option<String> {
    let desired = &snapshot.desired;
    let ready = tally.tier(Role::Primary).available();
    if ready < desired.replicas {
        let ready = are(ready, desired.replicas, Role::Primary);
        return Some(format!(
            "{model} promises a standby for each primary, but only {ready} ready: {REPAIR}"
        ));
    }
    let lacking = desired.replicas.saturating_sub(followed(snapshot, tally));
    (lacking > 0).then(|| {
        format!(
            "{model} promises a standby for each primary, but {} without one that could take over: the operator pairs it with a hot \
             backup; if that lasts, see the conditions of HAGroup {}",
            are(lacking, desired.replicas, Role::Primary),
            desired.name
        )
    })
}

/// `1 of 3 primaries is`.
fn are(count: usize, of: usize, role: Role) -> String {
    format!("{count} of {of} {} {}", noun(role, of), if count == 1 { "is" } else { "are" })
}

/// Primaries that are ready and have a standby that could take over.
fn followed(snapshot: &Snapshot, tally: &Tally<'_>) -> usize {
    let standbys = tally.standbys();
    let is_followed = |view: &&&PodView| {
        let standby = view.part.peer_of_active().and_then(|peer| standbys.get(peer));
        standby.is_some_and(|standby| snapshot.can_follow(view, standby))
    };
    let ready = tally.tier(Role::Primary).pods.iter().filter(|view| view.is_available());
    ready.filter(is_followed).count()
}
