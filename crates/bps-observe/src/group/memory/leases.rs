//! What is remembered of the Leases of a group: as they were last, and how they ended.
//!
//! What the Lease of a lost pair said is in the status, too; what is in neither is taken for the worst.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bps_api::HAGroup;
use bps_core::pairing::{FORMER_WAIT, LevelText, Lost, Pair, Silence, is_lasting, is_owned, was_owned};
use bps_protocol::{AgentId, BootTime, Epoch, Moment, Timing};
use bps_wire::lease::{Record, identity};
use k8s_openapi::api::coordination::v1::Lease;

use crate::group::{
    LeaseEnd, SeenGroup, TERM_SHOWN_MAX, is_ending, level_of_nobody, level_text, pair_number, told_wait,
};
use crate::version;

/// How many terms a Lease may have had that nobody saw before it was deleted. 1,024: a takeover after the other takes at least
/// some milliseconds, and each has to be written; terms are 31 bits.
pub const TERMS_MISSED: u32 = 1_024;

/// In place of the uid of a Lease that says nothing that can be relied on.
const LEASE_UNKNOWN: u128 = 0;

/// What is remembered of the Leases of one group.
#[derive(Debug, Default)]
pub struct LeaseMemory {
    /// What is known of each pair by its number.
    pairs: BTreeMap<u32, Known>,
    lost: BTreeMap<u32, Lost>,
    /// How Leases ended whose deletion was seen, by the number of the pair.
    ends: BTreeMap<u32, Ended>,
    /// Uids of Leases whose deletion was decided, as long as a watch still shows them.
    ended: BTreeSet<u128>,
    has_looked: bool,
    /// Highest term that was ever seen.
    highest_term: u32,
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
    /// How long after its Lease is gone whoever acts by it may do so.
    wait: Duration,
    /// Its standby that does not answer.
    silence: Option<Silence>,
}

/// The end of a Lease.
#[derive(Clone, Debug)]
struct Ended {
    lease: Option<u128>,
    level: Option<LevelText>,
    /// Pods that it named, unless it was decided that the pair ends.
    pods: Option<Vec<String>>,
    /// When it was seen.
    at: BootTime,
    /// The Lease as it was, as long as it may be made again like that, and after how many lists of the watch.
    last: Option<(Box<Lease>, u64)>,
    /// How long whoever acted by it may do so.
    wait: Duration,
    /// It was one of a group of this name that is gone.
    is_former: bool,
}

/// How Leases ended, for a group.
pub struct SeenEnds<'a> {
    /// Those that were not told before.
    pub leases: &'a [LeaseEnd],
    /// How often the watch of Leases has listed.
    pub lists: u64,
    /// Version of the cluster's state when this replica began to lead: another one may have made a Lease again that ended before.
    pub led_since: u64,
    /// The group that is there now.
    pub group: &'a HAGroup,
}

impl Known {
    fn of(pair: &Pair, record: Option<&Record>, now: BootTime) -> Self {
        Self {
            lease: record.map_or(LEASE_UNKNOWN, |record| record.group),
            writes: pair.lease.writes,
            since: now,
            epoch: pair.lease.epoch,
            tenure_since: now,
            pods: pair.pods(),
            has_state: pair.level.is_some(),
            wait: pair.timing.operator_wait,
            // The operator before this one may have told of it.
            silence: pair.silence.or(pair.silent_standby().map(|standby| Silence { standby, since: now })),
        }
    }

    /// A pair whose Lease cannot be read, as the status tells of it.
    fn told(pair: &Lost, epoch: Epoch, wait: Duration, now: BootTime) -> Self {
        Self {
            lease: LEASE_UNKNOWN,
            writes: 0,
            since: now,
            epoch,
            tenure_since: now,
            pods: pair.pods.clone(),
            has_state: pair.level.is_some(),
            wait,
            silence: None,
        }
    }
}

/// Names of the Pods that a Lease names.
fn pods_of(lease: &Lease) -> Vec<String> {
    let Ok(Record { lease, directory, .. }) = Record::read(lease) else { return Vec::new() };
    let named = lease.named().filter_map(|id| directory.get(&id));
    named.map(|member| member.pod.clone()).filter(|pod| !pod.is_empty()).collect()
}

/// What is told last of a pair counts; but whoever is named by any of those who tell may act, for as long as any of them says.
fn merged(mut all: BTreeMap<u32, Lost>, mut lost: Lost) -> BTreeMap<u32, Lost> {
    if let Some(earlier) = all.remove(&lost.number) {
        let others: Vec<String> = earlier.pods.into_iter().filter(|pod| !lost.pods.contains(pod)).collect();
        lost.pods.extend(others);
        lost.until = lost.until.max(earlier.until);
    }
    all.insert(lost.number, lost);
    all
}

impl LeaseMemory {
    /// Notes the Leases that were seen, and puts into the pairs what only earlier looks know; returns the pairs that it took out
    /// because their Leases were set back.
    pub(super) fn see(&mut self, seen: &mut SeenGroup, now: BootTime) -> Vec<Lost> {
        self.ended.retain(|lease| seen.records.values().any(|record| record.group == *lease));
        let set_back = self.take_set_back(seen, now);
        for pair in &mut seen.group.pairs {
            let known = Known::of(pair, seen.records.get(&pair.number), now);
            (pair.unwritten_since, pair.silence) = self.see_pair(pair.number, known);
        }
        for unreadable in &mut seen.group.unreadable {
            // It may be gone by the next look, and then the status counts no more.
            let epoch = seen.told_epochs.get(&unreadable.number).copied().unwrap_or_default();
            let new = Known::told(unreadable, epoch, seen.told_wait, now);
            let known = self.pairs.entry(unreadable.number).or_insert(new);
            unreadable.pods.clone_from(&known.pods);
        }
        set_back
    }

    /// Notes which Leases are gone, and puts the pairs that lost them into the group.
    pub(super) fn miss(&mut self, seen: &mut SeenGroup, at: &Moment<'_>) {
        let now = at.now;
        self.see_former(seen, at.timing);
        self.highest_term = self.highest_term.max(seen.group.highest_term);
        self.forget_old_ends(seen, now);
        let lost = self.see_lost(&seen.numbers, seen.told.clone(), now);

        let (waiting, over): (Vec<Lost>, Vec<Lost>) = lost.into_iter().partition(|lost| now < lost.until);
        seen.group.lost = waiting;
        let names: BTreeSet<&str> = seen.group.pods.iter().map(|pod| pod.name.as_str()).collect();
        let is_whole = |lost: &Lost| lost.pods.iter().filter(|pod| names.contains(pod.as_str())).count() >= 2;
        seen.group.remembered = over
            .into_iter()
            .filter(|lost| lost.level.is_some() || is_whole(lost))
            .filter(|lost| !seen.numbers.contains(&lost.number))
            .collect();
        seen.group.highest_term = self.highest_term;
    }

    /// Takes the pairs out whose Lease shows a term that is over, as one that was put back from a backup does. Whoever acts
    /// in them may do so until its hold ends, as if the Lease was lost; and it soon is, because it is deleted.
    fn take_set_back(&mut self, seen: &mut SeenGroup, now: BootTime) -> Vec<Lost> {
        let mut lost = Vec::new();
        for pair in &seen.group.pairs {
            // The status is that of an operator who knew more, as long as this one knows nothing.
            let told = seen.told_epochs.get(&pair.number).copied().filter(|_| !self.has_looked);
            let newest = self.pairs.get(&pair.number).map(|known| known.epoch).or(told);
            if newest.is_none_or(|newest| newest.term <= pair.lease.epoch.term) {
                continue;
            }
            let new = Known { epoch: newest.unwrap_or_default(), ..Known::of(pair, None, now) };
            let known = self.pairs.entry(pair.number).or_insert(new);
            // What it says of copies of the state is as old as its term.
            known.lease = LEASE_UNKNOWN;
            let unknown = pair.names.values().filter(|name| !name.is_empty() && !known.pods.contains(name));
            let unknown: Vec<String> = unknown.cloned().collect();
            known.pods.extend(unknown);
            let level = known.has_state.then(level_of_nobody);
            // Its times may be as old as its term.
            known.wait = known.wait.max(seen.told_wait).max(pair.timing.operator_wait);
            let until = now + known.wait;
            lost.push(Lost::new(pair.number, known.pods.clone(), level, until));
        }
        seen.set_back = lost.iter().map(|lost| lost.number).collect();
        seen.group.pairs.retain(|pair| !seen.set_back.contains(&pair.number));
        lost
    }

    /// Notes a pair that was seen; returns since when its Lease is as its actives last wrote it, and who is silent since when.
    fn see_pair(&mut self, number: u32, seen: Known) -> (BootTime, Option<Silence>) {
        let known = || self.pairs.get(&number);
        let since =
            known().filter(|known| known.writes == seen.writes).map_or(seen.since, |known| known.since);
        let same = known().filter(|known| (known.lease, known.epoch) == (seen.lease, seen.epoch));
        let tenure_since = same.map_or(seen.tenure_since, |known| known.tenure_since);
        let longer = same.and_then(|known| known.silence).zip(seen.silence);
        let longer =
            longer.filter(|(known, silence)| known.standby == silence.standby).map(|(known, _)| known);
        let silence = longer.or(seen.silence);
        // What was ended and is still shown is not missed when it is gone.
        if !self.ended.contains(&seen.lease) {
            // The Lease that ended is another one, or about to be missed.
            if self.ends.get(&number).is_some_and(|end| end.lease != Some(seen.lease)) {
                self.ends.remove(&number);
            }
            self.pairs.insert(number, Known { since, tenure_since, silence, ..seen });
            self.lost.remove(&number);
        }
        (since, silence)
    }

    /// Pairs whose tenure was first seen less than this time ago.
    pub fn young(&self, now: BootTime, time: Duration) -> BTreeSet<u32> {
        let young = self.pairs.iter().filter(|(_, known)| now < known.tenure_since + time);
        young.map(|(number, _)| *number).collect()
    }

    /// Notes which pairs have no Lease any more although nobody decided that they end.
    ///
    /// `told` are those that the status names, by number: the last operator knew them. They count in the first look only;
    /// afterwards this memory knows better.
    fn see_lost(&mut self, seen: &BTreeSet<u32>, told: BTreeMap<u32, Lost>, now: BootTime) -> Vec<Lost> {
        let told = if self.has_looked { BTreeMap::new() } else { told };
        self.has_looked = true;
        let told = told.into_values().map(|lost| match self.ends.get(&lost.number) {
            Some(Ended { level, .. }) if !lost.is_former => Lost { level: level.clone(), ..lost },
            _ => lost,
        });
        let known = self.pairs.iter().map(|(number, known)| {
            let end = self.ends.get(number).filter(|end| end.lease == Some(known.lease));
            // Without its end the last version that was seen may call a copy level that was left out after that.
            let level = end.map_or_else(|| known.has_state.then(level_of_nobody), |end| end.level.clone());
            Lost::new(*number, known.pods.clone(), level, now + known.wait)
        });
        // Whoever led before may have said nothing of one: its status lists only so many pairs.
        let ended = self.ends.iter().filter_map(|(number, end)| {
            let (until, Ended { level, pods, is_former, .. }) = (end.at + end.wait, end.clone());
            Some(Lost { is_former, ..Lost::new(*number, pods?, level, until) })
        });
        let gone = ended.chain(told).chain(known).filter(|lost| !seen.contains(&lost.number));
        let gone = gone.fold(BTreeMap::new(), merged);
        for (number, lost) in gone {
            let Entry::Vacant(place) = self.lost.entry(number) else { continue };
            place.insert(lost);
            let last = self.pairs.get(&number).map(|known| known.lease);
            let last = last.filter(|lease| *lease != LEASE_UNKNOWN);
            // The end of an earlier Lease with this number says nothing about that of the last one.
            let is_other = |end: &Ended| last.is_some_and(|last| end.lease != Some(last));
            if self.ends.get(&number).is_none_or(is_other) {
                self.highest_term = self.highest_term.saturating_add(TERMS_MISSED);
            }
        }
        for (number, end) in self.ends.iter_mut().filter(|(number, _)| !seen.contains(number)) {
            let Some(known) = self.pairs.get(number) else { continue };
            let is_last = |lease: &Lease| {
                Record::read(lease)
                    .is_ok_and(|record| record.group == known.lease && known.epoch <= record.lease.epoch)
            };
            end.last = end.last.take().filter(|(lease, _)| is_last(lease));
        }
        for lost in self.lost.values_mut() {
            lost.may_return = self.ends.get(&lost.number).is_some_and(|end| end.last.is_some());
        }
        self.pairs.retain(|number, _| seen.contains(number));
        self.lost.values().cloned().collect()
    }

    /// A Lease of a group that is gone is made again for the one that has its name now if the Pods that it named are still there and its
    /// times are those of the group; and if it is known of all Pods that may act to which Lease they belonged.
    fn see_former(&mut self, seen: &mut SeenGroup, timing: &Timing) {
        let ids: BTreeSet<AgentId> = seen.group.pods.iter().map(|pod| pod.id).collect();
        let counts = |end: &&Ended| {
            let record = end.last.as_ref().and_then(|(lease, _)| Record::read(lease).ok());
            let is_there = |record: Record| record.lease.members.iter().any(|id| ids.contains(id));
            end.is_former && record.filter(|record| record.timing == *timing).is_some_and(is_there)
        };
        let named = self.ends.values().filter(counts).filter_map(|end| end.pods.as_ref());
        let named: BTreeSet<&String> = named.flatten().collect();
        let is_named = |lost: &Lost| lost.pods.iter().all(|pod| named.contains(pod));
        let is_whole = seen.told.values().filter(|lost| lost.is_former).all(is_named);
        let kept: BTreeSet<u32> =
            self.ends.iter().filter(|(_, end)| is_whole && counts(end)).map(|(number, _)| *number).collect();
        if !kept.is_empty() {
            seen.told.retain(|_, lost| !lost.is_former);
        }
        for (number, end) in &mut self.ends {
            if end.is_former && !kept.contains(number) {
                (end.last, end.pods) = (None, None);
            }
        }
    }

    /// Leases that are to be made again as they were.
    pub fn returning(&self) -> BTreeMap<u32, Lease> {
        let last = |(number, end): (&u32, &Ended)| Some((*number, (*end.last.as_ref()?.0).clone()));
        self.ends.iter().filter_map(last).collect()
    }

    /// A Lease is about to be made again. Whether that happens may never be heard, and then it is not known any more what it says.
    pub fn restore(&mut self, number: u32) -> Option<(Box<Lease>, u64)> {
        self.ends.get_mut(&number).and_then(|end| end.last.take())
    }

    /// It certainly did not happen.
    pub fn is_not_restored(&mut self, number: u32, last: Option<(Box<Lease>, u64)>) {
        self.ends.entry(number).and_modify(|end| end.last = last);
    }

    /// Nobody acts by a Lease that ended long ago, and nobody comes back to it unless one of its Pods is there or may be again.
    fn forget_old_ends(&mut self, seen: &SeenGroup, now: BootTime) {
        let is_there = |pod: &String| is_lasting(pod) || seen.group.pods.iter().any(|seen| seen.name == *pod);
        for end in self.ends.values_mut().filter(|end| end.at + end.wait <= now) {
            end.pods = end.pods.take().filter(|pods| pods.iter().any(is_there));
        }
    }

    /// Notes how Leases ended whose deletion was seen.
    pub fn see_ends(&mut self, SeenEnds { leases, lists, led_since, group }: SeenEnds<'_>) {
        for end in self.ends.values_mut() {
            end.last = end.last.take().filter(|(_, list)| *list == lists);
        }
        for LeaseEnd { lease, at, list } in leases {
            let Some(number) = pair_number(lease) else { continue };
            let uid = identity(&lease.metadata).ok();
            let term = lease.spec.as_ref().and_then(|spec| u32::try_from(spec.lease_transitions?).ok());
            // No look may have seen that term, and whoever acts next must have a later one.
            let believed = term.filter(|term| *term < TERM_SHOWN_MAX);
            self.highest_term = self.highest_term.max(believed.unwrap_or_default());
            let is_decided = uid.is_some_and(|uid| self.ended.contains(&uid)) || is_ending(lease);
            let is_own = is_owned(&lease.metadata, group);
            let is_former = !is_own && was_owned(&lease.metadata, group);
            let pods = (!is_decided && (is_own || is_former)).then(|| pods_of(lease));
            let record = Record::read(lease).ok();
            let is_ours = version(&lease.metadata).is_some_and(|ended| led_since < ended);
            let is_last = pods.is_some() && *list == lists && record.is_some() && is_ours;
            let last = is_last.then(|| (Box::new(lease.clone()), lists));
            let unknown = if is_former { FORMER_WAIT } else { told_wait(group) };
            let wait = record.map_or(unknown, |record| record.timing.operator_wait);
            let end = Ended { lease: uid, level: level_text(lease), pods, at: *at, last, wait, is_former };
            self.ends.insert(number, end);
        }
    }

    /// A pair ended because it was decided so. `level` is what its Lease said of the copies of its state, if they are to be
    /// found again: once Pods that may come back under their names do so.
    pub fn end_pair(&mut self, number: u32, level: Option<LevelText>) {
        self.lost.remove(&number);
        let Some(Known { lease, pods, .. }) = self.pairs.remove(&number) else { return };
        self.ended.insert(lease);
        if level.is_some() && pods.iter().any(|pod| is_lasting(pod)) {
            self.lost.insert(number, Lost::new(number, pods, level, BootTime::default()));
        }
    }

    /// As if nobody could act by the Leases any more that were lost.
    #[cfg(any(test, feature = "testing"))]
    pub fn outwait(&mut self) {
        self.lost.values_mut().for_each(|lost| lost.until = BootTime::default());
    }
}

#[cfg(test)]
mod tests;
