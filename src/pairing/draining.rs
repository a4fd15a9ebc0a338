//! Decides which actives serve on while their clients are led elsewhere: those that will soon be gone.

use std::collections::BTreeSet;
use std::time::Duration;

use super::ending::surplus;
use super::view::{Group, Pair};
use crate::ha::BootTime;

/// How long there must be too many pairs before the clients of those are led elsewhere. 3 s: 2 s before they end, as a node
/// may take so long to follow a slice.
const DRAINS_AFTER: Duration = Duration::from_secs(3);

/// When clients of the surplus pairs are led elsewhere.
pub(super) fn surplus_drains_at(surplus_since: BootTime) -> BootTime {
    surplus_since + DRAINS_AFTER
}

/// Numbers of the pairs whose clients are led elsewhere although somebody acts: both Pods of the pair go, or it ends
/// because there are too few Pods. None if nobody else would serve them.
pub(super) fn drained(group: &Group, now: BootTime) -> BTreeSet<u32> {
    let is_due = group.surplus_since.is_some_and(|since| surplus_drains_at(since) <= now);
    let surplus = surplus(group).into_iter().filter(|_| is_due);
    let ending = group.pairs.iter().filter(|pair| pair.is_ending || group.staying_members(pair).is_empty());
    let drained: BTreeSet<u32> = surplus.chain(ending).map(|pair| pair.number).collect();
    let serves_on = |pair: &Pair| {
        let is_served = pair.lease.holder.is_some_and(|holder| group.is_staying(holder));
        is_served && !drained.contains(&pair.number)
    };
    if group.pairs.iter().any(serves_on) { drained } else { BTreeSet::new() }
}
