//! Names of new Pods: the same shortage always gives the same name, so a repeated create is refused, not doubled.

use std::collections::{BTreeMap, BTreeSet};

use sha2::{Digest, Sha256};

use crate::model::{Lifecycle, PodName, PodView, Snapshot};

/// Hexadecimal digits behind the set's name; 48 bits, as many as the BPS paper's Pods show.
const NAME_HASH_DIGITS: usize = 12;

/// Where a new Pod goes.
pub(super) struct FreePlace {
    pub(super) slot: u32,
    pub(super) name: PodName,
}

/// The places of a set that no Pod holds, the lowest slot first.
pub(super) struct Places<'a> {
    snapshot: &'a Snapshot,
    /// A terminating Pod has given its slot back.
    used: BTreeSet<u32>,
    /// A slot is an annotation, which anybody can edit; its Pod keeps the name all the same.
    names: BTreeSet<&'a PodName>,
    /// Pods that had the slot and are still terminating, as they are for minutes on a dead node.
    predecessors: BTreeMap<u32, BTreeSet<&'a str>>,
    /// No slot below it is free.
    lowest: u32,
}

impl<'a> Places<'a> {
    pub(super) fn new(snapshot: &'a Snapshot) -> Self {
        let is_leaving = |pod: &&PodView| pod.lifecycle == Lifecycle::Terminating;
        let mut predecessors: BTreeMap<u32, BTreeSet<&str>> = BTreeMap::new();
        for pod in snapshot.pods.iter().filter(is_leaving) {
            predecessors.entry(pod.slot).or_default().insert(pod.pod.uid.0.as_str());
        }
        Self {
            snapshot,
            used: snapshot.pods.iter().filter(|pod| !is_leaving(pod)).map(|pod| pod.slot).collect(),
            names: snapshot.pods.iter().map(|pod| &pod.pod.name).collect(),
            predecessors,
            lowest: 0,
        }
    }

    /// The lowest free place; the same one until it is taken.
    pub(super) fn next(&mut self) -> FreePlace {
        // A set has fewer Pods than there are slots.
        loop {
            if !self.used.contains(&self.lowest) {
                let name = self.name(self.lowest);
                if !self.names.contains(&name) {
                    return FreePlace { slot: self.lowest, name };
                }
            }
            self.lowest += 1;
        }
    }

    pub(super) fn take(&mut self, place: &FreePlace) {
        self.used.insert(place.slot);
    }

    /// The name of the Pod that takes this slot next. It differs from the names of its predecessors.
    fn name(&self, slot: u32) -> PodName {
        let desired = &self.snapshot.desired;
        let mut hash = Sha256::new();
        hash.update(format!("{}|{slot}|{}|{}", desired.uid, desired.revision, desired.collisions));
        for uid in self.predecessors.get(&slot).into_iter().flatten() {
            hash.update(format!("|{uid}"));
        }
        let digits: String = hash
            .finalize()
            .iter()
            .take(NAME_HASH_DIGITS / 2)
            .fold(String::new(), |digits, byte| digits + &format!("{byte:02x}"));
        PodName(format!("{}-{digits}", desired.name))
    }
}
