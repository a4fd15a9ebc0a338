//! Which members of pairs do not start again, and of which pairs that is so of both: others may take their places at once.
//!
//! A kubelet's own word is certain. Two kinds of evidence are presumptions: somebody vouches that the node of a Pod that went is
//! off; or a Pod is gone, and its kubelet has worked without a break for long enough since to know that and to end what is left.
//! All of it can be lost: then nobody acts by it, and time has to tell.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bps_core::model::NodeName;
use bps_core::pairing::{Group, Pair};
use bps_protocol::{AgentId, BootTime};
use jiff::Timestamp;

use super::PodEnd;

/// How long a kubelet that reaches the API server all the time may take to hear that a Pod is gone, and to begin to end what is left of
/// it. 90 s: its watch of Pods is tried again within 60 s (client-go's reflector, 30 s with jitter), and it ends what has no Pod each
/// 2 s (`housekeepingPeriod`); kubelet 1.36.4.
const WITHIN: Duration = Duration::from_secs(90);
/// How long nobody may have written the Lease of a pair whose members are presumed to have ended. 60 s: whoever acts and reaches the
/// API server writes each 30 s.
const UNWRITTEN_FOR: Duration = Duration::from_secs(60);
/// How often to ask what became of Pods that are gone, and how their kubelets are. 20 s: twice as long as between two renewals of
/// the Lease of a node by default, so that one that was not renewed meanwhile shows a break.
pub const ASK_EACH: Duration = Duration::from_secs(20);

/// How often a kubelet must have been seen to go on at least. 4: however long its Lease is good for, a few renewals alone could be those
/// of a network that comes and goes.
const SEEN_MIN: u32 = 4;

/// Pods that Leases name, and how far they are on their way.
#[derive(Debug, Default)]
pub struct Departed(BTreeMap<AgentId, Departure>);

/// What one look saw of the Pods of a group.
pub struct SeenPods<'a> {
    /// The group.
    pub group: &'a Group,
    /// Those that are there.
    pub present: Vec<PodEnd>,
    /// Those whose deletion was seen since the last look.
    pub gone: Vec<PodEnd>,
    /// Nodes of which a watch says that somebody vouches that they are off.
    pub off: &'a BTreeSet<NodeName>,
}

/// The Lease by which a kubelet says that it reaches the API server, as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Renewal {
    /// Its uid: another one is that of another machine of that name, or of one that was away for long.
    pub lease: String,
    /// When it was made.
    pub created: Timestamp,
    /// When it was renewed last, by the clock of the node.
    pub renewed: Timestamp,
    /// How long it is good for; it is renewed four times as often.
    pub duration: Duration,
}

/// What a node was asked for, and when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Heard {
    /// When it was asked.
    pub asked: BootTime,
    /// When it was answered.
    pub answered: BootTime,
    /// `None`: there is no such Lease, or it may not be read.
    pub renewal: Option<Renewal>,
}

#[derive(Debug)]
struct Departure {
    end: PodEnd,
    /// The watch shows it no more. A watch on a label calls a Pod gone, too, that lost its label.
    is_missing: bool,
    /// When it was known, as the API server said so, that there is no such Pod any more.
    absent_since: Option<BootTime>,
    /// When that was asked last, or how its kubelet is.
    asked_at: Option<BootTime>,
    /// Since when its kubelet has worked without a break.
    works: Option<Works>,
    /// Somebody vouches that its node is off.
    is_vouched_for: bool,
    /// Its kubelet has had time to end it.
    is_overdue: bool,
}

/// A time without a break in which a kubelet reached the API server.
#[derive(Debug)]
struct Works {
    last: Renewal,
    since: BootTime,
    until: BootTime,
    /// How often it was seen to go on.
    times: u32,
}

impl Departure {
    fn of(end: PodEnd) -> Self {
        Self {
            end,
            is_missing: false,
            absent_since: None,
            asked_at: None,
            works: None,
            is_vouched_for: false,
            is_overdue: false,
        }
    }

    fn is_on(&self, nodes: &BTreeSet<NodeName>) -> bool {
        self.end.node.as_ref().is_some_and(|node| nodes.contains(node))
    }

    fn is_presumed(&self) -> bool {
        self.is_overdue || self.is_vouched_for && (self.end.is_going || self.absent_since.is_some())
    }

    /// Whether it may have ended, as far as the watches tell.
    fn may_have_ended(&self) -> bool {
        self.end.is_certain || self.is_missing || self.end.is_going && self.is_vouched_for
    }

    fn is_due(&self, now: BootTime) -> bool {
        self.asked_at.is_none_or(|at| at + ASK_EACH <= now)
    }

    fn hear(&mut self, heard: &Heard) {
        if self.absent_since.is_none_or(|absent| heard.asked < absent) {
            return;
        }
        // A machine that came later under that name knows nothing of the Pod, if its node was made anew.
        let is_its_own =
            |renewal: &&Renewal| self.end.created.is_some_and(|created| renewal.created <= created);
        let Some(renewal) = heard.renewal.as_ref().filter(is_its_own) else {
            self.works = None;
            return;
        };
        let begun = Works { last: renewal.clone(), since: heard.answered, until: heard.asked, times: 0 };
        let Some(works) = self.works.as_mut().filter(|works| works.last.lease == renewal.lease) else {
            self.works = Some(begun);
            return;
        };
        // Twice what lies between two renewals, give or take a half of that: an answer may have been for another group.
        let apart = ASK_EACH.max(renewal.duration / 2);
        if heard.asked < works.until + apart / 4 * 3 {
            return;
        }
        // A break that nobody looked for is one, too.
        if works.last.renewed < renewal.renewed && heard.asked <= works.until + apart / 2 * 3 {
            (works.last, works.until, works.times) = (renewal.clone(), heard.asked, works.times + 1);
        } else {
            *works = begun;
        }
        // What it may have missed between the last two renewals is still to come.
        let is_long_enough = works.since + self.end.grace + WITHIN + 2 * apart <= works.until;
        self.is_overdue |= is_long_enough && works.times >= SEEN_MIN;
    }
}

impl Departed {
    /// Notes Pods of those that Leases name. A Pod that is missing is gone, whether a watch told so or not.
    pub fn see(&mut self, seen: SeenPods<'_>) {
        let SeenPods { group, present, gone, off } = seen;
        let named: BTreeSet<AgentId> = group.pairs.iter().flat_map(|pair| pair.lease.named()).collect();
        let there: BTreeSet<AgentId> = present.iter().map(|end| end.id).collect();
        for end in present.into_iter().chain(gone) {
            if !named.contains(&end.id) && !self.0.contains_key(&end.id) {
                continue;
            }
            let known = &mut self.0.entry(end.id).or_insert_with(|| Departure::of(end.clone())).end;
            known.is_certain |= end.is_certain;
            known.is_going |= end.is_going;
            known.grace = known.grace.max(end.grace);
            known.node = end.node.or(known.node.take());
        }
        // While its Lease cannot be read or is gone it is not known by whom it is named.
        let left_alone: BTreeSet<&String> = group.left_alone().flat_map(|lost| &lost.pods).collect();
        self.0.retain(|id, departure| named.contains(id) || left_alone.contains(&departure.end.name));
        for (id, departure) in &mut self.0 {
            departure.is_missing = !there.contains(id);
            if !departure.is_missing {
                // Its label, or the cluster, was put back.
                (departure.absent_since, departure.works, departure.is_overdue) = (None, None, false);
            }
            departure.is_vouched_for &= departure.is_on(off);
        }
    }

    /// Of whom to ask: those of pairs of which no member is known to be there.
    fn asked_for(&self, group: &Group, off: &BTreeSet<NodeName>) -> BTreeSet<AgentId> {
        let may_have_ended = |id: &AgentId| {
            let goes = |departure: &Departure| departure.end.is_going && departure.is_on(off);
            let departure = self.0.get(id);
            *id == AgentId::NOBODY || departure.is_some_and(|one| one.may_have_ended() || goes(one))
        };
        let has_nobody = |pair: &&Pair| pair.lease.members.iter().all(may_have_ended);
        group.pairs.iter().filter(has_nobody).flat_map(|pair| pair.lease.members).collect()
    }

    /// Pods of which it is to be asked whether they are there.
    pub fn doubted(&mut self, group: &Group, off: &BTreeSet<NodeName>, now: BootTime) -> Vec<PodEnd> {
        let asked = self.asked_for(group, off);
        let mut doubted = Vec::new();
        for (_, departure) in self.0.iter_mut().filter(|(id, _)| asked.contains(id)) {
            let is_known = departure.end.is_certain || departure.absent_since.is_some();
            if departure.is_missing && !is_known && departure.is_due(now) {
                departure.asked_at = Some(now);
                doubted.push(departure.end.clone());
            }
        }
        doubted
    }

    /// The answer to that. A Pod that is there lost its label only.
    pub fn settle(&mut self, id: AgentId, is_there: bool, now: BootTime) {
        if let Some(departure) = self.0.get_mut(&id).filter(|_| !is_there) {
            (departure.absent_since, departure.asked_at) = (Some(now), None);
        }
    }

    /// Nodes of which it is to be asked whether somebody vouches that they are off (`true`), or how their kubelets are.
    pub fn sought(
        &mut self,
        group: &Group,
        off: &BTreeSet<NodeName>,
        now: BootTime,
    ) -> BTreeMap<NodeName, bool> {
        let asked = self.asked_for(group, off);
        let mut sought = BTreeMap::new();
        for (_, departure) in self.0.iter_mut().filter(|(id, _)| asked.contains(id)) {
            let is_off = departure.is_on(off);
            let may_count = departure.absent_since.is_some() || departure.end.is_going && is_off;
            let is_known = departure.end.is_certain || departure.is_presumed();
            if let Some(node) =
                departure.end.node.clone().filter(|_| may_count && !is_known && departure.is_due(now))
            {
                departure.asked_at = Some(now);
                sought.insert(node, is_off);
            }
        }
        sought
    }

    /// Whether somebody vouches that a node is off, as the API server said.
    pub fn vouch(&mut self, node: &NodeName, is_vouched_for: bool) {
        for departure in self.on(node) {
            departure.is_vouched_for = is_vouched_for;
        }
    }

    /// What was heard of the kubelet of a node.
    pub fn hear(&mut self, node: &NodeName, heard: &Heard) {
        self.on(node).for_each(|departure| departure.hear(heard));
    }

    fn on(&mut self, node: &NodeName) -> impl Iterator<Item = &mut Departure> {
        self.0.values_mut().filter(move |departure| departure.end.node.as_ref() == Some(node))
    }

    /// Says of each pair whether its members have ended, or when that may be known.
    pub fn tell(&self, group: &mut Group, now: BootTime) {
        for pair in &mut group.pairs {
            let expected = |id: &AgentId| match self.0.get(id) {
                _ if *id == AgentId::NOBODY => Some(now),
                Some(departure) if departure.end.is_certain => Some(now),
                Some(departure) if departure.is_presumed() => {
                    Some(now.max(pair.unwritten_since + UNWRITTEN_FOR))
                }
                // No event tells how its kubelet is: to be asked again.
                Some(departure) if departure.may_have_ended() => Some(now + ASK_EACH),
                Some(_) | None => None,
            };
            let [one, two] = pair.lease.members.each_ref().map(expected);
            let known_at = one.zip(two).map(|(one, two)| one.max(two));
            pair.have_ended = known_at == Some(now);
            pair.ends_known_at = known_at.filter(|at| *at > now);
        }
    }
}

#[cfg(test)]
mod tests;
