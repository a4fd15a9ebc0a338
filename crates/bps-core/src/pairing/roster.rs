//! A group whose Pods and pairs are found by uid and number.
//!
//! A group may have 1,000 pairs, and a look asks about each member of each pair. The roster is made once a look, so that none
//! of these questions takes a walk over all Pods or pairs: a look at n pairs takes at most n log n steps.

use std::cell::Cell;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use bps_protocol::{AgentId, Hold, Lease};

use super::view::{Group, Pair, Pod, VACANT};

/// What a group's Pods and pairs are found by.
#[derive(Debug)]
pub struct Roster<'a> {
    pods: BTreeMap<AgentId, &'a Pod>,
    pairs: BTreeMap<u32, &'a Pair>,
    /// Pairs that have a Pod as a member: as many as it may have places, but for a request that was carried out without its writer
    /// hearing of it.
    seats: BTreeMap<AgentId, Vec<&'a Pair>>,
    /// Numbers of the pairs that are asked to admit a Pod.
    joining: BTreeMap<AgentId, Vec<u32>>,
    /// [`Group::further_places`].
    further_places: usize,
    /// Names of the Pods of pairs that are left alone.
    left_alone: BTreeSet<&'a str>,
    unseated: Unseated,
    /// Counted, because how the work of a look grows is asserted by that number.
    visits: Cell<usize>,
}

/// Pods that are a member of no pair.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Unseated {
    /// There is one that stays.
    pub is_any_staying: bool,
    /// There is one that goes away.
    pub is_any_leaving: bool,
}

impl Group {
    /// The roster of this group.
    pub fn roster(&self) -> Roster<'_> {
        let mut seats: BTreeMap<AgentId, Vec<&Pair>> = BTreeMap::new();
        let mut joining: BTreeMap<AgentId, Vec<u32>> = BTreeMap::new();
        for pair in &self.pairs {
            for id in BTreeSet::from(pair.lease.members).into_iter().filter(|id| *id != VACANT) {
                seats.entry(id).or_default().push(pair);
            }
            if let Some(replacement) = pair.lease.pending {
                joining.entry(replacement.joining).or_default().push(pair.number);
            }
        }
        let mut unseated = Unseated::default();
        for pod in self.pods.iter().filter(|pod| !seats.contains_key(&pod.id)) {
            unseated.is_any_staying |= !pod.is_leaving;
            unseated.is_any_leaving |= pod.is_leaving;
        }
        Roster {
            pods: self.pods.iter().map(|pod| (pod.id, pod)).collect(),
            pairs: self.pairs.iter().map(|pair| (pair.number, pair)).collect(),
            seats,
            joining,
            further_places: self.further_places,
            left_alone: self.left_alone().flat_map(|lost| &lost.pods).map(String::as_str).collect(),
            unseated,
            visits: Cell::new(0),
        }
    }
}

impl<'a> Roster<'a> {
    /// The Pod with this uid.
    pub fn pod(&self, id: AgentId) -> Option<&'a Pod> {
        self.visit();
        self.pods.get(&id).copied()
    }

    /// The pair with this number.
    pub(super) fn pair(&self, number: u32) -> Option<&'a Pair> {
        self.visit();
        self.pairs.get(&number).copied()
    }

    /// All pairs.
    pub(super) fn pairs(&self) -> impl Iterator<Item = &'a Pair> {
        self.pairs.values().copied().inspect(|_| self.visit())
    }

    /// The pair in which a Pod acts; of several that say so the one with the best claim to it.
    pub(super) fn acts_in(&self, id: AgentId) -> Option<&'a Pair> {
        self.seats_of(id).find(|pair| pair.lease.holder == Some(id) && self.is_seated(pair, id))
    }

    /// Whether a Pod holds the Lease of a pair.
    pub(super) fn holds(&self, id: AgentId) -> bool {
        self.seats_of(id).any(|pair| pair.lease.holder == Some(id))
    }

    /// Whether the Pod exists and stays.
    pub fn is_staying(&self, id: AgentId) -> bool {
        self.pod(id).is_some_and(|pod| !pod.is_leaving)
    }

    /// Whether a Pod belongs to a pair of which nothing is known but that a member may act.
    pub(super) fn is_left_alone(&self, pod: &Pod) -> bool {
        self.visit();
        self.left_alone.contains(pod.name.as_str())
    }

    /// Whether a Pod stays, and its place is in this pair.
    pub fn is_seated(&self, pair: &Pair, id: AgentId) -> bool {
        self.is_staying(id) && !self.is_claimed_elsewhere(pair, id)
    }

    /// Whether other pairs leave a Pod no place in this one. Who acts has no other place, and a standby as many as the group says; a
    /// request that was carried out without its writer hearing of it may have given it one more.
    ///
    /// Where it acts comes first, then where a standby answers the active, which may be this Pod.
    pub(super) fn is_claimed_elsewhere(&self, pair: &Pair, id: AgentId) -> bool {
        let claim = |pair: &Pair| {
            let Lease { holder, hold, .. } = pair.lease;
            (holder == Some(id), hold == Hold::Peer, Reverse(pair.number))
        };
        let own = claim(pair);
        let mut better = 0;
        let mut others = self.seated_elsewhere(pair, id).filter(|other| claim(other) > own);
        others.any(|other| {
            better += 1;
            better > self.further_places || other.lease.holder == Some(id)
        })
    }

    /// Whether a Pod shall not act in a pair that it is a member of.
    pub(super) fn is_fenced(&self, id: AgentId) -> bool {
        self.seats_of(id).any(|pair| pair.fenced.contains(&id))
    }

    /// Whether a standby may have places in several pairs.
    pub(super) const fn may_share(&self) -> bool {
        self.further_places > 0
    }

    /// Pairs beside this one in which a Pod is the one to take over.
    pub(super) fn stands_by_elsewhere(&self, pair: &Pair, id: AgentId) -> impl Iterator<Item = &'a Pair> {
        self.seated_elsewhere(pair, id)
            .filter(move |other| other.lease.holder.is_some_and(|holder| holder != id))
    }

    /// Whether a member stays, but other pairs leave it no place in this one, of whose state it keeps a directory.
    pub(super) fn is_busy(&self, pair: &Pair, id: AgentId) -> bool {
        self.further_places > 0 && self.is_staying(id) && self.is_claimed_elsewhere(pair, id)
    }

    fn seated_elsewhere(&self, pair: &Pair, id: AgentId) -> impl Iterator<Item = &'a Pair> {
        let number = pair.number;
        self.seats_of(id).filter(move |other| other.number != number)
    }

    /// Pairs that have a Pod as a member.
    fn seats_of(&self, id: AgentId) -> impl Iterator<Item = &'a Pair> {
        let seats = self.seats.get(&id).map(Vec::as_slice).unwrap_or_default();
        seats.iter().inspect(|_| self.visit()).copied()
    }

    /// Whether a Pod has no place for this pair: it is a member, acts in another pair, or its places are taken, or promised to pairs
    /// with lower numbers.
    pub(super) fn is_promised(&self, pair: &Pair, id: AgentId) -> bool {
        self.visit();
        let joining = self.joining.get(&id).map(Vec::as_slice).unwrap_or_default();
        let promised = joining.iter().filter(|number| **number < pair.number).count();
        let is_barred = |seated: &Pair| seated.number == pair.number || seated.lease.holder == Some(id);
        self.seats_of(id).any(is_barred) || self.seats_of(id).count() + promised > self.further_places
    }

    /// How many pairs a Pod is a member of, or is asked into; `None` if it acts in one, or one of them ends.
    pub(super) fn places_taken(&self, id: AgentId) -> Option<usize> {
        if self.seats_of(id).any(|pair| pair.lease.holder == Some(id) || pair.is_ending) {
            return None;
        }
        let joining = self.joining.get(&id).map(Vec::len).unwrap_or_default();
        Some(self.seats_of(id).count() + joining)
    }

    /// Members of a pair that do not exist, do not stay, or belong to another one.
    pub(super) fn gone_members(&self, pair: &Pair) -> Vec<AgentId> {
        pair.lease.members.into_iter().filter(|id| !self.is_seated(pair, *id)).collect()
    }

    /// Members of a pair that exist and stay.
    pub fn staying_members(&self, pair: &Pair) -> Vec<AgentId> {
        pair.lease.members.into_iter().filter(|id| self.is_seated(pair, *id)).collect()
    }

    /// Which Pods there are that are a member of no pair.
    pub(super) const fn unseated(&self) -> Unseated {
        self.unseated
    }

    /// How many questions were asked, and pairs looked at for them.
    #[cfg(test)]
    pub(super) const fn visits(&self) -> usize {
        self.visits.get()
    }

    fn visit(&self) {
        self.visits.set(self.visits.get() + 1);
    }
}
