//! What the slice of a pair should show instead of what it does.

use std::collections::BTreeSet;

use bps_protocol::{AgentId, Epoch};
use bps_wire::uid::{format_uid, parse_uid};

use super::existing::{ExistingSlice, ShownEndpoint};
use super::roster::Roster;
use super::view::{Pair, Pod};
use crate::model::{Endpoint, PodName, Uid};

/// The addresses that a slice should show instead of those that it does, and with which epoch; `draining` pairs are about to end.
///
/// A slice may be ahead of the Lease, because a handover is written down later, and the watches are not in step; then it is
/// believed as long as its Pod exists. Nobody acts by an epoch that is further ahead, or that a Pod of another pair shows or
/// another address: somebody else wrote that, and the active would leave the slice to it for ever.
pub(super) fn correction(
    seen: &Roster<'_>,
    draining: &BTreeSet<u32>,
    pair: &Pair,
    slice: &ExistingSlice,
) -> Option<(Vec<Endpoint>, Epoch)> {
    let shown_epoch = slice.epoch.unwrap_or_default();
    let shown = &slice.endpoints;
    let pod = |id: AgentId| seen.pod(id);
    let exists = |id: Option<AgentId>| id.is_some_and(|id| pod(id).is_some());
    let is_own = |id: AgentId, addresses: &Vec<String>| {
        pair.lease.names(id) && pod(id).is_none_or(|pod| *addresses == addresses_of(pod))
    };
    let is_true = |shown: &ShownEndpoint| shown.pod.is_some_and(|id| is_own(id, &shown.addresses));
    let is_next = shown_epoch.term.saturating_sub(pair.lease.epoch.term) <= 1;
    if shown_epoch > pair.lease.epoch && is_next && shown.iter().all(is_true) {
        let is_stray = shown.iter().any(|shown| !exists(shown.pod));
        return is_stray.then(|| (Vec::new(), shown_epoch));
    }
    let holder = pair.lease.holder.and_then(pod);
    let is_ready = !is_drained(seen, draining, pair);
    let wanted: Vec<Endpoint> = holder.and_then(|pod| endpoint(pod, is_ready)).into_iter().collect();
    let is_right =
        *shown == wanted.iter().map(said_of).collect::<Vec<_>>() && shown_epoch <= pair.lease.epoch;
    (!is_right).then_some((wanted, pair.lease.epoch))
}

/// Whether clients are led elsewhere while this pair's active still serves: all of the pair go, or it ends as a pair, and another
/// one serves on.
fn is_drained(seen: &Roster<'_>, draining: &BTreeSet<u32>, pair: &Pair) -> bool {
    let ends = |pair: &Pair| {
        pair.is_ending || draining.contains(&pair.number) || seen.staying_members(pair).is_empty()
    };
    let serves_on = |other: &Pair| other.lease.holder.is_some_and(|holder| seen.is_staying(holder));
    ends(pair) && seen.pairs().any(|other| !ends(other) && serves_on(other))
}

fn said_of(endpoint: &Endpoint) -> ShownEndpoint {
    ShownEndpoint {
        pod: parse_uid(&endpoint.uid.0).ok().map(AgentId),
        addresses: vec![endpoint.address.to_string()],
        is_ready: endpoint.is_ready,
    }
}

fn addresses_of(pod: &Pod) -> Vec<String> {
    pod.address.iter().map(|address| address.ip().to_string()).collect()
}

fn endpoint(pod: &Pod, is_ready: bool) -> Option<Endpoint> {
    Some(Endpoint {
        pod: PodName(pod.name.clone()),
        uid: Uid(format_uid(pod.id.0)),
        address: pod.address?.ip(),
        node: pod.node.clone(),
        zone: None,
        is_ready,
        is_terminating: !is_ready,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pairing::Group;
    use crate::pairing::testing::{pair, pod};

    /// Whether clients are to be led to the active of the first pair instead of not, or the other way round; two pairs of
    /// the Pods 1 to 4, of which these leave.
    fn corrected(leaving: &[u128], is_shown_ready: bool) -> Option<bool> {
        corrected_of([pair(0, [1, 2]), pair(1, [3, 4])], leaving, &BTreeSet::new(), is_shown_ready)
    }

    fn corrected_of(
        pairs: [Pair; 2],
        leaving: &[u128],
        draining: &BTreeSet<u32>,
        is_shown_ready: bool,
    ) -> Option<bool> {
        let pods = (1..=4).map(|number| Pod { is_leaving: leaving.contains(&number), ..pod(number) });
        let pairs = pairs.to_vec();
        let seen = Group { pods: pods.collect(), pairs, ..Group::default() };
        let pair = &seen.pairs[0];
        let shown = endpoint(&seen.pods[0], is_shown_ready).unwrap();
        let slice = ExistingSlice {
            epoch: Some(pair.lease.epoch),
            endpoints: vec![said_of(&shown)],
            ..ExistingSlice::default()
        };
        correction(&seen.roster(), draining, pair, &slice).map(|(endpoints, _)| endpoints[0].is_ready)
    }

    #[test]
    fn clients_are_led_elsewhere_once_both_pods_go_and_another_pair_serves_on() {
        for leaving in [&[][..], &[1], &[2], &[1, 2, 3, 4], &[1, 2, 3], &[3, 4]] {
            assert_eq!(corrected(leaving, true), None, "{leaving:?} leave");
            assert_eq!(corrected(leaving, false), Some(true), "{leaving:?} leave");
        }
        for drained in [&[1, 2][..], &[1, 2, 4]] {
            assert_eq!(corrected(drained, true), Some(false), "{drained:?} leave");
            assert_eq!(corrected(drained, false), None, "{drained:?} leave");
        }
    }

    #[test]
    fn clients_are_led_away_from_a_pair_that_ends_if_another_one_stays() {
        let [one, other] = [pair(0, [1, 2]), pair(1, [3, 4])];
        let ending = |pair: &Pair| Pair { is_ending: true, ..pair.clone() };
        let both = BTreeSet::from([0, 1]);
        for draining in [BTreeSet::from([0]), BTreeSet::new()] {
            let own = if draining.is_empty() { ending(&one) } else { one.clone() };
            let is_drained = |other: &Pair, leaving: &[u128]| {
                corrected_of([own.clone(), other.clone()], leaving, &draining, true) == Some(false)
            };
            assert!(is_drained(&other, &[]), "{draining:?}");
            assert!(!is_drained(&ending(&other), &[]), "{draining:?}");
            assert!(!is_drained(&other, &[3, 4]), "{draining:?}");
        }
        assert_eq!(corrected_of([one, other], &[], &both, true), None);
    }
}
