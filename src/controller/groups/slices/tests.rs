//! What slices need, by what they are and who may show itself.

use std::sync::Arc;

use bps_core::pairing::testing::seat;
use bps_core::pairing::{Lost, Seat};
use bps_observe::group::see_group;
use bps_protocol::{BootTime, Epoch, Replacement};
use serde_json::value::from_value;

use super::*;
use crate::controller::groups::testing::{group, lease, pod};

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
        (&young.iter().copied().collect(), &BTreeSet::new()),
    );
    let addresses = changes.into_iter().map(|change| match change {
        Change::Create(body) | Change::Put { patch: body, .. } => body["endpoints"][0]["addresses"].clone(),
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
    let [before, present] = [Epoch { term: 0, sequence: 9 }, Epoch { term: 1, sequence: 0 }].map(u64::from);
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
        slice["metadata"]["annotations"] = json!({(keys::ANNOTATION_HA_EPOCH): u64::from(epoch).to_string()});
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
        let needs = needs(
            (&group(), lead),
            (&seen, &Plan::default()),
            &objects,
            (&BTreeSet::new(), &BTreeSet::new()),
        );
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
        let first = entitlements((&group(), Lead::Own), (&seen, &plan), &objects);
        let then =
            needs((&group(), Lead::Own), (&seen, &plan), &objects, (&BTreeSet::new(), &BTreeSet::new()));
        first.into_iter().map(|(_, change)| change).chain(then.changes).collect::<Vec<_>>()
    };
    let lost = Lost { number: 0, pods: Vec::new(), level: None, since: BootTime::default() };
    assert_eq!(changes(vec![lost], vec![]), vec![]);
    let found =
        |seats: [u128; 2]| vec![Step::Found { number: 0, term: 1, seats: seats.map(seat), level: None }];
    assert_eq!(changes(vec![], found([1, 2])), vec![]);
    assert!(matches!(changes(vec![], found([1, 3]))[..], [Change::Put { .. }]), "for its new members");
    assert!(matches!(changes(vec![], vec![])[..], [Change::Remove(_)]));
}

#[test]
fn a_pair_that_is_to_be_founded_gets_its_slice_first() {
    let made = |address: &str| {
        let seat = |number: u128| Seat {
            id: AgentId(number),
            pod: format!("web-{number}"),
            address: address.parse().unwrap(),
        };
        let found = Step::Found { number: 3, term: 0, seats: [1, 2].map(seat), level: None };
        let plan = Plan { steps: vec![found], ..Plan::default() };
        let seen = SeenGroup::default();
        match &entitlements((&group(), Lead::Own), (&seen, &plan), &GroupObjects::default())[..] {
            [(3, Change::Create(body))] => (body["metadata"]["name"].clone(), body["addressType"].clone()),
            other => panic!("{other:?}"),
        }
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
    let first = entitlements((&group(), Lead::Own), (&seen, &plan), &objects);
    let (pairs, first): (BTreeSet<u32>, Vec<Change>) = first.into_iter().unzip();
    let then = needs((&group(), Lead::Own), (&seen, &plan), &objects, (&BTreeSet::new(), &pairs)).changes;
    assert!(first.is_empty() || then.is_empty(), "one write");
    let said = first.iter().chain(&then).find_map(|change| match change {
        Change::Create(body) | Change::Put { patch: body, .. } => {
            body["metadata"]["annotations"][keys::ANNOTATION_HA_SHOWN_BY].as_str()
        }
        Change::Remove(_) | Change::Leave(_) => None,
    })?;
    Some(said.split(',').map(|uid| bps_wire::uid::parse_uid(uid).unwrap()).collect())
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
    let mut forced = bps_core::pairing::testing::pair(0, [1, 5]).lease;
    forced.pending = Some(Replacement { leaving: AgentId(2), joining: AgentId(5) });
    let force = Step::Force { pair: 0, lease: forced };
    assert_eq!(entitled_by((lease(0, [1, 2]), vec![force]), None), Some(vec![1, 2, 5]));
}
