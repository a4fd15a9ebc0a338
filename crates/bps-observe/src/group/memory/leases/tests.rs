//! What is remembered of Leases that go, come and are set back.

use bps_api::{HAGroupStatus, keys};
use bps_core::pairing::testing::pod;
use bps_core::pairing::{Group, PairHold, PairReason, Plan, Pod};
use bps_wire::uid::format_uid;
use kube_core::ObjectMeta;
use serde_json::json;

use super::*;
use crate::group::Memory;

const SECOND: Duration = Duration::from_secs(1);

fn at(seconds: u32) -> BootTime {
    BootTime::default() + seconds * SECOND
}

#[test]
fn an_active_s_write_begins_the_watch_anew_and_nothing_else_does() {
    let mut memory = Memory::default();
    let mut see = |writes, seconds| memory.leases.see_pair(0, Known { writes, ..known(seconds) }).0;
    assert_eq!([see(1, 10), see(1, 20), see(2, 30), see(2, 40)], [at(10), at(10), at(30), at(30)]);
}

#[test]
fn a_tenure_is_young_since_it_was_first_seen_whatever_is_written_in_it() {
    let mut memory = Memory::default();
    let mut see = |epoch: u64, writes, seconds| {
        memory.leases.see_pair(3, Known { epoch: epoch.into(), writes, ..known(seconds) });
        !memory.leases.young(at(seconds), 2 * SECOND).is_empty()
    };
    let seen = [(1, 1, 10), (1, 2, 11), (1, 3, 12), (2, 4, 13), (2, 5, 15)];
    assert_eq!(
        seen.map(|(epoch, writes, seconds)| see(epoch, writes, seconds)),
        [true, true, false, true, false]
    );
}

fn known(seconds: u32) -> Known {
    let (epoch, now) = (Epoch::default(), at(seconds));
    Known {
        lease: 7,
        writes: 1,
        since: now,
        epoch,
        tenure_since: now,
        pods: vec!["a".into()],
        wait: Timing::default().operator_wait,
        has_state: true,
        silence: None,
    }
}

#[test]
fn a_standby_is_silent_since_its_lease_first_told_so_without_a_break() {
    let mut memory = Memory::default();
    let mut see = |epoch: u64, standby: Option<u128>, seconds| {
        let silence = standby.map(|standby| Silence { standby: AgentId(standby), since: at(seconds) });
        let seen = memory.leases.see_pair(0, Known { epoch: epoch.into(), silence, ..known(seconds) }).1;
        seen.map(|silence| (silence.standby.0, silence.since))
    };
    let seen =
        [(1, Some(2), 1), (1, Some(2), 2), (1, None, 3), (1, Some(2), 4), (1, Some(3), 5), (2, Some(3), 6)];
    let expected =
        [Some((2, at(1))), Some((2, at(1))), None, Some((2, at(4))), Some((3, at(5))), Some((3, at(6)))];
    assert_eq!(seen.map(|(epoch, standby, seconds)| see(epoch, standby, seconds)), expected);
}

fn lost(number: u32, pod: &str, level: Option<LevelText>) -> Lost {
    Lost::new(number, vec![pod.into()], level, at(5) + Timing::default().operator_wait)
}

fn level(directory: &str) -> LevelText {
    LevelText { directories: directory.into(), pods: String::new() }
}

/// The Lease of the pair 0 as it was when its deletion was seen.
fn ended(uid: u128, directory: &str) -> Lease {
    let annotations = BTreeMap::from(
        [(keys::ANNOTATION_HA_PAIR, "0"), (keys::ANNOTATION_HA_IN_SYNC, directory)]
            .map(|(key, value)| (key.to_owned(), value.to_owned())),
    );
    let owner = json!([{"apiVersion": "v1alpha1", "kind": "HAGroup", "name": "web", "uid": "own"}]);
    let metadata = ObjectMeta {
        uid: Some(format_uid(uid)),
        annotations: Some(annotations),
        owner_references: Some(serde_json::from_value(owner).expect("an owner")),
        ..ObjectMeta::default()
    };
    Lease { metadata, ..Lease::default() }
}

/// The same with all that agents read: written so often, in this term, with these Pods as members.
fn readable(uid: u128, term: i32, pods: [&str; 2]) -> Lease {
    let mut lease = ended(uid, "x");
    let member = |number: u128, pod: &str| json!({"uid": format_uid(number), "pod": pod, "address": format!("10.0.0.{number}:20001")});
    let members = json!([member(1, pods[0]), member(2, pods[1])]);
    let said = [
        (keys::ANNOTATION_HA_MEMBERS, members.to_string()),
        (keys::ANNOTATION_HA_SEQUENCE, "0".to_owned()),
        (keys::ANNOTATION_HA_HOLD, "Peer".to_owned()),
        (keys::ANNOTATION_HA_WRITES, "4".to_owned()),
    ];
    lease.metadata.annotations.get_or_insert_default().extend(said.map(|(key, text)| (key.to_owned(), text)));
    lease.metadata.resource_version = Some("5".to_owned());
    lease.spec.get_or_insert_default().lease_transitions = Some(term);
    lease
}

/// As a group sees these ends that owns the Leases, or that was made after the one that did; the watch has listed so often.
fn see(memory: &mut Memory, leases: &[LeaseEnd], is_own: bool, lists: u64) {
    let mut group = HAGroup::new("web", bps_api::HAGroupSpec::default());
    group.metadata.uid = Some(if is_own { "own" } else { "next" }.to_owned());
    group.status = Some(HAGroupStatus { wait_seconds: 61, ..HAGroupStatus::default() });
    group.spec.timing.get_or_insert_default().api_outage_seconds = 0;
    memory.leases.see_ends(SeenEnds { leases, lists, led_since: 0, group: &group });
}

fn ending(uid: u128) -> Lease {
    let mut lease = ended(uid, "x");
    lease
        .metadata
        .annotations
        .get_or_insert_default()
        .insert(keys::ANNOTATION_HA_ENDING.into(), "true".into());
    lease
}

#[test]
fn a_lost_lease_is_known_whoever_knew_it() {
    let told = BTreeMap::from([(1, lost(1, "b", Some(level("b"))))]);
    let mut memory = Memory::default();
    memory.leases.see_pair(0, Known { has_state: false, ..known(1) });
    let expected = [lost(0, "a", None), lost(1, "b", Some(level("b")))];
    assert_eq!(memory.leases.see_lost(&BTreeSet::new(), told, at(5)), expected);
    assert_eq!(memory.leases.see_lost(&BTreeSet::new(), BTreeMap::new(), at(6)), expected);
}

#[test]
fn whoever_is_named_by_any_who_know_of_a_lost_pair_is_left_alone() {
    let told = BTreeMap::from([(0, lost(0, "told", None))]);
    let lease = readable(9, 1, ["told", "ended"]);
    assert_eq!(pods_of(&lease), ["told", "ended"]);
    let mut memory = Memory::default();
    see(&mut memory, &[LeaseEnd { lease, at: at(4), list: 0 }], true, 0);
    let gone = memory.leases.see_lost(&BTreeSet::new(), told, at(5));
    assert_eq!(gone.into_iter().map(|lost| lost.pods).collect::<Vec<_>>(), [["told", "ended"]]);
}

#[test]
fn who_was_level_is_known_only_if_the_end_of_that_lease_was_seen() {
    let told = || BTreeMap::from([(0, lost(0, "a", Some(level_of_nobody())))]);
    let nobody = Some(level_of_nobody());
    let table = [
        (Some(known(1)), vec![], nobody.clone()),
        (Some(known(1)), vec![ended(7, "x")], Some(level("x"))),
        // Another one of that name has come and gone unseen.
        (Some(known(1)), vec![ended(6, "x")], nobody.clone()),
        // It was decided that it ends, and the answer to its deletion was lost.
        (Some(known(1)), vec![ending(7)], None),
        // It began to be replicated after it was last looked at.
        (Some(Known { has_state: false, ..known(1) }), vec![ended(7, "x")], Some(level("x"))),
        (None, vec![], nobody),
        (None, vec![ended(7, "x")], Some(level("x"))),
    ];
    for (known, ends, expected) in table {
        let mut memory = Memory::default();
        if let Some(known) = known {
            memory.leases.see_pair(0, known);
        }
        see(&mut memory, &seen_at(5, &ends), true, 0);
        assert_eq!(memory.leases.see_lost(&BTreeSet::new(), told(), at(5)), [lost(0, "a", expected)]);
    }
}

fn seen_at(seconds: u32, leases: &[Lease]) -> Vec<LeaseEnd> {
    leases.iter().map(|lease| LeaseEnd { lease: lease.clone(), at: at(seconds), list: 0 }).collect()
}

#[test]
fn a_lease_whose_end_is_all_that_is_known_is_missed_unless_the_pair_was_to_end() {
    let timing = Timing::default();
    let named = readable(7, 3, ["a", "b"]);
    let missed = |lease: &Lease, seen_after: u32, pods: &[&str], is_own: bool| {
        let mut memory = Memory::default();
        see(&mut memory, &seen_at(5, std::slice::from_ref(lease)), is_own, 0);
        let mut seen = SeenGroup::default();
        seen.group.pods = pods.iter().map(|name| Pod { name: (*name).to_owned(), ..pod(1) }).collect();
        memory.remember(&mut seen, &Moment { now: at(5 + seen_after), timing: &timing });
        let pods = |lost: Vec<Lost>| lost.into_iter().map(|lost| lost.pods).collect::<Vec<_>>();
        (pods(seen.group.lost), pods(seen.group.remembered))
    };
    let (nothing, both) = ((vec![], vec![]), vec![vec!["a".to_owned(), "b".to_owned()]]);
    assert_eq!(missed(&named, 1, &[], true), (both.clone(), vec![]));
    // An end that was seen long ago is waited for no more; what it said of the state counts while there is somebody for it.
    assert_eq!(missed(&named, 100, &["b"], true), (vec![], both));
    assert_eq!(missed(&named, 100, &["c"], true), nothing);
    assert_eq!(missed(&named, 1, &[], false), nothing, "a group of that name was before");
    assert_eq!(missed(&ending(7), 1, &[], true), nothing);
}

/// What a look finds lost that sees this end.
fn lost_after(known: Option<Known>, end: LeaseEnd, is_own: bool, lists: u64) -> Vec<Lost> {
    let mut memory = Memory::default();
    if let Some(known) = known {
        memory.leases.see_pair(0, known);
    }
    see(&mut memory, &[end], is_own, lists);
    let mut seen = SeenGroup::default();
    seen.group.pods = vec![pod(1), pod(2)];
    memory.remember(&mut seen, &Moment { now: at(6), timing: &Timing::default() });
    seen.group.lost
}

#[test]
fn a_lease_is_made_again_only_if_it_is_certain_what_it_said_last() {
    let pods = ["web-1", "web-2"];
    let end = |lease| LeaseEnd { lease, at: at(5), list: 0 };
    let may_return = |known, lease, is_own, lists| {
        lost_after(known, end(lease), is_own, lists).iter().map(|lost| lost.may_return).collect::<Vec<_>>()
    };
    let known_with =
        |term| Known { epoch: Epoch { term, sequence: 0 }, pods: pods.map(str::to_owned).into(), ..known(1) };
    let whole = || readable(7, 3, pods);
    assert_eq!(may_return(None, whole(), true, 0), [true]);
    assert_eq!(may_return(Some(known_with(3)), whole(), true, 0), [true]);
    assert_eq!(
        may_return(Some(known_with(2)), whole(), true, 0),
        [true],
        "its last term was never looked at"
    );
    assert_eq!(may_return(Some(known_with(4)), whole(), true, 0), [false], "it was set back");
    assert_eq!(
        may_return(Some(Known { lease: 8, ..known_with(3) }), whole(), true, 0),
        [false],
        "another one"
    );
    assert_eq!(may_return(None, whole(), true, 1), [false], "there may have been another one since");
    assert_eq!(
        may_return(None, whole(), false, 0),
        [true],
        "its group was made anew, and its Pods are there"
    );
    let other = readable(7, 3, ["web-8", "web-9"]);
    assert_eq!(may_return(Some(known_with(3)), ended(7, "x"), true, 0), [false], "nobody can read it");
    assert_eq!(may_return(None, other, true, 0), [true], "its Pods may act although they are gone");
}

#[test]
fn a_lease_that_ended_while_another_replica_may_have_led_is_not_made_again() {
    let end = LeaseEnd { lease: readable(7, 3, ["web-1", "web-2"]), at: at(5), list: 0 };
    let mut group = HAGroup::new("web", bps_api::HAGroupSpec::default());
    group.metadata.uid = Some("own".to_owned());
    let returning = |led_since| {
        let mut memory = Memory::default();
        let leases = std::slice::from_ref(&end);
        memory.leases.see_ends(SeenEnds { leases, lists: 0, led_since, group: &group });
        memory.leases.returning().len()
    };
    // Its deletion has version 5.
    assert_eq!([0, 4, 5, 6, u64::MAX].map(returning), [1, 1, 0, 0, 0]);
}

#[test]
fn whoever_is_named_by_several_who_know_of_a_lost_pair_may_act_for_the_longest_time() {
    let of = |until| Lost { until: at(until), ..lost(0, "a", None) };
    for untils in [[60, 3_700], [3_700, 60]] {
        let all = untils.map(of).into_iter().fold(BTreeMap::new(), merged);
        assert_eq!(all[&0].until, at(3_700));
    }
}

#[test]
fn the_next_operator_waits_for_a_pair_set_back_as_long_as_the_last_one_would() {
    let mut memory = Memory::default();
    let mut seen = SeenGroup { told_wait: Duration::from_secs(3_000), ..SeenGroup::default() };
    seen.group.pairs = vec![bps_core::pairing::testing::pair(0, [1, 2])];
    seen.told_epochs = [(0, Epoch { term: 9, sequence: 0 })].into();
    seen.numbers = [0].into();
    memory.remember(&mut seen, &Moment { now: at(5), timing: &Timing::default() });
    assert_eq!(seen.group.lost.iter().map(|lost| lost.until).collect::<Vec<_>>(), [at(3_005)]);
}

#[test]
fn the_times_of_a_group_that_is_gone_are_those_of_the_next_one_or_its_leases_are_not_made_again() {
    let mut lease = readable(7, 3, ["web-1", "web-2"]);
    let annotations = lease.metadata.annotations.get_or_insert_default();
    annotations.insert(keys::ANNOTATION_HA_OUTAGE.into(), "60".into());
    let end = LeaseEnd { lease, at: at(5), list: 0 };
    assert_eq!(lost_after(None, end.clone(), false, 0), []);
    assert_eq!(lost_after(None, end, true, 0).len(), 1, "that of the group itself has its own ones");
}

#[test]
fn a_lease_is_made_again_once_unless_that_was_refused() {
    let mut memory = Memory::default();
    let end = LeaseEnd { lease: readable(7, 3, ["web-1", "web-2"]), at: at(5), list: 0 };
    see(&mut memory, &[end], true, 0);
    let may_return = |memory: &mut Memory| {
        let mut seen = SeenGroup::default();
        memory.remember(&mut seen, &Moment { now: at(6), timing: &Timing::default() });
        (memory.leases.returning().len(), seen.group.lost.iter().filter(|lost| lost.may_return).count())
    };
    assert_eq!(may_return(&mut memory), (1, 1));
    let last = memory.leases.restore(0);
    assert_eq!(may_return(&mut memory), (0, 0), "nobody knows whether it was, and what became of it");
    memory.leases.is_not_restored(0, last);
    assert_eq!(may_return(&mut memory), (1, 1));
}

#[test]
fn a_term_that_no_look_has_seen_is_not_used_again() {
    let timing = Timing::default();
    let highest = |ends: &[Lease]| {
        let mut memory =
            Memory { leases: LeaseMemory { highest_term: 3, ..LeaseMemory::default() }, ..Memory::default() };
        memory.leases.see_pair(0, known(1));
        see(&mut memory, &seen_at(5, ends), true, 0);
        let mut seen = SeenGroup::default();
        memory.remember(&mut seen, &Moment { now: at(5), timing: &timing });
        let first = seen.group.highest_term;
        memory.remember(&mut seen, &Moment { now: at(6), timing: &timing });
        assert_eq!(seen.group.highest_term, first, "once for each Lease");
        first
    };
    let mut end = ended(7, "x");
    end.spec.get_or_insert_default().lease_transitions = Some(8);
    assert_eq!(highest(&[end]), 8);
    assert_eq!(highest(&[]), 3 + TERMS_MISSED);
    // An earlier Lease of the same number, whose end was seen.
    assert_eq!(highest(&[ended(6, "x")]), 3 + TERMS_MISSED);
}

#[test]
fn what_a_lost_lease_said_is_remembered_until_there_is_another_one() {
    let timing = Timing::default();
    let mut memory = Memory::default();
    let mut look = |after: Duration, numbers: &[u32]| {
        let told = BTreeMap::from([(0, lost(0, "a", Some(level("x")))), (1, lost(1, "b", None))]);
        let numbers = numbers.iter().copied().collect();
        let mut seen = SeenGroup { numbers, told, ..SeenGroup::default() };
        memory.remember(&mut seen, &Moment { now: at(5) + after, timing: &timing });
        (seen.group.lost, seen.group.remembered)
    };
    let both = vec![lost(0, "a", Some(level("x"))), lost(1, "b", None)];
    assert_eq!(look(Duration::ZERO, &[]), (both, vec![]));
    assert_eq!(look(timing.operator_wait, &[]), (vec![], vec![lost(0, "a", Some(level("x")))]));
    memory.leases.see_pair(0, known(9));
    let mut seen = SeenGroup { numbers: BTreeSet::from([0]), ..SeenGroup::default() };
    memory.remember(&mut seen, &Moment { now: at(5) + timing.operator_wait, timing: &timing });
    assert_eq!((seen.group.lost, seen.group.remembered), (vec![], vec![]));
}

#[test]
fn what_is_seen_first_is_taken_for_new_and_what_was_seen_before_keeps_its_time() {
    let timing = Timing::default();
    let seen = || SeenGroup {
        group: Group { highest_term: 4, ..Group::default() },
        told: BTreeMap::from([(2, lost(2, "a", None))]),
        ..SeenGroup::default()
    };
    let leases = LeaseMemory { highest_term: 7, ..LeaseMemory::default() };
    let mut memory = Memory { leases, ..Memory::default() };
    let is_alone = PairHold { reason: PairReason::PodAlone, pair: None, until: None };
    memory.lasting.follow(&Plan { holds: vec![is_alone], ..Plan::default() }, at(1));
    let lost = vec![lost(2, "a", None)];
    let expected =
        Group { lost, highest_term: 7 + TERMS_MISSED, alone_since: Some(at(1)), ..Group::default() };
    for seconds in [5, 6] {
        let mut seen = seen();
        memory.remember(&mut seen, &Moment { now: at(seconds), timing: &timing });
        assert_eq!(seen.group, expected);
    }
}

#[test]
fn a_pair_that_was_ended_is_not_lost() {
    let mut memory = Memory::default();
    memory.leases.see_pair(0, known(1));
    memory.leases.end_pair(0, None);
    assert_eq!(memory.leases.see_lost(&BTreeSet::new(), BTreeMap::new(), at(2)), []);
}

#[test]
fn a_pair_that_was_ended_is_not_missed_when_the_watch_shows_it_once_more() {
    let timing = Timing::default();
    let mut memory = Memory::default();
    memory.leases.see_pair(0, known(1));
    memory.leases.end_pair(0, None);
    memory.leases.see_pair(0, known(2));
    let mut seen = SeenGroup::default();
    memory.remember(&mut seen, &Moment { now: at(3), timing: &timing });
    assert_eq!(seen.group.lost, []);
    assert!(memory.leases.ended.is_empty(), "no watch shows it any more");
}

#[test]
fn a_pair_whose_pods_may_come_back_with_their_state_is_remembered_when_it_ends() {
    let timing = Timing::default();
    let table = [
        ("web-0", Some(level("x")), vec![lost(0, "web-0", Some(level("x")))]),
        ("web-5d9c-x2x4z", Some(level("x")), vec![]),
        ("web-0", None, vec![]),
    ];
    for (pod, level, expected) in table {
        let mut memory = Memory::default();
        memory.leases.see_pair(0, Known { pods: vec![pod.into()], ..known(1) });
        memory.leases.end_pair(0, level);
        // The watch may show it once more.
        for records in [BTreeSet::from([0]), BTreeSet::new()] {
            if !records.is_empty() {
                memory.leases.see_pair(0, known(2));
            }
            let mut seen = SeenGroup { numbers: records, ..SeenGroup::default() };
            memory.leases.ended.insert(7);
            memory.remember(&mut seen, &Moment { now: at(5) + timing.operator_wait, timing: &timing });
            assert_eq!(seen.group.lost, []);
            if seen.numbers.is_empty() {
                let over = |lost: &Lost| Lost { until: BootTime::default(), ..lost.clone() };
                assert_eq!(seen.group.remembered, expected.iter().map(over).collect::<Vec<_>>(), "{pod}");
            }
        }
    }
}

#[test]
fn a_lease_that_could_never_be_read_is_missed_as_what_the_status_says_of_it() {
    let mut memory = Memory::default();
    let told = lost(0, "a", Some(level_of_nobody()));
    let told_wait = Duration::from_secs(61);
    let mut seen = SeenGroup { numbers: BTreeSet::from([0]), told_wait, ..SeenGroup::default() };
    seen.group.unreadable = vec![told.clone()];
    memory.remember(&mut seen, &Moment { now: at(10), timing: &Timing::default() });
    // A person deletes it, as they are told to; the status counts no more.
    let mut seen = SeenGroup::default();
    memory.remember(&mut seen, &Moment { now: at(11), timing: &Timing::default() });
    assert_eq!(seen.group.lost, [Lost { until: at(11) + Timing::default().operator_wait, ..told }]);
}
