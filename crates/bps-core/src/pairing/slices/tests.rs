//! What slices need, by what they are and who may show itself.

use bps_protocol::{BootTime, Epoch, Replacement};
use serde_json::value::from_value;

use super::*;
use crate::pairing::existing::ShownEndpoint;
use crate::pairing::testing::{self, existing, pod, seat};
use crate::pairing::{Lost, Seat};

/// The present epoch of each pair.
const PRESENT: Epoch = Epoch { term: 1, sequence: 0 };

/// The group `web`, which is behind a Service.
fn group() -> HAGroup {
    from_value(json!({
        "apiVersion": "backup.example.com/v1alpha1", "kind": "HAGroup",
        "metadata": {"name": "web", "namespace": "shop", "uid": "group-uid"},
        "spec": {"service": {"name": "web", "ports": [{"port": 80}]}},
    }))
    .unwrap()
}

/// A pair of these Pods, of which the first one acts.
fn pair(number: u32, members: [u128; 2]) -> Pair {
    let mut pair = testing::pair(number, members);
    pair.lease.epoch = PRESENT;
    pair
}

/// The slice of the pair `web-0`: what it shows, and the Pods that may show themselves in it.
fn slice(epoch: Option<Epoch>, endpoint: Option<ShownEndpoint>, pods: &[u128]) -> ExistingSlice {
    let mut body = pair_slice(&group(), "web-0", &[], false).unwrap();
    body["metadata"]["annotations"] = entitling(pods.iter().copied().map(AgentId));
    if let Some(epoch) = epoch {
        body["metadata"]["annotations"][keys::ANNOTATION_HA_EPOCH] = json!(shown::text(epoch));
    }
    body["endpoints"] = endpoint.iter().map(|endpoint| json!({"addresses": endpoint.addresses})).collect();
    ExistingSlice { object: existing(body), epoch, is_v6: false, endpoints: endpoint.into_iter().collect() }
}

fn all_needs(lead: Lead, seen: &Group, plan: &Plan, slices: &[ExistingSlice]) -> SliceNeeds {
    let none = BTreeSet::new();
    let input = SliceInput { group: &group(), lead, seen, plan, slices };
    slice_needs(&input, SliceExemptions { young: &none, written: &none })
}

/// What is written of the slice of the pair `web-0`, in which the first Pod acts, and whether a later look is needed.
fn written(slice: Option<ExistingSlice>, young: &[u32]) -> (Vec<Value>, bool) {
    let seen = Group { pods: [1, 2].map(pod).to_vec(), pairs: vec![pair(0, [1, 2])], ..Group::default() };
    let slices = Vec::from_iter(slice);
    let input =
        SliceInput { group: &group(), lead: Lead::Own, seen: &seen, plan: &Plan::default(), slices: &slices };
    let (young, written) = (young.iter().copied().collect(), BTreeSet::new());
    let SliceNeeds { changes, is_any_left } =
        slice_needs(&input, SliceExemptions { young: &young, written: &written });
    let addresses = changes.into_iter().map(|change| match change {
        ObjectChange::Create(body) | ObjectChange::Put { patch: body, .. } => {
            body["endpoints"][0]["addresses"].clone()
        }
        other @ (ObjectChange::Remove(_) | ObjectChange::Leave(_)) => panic!("{other:?}"),
    });
    (addresses.collect(), is_any_left)
}

#[test]
fn a_new_active_shows_itself_unless_it_does_not() {
    let shown = |epoch: Option<Epoch>| slice(epoch, None, &[1, 2]);
    let active = vec![json!(["10.0.0.1"])];
    let before = Epoch { term: 0, sequence: 9 };
    for behind in [shown(None), shown(Some(before))] {
        assert_eq!(written(Some(behind.clone()), &[0]), (vec![], true));
        assert_eq!(written(Some(behind), &[1]), (active.clone(), false));
    }
    // Somebody has written over what the active showed.
    assert_eq!(written(Some(shown(Some(PRESENT))), &[0]), (active, false));
    assert_eq!(written(None, &[0]), (vec![Value::Null], false));
}

#[test]
fn a_slice_that_is_ahead_of_its_lease_is_believed_only_if_it_can_be_right() {
    let shown = |epoch: Epoch, endpoint: Option<(u128, &str)>| {
        let endpoint = endpoint.map(|(pod, address)| ShownEndpoint {
            pod: Some(AgentId(pod)),
            addresses: vec![address.to_owned()],
            is_ready: true,
        });
        written(Some(slice(Some(epoch), endpoint, &[1, 2])), &[]).0
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
fn of_a_paused_group_only_wrong_addresses_are_put_right() {
    let pods = [1, 2].map(pod).to_vec();
    let seen = Group { is_paused: true, pods, pairs: vec![pair(0, [1, 2])], ..Group::default() };
    let needs = |slices: &[ExistingSlice]| all_needs(Lead::Unknown, &seen, &Plan::default(), slices).changes;
    let shown = |id: u128, address: &str| ShownEndpoint {
        pod: Some(AgentId(id)),
        addresses: vec![address.to_owned()],
        is_ready: true,
    };

    // Neither one that is missing, nor who may show itself, nor one that is left of a pair that is gone.
    assert_eq!(needs(&[]), vec![]);
    let right = slice(Some(PRESENT), Some(shown(1, "10.0.0.1")), &[]);
    let mut left = right.clone();
    left.object.metadata.name = Some("web-7".to_owned());
    assert_eq!(needs(&[right, left]), vec![]);

    for wrong in [shown(1, "10.9.9.9"), shown(2, "10.0.0.2"), shown(9, "10.9.9.9")] {
        let slice = slice(Some(PRESENT), Some(wrong.clone()), &[1, 2]);
        let [ObjectChange::Put { name, patch }] = &needs(&[slice])[..] else { panic!("{wrong:?} is left") };
        assert_eq!((name.as_str(), &patch["endpoints"][0]["addresses"]), ("web-0", &json!(["10.0.0.1"])));
        let metadata: Vec<_> = patch["metadata"].as_object().unwrap().keys().collect();
        assert_eq!(metadata, ["annotations", "resourceVersion", "uid"], "labels stay as they are");
    }
}

#[test]
fn a_slice_gets_behind_no_service_of_somebody_else_and_stays_behind_the_former_one() {
    let labels = |lead: Lead, behind: Option<&str>| {
        let mut body = slice(None, None, &[1, 2]).object.body;
        body["metadata"]["labels"][keys::LABEL_SERVICE_NAME] = json!(behind);
        let there = behind.map(|_| ExistingSlice { object: existing(body), ..ExistingSlice::default() });
        let seen = Group { pairs: vec![pair(0, [1, 2])], ..Group::default() };
        let needs = all_needs(lead, &seen, &Plan::default(), &Vec::from_iter(there));
        match &needs.changes[..] {
            [] => None,
            [ObjectChange::Create(body) | ObjectChange::Put { patch: body, .. }] => {
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
    let mut slice = slice(None, None, &[1, 2]);
    slice.object.metadata.uid = Some("slice-uid".to_owned());
    let slices = [slice];
    let changes = |lost: Vec<Lost>, steps: Vec<PairAction>| {
        let (seen, plan) = (
            Group { lost, ..Group::default() },
            Plan { steps: steps.into_iter().map(testing::step).collect(), ..Plan::default() },
        );
        let input =
            SliceInput { group: &group(), lead: Lead::Own, seen: &seen, plan: &plan, slices: &slices };
        let first = entitlements(&input).into_iter().map(|entitlement| entitlement.change);
        first.chain(all_needs(Lead::Own, &seen, &plan, &slices).changes).collect::<Vec<_>>()
    };
    let lost = Lost::new(0, Vec::new(), None, BootTime::default());
    assert_eq!(changes(vec![lost], vec![]), vec![]);
    let found = |seats: [u128; 2]| {
        vec![PairAction::Found { number: 0, term: 1, seats: seats.map(seat), level: None }]
    };
    assert_eq!(changes(vec![], found([1, 2])), vec![]);
    assert!(matches!(changes(vec![], found([1, 3]))[..], [ObjectChange::Put { .. }]), "for its new members");
    assert!(matches!(changes(vec![], vec![])[..], [ObjectChange::Remove(_)]));
}

#[test]
fn a_pair_that_is_to_be_founded_gets_its_slice_first() {
    let made = |address: &str| {
        let seat = |number: u128| Seat {
            id: AgentId(number),
            pod: format!("web-{number}"),
            address: address.parse().unwrap(),
        };
        let found = PairAction::Found { number: 3, term: 0, seats: [1, 2].map(seat), level: None };
        let plan = Plan { steps: vec![testing::step(found)], ..Plan::default() };
        let input = SliceInput {
            group: &group(),
            lead: Lead::Own,
            seen: &Group::default(),
            plan: &plan,
            slices: &[],
        };
        match &entitlements(&input)[..] {
            [Entitlement { pair: 3, change: ObjectChange::Create(body) }] => {
                (body["metadata"]["name"].clone(), body["addressType"].clone())
            }
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(made("10.0.0.1:20001"), (json!("web-3"), json!("IPv4")));
    assert_eq!(made("[fd00::1]:20001"), (json!("web-3"), json!("IPv6")));
}

/// Who may show itself in the slice of the pair `web-0` by what is written; `None`: nothing is written of that.
fn entitled_by(pair: Pair, steps: Vec<PairAction>, slice: Option<ExistingSlice>) -> Option<Vec<u128>> {
    let seen = Group { pairs: vec![pair], ..Group::default() };
    let plan = Plan { steps: steps.into_iter().map(testing::step).collect(), ..Plan::default() };
    let slices = Vec::from_iter(slice);
    let input = SliceInput { group: &group(), lead: Lead::Own, seen: &seen, plan: &plan, slices: &slices };
    let first = entitlements(&input).into_iter().map(|Entitlement { pair, change }| (pair, change));
    let (pairs, first): (BTreeSet<u32>, Vec<ObjectChange>) = first.unzip();
    let exemptions = SliceExemptions { young: &BTreeSet::new(), written: &pairs };
    let then = slice_needs(&input, exemptions).changes;
    assert!(first.is_empty() || then.is_empty(), "one write");
    let said = first.iter().chain(&then).find_map(|change| match change {
        ObjectChange::Create(body) | ObjectChange::Put { patch: body, .. } => {
            body["metadata"]["annotations"][keys::ANNOTATION_HA_SHOWN_BY].as_str()
        }
        ObjectChange::Remove(_) | ObjectChange::Leave(_) => None,
    })?;
    Some(said.split(',').map(|uid| bps_wire::uid::parse_uid(uid).unwrap()).collect())
}

#[test]
fn the_members_of_a_pair_may_show_themselves_in_its_slice_and_whoever_is_to_be_one() {
    let of_members = || pair(0, [1, 2]);
    let slice = |pods: &[u128]| slice(Some(PRESENT), None, pods);
    assert_eq!(entitled_by(of_members(), vec![], None), Some(vec![1, 2]));
    assert_eq!(entitled_by(of_members(), vec![], Some(slice(&[1, 2]))), None);
    for other in [&[1][..], &[1, 2, 3], &[]] {
        assert_eq!(entitled_by(of_members(), vec![], Some(slice(other))), Some(vec![1, 2]), "{other:?}");
    }
    assert_eq!(entitled_by(pair(0, [1, 0]), vec![], None), Some(vec![1]), "nobody is no Pod");
    let ask = |pair| PairAction::Ask { pair, leaving: AgentId(2), joining: seat(3) };
    assert_eq!(entitled_by(of_members(), vec![ask(0)], None), Some(vec![1, 2, 3]));
    assert_eq!(entitled_by(of_members(), vec![ask(1)], None), Some(vec![1, 2]));
    let mut asked = of_members();
    asked.lease.pending = Some(Replacement { leaving: AgentId(2), joining: AgentId(4) });
    assert_eq!(entitled_by(asked, vec![], None), Some(vec![1, 2, 4]));
    let mut forced = testing::pair(0, [1, 5]).lease;
    forced.pending = Some(Replacement { leaving: AgentId(2), joining: AgentId(5) });
    let force = PairAction::Force { pair: 0, lease: forced };
    assert_eq!(entitled_by(of_members(), vec![force], None), Some(vec![1, 2, 5]));
}
