//! EndpointSlices of the pairs of a group. Their addresses are the actives' own affair, but for those that show what
//! cannot be.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

use kube::ResourceExt as _;
use serde_json::{Value, json};

use super::correction::correction;
use super::objects::{Change, Lead, change, removals};
use crate::agent::identity::format_uid;
use crate::api::{HAGroup, HandoverOrder, keys};
use crate::ha::AgentId;
use crate::manifests::{pair_name, pair_slice};
use crate::observe::group::{GroupObjects, SeenGroup, shown_epoch};
use crate::pairing::{Pair, Plan, Step};

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

/// The slices of pairs that are about to be founded: their first actives look for them as soon as there is a Lease.
fn of_founded((group, lead): (&HAGroup, Lead), plan: &Plan, objects: &GroupObjects) -> Vec<Change> {
    let changes = plan.steps.iter().filter_map(|step| {
        let Step::Found { number, seats, .. } = step else { return None };
        let name = pair_name(&group.name_any(), *number);
        let mut body = pair_slice(group, &name, &[], seats[0].address.is_ipv6())?;
        let annotations = entitling(seats.iter().map(|seat| seat.id));
        body["metadata"]["annotations"] = annotations.clone();
        // One that is there shows who acted last, maybe still.
        let patch = json!({"metadata": {"annotations": annotations}});
        let body = if lead == Lead::Own { body } else { unled(body) };
        change(group, &body, (&objects.slices, patch))
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

/// What the slices of all pairs need before the plan is carried out, so that who joins a pair may show itself as soon as it is a
/// member; pairs with these numbers have new actives. `lead` says whose the Service is that the group names: as long as it is not
/// known to be its own they stay behind the one before.
pub(super) fn needs(
    (group, lead): (&HAGroup, Lead),
    (seen, plan): (&SeenGroup, &Plan),
    objects: &GroupObjects,
    young: &BTreeSet<u32>,
) -> Needs {
    let name = group.name_any();
    let mut wanted = Vec::new();
    let changes = of_founded((group, lead), plan, objects);
    let mut needs = Needs { changes, is_any_left: false };
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
                patch["metadata"]["annotations"][keys::ANNOTATION_HA_EPOCH] =
                    json!(u64::from(epoch).to_string());
            }
        }
        needs.changes.extend(change(group, &body, (&objects.slices, patch)));
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
mod tests {
    use std::sync::Arc;

    use serde_json::value::from_value;

    use super::*;
    use crate::controller::groups::testing::{group, lease, pod};
    use crate::ha::{BootTime, Epoch, Replacement};
    use crate::observe::group::see_group;
    use crate::pairing::testing::seat;
    use crate::pairing::{Lost, Seat};

    /// With the annotation that names these Pods.
    fn shown_by(mut slice: Value, pods: &[u128]) -> Value {
        let entitling = entitling(pods.iter().copied().map(AgentId));
        slice["metadata"]["annotations"][keys::ANNOTATION_HA_SHOWN_BY] =
            entitling[keys::ANNOTATION_HA_SHOWN_BY].clone();
        slice
    }

    /// What is written of the slice of the pair `web-0`, in which the first Pod acts, and whether a later look is needed.
    fn written(slice: Option<Value>, young: &[u32]) -> (Vec<Value>, bool) {
        let slice = slice.map(|slice| shown_by(slice, &[1, 2]));
        let objects = GroupObjects {
            pods: [1, 2].map(|number| Arc::new(from_value(pod(number)).unwrap())).to_vec(),
            leases: vec![Arc::new(from_value(lease(0, [1, 2])).unwrap())],
            slices: slice.into_iter().map(|slice| Arc::new(from_value(slice).unwrap())).collect(),
            ..GroupObjects::default()
        };
        let seen = see_group(&group(), &objects, BootTime::default());
        let Needs { changes, is_any_left } = needs(
            (&group(), Lead::Own),
            (&seen, &Plan::default()),
            &objects,
            &young.iter().copied().collect(),
        );
        let addresses = changes.into_iter().map(|change| match change {
            Change::Create(body) | Change::Put { patch: body, .. } => {
                body["endpoints"][0]["addresses"].clone()
            }
            other @ (Change::Remove(_) | Change::Leave(_)) => panic!("{other:?}"),
        });
        (addresses.collect(), is_any_left)
    }

    #[test]
    fn a_new_active_shows_itself_unless_it_does_not() {
        let untouched = pair_slice(&group(), "web-0", &[], false).unwrap();
        let shown = |epoch: u64| {
            let mut slice = untouched.clone();
            slice["metadata"]["annotations"] = json!({(keys::ANNOTATION_HA_EPOCH): epoch.to_string()});
            slice
        };
        let active = vec![json!(["10.0.0.1"])];
        let [before, present] =
            [Epoch { term: 0, sequence: 9 }, Epoch { term: 1, sequence: 0 }].map(u64::from);
        for behind in [untouched.clone(), shown(before)] {
            assert_eq!(written(Some(behind.clone()), &[0]), (vec![], true));
            assert_eq!(written(Some(behind), &[1]), (active.clone(), false));
        }
        // Somebody has written over what the active showed.
        assert_eq!(written(Some(shown(present)), &[0]), (active, false));
        assert_eq!(written(None, &[0]), (vec![Value::Null], false));
    }

    #[test]
    fn a_slice_that_is_ahead_of_its_lease_is_believed_only_if_it_can_be_right() {
        let shown = |epoch: Epoch, endpoint: Option<(u128, &str)>| {
            let mut slice = pair_slice(&group(), "web-0", &[], false).unwrap();
            slice["metadata"]["annotations"] =
                json!({(keys::ANNOTATION_HA_EPOCH): u64::from(epoch).to_string()});
            slice["endpoints"] = endpoint
                .map(|(pod, address)| {
                    let target = json!({"kind": "Pod", "name": "web", "uid": format_uid(pod)});
                    json!({"addresses": [address], "targetRef": target})
                })
                .into_iter()
                .collect();
            written(Some(slice), &[]).0
        };
        let [handed_over, taken_over, far] =
            [(1, 3), (2, 0), (9, 0)].map(|(term, sequence)| Epoch { term, sequence });
        let standby = Some((2, "10.0.0.2"));
        for right in [handed_over, taken_over] {
            assert_eq!(shown(right, standby), Vec::<Value>::new());
        }
        let active = vec![json!(["10.0.0.1"])];
        for (epoch, wrong) in [
            (far, standby),
            (far, None),
            (handed_over, Some((2, "10.9.9.9"))),
            (handed_over, Some((3, "10.0.0.3"))),
        ] {
            assert_eq!(shown(epoch, wrong), active, "{epoch} {wrong:?}");
        }
    }

    #[test]
    fn a_slice_gets_behind_no_service_of_somebody_else_and_stays_behind_the_former_one() {
        let labels = |lead: Lead, behind: Option<&str>| {
            let mut slice = shown_by(pair_slice(&group(), "web-0", &[], false).unwrap(), &[1, 2]);
            slice["metadata"]["labels"][keys::LABEL_SERVICE_NAME] = json!(behind);
            let objects = GroupObjects {
                leases: vec![Arc::new(from_value(lease(0, [1, 2])).unwrap())],
                slices: behind.map(|_| Arc::new(from_value(slice).unwrap())).into_iter().collect(),
                ..GroupObjects::default()
            };
            let seen = see_group(&group(), &objects, BootTime::default());
            let needs = needs((&group(), lead), (&seen, &Plan::default()), &objects, &BTreeSet::new());
            match &needs.changes[..] {
                [] => None,
                [Change::Create(body) | Change::Put { patch: body, .. }] => {
                    Some(body["metadata"]["labels"].get(keys::LABEL_SERVICE_NAME).cloned())
                }
                other => panic!("{other:?}"),
            }
        };
        for lead in [Lead::Foreign, Lead::Unknown] {
            assert_eq!(labels(lead, Some("former")), None, "nothing is written");
            assert_eq!(labels(lead, None), Some(None), "it is made behind nothing");
        }
        assert_eq!(labels(Lead::Foreign, Some("web")), Some(Some(Value::Null)), "it is taken from behind it");
        assert_eq!(labels(Lead::Unknown, Some("web")), None, "it may be its own");
    }

    #[test]
    fn the_slice_of_a_lost_pair_stays_as_long_as_somebody_may_act_by_it() {
        let mut slice = shown_by(pair_slice(&group(), "web-0", &[], false).unwrap(), &[1, 2]);
        slice["metadata"]["uid"] = json!("slice-uid");
        let objects =
            GroupObjects { slices: vec![Arc::new(from_value(slice).unwrap())], ..GroupObjects::default() };
        let changes = |lost: Vec<Lost>, steps: Vec<Step>| {
            let mut seen = see_group(&group(), &objects, BootTime::default());
            seen.group.lost = lost;
            let plan = Plan { steps, ..Plan::default() };
            needs((&group(), Lead::Own), (&seen, &plan), &objects, &BTreeSet::new()).changes
        };
        let lost = Lost { number: 0, pods: Vec::new(), level: None, since: BootTime::default() };
        assert_eq!(changes(vec![lost], vec![]), []);
        let found =
            |seats: [u128; 2]| vec![Step::Found { number: 0, term: 1, seats: seats.map(seat), level: None }];
        assert_eq!(changes(vec![], found([1, 2])), []);
        assert!(matches!(changes(vec![], found([1, 3]))[..], [Change::Put { .. }]), "for its new members");
        assert!(matches!(changes(vec![], vec![])[..], [Change::Remove(_)]));
    }

    #[test]
    fn a_pair_that_is_to_be_founded_gets_its_slice_first() {
        let seat = |number: u128, address: &str| Seat {
            id: AgentId(number),
            pod: format!("web-{number}"),
            address: address.parse().unwrap(),
        };
        let plan = |address: &str| {
            let seats = [seat(1, address), seat(2, address)];
            Plan { steps: vec![Step::Found { number: 3, term: 0, seats, level: None }], ..Plan::default() }
        };
        let made = |address| match &of_founded(
            (&group(), Lead::Own),
            &plan(address),
            &GroupObjects::default(),
        )[..]
        {
            [Change::Create(body)] => (body["metadata"]["name"].clone(), body["addressType"].clone()),
            other => panic!("{other:?}"),
        };
        assert_eq!(made("10.0.0.1:20001"), (json!("web-3"), json!("IPv4")));
        assert_eq!(made("[fd00::1]:20001"), (json!("web-3"), json!("IPv6")));
    }

    /// Who may show itself in the slice of the pair `web-0` by what is written; `None`: nothing is written of that.
    fn entitled_by((lease, steps): (Value, Vec<Step>), slice: Option<Value>) -> Option<Vec<u128>> {
        let objects = GroupObjects {
            leases: vec![Arc::new(from_value(lease).unwrap())],
            slices: slice.into_iter().map(|slice| Arc::new(from_value(slice).unwrap())).collect(),
            ..GroupObjects::default()
        };
        let seen = see_group(&group(), &objects, BootTime::default());
        let plan = Plan { steps, ..Plan::default() };
        let needs = needs((&group(), Lead::Own), (&seen, &plan), &objects, &BTreeSet::new());
        let said = needs.changes.iter().find_map(|change| match change {
            Change::Create(body) | Change::Put { patch: body, .. } => {
                body["metadata"]["annotations"][keys::ANNOTATION_HA_SHOWN_BY].as_str()
            }
            Change::Remove(_) | Change::Leave(_) => None,
        })?;
        Some(said.split(',').map(|uid| crate::agent::identity::parse_uid(uid).unwrap()).collect())
    }

    #[test]
    fn the_members_of_a_pair_may_show_themselves_in_its_slice_and_whoever_is_to_be_one() {
        let of_members = || (lease(0, [1, 2]), vec![]);
        let slice = |pods: &[u128]| {
            let mut slice = shown_by(pair_slice(&group(), "web-0", &[], false).unwrap(), pods);
            slice["metadata"]["annotations"][keys::ANNOTATION_HA_EPOCH] =
                json!(u64::from(Epoch { term: 1, sequence: 0 }).to_string());
            slice
        };
        assert_eq!(entitled_by(of_members(), None), Some(vec![1, 2]));
        assert_eq!(entitled_by(of_members(), Some(slice(&[1, 2]))), None);
        for other in [&[1][..], &[1, 2, 3], &[]] {
            assert_eq!(entitled_by(of_members(), Some(slice(other))), Some(vec![1, 2]), "{other:?}");
        }
        assert_eq!(entitled_by((lease(0, [1, 0]), vec![]), None), Some(vec![1]), "nobody is no Pod");
        let ask = |pair| Step::Ask { pair, leaving: AgentId(2), joining: seat(3) };
        assert_eq!(entitled_by((lease(0, [1, 2]), vec![ask(0)]), None), Some(vec![1, 2, 3]));
        assert_eq!(entitled_by((lease(0, [1, 2]), vec![ask(1)]), None), Some(vec![1, 2]));
        let mut asked = lease(0, [1, 2]);
        let joining = json!({"uid": format_uid(4), "pod": "web-4", "address": "10.0.0.4:20001"});
        let pending = json!({"leaving": format_uid(2), "joining": joining});
        asked["metadata"]["annotations"][keys::ANNOTATION_HA_PENDING] = json!(pending.to_string());
        assert_eq!(entitled_by((asked, vec![]), None), Some(vec![1, 2, 4]));
        let mut forced = crate::pairing::testing::pair(0, [1, 5]).lease;
        forced.pending = Some(Replacement { leaving: AgentId(2), joining: AgentId(5) });
        let force = Step::Force { pair: 0, lease: forced };
        assert_eq!(entitled_by((lease(0, [1, 2]), vec![force]), None), Some(vec![1, 2, 5]));
    }
}
