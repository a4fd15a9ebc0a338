//! Incarnations that went, so that nothing older brings them back.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;

use super::CONFIRMATION_DEADLINE;

/// Most incarnations remembered as gone; the oldest are forgotten first.
const REMEMBERED_MAX: usize = 10_000;

/// What is remembered of an incarnation that went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tombstone {
    /// When it was known that it is gone.
    pub since: Timestamp,
    /// Whether the server answered that it is deleted; otherwise it may only be out of the watch's sight.
    pub is_final: bool,
}

/// Tombstones by uid, at most [`REMEMBERED_MAX`].
#[derive(Debug, Default)]
pub(super) struct Tombstones {
    by_uid: BTreeMap<String, Tombstone>,
    /// The same, the oldest first: what is forgotten is found without a walk over the others.
    by_age: BTreeSet<(Timestamp, String)>,
}

impl Tombstones {
    /// That of an incarnation, if it went.
    pub(super) fn get(&self, uid: &str) -> Option<Tombstone> {
        self.by_uid.get(uid).copied()
    }

    /// An incarnation is there after all.
    pub(super) fn remove(&mut self, uid: &str) {
        if let Some(tombstone) = self.by_uid.remove(uid) {
            self.by_age.remove(&(tombstone.since, uid.to_owned()));
        }
    }

    /// Notes that an incarnation went, and forgets those of which no late news comes any more. What was final stays so.
    pub(super) fn add(&mut self, uid: String, tombstone: Tombstone) {
        let is_final = tombstone.is_final || self.get(&uid).is_some_and(|known| known.is_final);
        self.remove(&uid);
        self.forget(tombstone.since);
        self.by_age.insert((tombstone.since, uid.clone()));
        self.by_uid.insert(uid, Tombstone { is_final, ..tombstone });
    }

    /// Forgets the old ones, and makes room for one more.
    fn forget(&mut self, now: Timestamp) {
        while let Some((since, _)) = self.by_age.first()
            && (now.duration_since(*since) >= CONFIRMATION_DEADLINE || self.by_uid.len() >= REMEMBERED_MAX)
            && let Some((_, uid)) = self.by_age.pop_first()
        {
            self.by_uid.remove(&uid);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(seconds).expect("a moment")
    }

    fn with(tombstones: &mut Tombstones, uid: &str, since: i64) {
        tombstones.add(uid.to_owned(), Tombstone { since: at(since), is_final: false });
    }

    #[test]
    fn what_went_long_ago_is_forgotten_when_something_else_goes() {
        let mut tombstones = Tombstones::default();
        with(&mut tombstones, "a", 0);
        with(&mut tombstones, "b", 30);
        with(&mut tombstones, "c", 60);
        assert_eq!(["a", "b", "c"].map(|uid| tombstones.get(uid).is_some()), [false, true, true]);
    }

    #[test]
    fn no_more_than_a_fixed_number_are_remembered_and_the_oldest_go_first() {
        let mut tombstones = Tombstones::default();
        for index in 0..=REMEMBERED_MAX {
            with(&mut tombstones, &index.to_string(), i64::from(index > 0));
        }
        assert_eq!((tombstones.by_uid.len(), tombstones.by_age.len()), (REMEMBERED_MAX, REMEMBERED_MAX));
        assert_eq!([0, 1].map(|index: i32| tombstones.get(&index.to_string()).is_some()), [false, true]);
    }

    #[test]
    fn what_the_server_has_deleted_stays_deleted_whatever_is_heard_later() {
        let mut tombstones = Tombstones::default();
        tombstones.add("a".to_owned(), Tombstone { since: at(0), is_final: true });
        with(&mut tombstones, "a", 9);
        assert_eq!(tombstones.get("a"), Some(Tombstone { since: at(9), is_final: true }));
        tombstones.remove("a");
        assert_eq!((tombstones.get("a"), tombstones.by_age.len()), (None, 0));
    }
}
