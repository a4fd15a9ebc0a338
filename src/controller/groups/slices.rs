//! EndpointSlices of the pairs of a group. Their addresses are the actives' own affair, but for those that show what
//! cannot be.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

use bps_api::{HAGroup, HandoverOrder, keys};
use bps_core::manifests::{pair_name, pair_slice};
use bps_core::pairing::{Pair, Plan, Step};
use bps_observe::group::{GroupObjects, SeenGroup, shown_epoch};
use bps_protocol::AgentId;
use bps_wire::shown;
use bps_wire::uid::format_uid;
use kube::ResourceExt as _;
use serde_json::{Value, json};

use super::correction::correction;
use super::objects::{Change, Lead, change, removals};

/// How long a new active is left to show itself before it is done for it. 2 s: as long as one attempt of an agent may take,
/// both at once would only be in each other's way; and longer than an agent waits until its application listens.
const SHOWN_WITHIN: Duration = Duration::from_secs(2);
/// The same where applications overlap: 10 s for the new one to listen, and an attempt.
const SHOWN_WITHIN_OVERLAP: Duration = Duration::from_secs(12);

/// What EndpointSlices need.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Needs {
    /// What is to be written now.
    pub(super) changes: Vec<Change>,
    /// Whether a slice was left to a new active, so that a later look is needed.
    pub(super) is_any_left: bool,
}

/// Whether a slice shows a later epoch than its Lease, and one that the Lease does not account for: one of the two is old.
pub(super) fn are_ahead(group: &HAGroup, seen: &SeenGroup, objects: &GroupObjects) -> bool {
    let name = group.name_any();
    seen.group.pairs.iter().any(|pair| {
        let slice_name = pair_name(&name, pair.number);
        let slice = objects.slices.iter().find(|slice| slice.name_any() == slice_name);
        slice.is_some_and(|slice| {
            let is_later = shown_epoch(slice.as_ref()).is_some_and(|shown| shown > pair.lease.epoch);
            is_later && correction(seen, pair, slice).is_some()
        })
    })
}

/// What is to be written before a plan is carried out, and of which pair: who joins one may show itself in its slice as soon as it
/// is a member, and the first active of a new one looks for the slice as soon as there is a Lease.
pub(super) fn entitlements(
    (group, lead): (&HAGroup, Lead),
    (seen, plan): (&SeenGroup, &Plan),
    objects: &GroupObjects,
) -> Vec<(u32, Change)> {
    let changes = plan.steps.iter().filter_map(|step| {
        let (number, entitling, is_v6) = match step {
            Step::Found { number, seats, .. } => {
                (*number, entitling(seats.iter().map(|seat| seat.id)), seats[0].address.is_ipv6())
            }
            Step::Ask { pair: number, .. } | Step::Force { pair: number, .. } => {
                let pair = seen.group.pairs.iter().find(|pair| pair.number == *number)?;
                (*number, entitled(pair, plan), is_v6(seen, pair))
            }
            Step::Withdraw { .. }
            | Step::Move { .. }
            | Step::Fence { .. }
            | Step::End { .. }
            | Step::Label { .. } => return None,
        };
        let mut body = pair_slice(group, &pair_name(&group.name_any(), number), &[], is_v6)?;
        body["metadata"]["annotations"] = entitling.clone();
        let body = if lead == Lead::Own { body } else { unled(body) };
        // One that is there shows who acted last, maybe still.
        let patch = json!({"metadata": {"annotations": entitling}});
        Some((number, change(group, &body, (&objects.slices, patch))?))
    });
    changes.collect()
}

/// Who may show itself in the slice of a pair once a plan has been carried out: its members, and who is to become one.
fn entitled(pair: &Pair, plan: &Plan) -> Value {
    let joining = plan.steps.iter().flat_map(|step| match step {
        Step::Ask { pair: number, joining, .. } if *number == pair.number => vec![joining.id],
        Step::Force { pair: number, lease } if *number == pair.number => lease.members.to_vec(),
        Step::Found { .. }
        | Step::Ask { .. }
        | Step::Withdraw { .. }
        | Step::Move { .. }
        | Step::Force { .. }
        | Step::Fence { .. }
        | Step::End { .. }
        | Step::Label { .. } => Vec::new(),
    });
    let pending = pair.lease.pending.map(|replacement| replacement.joining);
    entitling(pair.lease.members.into_iter().chain(pending).chain(joining))
}

/// The annotation that names these Pods.
fn entitling(pods: impl Iterator<Item = AgentId>) -> Value {
    let uids: BTreeSet<String> =
        pods.filter(|id| *id != AgentId::NOBODY).map(|id| format_uid(id.0)).collect();
    json!({(keys::ANNOTATION_HA_SHOWN_BY): uids.into_iter().collect::<Vec<_>>().join(",")})
}

/// The same slice behind no Service.
fn unled(mut slice: Value) -> Value {
    if let Some(labels) = slice["metadata"]["labels"].as_object_mut() {
        labels.remove(keys::LABEL_SERVICE_NAME);
    }
    slice
}

/// How long the actives of a group are left to show themselves.
pub(super) fn patience(group: &HAGroup) -> Duration {
    match group.spec.handover.unwrap_or_default() {
        HandoverOrder::BreakBeforeMake => SHOWN_WITHIN,
        HandoverOrder::MakeBeforeBreak => SHOWN_WITHIN_OVERLAP,
    }
}

/// What the slices of all pairs need besides; some have new actives, and some were written in this look. `lead` says whose the Service is that the
/// group names: as long as it is not known to be its own they stay behind the one before.
pub(super) fn needs(
    (group, lead): (&HAGroup, Lead),
    (seen, plan): (&SeenGroup, &Plan),
    objects: &GroupObjects,
    (young, written): (&BTreeSet<u32>, &BTreeSet<u32>),
) -> Needs {
    let name = group.name_any();
    let mut wanted = Vec::new();
    let mut needs = Needs::default();
    for pair in &seen.group.pairs {
        let slice_name = pair_name(&name, pair.number);
        let slice = objects.slices.iter().find(|slice| slice.name_any() == slice_name);
        let is_v6 = slice.map_or_else(|| is_v6(seen, pair), |slice| slice.address_type == "IPv6");
        let Some(mut body) = pair_slice(group, &slice_name, &[], is_v6) else { continue };
        body["metadata"]["annotations"] = entitled(pair, plan);
        let parts = ["labels", "annotations"].map(|part| (part.to_owned(), body["metadata"][part].clone()));
        let mut patch = json!({"metadata": Value::from_iter(parts), "ports": body["ports"]});
        if lead != Lead::Own {
            let service = body["metadata"]["labels"][keys::LABEL_SERVICE_NAME].take();
            let shown = slice.and_then(|slice| slice.labels().get(keys::LABEL_SERVICE_NAME));
            let is_behind_it = shown.is_some_and(|shown| service == *shown);
            let former = shown.filter(|_| lead == Lead::Unknown || !is_behind_it);
            patch["metadata"]["labels"][keys::LABEL_SERVICE_NAME] = json!(former);
            body = unled(body);
        }
        if let Some((slice, (endpoints, epoch))) =
            slice.and_then(|slice| Some((slice, correction(seen, pair, slice)?)))
        {
            let is_behind = shown_epoch(slice.as_ref()).unwrap_or_default() < pair.lease.epoch;
            if is_behind && young.contains(&pair.number) {
                needs.is_any_left = true;
            } else {
                let corrected = pair_slice(group, &slice_name, &endpoints, is_v6).unwrap_or_default();
                patch["endpoints"] = corrected["endpoints"].clone();
                patch["metadata"]["annotations"][keys::ANNOTATION_HA_EPOCH] = json!(shown::text(epoch));
            }
        }
        // What was written in this look is another version by now.
        if !written.contains(&pair.number) {
            needs.changes.extend(change(group, &body, (&objects.slices, patch)));
        }
        wanted.push(body);
    }
    // Whoever acts there, still or from now on, cannot make its slice anew.
    let founded = plan.steps.iter().filter_map(|step| {
        let Step::Found { number, .. } = step else { return None };
        Some(*number)
    });
    let others = seen.group.left_alone().map(|lost| lost.number).chain(founded);
    wanted.extend(others.map(|number| json!({"metadata": {"name": pair_name(&name, number)}})));
    needs.changes.extend(removals(group, &objects.slices, &wanted));
    needs
}

fn is_v6(seen: &SeenGroup, pair: &Pair) -> bool {
    let members = seen.group.pods.iter().filter(|pod| pair.lease.members.contains(&pod.id));
    let mut addresses = members.filter_map(|pod| pod.address);
    addresses.next().is_some_and(|address| matches!(address.ip(), IpAddr::V6(_)))
}

#[cfg(test)]
mod tests;
