//! What a look at a group must know of the looks before it.
//!
//! All of it can be lost: then waits begin anew, which takes longer and is never less safe.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::ha::{BootTime, Timing};
use crate::observe::SetKey;
use crate::observe::group::SeenGroup;
use crate::pairing::{Forsaken, Group, Lost, Plan, Wait};

/// How long a write is waited for in the watches before it is taken as seen. 2 s: a watch is mostly 10 ms behind, and
/// every write is guarded by the version that it is based on anyway.
const CONFIRMED_WITHIN: Duration = Duration::from_secs(2);

/// Memories of all groups.
pub(super) type Memories = BTreeMap<SetKey, Memory>;

/// What is remembered of one group.
#[derive(Debug, Default)]
pub(super) struct Memory {
    /// For each pair by its number: the count of writes in its Lease, when it was first read, and whose Pods they are.
    pairs: BTreeMap<u32, Known>,
    lost: BTreeMap<u32, Lost>,
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
    writes: u64,
    since: BootTime,
    pods: Vec<String>,
}

impl Memory {
    /// Notes what was seen, and puts into it what only earlier looks know.
    pub(super) fn remember(&mut self, seen: &mut SeenGroup, (now, timing): (BootTime, &Timing)) {
        for pair in &mut seen.group.pairs {
            let count = (pair.lease.writes, pair.names.values().cloned().collect());
            pair.unwritten_since = self.see_pair(pair.number, count, now);
            pair.forsaken = self.see_forsaken(pair.number, pair.forsaken);
        }
        self.highest_term = self.highest_term.max(seen.group.highest_term);
        seen.group.lost = self.see_lost((&seen.numbers, seen.told.clone()), (now, timing));
        self.recall(&mut seen.group);
    }

    /// Notes a pair that was seen; returns since when its Lease is as its actives last wrote it.
    fn see_pair(&mut self, number: u32, (writes, pods): (u64, Vec<String>), now: BootTime) -> BootTime {
        let since =
            self.pairs.get(&number).filter(|known| known.writes == writes).map_or(now, |known| known.since);
        self.pairs.insert(number, Known { writes, since, pods });
        self.lost.remove(&number);
        since
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
    /// `told` are those that the status names, by number and with their Pods: the last operator knew them. They count
    /// in the first look only; afterwards this memory knows better.
    fn see_lost(
        &mut self,
        (seen, told): (&BTreeSet<u32>, BTreeMap<u32, Vec<String>>),
        (now, timing): (BootTime, &Timing),
    ) -> Vec<Lost> {
        let known = self.pairs.iter().map(|(number, known)| (*number, known.pods.clone()));
        let told = if self.has_looked { BTreeMap::new() } else { told };
        self.has_looked = true;
        let known: BTreeMap<u32, Vec<String>> = told.into_iter().chain(known).collect();
        for (number, pods) in known.into_iter().filter(|(number, _)| !seen.contains(number)) {
            self.lost.entry(number).or_insert(Lost { number, pods, since: now });
        }
        self.pairs.retain(|number, _| seen.contains(number));
        self.forsaken.retain(|number, _| seen.contains(number));
        self.lost.values().filter(|lost| now < lost.since + timing.operator_wait).cloned().collect()
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
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn at(seconds: u32) -> BootTime {
        BootTime::default() + seconds * SECOND
    }

    #[test]
    fn an_active_s_write_begins_the_watch_anew_and_nothing_else_does() {
        let mut memory = Memory::default();
        let mut see = |writes, seconds| memory.see_pair(0, (writes, vec![]), at(seconds));
        assert_eq!([see(1, 10), see(1, 20), see(2, 30), see(2, 40)], [at(10), at(10), at(30), at(30)]);
    }

    #[test]
    fn a_pair_is_forsaken_since_it_was_first_seen_so_until_it_is_not() {
        let mut memory = Memory::default();
        let seen = |seconds| Some(Forsaken { since: at(seconds), was_told: false });
        assert_eq!([seen(1), seen(2)].map(|seen| memory.see_forsaken(0, seen)), [seen(1), seen(1)]);
        assert_eq!([None, seen(4)].map(|seen| memory.see_forsaken(0, seen)), [None, seen(4)]);
    }

    #[test]
    fn a_lost_lease_is_waited_for_whoever_knew_it() {
        let timing = Timing::default();
        let told = BTreeMap::from([(1, vec!["b".to_owned()])]);
        let mut memory = Memory::default();
        memory.see_pair(0, (1, vec!["a".into()]), at(1));
        let lost = memory.see_lost((&BTreeSet::new(), told), (at(5), &timing));
        let expected =
            [(0, "a"), (1, "b")].map(|(number, pod)| Lost { number, pods: vec![pod.into()], since: at(5) });
        assert_eq!(lost, expected);
        let later = at(5) + timing.operator_wait;
        assert_eq!(memory.see_lost((&BTreeSet::new(), BTreeMap::new()), (later, &timing)), []);
    }

    #[test]
    fn what_is_seen_first_is_taken_for_new_and_what_was_seen_before_keeps_its_time() {
        let timing = Timing::default();
        let seen = || SeenGroup {
            group: Group { highest_term: 4, ..Group::default() },
            told: BTreeMap::from([(2, vec!["a".to_owned()])]),
            ..SeenGroup::default()
        };
        let mut memory = Memory { alone_since: Some(at(1)), highest_term: 7, ..Memory::default() };
        let lost = vec![Lost { number: 2, pods: vec!["a".into()], since: at(5) }];
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
        memory.see_pair(0, (1, vec![]), at(1));
        memory.end_pair(0);
        let none = (&BTreeSet::new(), BTreeMap::new());
        assert_eq!(memory.see_lost(none, (at(2), &Timing::default())), []);
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
