//! Leases as they were when their deletion was seen, until a look at their group asks for them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use bps_protocol::BootTime;
use k8s_openapi::api::coordination::v1::Lease;

use super::{labelled_key, pair_number};
use crate::SetKey;

/// Most Leases that are kept after their end, the newest. 4,096, of some 2 KB each: who does not lead takes none. What is left
/// out ended without being seen, which makes nobody act too early.
const ENDS_MAX: usize = 4_096;

/// The end of a Lease.
#[derive(Clone, Debug, PartialEq)]
pub struct LeaseEnd {
    /// The Lease as it was.
    pub lease: Lease,
    /// When its deletion was seen.
    pub at: BootTime,
}

/// The last end of each pair, by group and number.
type ByGroup = BTreeMap<SetKey, BTreeMap<u32, LeaseEnd>>;

/// Shared by a watch and the looks.
#[derive(Clone, Debug, Default)]
pub struct LeaseEnds(Arc<Mutex<ByGroup>>);

impl LeaseEnds {
    /// Forgets how the Lease of a pair ended, because a watch shows another one.
    pub fn shown(&self, lease: &Lease) {
        let Some((key, number)) = labelled_key(&lease.metadata).zip(pair_number(lease)) else { return };
        let mut ends = self.0.lock().expect("no holder of this lock panics");
        forget(&mut ends, &key, number);
    }

    /// Keeps how a Lease ended, until there is another one for its pair.
    pub fn deleted(&self, lease: &Lease, now: BootTime) {
        let Some((key, number)) = labelled_key(&lease.metadata).zip(pair_number(lease)) else { return };
        let mut ends = self.0.lock().expect("no holder of this lock panics");
        ends.entry(key).or_default().insert(number, LeaseEnd { lease: lease.clone(), at: now });
        if ends.values().map(BTreeMap::len).sum::<usize>() > ENDS_MAX {
            forget_oldest(&mut ends);
        }
    }

    /// Those of one group; they are told once.
    pub fn take(&self, key: &SetKey) -> Vec<LeaseEnd> {
        let mut ends = self.0.lock().expect("no holder of this lock panics");
        ends.remove(key).into_iter().flat_map(BTreeMap::into_values).collect()
    }
}

fn forget_oldest(ends: &mut ByGroup) {
    let all = ends
        .iter()
        .flat_map(|(key, of_group)| of_group.iter().map(move |(number, end)| (end.at, key, number)));
    let Some((_, key, number)) = all.min_by_key(|(at, ..)| *at) else { return };
    let (key, number) = (key.clone(), *number);
    forget(ends, &key, number);
}

fn forget(ends: &mut ByGroup, key: &SetKey, number: u32) {
    let Some(of_group) = ends.get_mut(key) else { return };
    of_group.remove(&number);
    if of_group.is_empty() {
        ends.remove(key);
    }
}

#[cfg(test)]
mod tests {
    use bps_api::keys;
    use serde_json::json;

    use super::*;

    fn lease(group: &str, number: usize, uid: &str) -> Lease {
        let metadata = json!({"name": "lease", "namespace": "shop", "uid": uid,
            "labels": {(keys::LABEL_GROUP): group},
            "annotations": {(keys::ANNOTATION_HA_PAIR): number.to_string()}});
        serde_json::from_value(json!({"metadata": metadata})).expect("a Lease")
    }

    fn key(name: &str) -> SetKey {
        SetKey { namespace: "shop".into(), name: name.into() }
    }

    #[test]
    fn the_end_of_a_lease_is_kept_until_it_is_taken_or_another_one_is_there() {
        let (ends, now) = (LeaseEnds::default(), BootTime(7));
        ends.shown(&lease("web", 0, "a"));
        assert_eq!(ends.take(&key("web")), []);
        ends.deleted(&lease("web", 0, "a"), now);
        assert_eq!(ends.take(&key("api")), []);
        assert_eq!(ends.take(&key("web")), [LeaseEnd { lease: lease("web", 0, "a"), at: now }]);
        assert_eq!(ends.take(&key("web")), []);
        ends.deleted(&lease("web", 0, "a"), now);
        ends.shown(&lease("web", 0, "b"));
        assert_eq!(ends.take(&key("web")), []);
    }

    #[test]
    fn the_oldest_end_gives_way_to_a_new_one() {
        let ends = LeaseEnds::default();
        for number in 0..ENDS_MAX {
            ends.deleted(&lease("web", number, "a"), BootTime(1 + number as u64));
        }
        // Its group comes first by name, and its end is the newest.
        ends.deleted(&lease("api", 0, "a"), BootTime(1 + ENDS_MAX as u64));
        assert_eq!(ends.take(&key("api")).len(), 1);
        let left = ends.take(&key("web"));
        assert_eq!((left.len(), left[0].at), (ENDS_MAX - 1, BootTime(2)));
    }
}
