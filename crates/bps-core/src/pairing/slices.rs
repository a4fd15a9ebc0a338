//! EndpointSlices of the pairs of a group. Their addresses are the actives' own affair, but for those that show what
//! cannot be.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use bps_api::{HAGroup, HandoverOrder, keys};
use bps_protocol::AgentId;
use bps_wire::shown;
use bps_wire::uid::format_uid;
use serde_json::{Value, json};

use super::correction::correction;
use super::existing::ExistingSlice;
use super::objects::{Lead, ObjectChange, WantedObject, change, removals};
use super::roster::Roster;
use super::step::{PairAction, Plan};
use super::view::{Group, Pair};
use crate::manifests::{pair_name, pair_slice};

/// How long a new active is left to show itself before it is done for it. 2 s: as long as one attempt of an agent may take,
/// both at once would only be in each other's way; and longer than an agent waits until its application listens.
const SHOWN_WITHIN: Duration = Duration::from_secs(2);
/// The same where applications overlap: 10 s for the new one to listen, and an attempt.
const SHOWN_WITHIN_OVERLAP: Duration = Duration::from_secs(12);

/// Inputs of all decisions about EndpointSlices.
#[derive(Clone, Copy, Debug)]
pub struct SliceInput<'a> {
    /// The group.
    pub group: &'a HAGroup,
    /// Owner of the Service that the group names. Unless that is the group itself, slices stay behind the former Service.
    pub lead: Lead,
    /// Its Pods and pairs.
    pub seen: &'a Group,
    /// Plan that is about to be carried out.
    pub plan: &'a Plan,
    /// EndpointSlices of the group.
    pub slices: &'a [ExistingSlice],
}

/// Pairs whose slices are written less, by their numbers.
#[derive(Clone, Copy, Debug)]
pub struct SliceExemptions<'a> {
    /// Pairs with a new active.
    pub young: &'a BTreeSet<u32>,
    /// Pairs whose slice was written in this look.
    pub written: &'a BTreeSet<u32>,
}

/// A write that must come before a step of a plan.
#[derive(Clone, Debug, PartialEq)]
pub struct Entitlement {
    /// Number of the pair.
    pub pair: u32,
    /// Write of the slice of that pair.
    pub change: ObjectChange,
}

/// What EndpointSlices need.
#[derive(Debug, Default, PartialEq)]
pub struct SliceNeeds {
    /// What is to be written now.
    pub changes: Vec<ObjectChange>,
    /// Whether a slice was left to a new active, so that a later look is needed.
    pub is_any_left: bool,
}

fn by_name(slices: &[ExistingSlice]) -> BTreeMap<&str, &ExistingSlice> {
    slices.iter().map(|slice| (slice.object.name(), slice)).collect()
}

/// Whether a slice shows a later epoch than its Lease, and one that the Lease does not account for: one of the two is old.
pub fn are_ahead(group: &HAGroup, seen: &Group, slices: &[ExistingSlice]) -> bool {
    let name = group.metadata.name.as_deref().unwrap_or_default();
    let (roster, slices) = (seen.roster(), by_name(slices));
    seen.pairs.iter().any(|pair| {
        let slice = slices.get(pair_name(name, pair.number).as_str());
        slice.is_some_and(|slice| {
            let is_later = slice.epoch.is_some_and(|shown| shown > pair.lease.epoch);
            is_later && correction(&roster, &BTreeSet::new(), pair, slice).is_some()
        })
    })
}

/// What is to be written before a plan is carried out, and of which pair: who joins one may show itself in its slice as soon as it
/// is a member, and the first active of a new one looks for the slice as soon as there is a Lease.
pub fn entitlements(input: &SliceInput<'_>) -> Vec<Entitlement> {
    let SliceInput { group, lead, seen, plan, slices } = *input;
    let name = group.metadata.name.as_deref().unwrap_or_default();
    let (roster, slices, joining) = (seen.roster(), by_name(slices), joining(plan));
    let changes = plan.steps.iter().filter_map(|step| {
        let (number, entitling, is_v6) = match &step.action {
            PairAction::Found { number, seats, .. } => {
                (*number, entitling(seats.iter().map(|seat| seat.id)), seats[0].address.is_ipv6())
            }
            PairAction::Ask { pair: number, .. } | PairAction::Force { pair: number, .. } => {
                let pair = roster.pair(*number)?;
                (*number, entitled(pair, &joining), is_v6(&roster, pair))
            }
            PairAction::Restore { .. }
            | PairAction::Vacate { .. }
            | PairAction::Withdraw { .. }
            | PairAction::Move { .. }
            | PairAction::SwitchOver { .. }
            | PairAction::Fence { .. }
            | PairAction::End { .. }
            | PairAction::Label { .. } => return None,
        };
        let slice_name = pair_name(name, number);
        let mut body = pair_slice(group, &slice_name, &[], is_v6)?;
        body["metadata"]["annotations"] = entitling.clone();
        let body = if lead == Lead::Own { body } else { unled(body) };
        // One that is there shows who acted last, maybe still.
        let patch = json!({"metadata": {"annotations": entitling}});
        let found = slices.get(slice_name.as_str()).map(|slice| &slice.object);
        let change = change(group, WantedObject { body: &body, patch }, found)?;
        Some(Entitlement { pair: number, change })
    });
    changes.collect()
}

/// Who is to join each pair by a plan.
type Joining = BTreeMap<u32, Vec<AgentId>>;

fn joining(plan: &Plan) -> Joining {
    let mut joining = Joining::new();
    for action in plan.steps.iter().map(|step| &step.action) {
        let seated = action.seated();
        if let Some(pair) = action.pair().filter(|_| !seated.is_empty()) {
            joining.entry(pair).or_default().extend(seated);
        }
    }
    joining
}

/// Who may show itself in the slice of a pair once a plan has been carried out: its members, and who is to become one.
fn entitled(pair: &Pair, joining: &Joining) -> Value {
    let joining = joining.get(&pair.number).into_iter().flatten().copied();
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
pub fn patience(group: &HAGroup) -> Duration {
    match group.spec.handover.unwrap_or_default() {
        HandoverOrder::BreakBeforeMake => SHOWN_WITHIN,
        HandoverOrder::MakeBeforeBreak => SHOWN_WITHIN_OVERLAP,
    }
}

/// What the slices of all pairs need besides. As long as the Service that the group names is not known to be its own, they stay
/// behind the one before. In a paused group the operator corrects only wrong addresses: a Pod may write any address under its own uid.
pub fn slice_needs(input: &SliceInput<'_>, exemptions: SliceExemptions<'_>) -> SliceNeeds {
    let SliceInput { group, seen, plan, slices, .. } = *input;
    let name = group.metadata.name.as_deref().unwrap_or_default();
    let (roster, by_name, joining) = (seen.roster(), by_name(slices), joining(plan));
    let mut wanted = Vec::new();
    let mut needs = SliceNeeds::default();
    for pair in &seen.pairs {
        let slice_name = pair_name(name, pair.number);
        let slice = by_name.get(slice_name.as_str()).copied();
        let is_v6 = slice.map_or_else(|| is_v6(&roster, pair), |slice| slice.is_v6);
        let Some(body) = pair_slice(group, &slice_name, &[], is_v6) else { continue };
        let (body, mut patch) = if seen.is_paused {
            (body, json!({}))
        } else {
            means(input, entitled(pair, &joining), body, slice)
        };
        let mut is_corrected = false;
        if let Some((slice, (endpoints, epoch))) =
            slice.and_then(|slice| Some((slice, correction(&roster, &plan.draining, pair, slice)?)))
        {
            let is_behind = slice.epoch.unwrap_or_default() < pair.lease.epoch;
            if is_behind && exemptions.young.contains(&pair.number) {
                needs.is_any_left = true;
            } else {
                is_corrected = true;
                let corrected = pair_slice(group, &slice_name, &endpoints, is_v6).unwrap_or_default();
                patch["endpoints"] = corrected["endpoints"].clone();
                patch["metadata"]["annotations"][keys::ANNOTATION_HA_EPOCH] = json!(shown::text(epoch));
            }
        }
        // What was written in this look is another version by now.
        if !exemptions.written.contains(&pair.number) && (is_corrected || !seen.is_paused) {
            let found = slice.map(|slice| &slice.object);
            needs.changes.extend(change(group, WantedObject { body: &body, patch }, found));
        }
        wanted.push(body);
    }
    if seen.is_paused {
        return needs;
    }
    // Whoever acts there, still or from now on, cannot make its slice anew.
    let founded = plan.steps.iter().filter_map(|step| {
        let PairAction::Found { number, .. } = &step.action else { return None };
        Some(*number)
    });
    let others = seen.left_alone().map(|lost| lost.number).chain(founded);
    wanted.extend(others.map(|number| json!({"metadata": {"name": pair_name(name, number)}})));
    needs.changes.extend(removals(group, slices.iter().map(|slice| &slice.object), &wanted));
    needs
}

/// The body that creates the slice of a pair in which these Pods may show themselves, and the patch of everything but its addresses.
fn means(
    input: &SliceInput<'_>,
    entitled: Value,
    mut body: Value,
    slice: Option<&ExistingSlice>,
) -> (Value, Value) {
    body["metadata"]["annotations"] = entitled;
    let parts = ["labels", "annotations"].map(|part| (part.to_owned(), body["metadata"][part].clone()));
    let mut patch = json!({"metadata": Value::from_iter(parts), "ports": body["ports"]});
    if input.lead == Lead::Own {
        return (body, patch);
    }
    let service = body["metadata"]["labels"][keys::LABEL_SERVICE_NAME].take();
    let labels = slice.and_then(|slice| slice.object.metadata.labels.as_ref());
    let shown = labels.and_then(|labels| labels.get(keys::LABEL_SERVICE_NAME));
    let is_behind_it = shown.is_some_and(|shown| service == *shown);
    let former = shown.filter(|_| input.lead == Lead::Unknown || !is_behind_it);
    patch["metadata"]["labels"][keys::LABEL_SERVICE_NAME] = json!(former);
    (unled(body), patch)
}

fn is_v6(seen: &Roster<'_>, pair: &Pair) -> bool {
    let members = pair.lease.members.into_iter().filter_map(|id| seen.pod(id));
    let mut addresses = members.filter_map(|pod| pod.address);
    addresses.next().is_some_and(|address| matches!(address.ip(), IpAddr::V6(_)))
}

#[cfg(test)]
mod tests;
