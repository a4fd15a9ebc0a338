//! Who alone has every acknowledged write of a pair, is gone, and may come back with its volume: its place is kept, and it
//! takes no other.
//!
//! Whoever else came into that place could not act, and in another pair its copy would be replaced by that of its new peer.

use super::view::{Group, Pair, is_lasting};

impl Group {
    /// Names of these Pods; nobody if a member that stays has every acknowledged write, too.
    pub(super) fn absent_keepers<'a>(&self, pair: &'a Pair) -> Vec<&'a str> {
        let level = || pair.lease.members.into_iter().filter(|id| pair.level_pods.contains(id));
        if pair.level.is_none() || pair.is_ending || level().any(|id| self.is_staying(id)) {
            return Vec::new();
        }
        let names = level().filter_map(|id| pair.names.get(&id)).map(String::as_str);
        names.filter(|name| is_lasting(name)).collect()
    }
}
