//! Names of new Pods: the same shortage always gives the same name, so a repeated create is refused, not doubled.

use std::collections::BTreeSet;

use sha2::{Digest, Sha256};

use crate::model::{Lifecycle, PodName, PodView, Snapshot};

/// Hexadecimal digits behind the set's name; 48 bits, as many as the BPS paper's Pods show.
const NAME_HASH_DIGITS: usize = 12;

/// The lowest slot that no Pod holds, with the name of its next Pod. A terminating Pod has given its slot back.
pub(super) fn next_place(snapshot: &Snapshot, planned: impl Iterator<Item = u32>) -> (u32, PodName) {
    let pods = &snapshot.pods;
    let mut used: BTreeSet<u32> = planned.collect();
    used.extend(pods.iter().filter(|pod| pod.lifecycle != Lifecycle::Terminating).map(|pod| pod.slot));
    let free = (0..u32::MAX).filter(|slot| !used.contains(slot));
    let mut places = free.map(|slot| (slot, pod_name(snapshot, slot)));
    // A slot is an annotation, which anybody can edit; its Pod keeps the name all the same.
    let is_free = |(_, name): &(u32, PodName)| pods.iter().all(|pod| pod.pod.name != *name);
    places.find(is_free).expect("a set has fewer Pods than there are slots")
}

/// The name of the Pod that takes this slot next.
///
/// It differs from the names of predecessors which are still terminating, as they are for minutes on a dead node.
fn pod_name(snapshot: &Snapshot, slot: u32) -> PodName {
    let desired = &snapshot.desired;
    let mut hash = Sha256::new();
    hash.update(format!("{}|{slot}|{}|{}", desired.uid, desired.revision, desired.collisions));
    let is_predecessor = |pod: &&PodView| pod.slot == slot && pod.lifecycle == Lifecycle::Terminating;
    let predecessors: BTreeSet<&str> =
        snapshot.pods.iter().filter(is_predecessor).map(|pod| pod.pod.uid.0.as_str()).collect();
    for uid in predecessors {
        hash.update(format!("|{uid}"));
    }
    let digits: String = hash
        .finalize()
        .iter()
        .take(NAME_HASH_DIGITS / 2)
        .fold(String::new(), |digits, byte| digits + &format!("{byte:02x}"));
    PodName(format!("{}-{digits}", desired.name))
}
