//! What the slice of a pair should show instead of what it does.

use bps_core::model::{Endpoint, PodName, Uid};
use bps_core::pairing::{Group, Pair, Pod};
use bps_observe::group::{SeenGroup, shown_epoch};
use bps_protocol::{AgentId, Epoch};
use bps_wire::uid::{format_uid, parse_uid};
use k8s_openapi::api::discovery::v1::EndpointSlice;

/// What an endpoint says: which Pod, where, and whether clients are led there.
type Said = (Option<AgentId>, Vec<String>, bool);

/// The addresses that a slice should show instead of those that it does, and with which epoch.
///
/// A slice may be ahead of the Lease, because a handover is written down later, and the watches are not in step; then it is
/// believed as long as its Pod exists. Nobody acts by an epoch that is further ahead, or that a Pod of another pair shows or
/// another address: somebody else wrote that, and the active would leave the slice to it for ever.
pub(super) fn correction(
    seen: &SeenGroup,
    pair: &Pair,
    slice: &EndpointSlice,
) -> Option<(Vec<Endpoint>, Epoch)> {
    let shown_epoch = shown_epoch(slice).unwrap_or_default();
    let shown = slice.endpoints.iter().map(|endpoint| {
        let uid = endpoint.target_ref.as_ref().and_then(|target| target.uid.as_deref());
        let ready = endpoint.conditions.as_ref().and_then(|conditions| conditions.ready);
        // Without a condition consumers take it for ready, says the API.
        let is_ready = ready.unwrap_or(true);
        (uid.and_then(|uid| parse_uid(uid).ok()).map(AgentId), endpoint.addresses.clone(), is_ready)
    });
    let shown: Vec<Said> = shown.collect();
    let pod = |id: AgentId| seen.group.pods.iter().find(|pod| pod.id == id);
    let exists = |id: Option<AgentId>| id.is_some_and(|id| pod(id).is_some());
    let is_own = |id: AgentId, addresses: &Vec<String>| {
        pair.lease.names(id) && pod(id).is_none_or(|pod| *addresses == addresses_of(pod))
    };
    let is_true = |(id, addresses, _): &Said| id.is_some_and(|id| is_own(id, addresses));
    let is_next = shown_epoch.term.saturating_sub(pair.lease.epoch.term) <= 1;
    if shown_epoch > pair.lease.epoch && is_next && shown.iter().all(is_true) {
        let is_stray = shown.iter().any(|(id, ..)| !exists(*id));
        return is_stray.then(|| (Vec::new(), shown_epoch));
    }
    let holder = pair.lease.holder.and_then(pod);
    let is_ready = !is_drained(&seen.group, pair);
    let wanted: Vec<Endpoint> = holder.and_then(|pod| endpoint(pod, is_ready)).into_iter().collect();
    let is_right = shown == wanted.iter().map(said_of).collect::<Vec<_>>() && shown_epoch <= pair.lease.epoch;
    (!is_right).then_some((wanted, pair.lease.epoch))
}

/// Whether clients are led elsewhere while this pair's active still serves: all of the pair go, and another one serves on.
fn is_drained(group: &Group, pair: &Pair) -> bool {
    let serves_on = |other: &Pair| other.lease.holder.is_some_and(|holder| group.is_staying(holder));
    group.staying_members(pair).is_empty() && group.pairs.iter().any(serves_on)
}

fn said_of(endpoint: &Endpoint) -> Said {
    let id = parse_uid(&endpoint.uid.0).ok().map(AgentId);
    (id, vec![endpoint.address.to_string()], endpoint.is_ready)
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
    use std::sync::Arc;

    use bps_api::keys;
    use bps_core::manifests::pair_slice;
    use bps_observe::group::{GroupObjects, see_group};
    use bps_protocol::BootTime;
    use bps_wire::shown;
    use serde_json::json;
    use serde_json::value::from_value;

    use super::*;
    use crate::controller::groups::testing::{group, lease, pod};

    /// Whether clients are to be led to the active of the pair `web-0` instead of not, or the other way round; two pairs of
    /// the Pods 1 to 4, of which these leave.
    fn corrected(leaving: &[u128], is_shown_ready: bool) -> Option<bool> {
        let pods = (1..=4).map(|number| {
            let mut pod = pod(number);
            pod["metadata"]["deletionTimestamp"] =
                json!(leaving.contains(&number).then_some("2026-11-25T12:00:00Z"));
            pod
        });
        let objects = GroupObjects {
            pods: pods.map(|pod| Arc::new(from_value(pod).unwrap())).collect(),
            leases: [lease(0, [1, 2]), lease(1, [3, 4])]
                .map(|lease| Arc::new(from_value(lease).unwrap()))
                .to_vec(),
            ..GroupObjects::default()
        };
        let seen = see_group(&group(), &objects, BootTime::default());
        let pair = &seen.group.pairs[0];
        let shown = endpoint(&seen.group.pods[0], is_shown_ready).unwrap();
        let mut slice = pair_slice(&group(), "web-0", &[shown], false).unwrap();
        slice["metadata"]["annotations"] =
            json!({(keys::ANNOTATION_HA_EPOCH): shown::text(pair.lease.epoch)});
        let correction = correction(&seen, pair, &from_value(slice).unwrap());
        correction.map(|(endpoints, _)| endpoints[0].is_ready)
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
}
