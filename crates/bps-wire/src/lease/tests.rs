//! A Lease is read as it was written, and whatever else is in it is refused by name.

use proptest::prelude::*;

use super::*;

/// What the API server makes of a patch on a Lease without content.
fn patched(mut patch: Value) -> wire::Lease {
    let annotations = patch["metadata"]["annotations"].as_object_mut().unwrap();
    annotations.retain(|_, value| !value.is_null());
    patch["metadata"]["uid"] = json!(format_uid(9));
    serde_json::from_value(patch).unwrap()
}

fn record() -> impl Strategy<Value = Record> {
    let ids = proptest::collection::btree_set(any::<u128>(), 3);
    let numbers = (0..=i32::MAX.cast_unsigned(), any::<(u32, u64, u64)>());
    (ids, numbers, any::<[bool; 2]>(), 0..3_usize, any::<[u8; 4]>()).prop_map(
        |(ids, (term, (sequence, version, writes)), [is_pending, is_peer], holder, address)| {
            let ids: Vec<_> = ids.into_iter().map(AgentId).collect();
            let pending = is_pending.then_some(Replacement { leaving: ids[1], joining: ids[2] });
            let member = |(index, id): (usize, &AgentId)| {
                (*id, Member { pod: format!("web-{index}"), address: (address, 7).into() })
            };
            let named = if is_pending { &ids[..] } else { &ids[..2] };
            let lease = Lease {
                epoch: Epoch { term, sequence },
                holder: ids[..2].get(holder).copied(),
                members: [ids[0], ids[1]],
                pending,
                hold: if is_peer { Hold::Peer } else { Hold::Api },
                writes,
            };
            let directory = named.iter().enumerate().map(member).collect();
            Record {
                group: 9,
                version: Version(version),
                lease,
                directory,
                timing: Timing::default(),
                slice: None,
                orders: Orders::default(),
                takeover: None,
                level: Level::default(),
                level_pods: BTreeSet::new(),
                lag: Told::default(),
                crash_loop: None,
                late_in: None,
            }
        },
    )
}

proptest! {
    #[test]
    fn a_lease_is_read_as_it_was_written(record in record()) {
        let write = Write { number: 1, base: record.version, lease: record.lease };
        let patch = patch(&write, &record.directory, &Timing::default(), Timestamp::UNIX_EPOCH).unwrap();
        prop_assert_eq!(Record::read(&patched(patch)), Ok(record));
    }

    #[test]
    fn any_annotation_is_read_or_refused(text in ".{0,80}", key in 0..5_usize) {
        let keys = [keys::ANNOTATION_HA_SEQUENCE, keys::ANNOTATION_HA_MEMBERS, keys::ANNOTATION_HA_PENDING,
            keys::ANNOTATION_HA_HOLD, keys::ANNOTATION_HA_WRITES];
        let mut lease = example();
        lease.metadata.annotations.get_or_insert_default().insert(keys[key].to_owned(), text);
        drop(Record::read(&lease));
    }
}

fn example() -> wire::Lease {
    let member = |index: u128| {
        let address = format!("10.0.0.{index}:20001").parse().unwrap();
        (AgentId(index), Member { pod: format!("web-{index}"), address })
    };
    let directory = Directory::from([member(1), member(0xab)]);
    let lease = Lease {
        epoch: Epoch { term: 3, sequence: 1 },
        holder: Some(AgentId(1)),
        members: [AgentId(1), AgentId(0xab)],
        pending: None,
        hold: Hold::Peer,
        writes: 17,
    };
    let write = Write { number: 1, base: Version(5), lease };
    patched(patch(&write, &directory, &Timing::default(), Timestamp::UNIX_EPOCH).unwrap())
}

#[test]
fn an_agent_has_one_name_only_the_one_that_admission_policies_look_for() {
    let read = |form: &dyn Fn(&str) -> String| {
        let mut lease = example();
        let annotations = lease.metadata.annotations.get_or_insert_default();
        let members = annotations.get_mut(keys::ANNOTATION_HA_MEMBERS).unwrap();
        *members = members.replace(&format_uid(0xab), &form(&format_uid(0xab)));
        Record::read(&lease).is_ok()
    };
    assert!(read(&str::to_owned));
    assert!(!read(&str::to_uppercase));
    assert!(!read(&|uid| uid.replace('-', "")));
}

#[test]
fn people_read_the_name_of_the_holder_and_the_term() {
    let spec = example().spec.unwrap();
    assert_eq!(spec.holder_identity.unwrap(), "web-1_00000000-0000-0000-0000-000000000001");
    assert_eq!((spec.lease_transitions, spec.lease_duration_seconds), (Some(3), Some(2)));
}

#[test]
fn a_lost_or_wrong_field_is_named_with_what_is_expected() {
    let said = |spoil: &dyn Fn(&mut wire::Lease)| {
        let mut lease = example();
        spoil(&mut lease);
        Record::read(&lease).expect_err("it is spoiled").to_string()
    };
    assert_eq!(
        said(&|lease| lease.metadata.annotations = None),
        "backup.example.com/ha-sequence of the Lease: expected a decimal number, found None"
    );
    assert_eq!(
        said(&|lease| lease.spec.as_mut().unwrap().holder_identity = Some("web-1".into())),
        "spec.holderIdentity of the Lease: expected nothing, or <Pod name>_<uid of the Pod>, found Some(\"web-1\")"
    );
    let annotate = |key: &str, text: &str| {
        said(&|lease| {
            lease.metadata.annotations.get_or_insert_default().insert(key.to_owned(), text.to_owned());
        })
    };
    assert!(annotate(keys::ANNOTATION_HA_HOLD, "api").contains("expected Api or Peer"));
    let twin = json!({"uid": format_uid(1), "pod": "a", "address": "10.0.0.1:1"});
    assert!(
        annotate(keys::ANNOTATION_HA_MEMBERS, &json!([twin, twin]).to_string()).contains("two different")
    );
    assert!(said(&|lease| lease.spec = None).starts_with("spec.leaseTransitions of the Lease"));
}

#[test]
fn a_write_that_names_a_stranger_is_not_made() {
    let lease = Record::read(&example()).unwrap().lease;
    let write = Write { number: 1, base: Version(5), lease };
    let refused = patch(&write, &Directory::new(), &Timing::default(), Timestamp::UNIX_EPOCH);
    assert_eq!(refused, Err(Error::Stranger { uid: format_uid(1) }));
}

#[test]
fn a_lease_that_was_made_again_is_the_first_one_to_those_who_know_that_the_operator_made_it() {
    let metadata = |labels: Value, first: Option<&str>| {
        let annotations = json!({(keys::ANNOTATION_HA_LEASE): first});
        let annotations = if first.is_some() { annotations } else { json!({}) };
        let metadata = json!({"uid": format_uid(9), "labels": labels, "annotations": annotations});
        serde_json::from_value::<ObjectMeta>(metadata).unwrap()
    };
    let first = format_uid(4);
    let of_group = || json!({(keys::LABEL_GROUP): "web"});
    assert_eq!(identity(&metadata(of_group(), None)), Ok(9));
    assert_eq!(identity(&metadata(of_group(), Some(&first))), Ok(4));
    assert_eq!(identity(&metadata(json!({}), Some(&first))), Ok(9), "anybody may have made it");
    let unread = identity(&metadata(of_group(), Some("four")));
    assert!(matches!(unread, Err(Error::Field { field: keys::ANNOTATION_HA_LEASE, .. })), "{unread:?}");
}

#[test]
fn the_absence_that_a_lease_names_is_outlived() {
    let directory =
        [1, 2].map(|id| (AgentId(id), Member { pod: "web".into(), address: ([10, 0, 0, 1], 7).into() }));
    let lease = Lease {
        epoch: Epoch::default(),
        holder: None,
        members: [1, 2].map(AgentId),
        pending: None,
        hold: Hold::Api,
        writes: 0,
    };
    let write = Write { number: 1, base: Version(5), lease };
    let mut patch = patch(&write, &directory.into(), &Timing::default(), Timestamp::UNIX_EPOCH).unwrap();
    patch["metadata"]["annotations"][keys::ANNOTATION_HA_OUTAGE] = json!("90");
    let record = Record::read(&patched(patch)).unwrap();
    assert_eq!(record.timing.outage(), std::time::Duration::from_secs(90));
}
