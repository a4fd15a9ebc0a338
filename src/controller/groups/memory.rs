//! What a look at a group must know of the looks before it.
//!
//! All of it can be lost: then waits begin anew, which takes longer and is never less safe. What the Lease of a lost pair
//! said is in the status, too; what is in neither is taken for the worst.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;

use crate::agent::identity::parse_uid;
use crate::agent::lease::Record;
use crate::ha::{BootTime, Epoch, Timing};
use crate::observe::SetKey;
use crate::observe::group::{SeenGroup, level_of_nobody, level_text, pair_number};
use crate::pairing::{Forsaken, Group, LevelText, Lost, Pair, Plan, Wait};

/// How long a write is waited for in the watches before it is taken as seen. 2 s: a watch is mostly 10 ms behind, and
/// every write is guarded by the version that it is based on anyway.
const CONFIRMED_WITHIN: Duration = Duration::from_secs(2);

/// Memories of all groups.
pub(super) type Memories = BTreeMap<SetKey, Memory>;

/// What is remembered of one group.
#[derive(Debug, Default)]
pub(super) struct Memory {
    /// What is known of each pair by its number.
    pairs: BTreeMap<u32, Known>,
    lost: BTreeMap<u32, Lost>,
    /// How Leases ended whose deletion was seen, by the number of the pair.
    ends: BTreeMap<u32, End>,
    /// Since when no level copy of a pair is to be seen.
    forsaken: BTreeMap<u32, BootTime>,
    has_looked: bool,
    surplus_since: Option<BootTime>,
    alone_since: Option<BootTime>,
    /// Highest term that was ever seen.
    highest_term: u32,
    /// Versions of objects that were written and that no watch has shown yet, by kind and name.
    written: BTreeMap<(&'static str, String), (u64, BootTime)>,
    /// The last look found that the namespace is being deleted.
    pub(super) is_namespace_ending: bool,
    /// What the group's keys and permissions were last written from.
    pub(super) prepared: Option<String>,
}

#[derive(Clone, Debug)]
struct Known {
    /// Uid of the Lease.
    lease: u128,
    /// The count of writes in it, and when that was first read.
    writes: u64,
    since: BootTime,
    /// Whose tenure it shows, and when that was first read.
    epoch: Epoch,
    tenure_since: BootTime,
    pods: Vec<String>,
    /// Whether state is replicated.
    has_state: bool,
}

/// The end of a Lease.
#[derive(Clone, Debug)]
struct End {
    lease: Option<u128>,
    level: Option<LevelText>,
}

impl Known {
    fn of(pair: &Pair, record: Option<&Record>, now: BootTime) -> Self {
        let joining = pair.lease.pending.map(|replacement| replacement.joining);
        let ids = pair.lease.members.into_iter().chain(joining);
        Self {
            lease: record.map_or(0, |record| record.group),
            writes: pair.lease.writes,
            since: now,
            epoch: pair.lease.epoch,
            tenure_since: now,
            pods: ids.filter_map(|id| pair.names.get(&id).filter(|name| !name.is_empty()).cloned()).collect(),
            has_state: pair.level.is_some(),
        }
    }
}

impl Memory {
    /// Notes what was seen, and puts into it what only earlier looks know.
    pub(super) fn remember(&mut self, seen: &mut SeenGroup, (now, timing): (BootTime, &Timing)) {
        for pair in &mut seen.group.pairs {
            let known = Known::of(pair, seen.records.get(&pair.number), now);
            pair.unwritten_since = self.see_pair(pair.number, known);
            pair.forsaken = self.see_forsaken(pair.number, pair.forsaken);
        }
        self.highest_term = self.highest_term.max(seen.group.highest_term);
        let lost = self.see_lost(&seen.numbers, seen.told.clone(), now);
        let (waiting, over) = lost.into_iter().partition(|lost| now < lost.since + timing.operator_wait);
        seen.group.lost = waiting;
        seen.group.remembered = Vec::into_iter(over)
            .filter(|lost| lost.level.is_some() && !seen.numbers.contains(&lost.number))
            .collect();
        self.recall(&mut seen.group);
    }

    /// Notes a pair that was seen; returns since when its Lease is as its actives last wrote it.
    fn see_pair(&mut self, number: u32, seen: Known) -> BootTime {
        let known = || self.pairs.get(&number);
        let since =
            known().filter(|known| known.writes == seen.writes).map_or(seen.since, |known| known.since);
        let same = known().filter(|known| (known.lease, known.epoch) == (seen.lease, seen.epoch));
        let tenure_since = same.map_or(seen.tenure_since, |known| known.tenure_since);
        self.pairs.insert(number, Known { since, tenure_since, ..seen });
        self.lost.remove(&number);
        since
    }

    /// Pairs whose tenure was first seen less than this time ago.
    pub(super) fn young(&self, (now, time): (BootTime, Duration)) -> BTreeSet<u32> {
        let young = self.pairs.iter().filter(|(_, known)| now < known.tenure_since + time);
        young.map(|(number, _)| *number).collect()
    }

    /// Notes whether a level copy of a pair is to be seen; returns since when none is.
    fn see_forsaken(&mut self, number: u32, seen: Option<Forsaken>) -> Option<Forsaken> {
        let Some(Forsaken { since, was_told }) = seen else {
            self.forsaken.remove(&number);
            return None;
        };
        Some(Forsaken { since: *self.forsaken.entry(number).or_insert(since), was_told })
    }

    /// Notes which pairs have no Lease any more although nobody decided that they end.
    ///
    /// `told` are those that the status names, by number: the last operator knew them. They count in the first look only;
    /// afterwards this memory knows better.
    fn see_lost(&mut self, seen: &BTreeSet<u32>, told: BTreeMap<u32, Lost>, now: BootTime) -> Vec<Lost> {
        let told = if self.has_looked { BTreeMap::new() } else { told };
        self.has_looked = true;
        let told = told.into_values().map(|lost| match self.ends.get(&lost.number) {
            Some(End { lease: _, level }) => Lost { level: level.clone(), ..lost },
            None => lost,
        });
        let known = self.pairs.iter().map(|(number, known)| {
            let end = self.ends.get(number).filter(|end| end.lease == Some(known.lease));
            // Without its end the last version that was seen may call a copy level that was left out after that.
            let level = end.map_or_else(|| known.has_state.then(level_of_nobody), |end| end.level.clone());
            Lost { number: *number, pods: known.pods.clone(), level, since: now }
        });
        let gone = told.chain(known).filter(|lost| !seen.contains(&lost.number));
        let gone: BTreeMap<u32, Lost> = gone.map(|lost| (lost.number, lost)).collect();
        for (number, lost) in gone {
            self.lost.entry(number).or_insert(lost);
        }
        self.pairs.retain(|number, _| seen.contains(number));
        self.forsaken.retain(|number, _| seen.contains(number));
        self.lost.values().cloned().collect()
    }

    /// Notes how Leases ended whose deletion was seen.
    pub(super) fn see_ends(&mut self, leases: &[Lease]) {
        let ends = leases.iter().filter_map(|lease| {
            let uid = lease.metadata.uid.as_deref().and_then(|uid| parse_uid(uid).ok());
            Some((pair_number(lease)?, End { lease: uid, level: level_text(lease) }))
        });
        self.ends.extend(ends);
    }

    /// A pair ended because it was decided so.
    pub(super) fn end_pair(&mut self, number: u32) {
        self.pairs.remove(&number);
        self.lost.remove(&number);
    }

    /// Puts what lasts into a group before it is planned for.
    fn recall(&self, group: &mut Group) {
        group.surplus_since = self.surplus_since;
        group.alone_since = self.alone_since;
        group.highest_term = self.highest_term;
    }

    /// As if nobody could act by the Leases any more that were lost.
    #[cfg(test)]
    pub(super) fn outwait(&mut self) {
        self.lost.values_mut().for_each(|lost| lost.since = BootTime::default());
    }

    /// Notes what a plan waits for.
    pub(super) fn follow(&mut self, plan: &Plan, now: BootTime) {
        let since =
            |wait: Wait, since: Option<BootTime>| plan.waits.contains(&wait).then(|| since.unwrap_or(now));
        self.surplus_since = since(Wait::Surplus, self.surplus_since);
        self.alone_since = since(Wait::Second, self.alone_since);
    }

    /// Notes a version that was written.
    pub(super) fn wrote(&mut self, (kind, name): (&'static str, &str), version: Option<u64>, now: BootTime) {
        if let Some(version) = version {
            self.written.insert((kind, name.to_owned()), (version, now));
        }
    }

    /// Whether the watches are behind our own writes; `version` tells what they show.
    pub(super) fn is_ahead(
        &mut self,
        now: BootTime,
        version: impl Fn(&'static str, &str) -> Option<u64>,
    ) -> bool {
        self.written.retain(|(kind, name), (written, since)| {
            let is_shown = version(kind, name).is_some_and(|shown| shown >= *written);
            !is_shown && now < *since + CONFIRMED_WITHIN
        });
        !self.written.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use kube::core::ObjectMeta;

    use super::*;
    use crate::agent::identity::format_uid;
    use crate::api::keys;

    const SECOND: Duration = Duration::from_secs(1);

    fn at(seconds: u32) -> BootTime {
        BootTime::default() + seconds * SECOND
    }

    #[test]
    fn an_active_s_write_begins_the_watch_anew_and_nothing_else_does() {
        let mut memory = Memory::default();
        let mut see = |writes, seconds| memory.see_pair(0, Known { writes, ..known(seconds) });
        assert_eq!([see(1, 10), see(1, 20), see(2, 30), see(2, 40)], [at(10), at(10), at(30), at(30)]);
    }

    #[test]
    fn a_tenure_is_young_since_it_was_first_seen_whatever_is_written_in_it() {
        let mut memory = Memory::default();
        let mut see = |epoch: u64, writes, seconds| {
            memory.see_pair(3, Known { epoch: epoch.into(), writes, ..known(seconds) });
            !memory.young((at(seconds), 2 * SECOND)).is_empty()
        };
        let seen = [(1, 1, 10), (1, 2, 11), (1, 3, 12), (2, 4, 13), (2, 5, 15)];
        assert_eq!(
            seen.map(|(epoch, writes, seconds)| see(epoch, writes, seconds)),
            [true, true, false, true, false]
        );
    }

    #[test]
    fn a_pair_is_forsaken_since_it_was_first_seen_so_until_it_is_not() {
        let mut memory = Memory::default();
        let seen = |seconds| Some(Forsaken { since: at(seconds), was_told: false });
        assert_eq!([seen(1), seen(2)].map(|seen| memory.see_forsaken(0, seen)), [seen(1), seen(1)]);
        assert_eq!([None, seen(4)].map(|seen| memory.see_forsaken(0, seen)), [None, seen(4)]);
    }

    fn known(seconds: u32) -> Known {
        let (epoch, now) = (Epoch::default(), at(seconds));
        Known {
            lease: 7,
            writes: 1,
            since: now,
            epoch,
            tenure_since: now,
            pods: vec!["a".into()],
            has_state: true,
        }
    }

    fn lost(number: u32, pod: &str, level: Option<LevelText>) -> Lost {
        Lost { number, pods: vec![pod.into()], level, since: at(5) }
    }

    fn level(directory: &str) -> LevelText {
        LevelText { directories: directory.into(), pods: String::new() }
    }

    /// The Lease of the pair 0 as it was when its deletion was seen.
    fn ended(uid: u128, directory: &str) -> Lease {
        let annotations = BTreeMap::from(
            [(keys::ANNOTATION_HA_PAIR, "0"), (keys::ANNOTATION_HA_IN_SYNC, directory)]
                .map(|(key, value)| (key.to_owned(), value.to_owned())),
        );
        let metadata = ObjectMeta {
            uid: Some(format_uid(uid)),
            annotations: Some(annotations),
            ..ObjectMeta::default()
        };
        Lease { metadata, ..Lease::default() }
    }

    fn ending(uid: u128) -> Lease {
        let mut lease = ended(uid, "x");
        lease
            .metadata
            .annotations
            .get_or_insert_default()
            .insert(keys::ANNOTATION_HA_ENDING.into(), "true".into());
        lease
    }

    #[test]
    fn a_lost_lease_is_known_whoever_knew_it() {
        let told = BTreeMap::from([(1, lost(1, "b", Some(level("b"))))]);
        let mut memory = Memory::default();
        memory.see_pair(0, Known { has_state: false, ..known(1) });
        let expected = [lost(0, "a", None), lost(1, "b", Some(level("b")))];
        assert_eq!(memory.see_lost(&BTreeSet::new(), told, at(5)), expected);
        assert_eq!(memory.see_lost(&BTreeSet::new(), BTreeMap::new(), at(6)), expected);
    }

    #[test]
    fn who_was_level_is_known_only_if_the_end_of_that_lease_was_seen() {
        let told = || BTreeMap::from([(0, lost(0, "a", Some(level_of_nobody())))]);
        let nobody = Some(level_of_nobody());
        let table = [
            (Some(known(1)), vec![], nobody.clone()),
            (Some(known(1)), vec![ended(7, "x")], Some(level("x"))),
            // Another one of that name has come and gone unseen.
            (Some(known(1)), vec![ended(6, "x")], nobody.clone()),
            // It was decided that it ends, and the answer to its deletion was lost.
            (Some(known(1)), vec![ending(7)], None),
            // It began to be replicated after it was last looked at.
            (Some(Known { has_state: false, ..known(1) }), vec![ended(7, "x")], Some(level("x"))),
            (None, vec![], nobody),
            (None, vec![ended(7, "x")], Some(level("x"))),
        ];
        for (known, ends, expected) in table {
            let mut memory = Memory::default();
            if let Some(known) = known {
                memory.see_pair(0, known);
            }
            memory.see_ends(&ends);
            assert_eq!(memory.see_lost(&BTreeSet::new(), told(), at(5)), [lost(0, "a", expected)]);
        }
    }

    #[test]
    fn what_a_lost_lease_said_is_remembered_until_there_is_another_one() {
        let timing = Timing::default();
        let mut memory = Memory::default();
        let mut look = |after: Duration, numbers: &[u32]| {
            let told = BTreeMap::from([(0, lost(0, "a", Some(level("x")))), (1, lost(1, "b", None))]);
            let numbers = numbers.iter().copied().collect();
            let mut seen = SeenGroup { numbers, told, ..SeenGroup::default() };
            memory.remember(&mut seen, (at(5) + after, &timing));
            (seen.group.lost, seen.group.remembered)
        };
        let both = vec![lost(0, "a", Some(level("x"))), lost(1, "b", None)];
        assert_eq!(look(Duration::ZERO, &[]), (both, vec![]));
        assert_eq!(look(timing.operator_wait, &[]), (vec![], vec![lost(0, "a", Some(level("x")))]));
        memory.see_pair(0, known(9));
        let mut seen = SeenGroup { numbers: BTreeSet::from([0]), ..SeenGroup::default() };
        memory.remember(&mut seen, (at(5) + timing.operator_wait, &timing));
        assert_eq!((seen.group.lost, seen.group.remembered), (vec![], vec![]));
    }

    #[test]
    fn what_is_seen_first_is_taken_for_new_and_what_was_seen_before_keeps_its_time() {
        let timing = Timing::default();
        let seen = || SeenGroup {
            group: Group { highest_term: 4, ..Group::default() },
            told: BTreeMap::from([(2, lost(2, "a", None))]),
            ..SeenGroup::default()
        };
        let mut memory = Memory { alone_since: Some(at(1)), highest_term: 7, ..Memory::default() };
        let lost = vec![lost(2, "a", None)];
        let expected = Group { lost, highest_term: 7, alone_since: Some(at(1)), ..Group::default() };
        for seconds in [5, 6] {
            let mut seen = seen();
            memory.remember(&mut seen, (at(seconds), &timing));
            assert_eq!(seen.group, expected);
        }
    }

    #[test]
    fn a_pair_that_was_ended_is_not_lost() {
        let mut memory = Memory::default();
        memory.see_pair(0, known(1));
        memory.end_pair(0);
        assert_eq!(memory.see_lost(&BTreeSet::new(), BTreeMap::new(), at(2)), []);
    }

    #[test]
    fn own_writes_are_waited_for_but_not_for_ever() {
        let mut memory = Memory::default();
        memory.wrote(("Lease", "web-0"), Some(7), at(1));
        assert!(memory.is_ahead(at(1), |_, _| None));
        assert!(memory.is_ahead(at(2), |_, _| Some(6)));
        assert!(!memory.is_ahead(at(2), |_, _| Some(7)));
        memory.wrote(("Lease", "web-0"), Some(9), at(3));
        assert!(!memory.is_ahead(at(3) + CONFIRMED_WITHIN, |_, _| None));
    }
}
