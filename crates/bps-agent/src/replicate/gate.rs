//! Who may act because of what its directory has, and when a barrier is kept. Pure.
//!
//! The Lease names the *level* directories: each of them has every acknowledged write. Only the active changes that, by a
//! compare-and-swap in its own tenure. So
//!
//! - a barrier is kept when every directory that the Lease names, or may name, has what it asked for;
//! - a standby claims the Lease only in a version that names its directory.
//!
//! Whatever the ground of a claim is, a certificate too, it is a compare-and-swap on the version that was looked at here.
//! A handover needs no look at the Lease: its sender makes it only when exactly both directories are level.

use std::collections::BTreeSet;

use bps_wire::level::{DirectoryId, Level};

pub use bps_api::PromoteWhen;

/// What a barrier comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It is on the disk of the standby, too.
    Kept,
    /// It is on the own disk, and no other directory may be acted with.
    Alone,
    /// It is not certain yet.
    Waiting,
}

/// What an active knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Knowledge {
    /// Its own directory.
    pub own: DirectoryId,
    /// What the Lease says, and what it will say if a write that is under way succeeds.
    pub possible: Vec<Level>,
    /// The directory of the standby, and the number of the last look that it has on disk.
    pub acknowledged: Option<(DirectoryId, u64)>,
    /// It said so over the connection that there is now, and is who would be handed over to.
    pub is_at_hand: bool,
}

/// Whether a standby with this directory may claim the version of the Lease that says this.
pub fn may_take(promote_when: PromoteWhen, level: &Level, own: DirectoryId) -> bool {
    match (promote_when, level) {
        (PromoteWhen::Always, _) | (PromoteWhen::InSync, Level::Unsaid) => true,
        (PromoteWhen::InSync, Level::Only(level)) => level.contains(&own),
        (PromoteWhen::InSync, Level::Unreadable) => false,
    }
}

impl Knowledge {
    /// What a barrier comes to that asked for this look or an earlier one; the own disk has it.
    pub fn outcome(&self, sequence: u64) -> Outcome {
        let mut outcome = Outcome::Alone;
        for level in &self.possible {
            let Level::Only(level) = level else { return Outcome::Waiting };
            let has = |other: &DirectoryId| {
                self.acknowledged.is_some_and(|(directory, last)| directory == *other && sequence <= last)
            };
            let mut others = level.iter().filter(|directory| **directory != self.own);
            let is_alone = *level == BTreeSet::from([self.own]);
            // Without any directory nobody could act with what was written.
            if level.is_empty() || !others.all(has) {
                return Outcome::Waiting;
            }
            if !is_alone {
                outcome = Outcome::Kept;
            }
        }
        if self.possible.is_empty() { Outcome::Waiting } else { outcome }
    }

    /// Whether anybody else may act with what is in another directory, now or soon.
    pub fn may_others_act(&self) -> bool {
        let alone = BTreeSet::from([self.own]);
        self.possible.is_empty() || self.possible.iter().any(|level| !level.is(&alone))
    }

    /// Whether the application may go on with the standby: it has all, and both directories are certainly level. Whoever is not
    /// connected any more may come back with another directory.
    pub fn may_hand_over(&self, sequence: u64) -> bool {
        let has = self.acknowledged.filter(|(_, last)| self.is_at_hand && sequence <= *last);
        has.is_some_and(|(other, _)| {
            let both = BTreeSet::from([self.own, other]);
            !self.possible.is_empty() && self.possible.iter().all(|level| level.is(&both))
        })
    }
}

/// What the active wants the Lease to say instead of what it says now.
///
/// `level` is the directory of a standby that has the newest look; `is_overdue`: a directory that is named has been waited
/// for too long.
pub fn wanted(
    now: &Level,
    own: DirectoryId,
    (level, is_overdue): (Option<DirectoryId>, bool),
) -> Option<BTreeSet<DirectoryId>> {
    let wanted = match (level, now) {
        (Some(level), _) => BTreeSet::from([own, level]),
        (None, Level::Only(named)) if named.contains(&own) && !(is_overdue && now.names_others(own)) => {
            return None;
        }
        // Another one is named and not this one: it goes on being waited for until it is overdue.
        (None, Level::Only(_)) if now.names_others(own) && !is_overdue => return None,
        (None, _) => BTreeSet::from([own]),
    };
    (!now.is(&wanted)).then_some(wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: DirectoryId = DirectoryId(0xa);
    const B: DirectoryId = DirectoryId(0xb);
    const C: DirectoryId = DirectoryId(0xc);

    fn only(directories: &[DirectoryId]) -> Level {
        Level::Only(directories.iter().copied().collect())
    }

    #[test]
    fn only_a_level_standby_may_take_over_unless_any_may() {
        let table = [
            (Level::Unsaid, true),
            (only(&[A]), false),
            (only(&[A, B]), true),
            (only(&[]), false),
            (Level::Unreadable, false),
        ];
        for (level, may) in table {
            assert_eq!(may_take(PromoteWhen::InSync, &level, B), may, "{level:?}");
            assert!(may_take(PromoteWhen::Always, &level, B), "{level:?}");
        }
    }

    #[test]
    fn a_barrier_is_kept_once_all_who_may_act_have_it() {
        let table = [
            (vec![], Some((B, 9)), Outcome::Waiting),
            (vec![Level::Unsaid], Some((B, 9)), Outcome::Waiting),
            (vec![Level::Unreadable], None, Outcome::Waiting),
            (vec![only(&[A])], None, Outcome::Alone),
            (vec![only(&[])], None, Outcome::Waiting),
            (vec![only(&[A, B])], None, Outcome::Waiting),
            (vec![only(&[A, B])], Some((B, 8)), Outcome::Waiting),
            (vec![only(&[A, B])], Some((C, 9)), Outcome::Waiting),
            (vec![only(&[A, B])], Some((B, 9)), Outcome::Kept),
            (vec![only(&[B])], Some((B, 9)), Outcome::Kept),
            (vec![only(&[A, B, C])], Some((B, 9)), Outcome::Waiting),
            // Level from the send of the write on, and until its refusal is known.
            (vec![only(&[A]), only(&[A, B])], Some((B, 8)), Outcome::Waiting),
            (vec![only(&[A]), only(&[A, B])], Some((B, 9)), Outcome::Kept),
            (vec![only(&[A, B]), only(&[A])], None, Outcome::Waiting),
        ];
        for (possible, acknowledged, expected) in table {
            let knowledge = Knowledge { own: A, possible, acknowledged, is_at_hand: false };
            assert_eq!(knowledge.outcome(9), expected, "{knowledge:?}");
        }
    }

    #[test]
    fn a_handover_needs_exactly_two_level_directories() {
        let table = [
            (vec![only(&[A, B])], Some((B, 9)), true),
            (vec![only(&[A, B])], Some((B, 8)), false),
            (vec![only(&[A, B])], None, false),
            (vec![only(&[A])], Some((B, 9)), false),
            (vec![only(&[A]), only(&[A, B])], Some((B, 9)), false),
            (vec![only(&[A, B, C])], Some((B, 9)), false),
            (vec![], Some((B, 9)), false),
        ];
        for (possible, acknowledged, may) in table {
            let knowledge = Knowledge { own: A, possible, acknowledged, is_at_hand: true };
            assert_eq!(knowledge.may_hand_over(9), may, "{knowledge:?}");
            assert!(!Knowledge { is_at_hand: false, ..knowledge }.may_hand_over(9));
        }
    }

    #[test]
    fn the_lease_names_who_is_level_and_nobody_who_is_overdue() {
        let wanted = |now: &Level, level, is_overdue| wanted(now, A, (level, is_overdue)).map(Level::Only);
        let table = [
            (Level::Unsaid, None, false, Some(only(&[A]))),
            (Level::Unreadable, None, false, Some(only(&[A]))),
            (only(&[]), None, false, Some(only(&[A]))),
            (only(&[A]), None, true, None),
            (only(&[A]), Some(B), false, Some(only(&[A, B]))),
            (only(&[A, B]), None, false, None),
            (only(&[A, B]), None, true, Some(only(&[A]))),
            (only(&[A, B]), Some(B), false, None),
            (only(&[B]), None, false, None),
            (only(&[B]), None, true, Some(only(&[A]))),
            (only(&[A, C]), Some(B), false, Some(only(&[A, B]))),
        ];
        for (now, level, is_overdue, expected) in table {
            assert_eq!(wanted(&now, level, is_overdue), expected, "{now:?} {level:?} {is_overdue}");
        }
    }
}
