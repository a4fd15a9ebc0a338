//! One situation each, with the whole plan that it leads to.

use bps_protocol::Replacement;

use super::*;
use crate::model::NodeName;

fn steps(group: &Group) -> Vec<Step> {
    plan_now(group).steps
}

fn leave(group: &mut Group, ids: &[u128]) {
    for pod in group.pods.iter_mut().filter(|pod| ids.contains(&pod.id.0)) {
        pod.is_leaving = true;
    }
}

#[test]
fn new_pods_are_paired_two_by_two_on_different_nodes() {
    let mut group = group([2, 4, 1, 3], []);
    group.highest_term = 7;
    let found =
        |number, one, two| Step::Found { number, term: 7, seats: [seat(one), seat(two)], level: None };
    assert_eq!(steps(&group), [found(0, 1, 2), found(1, 3, 4)]);
}

#[test]
fn a_third_pod_is_a_spare() {
    assert_eq!(plan_now(&group([1, 2, 3], [pair(0, [1, 2])])), Plan::default());
}

#[test]
fn a_pod_that_does_not_run_yet_is_waited_for_but_not_for_ever() {
    let mut group = group([1, 2], []);
    group.pods[1].address = None;
    let waiting = plan_now(&group);
    assert_eq!((waiting.steps, waiting.waits), (vec![], vec![Wait::Second]));
    let again = waiting.look_again.expect("it looks again");
    group.alone_since = Some(now());
    let timing = Timing::default();
    let later = plan(&group, &Moment { now: again, timing: &timing });
    let [Step::Found { number: 0, seats: [first, second], .. }] = &later.steps[..] else {
        panic!("{later:?}")
    };
    assert_eq!((first, second.id), (&seat(1), VACANT));
}

#[test]
fn the_only_pod_acts_at_once_and_gets_a_standby_later() {
    let alone = group([1], []);
    assert!(matches!(&steps(&alone)[..], [Step::Found { seats: [_, Seat { id: VACANT, .. }], .. }]));
    let joined = group([1, 2], [pair(0, [1, 0])]);
    assert_eq!(steps(&joined), [Step::Ask { pair: 0, leaving: VACANT, joining: seat(2) }]);
}

#[test]
fn a_spare_takes_a_lost_place_on_another_node_than_the_member_that_stays() {
    let mut group = group([1, 2, 3, 4, 5], [pair(0, [1, 2])]);
    leave(&mut group, &[2, 3]);
    let group = labelled(group);
    assert_eq!(steps(&group), [Step::Ask { pair: 0, leaving: AgentId(2), joining: seat(4) }]);
}

#[test]
fn a_pair_without_a_standby_waits_for_a_pod() {
    let alone = group([1], [pair(0, [1, 2])]);
    assert_eq!(plan_now(&alone), Plan { waits: vec![Wait::Standby { pair: 0 }], ..Plan::default() });
}

#[test]
fn an_open_request_is_waited_for_until_nobody_acts() {
    let mut asked = pair(0, [1, 2]);
    asked.lease.pending = Some(Replacement { leaving: AgentId(2), joining: AgentId(3) });
    let group_of = |pair: Pair| group([1, 3], [pair]);
    let plan = plan_now(&group_of(asked.clone()));
    assert_eq!((plan.steps, plan.waits), (vec![], vec![Wait::Admission { pair: 0 }]));

    asked.lease.holder = None;
    let replaced = Lease {
        members: [AgentId(1), AgentId(3)],
        pending: None,
        writes: 10,
        hold: Hold::Api,
        ..asked.lease
    };
    assert_eq!(steps(&group_of(asked)), [Step::Force { pair: 0, lease: replaced }]);
}

#[test]
fn a_request_for_a_pod_that_is_gone_is_taken_back() {
    let mut asked = pair(0, [1, 2]);
    asked.lease.pending = Some(Replacement { leaving: AgentId(2), joining: AgentId(3) });
    assert_eq!(steps(&group([1], [asked])), [Step::Withdraw { pair: 0 }]);
}

#[test]
fn a_pod_that_was_asked_into_two_pairs_goes_into_one() {
    let asked = |number, members, joining| {
        let mut asked = pair(number, members);
        let leaving = asked.lease.members[1];
        asked.lease.pending = Some(Replacement { leaving, joining: AgentId(joining) });
        asked
    };
    let both = group([1, 3, 5], [asked(0, [1, 2], 5), asked(1, [3, 4], 5)]);
    assert_eq!(steps(&both), [Step::Withdraw { pair: 1 }]);
    let taken = group([1, 3, 5], [pair(0, [1, 5]), asked(1, [3, 4], 5)]);
    assert_eq!(steps(&taken), [Step::Withdraw { pair: 1 }]);
}

#[test]
fn a_pod_that_is_in_two_pairs_stays_where_it_is_needed() {
    let replaced = |pair: u32| Step::Ask { pair, leaving: AgentId(5), joining: seat(6) };
    let [mut one, mut other] = [pair(0, [1, 5]), pair(1, [3, 5])];
    let planned = |pairs: [&Pair; 2]| steps(&group([1, 3, 5, 6], pairs.map(Clone::clone)));
    assert_eq!(planned([&one, &other]), [replaced(1)]);
    // Somebody answers the active of the other one.
    one.lease.hold = Hold::Api;
    assert_eq!(planned([&one, &other]), [replaced(0)]);
    // It acts, and shows that.
    one.lease.hold = Hold::Peer;
    other.lease.holder = Some(AgentId(5));
    assert_eq!(planned([&one, &other]), [replaced(0)]);
    (one.lease.holder, other.lease.holder) = (Some(AgentId(5)), Some(AgentId(3)));
    let twice = group([1, 3, 5, 6], [one, other]);
    let shown = &twice.pods.iter().find(|pod| pod.id == AgentId(5)).expect("it is there").shown;
    assert_eq!((shown.state, shown.peer.as_deref()), (Some(HaState::Active), Some("web-1")));
}

#[test]
fn both_pods_made_anew_take_over_the_pair_one_after_the_other() {
    let mut released = pair(0, [1, 2]);
    released.lease.holder = None;
    let ask = Step::Ask { pair: 0, leaving: AgentId(1), joining: seat(3) };
    assert_eq!(steps(&group([3, 4], [released])), [ask]);
}

#[test]
fn a_pair_without_pods_ends_when_nobody_can_act_any_more() {
    let group_of = |empty: Pair| group([1, 2], [pair(0, [1, 2]), empty]);
    let held = pair(1, [3, 4]);
    assert_eq!(plan_now(&group_of(held.clone())).waits, [Wait::End { pair: 1 }]);
    let mut released = held.clone();
    released.lease.holder = None;
    assert_eq!(steps(&group_of(released)), [Step::End { pair: 1 }]);
    let mut silent = held;
    silent.unwritten_since = BootTime::default();
    assert_eq!(steps(&group_of(silent)), [Step::End { pair: 1 }]);
}

#[test]
fn of_two_actives_without_standbys_one_ends_for_the_other() {
    let mut group = group([1, 3], [pair(0, [1, 2]), pair(1, [3, 4])]);
    let waits = [Wait::Standby { pair: 0 }, Wait::Standby { pair: 1 }, Wait::Surplus];
    let seen = plan_now(&group);
    assert_eq!((seen.waits, seen.draining), (waits.to_vec(), BTreeSet::new()));
    // First clients are led to the other one.
    let drains_at = now() + Duration::from_secs(3);
    assert_eq!(seen.look_again, Some(drains_at));
    group.surplus_since = Some(now().before(Duration::from_secs(3)));
    let near = plan_now(&group);
    assert_eq!((near.steps, near.waits), (vec![], waits.to_vec()));
    assert_eq!((near.draining, near.look_again), (BTreeSet::from([1]), Some(now() + Duration::from_secs(2))));
    group.surplus_since = Some(BootTime::default());
    let last = plan_now(&group);
    assert_eq!((last.steps, last.waits), (vec![Step::Fence { pair: 1 }], waits.to_vec()));
    assert_eq!(last.draining, BTreeSet::from([1]), "not in the look that fences it either");

    group.pairs[1].is_ending = true;
    assert_eq!(steps(&group), [Step::Fence { pair: 1 }], "somebody lifted the fence of a member");
    group.pairs[1].fenced = group.pairs[1].lease.members.to_vec();
    assert!(plan_now(&group).waits.contains(&Wait::End { pair: 1 }));
    group.pairs[1].lease.holder = None;
    assert_eq!(steps(&labelled(group)), [Step::End { pair: 1 }]);
}

#[test]
fn a_ready_pod_takes_a_lost_place_before_an_older_one_that_is_not() {
    let mut group = group([1, 4, 6], [pair(0, [1, 2])]);
    assert!(steps(&group).contains(&Step::Ask { pair: 0, leaving: AgentId(2), joining: seat(4) }));
    group.pods[1].is_ready = false;
    assert!(steps(&group).contains(&Step::Ask { pair: 0, leaving: AgentId(2), joining: seat(6) }));
}

#[test]
fn pods_of_a_pair_that_cannot_be_read_are_left_alone() {
    let mut group = group([1, 2, 3, 4], []);
    group.unreadable = vec![Lost::new(0, vec!["web-1".into(), "web-2".into()], None, BootTime::default())];
    group.pods[0].shown.state = Some(HaState::Active);
    let seats = [seat(3), seat(4)];
    assert_eq!(steps(&group), [Step::Found { number: 1, term: 0, seats, level: None }]);
}

#[test]
fn no_pair_with_state_ends_for_another_one() {
    let mut group = group([1, 3], [pair(0, [1, 2]), pair(1, [3, 4])]);
    group.surplus_since = Some(BootTime::default());
    for pair in &mut group.pairs {
        pair.level = Some(1);
    }
    assert_eq!(plan_now(&group).waits, [Wait::Standby { pair: 0 }, Wait::Standby { pair: 1 }]);
    assert_eq!(steps(&group), []);
    // The other one has none that could be overwritten.
    group.pairs[1].level = None;
    assert_eq!(steps(&group), [Step::Fence { pair: 1 }]);
}

#[test]
fn nobody_is_paired_anew_before_the_hold_of_a_lost_lease_is_over() {
    let mut group = group([1, 2, 3, 4], []);
    let until = now() + Duration::from_secs(9);
    group.lost.push(Lost::new(0, vec!["web-1".into(), "web-2".into()], None, until));
    let plan = plan_now(&group);
    assert_eq!(plan.steps, [Step::Found { number: 1, term: 0, seats: [seat(3), seat(4)], level: None }]);
    assert_eq!(plan.waits, [Wait::Lost { pair: 0 }]);
    assert_eq!(plan.look_again, Some(until));
}

#[test]
fn a_lease_whose_end_was_seen_is_made_again_at_once_and_its_pods_stay_where_they_are() {
    let mut group = group([1, 2, 3, 4], []);
    let lost = Lost::new(0, vec!["web-1".into(), "web-2".into()], None, now());
    group.lost.push(Lost { may_return: true, ..lost });
    let found = Step::Found { number: 1, term: 0, seats: [seat(3), seat(4)], level: None };
    assert_eq!(plan_now(&group).steps, [Step::Restore { pair: 0 }, found]);
}

#[test]
fn a_member_is_replaced_at_once_when_both_have_certainly_ended_and_after_the_wait_else() {
    let replacement = Replacement { leaving: AgentId(1), joining: AgentId(3) };
    let lost = |have_ended| {
        let pair = pair(0, [1, 2]);
        let lease = Lease { pending: Some(replacement), ..pair.lease };
        group([3], [Pair { lease, have_ended, ..pair }])
    };
    let [unknown, known] = [false, true].map(|have_ended| plan_now(&lost(have_ended)));
    assert_eq!(unknown.steps, []);
    assert_eq!(unknown.look_again, Some(now() + Timing::default().operator_wait));
    let [Step::Force { pair: 0, lease }] = &known.steps[..] else { panic!("{known:?}") };
    assert_eq!((lease.holder, lease.members), (None, [3, 2].map(AgentId)));
}

#[test]
fn whoever_acted_alone_is_waited_for_as_long_as_it_may_act_alone() {
    let timing = Timing { lone_wait: Duration::from_secs(7), ..Timing::default() };
    let pair = pair(0, [1, VACANT.0]);
    let pending = Some(Replacement { leaving: AgentId(1), joining: AgentId(3) });
    let lease = Lease { pending, hold: Hold::Api, ..pair.lease };
    let plan = plan_now(&group([3], [Pair { lease, timing, ..pair }]));
    assert_eq!(plan.look_again, Some(now() + timing.lone_wait));
}

#[test]
fn labels_follow_the_lease_and_the_part_of_an_active_is_taken_away_first() {
    let mut group = group([1, 2, 3], [pair(0, [1, 2])]);
    group.pairs[0].lease.holder = Some(AgentId(2));
    group.pods[2].shown.state = Some(HaState::Active);
    let epoch = Some(group.pairs[0].lease.epoch);
    let shown =
        |state, peer: &str| Shown { state: Some(state), peer: Some(peer.into()), epoch, ..Shown::default() };
    let label = |pod, shown| Step::Label { pod: AgentId(pod), shown };
    let wanted = [
        label(1, shown(HaState::Standby, "web-2")),
        label(3, Shown::default()),
        label(2, shown(HaState::Active, "web-1")),
    ];
    assert_eq!(steps(&group), wanted);
}

#[test]
fn labels_that_contradict_each_other_are_written_again() {
    let mut group = group([1, 2, 3], [pair(0, [1, 2])]);
    assert_eq!(steps(&group), []);
    for pod in &mut group.pods {
        pod.shown.is_contradictory = true;
    }
    assert_eq!(steps(&group).len(), 3, "also those of a Pod in no pair");
}

#[test]
fn a_pod_with_another_address_is_found_again() {
    let mut group = group([1, 2, 3], [pair(0, [1, 2])]);
    let address = ([10, 0, 9, 9], 20_001).into();
    group.pods[1].address = Some(address);
    assert_eq!(steps(&group), [Step::Move { pair: 0, seat: Seat { address, ..seat(2) } }]);
    group.pods[1].address = None;
    assert_eq!(steps(&group), []);
}

#[test]
fn a_paused_group_stays_as_it_is() {
    let mut group = group([1, 2], []);
    group.is_paused = true;
    assert_eq!(plan_now(&group), Plan { waits: vec![Wait::Paused], ..Plan::default() });
}

/// A pair, which is all that is wanted, and a spare on each node; its standby has not answered for so long.
fn silent(time: Duration) -> Group {
    let mut group = labelled(group([1, 2, 3, 4], [pair(0, [1, 2])]));
    group.pairs_wanted = Some(1);
    let pair = &mut group.pairs[0];
    pair.lease.hold = Hold::Api;
    pair.silence = Some(Silence { standby: AgentId(2), since: now().before(time) });
    group
}

#[test]
fn a_spare_takes_the_place_of_a_standby_that_does_not_answer() {
    let (soon, late) = (silent(SILENCE_MAX / 2), silent(SILENCE_MAX));
    let waiting = plan_now(&soon);
    assert_eq!((waiting.steps, waiting.waits), (vec![], vec![]));
    assert_eq!(waiting.look_again, Some(now() + SILENCE_MAX / 2));
    let told = plan_now(&late);
    assert_eq!(told.steps, [Step::Ask { pair: 0, leaving: AgentId(2), joining: seat(3) }]);
    assert_eq!(told.waits, [Wait::Silent { pair: 0 }]);
}

#[test]
fn an_active_that_lives_on_writes_because_its_node_is_late_has_no_silent_standby() {
    let mut group = silent(SILENCE_MAX);
    group.pairs[0].is_late = true;
    let plan = plan_now(&group);
    assert_eq!((plan.steps, plan.waits), (vec![], vec![]));
}

#[test]
fn whoever_is_on_the_lost_node_comes_last_and_whoever_was_silent_itself_not_at_all() {
    let mut group = silent(SILENCE_MAX);
    // Pods 2 and 4 are on one node, 1 and 3 on the other one, where the active is.
    let taken = |group: &Group| {
        let plan = plan_now(group);
        assert_eq!(plan.waits, [Wait::Silent { pair: 0 }]);
        plan.steps
            .iter()
            .find_map(|step| if let Step::Ask { joining, .. } = step { Some(joining.id.0) } else { None })
    };
    assert_eq!(taken(&group), Some(3));
    group.pods[3].node = Some(NodeName("node-3".to_owned()));
    assert_eq!(taken(&group), Some(4));
    group.silent = [AgentId(3), AgentId(4)].into();
    assert_eq!(taken(&group), None);
}

#[test]
fn a_standby_that_answers_again_keeps_its_place() {
    let mut group = silent(SILENCE_MAX);
    let pending = Replacement { leaving: AgentId(2), joining: AgentId(3) };
    group.pairs[0].lease.pending = Some(pending);
    group.pairs[0].names.insert(AgentId(3), "web-3".into());
    assert_eq!(plan_now(&group).steps, [], "the active has not admitted the other one yet");
    group.pairs[0].lease.hold = Hold::Peer;
    assert_eq!(plan_now(&group).steps, [Step::Withdraw { pair: 0 }]);
}

#[test]
fn a_standby_that_may_have_all_of_the_state_is_not_replaced_and_any_other_one_later() {
    let with_state = |time, level_pods: &[u128]| {
        let mut group = silent(time);
        group.pairs[0].level = Some(level_pods.len());
        group.pairs[0].level_pods = level_pods.iter().copied().map(AgentId).collect();
        plan_now(&group)
    };
    let ask = Step::Ask { pair: 0, leaving: AgentId(2), joining: seat(3) };
    let soon = with_state(SILENCE_MAX, &[1]);
    assert_eq!((soon.steps, soon.waits), (vec![], vec![Wait::Silent { pair: 0 }]));
    assert_eq!(soon.look_again, Some(now().before(SILENCE_MAX) + SILENCE_WITH_STATE_MAX));
    assert_eq!(with_state(SILENCE_WITH_STATE_MAX, &[1]).steps, [ask]);
    assert_eq!(with_state(SILENCE_WITH_STATE_MAX, &[1, 2]).steps, []);
}

#[test]
fn an_active_whose_node_is_to_be_taken_away_hands_over_to_who_can_follow_elsewhere() {
    // Pods 1 and 2 are on different nodes, and the first one acts.
    let planned = |change: fn(&mut Group)| {
        let mut group = labelled(group([1, 2], [pair(0, [1, 2])]));
        group.leaving_nodes = [NodeName("node-1".to_owned())].into();
        change(&mut group);
        plan_now(&group).steps
    };
    assert_eq!(planned(|_| {}), [Step::SwitchOver { pair: 0 }]);
    let held: [fn(&mut Group); 8] = [
        |group| group.leaving_nodes = [NodeName("node-0".to_owned())].into(),
        |group| group.leaving_nodes.extend([NodeName("node-0".to_owned())]),
        |group| group.pods[1].is_ready = false,
        |group| group.pairs[0].lease.hold = Hold::Api,
        |group| group.pairs[0].level = Some(1),
        |group| group.pairs[0].fenced = vec![AgentId(2)],
        |group| group.pairs[0].switch_over = Some(group.pairs[0].lease.epoch),
        |group| group.is_paused = true,
    ];
    for (index, change) in held.into_iter().enumerate() {
        assert_eq!(planned(change), [], "{index}");
    }
}
