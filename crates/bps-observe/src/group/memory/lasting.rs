//! Since when what lasts in a group has lasted.

use std::collections::BTreeMap;
use std::time::Duration;

use bps_core::pairing::{Forsaken, Group, Pair, PairReason, Plan, SILENCE_MAX, Silence, Uncovered};
use bps_protocol::{AgentId, BootTime};

use crate::group::SeenGroup;

/// How long a Pod that did not answer its active takes no place of another one. 60 s: a node that lost its power counts as ready for
/// some 50 s, and its Pods with it.
const SILENT_FOR: Duration = Duration::from_secs(60);

/// What lasts, and since when.
#[derive(Debug, Default)]
pub struct Lasting {
    /// Since when no level copy of a pair is to be seen.
    forsaken: BTreeMap<u32, BootTime>,
    /// When each Pod was seen not to answer its active.
    silent: BTreeMap<AgentId, BootTime>,
    /// Since when no standby could take over in a pair.
    uncovered: BTreeMap<u32, Uncovered>,
    surplus_since: Option<BootTime>,
    alone_since: Option<BootTime>,
}

impl Lasting {
    /// Notes what was seen of pairs, and puts into the group since when that has been so.
    pub(super) fn see(&mut self, seen: &mut SeenGroup, now: BootTime) {
        for pair in &mut seen.group.pairs {
            pair.forsaken = self.see_forsaken(pair.number, pair.forsaken);
        }
        self.forsaken.retain(|number, _| seen.numbers.contains(number));
        self.see_silent(&seen.group, now);
        self.see_uncovered(&mut seen.group, now);
        seen.group.silent = self.silent.keys().copied().collect();
        seen.group.surplus_since = self.surplus_since;
        seen.group.alone_since = self.alone_since;
    }

    /// Notes whether a level copy of a pair is to be seen; returns since when none is.
    fn see_forsaken(&mut self, number: u32, seen: Option<Forsaken>) -> Option<Forsaken> {
        let Some(Forsaken { since, was_told }) = seen else {
            self.forsaken.remove(&number);
            return None;
        };
        Some(Forsaken { since: *self.forsaken.entry(number).or_insert(since), was_told })
    }

    /// Notes who does not answer: whoever is heard no more says nothing of itself, and its Pod's object tells so late.
    fn see_silent(&mut self, group: &Group, now: BootTime) {
        self.silent.retain(|_, since| now < *since + SILENT_FOR);
        let counts = |silence: &Silence| silence.since + SILENCE_MAX <= now;
        let silent = group.pairs.iter().filter_map(|pair| pair.silence).filter(counts);
        self.silent.extend(silent.map(|silence| (silence.standby, now)));
    }

    /// Notes which actives nobody could follow.
    fn see_uncovered(&mut self, group: &mut Group, now: BootTime) {
        let roster = group.roster();
        let uncovered = |pair: &Pair| {
            let before = self.uncovered.get(&pair.number).copied();
            Some((pair.number, roster.uncovered(pair, before, now)?))
        };
        self.uncovered = group.pairs.iter().filter_map(uncovered).collect();
        for pair in &mut group.pairs {
            pair.uncovered = self.uncovered.get(&pair.number).copied();
        }
    }

    /// Notes what a plan waits for.
    pub fn follow(&mut self, plan: &Plan, now: BootTime) {
        let since =
            |reason: PairReason, since: Option<BootTime>| plan.is_held(reason).then(|| since.unwrap_or(now));
        self.surplus_since = since(PairReason::Surplus, self.surplus_since);
        self.alone_since = since(PairReason::PodAlone, self.alone_since);
    }
}

#[cfg(test)]
mod tests {
    use bps_core::pairing::Pod;
    use bps_core::pairing::testing::{pair, pod};

    use super::*;

    fn at(seconds: u64) -> BootTime {
        BootTime::default() + Duration::from_secs(seconds)
    }

    #[test]
    fn a_pair_is_forsaken_since_it_was_first_seen_so_until_it_is_not() {
        let mut memory = Lasting::default();
        let seen = |seconds| Some(Forsaken { since: at(seconds), was_told: false });
        assert_eq!([seen(1), seen(2)].map(|seen| memory.see_forsaken(0, seen)), [seen(1), seen(1)]);
        assert_eq!([None, seen(4)].map(|seen| memory.see_forsaken(0, seen)), [None, seen(4)]);
    }

    #[test]
    fn an_active_is_uncovered_since_it_was_first_seen_so_until_it_is_not() {
        let mut memory = Lasting::default();
        let mut see = |is_leaving, seconds| {
            let pods = [1, 2].map(|number| Pod { is_leaving, ..pod(number) }).into();
            let mut group = Group { pods, pairs: vec![pair(0, [1, 2])], ..Group::default() };
            memory.see_uncovered(&mut group, at(seconds));
            group.pairs[0].uncovered.map(|uncovered| uncovered.since)
        };
        let seen = [(true, 1), (true, 2), (false, 3), (true, 4)];
        assert_eq!(
            seen.map(|(is_leaving, seconds)| see(is_leaving, seconds)),
            [Some(at(1)), Some(at(1)), None, Some(at(4))]
        );
    }

    #[test]
    fn whoever_was_silent_counts_so_for_a_while() {
        let mut memory = Lasting::default();
        let mut group = Group { pairs: vec![pair(0, [1, 2])], ..Group::default() };
        group.pairs[0].silence = Some(Silence { standby: AgentId(2), since: at(1) });
        memory.see_silent(&group, at(2));
        assert!(memory.silent.is_empty(), "not long enough");
        memory.see_silent(&group, at(6));
        group.pairs[0].silence = None;
        let mut is_silent = |now| {
            memory.see_silent(&group, now);
            !memory.silent.is_empty()
        };
        assert_eq!([at(7), at(6) + SILENT_FOR].map(&mut is_silent), [true, false]);
    }
}
