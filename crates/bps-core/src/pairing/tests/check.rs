//! Each invariant is broken by a plan that no rule makes, and `check` names it.

use super::*;

/// What is wrong with these steps for a group.
fn wrongs(group: &Group, actions: impl IntoIterator<Item = PairAction>) -> Vec<PairViolation> {
    let steps = actions.into_iter().map(testing::step).collect();
    check(group, &Plan { steps, ..Plan::default() }, now())
}

fn whole() -> Group {
    group([1, 2, 3, 4], [pair(0, [1, 2])])
}

fn found(number: u32, seats: [u128; 2]) -> PairAction {
    PairAction::Found { number, term: 0, seats: seats.map(seat), level: None }
}

fn ask(leaving: u128, joining: u128) -> PairAction {
    PairAction::Ask { pair: 0, leaving: AgentId(leaving), joining: seat(joining) }
}

fn force(pair: &Pair, change: impl FnOnce(&mut Lease)) -> PairAction {
    let mut lease = Lease { holder: None, pending: None, ..pair.lease };
    change(&mut lease);
    PairAction::Force { pair: pair.number, lease }
}

#[test]
fn a_paused_group_is_not_changed() {
    let paused = Group { is_paused: true, ..whole() };
    let moved = PairAction::Move { pair: 0, seat: seat(2) };
    assert_eq!(wrongs(&paused, [moved]), [PairViolation::PausedGroupChanged]);
    let label = |shown| PairAction::Label { pod: AgentId(1), shown };
    let said = || paused.pods[0].shown.clone();
    assert_eq!(wrongs(&paused, [label(Shown { is_kept: true, ..said() })]), []);
    let other = label(Shown { peer: None, ..said() });
    assert_eq!(wrongs(&paused, [other]), [PairViolation::PausedGroupChanged]);
}

#[test]
fn a_lease_and_the_labels_of_a_pod_are_written_once() {
    let [fence, moved] = [PairAction::Fence { pair: 0 }, PairAction::Move { pair: 0, seat: seat(2) }];
    let label = PairAction::Label { pod: AgentId(3), shown: Shown::default() };
    let ending = Group { pairs_wanted: Some(0), ..whole() };
    assert_eq!(wrongs(&ending, [fence, moved]), [PairViolation::WrittenTwice(0)]);
    assert_eq!(wrongs(&ending, [label.clone(), label]), [PairViolation::LabelledTwice(AgentId(3))]);
}

#[test]
fn a_step_is_about_a_pair_that_is_there_and_a_new_one_has_a_number_of_its_own() {
    let ended = PairAction::End { pair: 7 };
    assert_eq!(wrongs(&whole(), [ended]), [PairViolation::NoSuchPair(7)]);
    assert_eq!(wrongs(&whole(), [found(0, [3, 4])]), [PairViolation::NumberTaken(0)]);
    let mut with_lost = whole();
    with_lost.unreadable = vec![Lost::new(1, vec!["web-9".into()], None, now())];
    assert_eq!(wrongs(&with_lost, [found(1, [3, 4])]), [PairViolation::NumberTaken(1)]);
    assert_eq!(wrongs(&with_lost, [found(2, [3, 4])]), []);
}

#[test]
fn only_a_lease_without_a_successor_is_made_again() {
    let mut group = group([1, 2], []);
    group.lost = vec![Lost::new(0, vec!["web-1".into(), "web-2".into()], None, now())];
    let restore = || [PairAction::Restore { pair: 0 }];
    assert_eq!(wrongs(&group, restore()), [PairViolation::NotToRestore(0)]);
    group.lost[0].may_return = true;
    assert_eq!(wrongs(&group, restore()), []);
    // Its Pods stay where they are.
    assert_eq!(
        wrongs(&group, [found(1, [1, 2])]),
        [PairViolation::NotFree(AgentId(1)), PairViolation::NotFree(AgentId(2))]
    );
}

#[test]
fn a_pod_joins_one_pair_and_only_if_it_stays() {
    let mut group = whole();
    group.pods[2].is_leaving = true;
    group.pods[1].is_leaving = true;
    assert_eq!(wrongs(&group, [ask(2, 3)]), [PairViolation::NotFree(AgentId(3))]);
    assert_eq!(wrongs(&group, [ask(2, 9)]), [PairViolation::NotFree(AgentId(9))]);
    assert_eq!(wrongs(&group, [ask(2, 4)]), []);
    let twice = [PairViolation::SeatedTwice(AgentId(4)); 2].to_vec();
    group.pods[2].is_leaving = false;
    assert_eq!(wrongs(&group, [ask(2, 4), found(1, [3, 4])]), twice);
    assert_eq!(wrongs(&whole(), [found(1, [1, 3])]), [PairViolation::SeatedTwice(AgentId(1))]);
    // A request that is withdrawn frees its Pod.
    group.pairs[0].lease.pending = Some(Replacement { leaving: AgentId(2), joining: AgentId(3) });
    let withdraw = PairAction::Withdraw { pair: 0 };
    assert_eq!(wrongs(&group, [found(1, [3, 4])]), [PairViolation::SeatedTwice(AgentId(3))]);
    assert_eq!(wrongs(&group, [withdraw, found(1, [3, 4])]), []);
}

#[test]
fn a_lease_is_changed_from_outside_only_when_no_member_acts() {
    let mut group = group([1, 3], [pair(0, [1, 2])]);
    let joins = |lease: &mut Lease| lease.members[1] = AgentId(3);
    let acting = force(&group.pairs[0], joins);
    assert_eq!(wrongs(&group, [acting]), [PairViolation::MayAct(0)]);
    let ended = PairAction::End { pair: 0 };
    let wanted = Group { pairs_wanted: Some(0), ..group.clone() };
    assert_eq!(wrongs(&wanted, [ended]), [PairViolation::MayAct(0)]);

    group.pairs[0].lease.holder = None;
    assert_eq!(wrongs(&group, [force(&group.pairs[0], joins)]), []);
    let lowered = force(&group.pairs[0], |lease| lease.epoch.term -= 1);
    assert_eq!(wrongs(&group, [lowered]), [PairViolation::EpochLowered(0)]);
    let held = force(&group.pairs[0], |lease| lease.holder = Some(AgentId(1)));
    assert_eq!(wrongs(&group, [held]), [PairViolation::EpochLowered(0)]);
    let gone = force(&group.pairs[0], |lease| lease.members[1] = AgentId(9));
    assert_eq!(wrongs(&group, [gone]), [PairViolation::NotFree(AgentId(9))]);
}

#[test]
fn a_new_pair_begins_above_every_epoch_and_says_what_its_lease_said() {
    let known = Group { highest_term: 1, ..whole() };
    assert_eq!(wrongs(&known, [found(1, [3, 4])]), [PairViolation::EpochLowered(1)]);
    let level = Some(LevelText { directories: "x".into(), pods: String::new() });
    let remembered = vec![Lost::new(1, vec!["web-3".into()], level, now())];
    let group = Group { remembered, ..whole() };
    assert_eq!(wrongs(&group, [found(1, [3, 4])]), [PairViolation::StateForgotten(1)]);
}

#[test]
fn only_the_place_of_a_standby_that_is_gone_is_vacated_unless_it_has_the_last_copy() {
    let vacate = |leaving: u128| PairAction::Vacate { pair: 0, leaving: AgentId(leaving) };
    let mut seen = whole();
    assert_eq!(wrongs(&seen, [vacate(2)]), [PairViolation::MemberReplaced(0)]);
    seen.pairs[0].silence = Some(Silence { standby: AgentId(2), since: now() });
    assert_eq!(wrongs(&seen, [vacate(2)]), [PairViolation::MemberReplaced(0)], "it may still take over");
    seen.pods.retain(|pod| pod.id != AgentId(2));
    assert_eq!(wrongs(&seen, [vacate(2)]), []);
    assert_eq!(wrongs(&Group { is_paused: true, ..seen.clone() }, [vacate(2)]), []);
    seen.pods.retain(|pod| pod.id != AgentId(1));
    assert_eq!(wrongs(&seen, [vacate(1)]), [PairViolation::MemberReplaced(0)], "it may still act");

    let mut with_state = group([1, 3], [pair(0, [1, 2])]);
    (with_state.pairs[0].level, with_state.pairs[0].level_pods) = (Some(1), [AgentId(2)].into());
    assert_eq!(wrongs(&with_state, [vacate(2)]), [PairViolation::LastCopyReplaced(0)]);
}

#[test]
fn a_member_that_answers_keeps_its_place_and_so_does_the_last_copy() {
    let mut group = whole();
    assert_eq!(wrongs(&group, [ask(2, 3)]), [PairViolation::MemberReplaced(0)]);
    group.pairs[0].silence = Some(Silence { standby: AgentId(2), since: now() });
    assert_eq!(wrongs(&group, [ask(2, 3)]), []);

    let mut with_state = labelled(group);
    with_state.pods.retain(|pod| pod.id != AgentId(2));
    (with_state.pairs[0].level, with_state.pairs[0].level_pods) = (Some(1), [AgentId(2)].into());
    assert_eq!(wrongs(&with_state, [ask(2, 3)]), [PairViolation::LastCopyReplaced(0)]);
    // It comes back itself.
    let again = Pod { id: AgentId(12), name: "web-2".into(), ..pod(4) };
    let joining = Seat { id: again.id, pod: again.name.clone(), address: again.address.expect("it runs") };
    with_state.pods.push(again);
    let comes_back = PairAction::Ask { pair: 0, leaving: AgentId(2), joining };
    assert_eq!(wrongs(&with_state, [comes_back]), []);
}

#[test]
fn an_active_hands_over_only_to_a_standby_that_can_follow() {
    let switch = || [PairAction::SwitchOver { pair: 0 }];
    assert_eq!(wrongs(&whole(), switch()), []);
    let cannot: [fn(&mut Group); 4] = [
        |group| group.pods[1].is_ready = false,
        |group| group.pods[1].is_leaving = true,
        |group| group.pairs[0].level = Some(1),
        |group| group.pairs[0].lease.holder = None,
    ];
    for (index, change) in cannot.into_iter().enumerate() {
        let mut group = whole();
        change(&mut group);
        assert_eq!(wrongs(&group, switch()), [PairViolation::NoSuccessor(0)], "{index}");
    }
}

#[test]
fn there_are_never_more_pairs_than_wanted_and_none_that_is_wanted_ends() {
    let fence = |pair| PairAction::Fence { pair };
    let two = || group([1, 2, 3, 4], [pair(0, [1, 2]), pair(1, [3, 4])]);
    assert_eq!(wrongs(&two(), [fence(1)]), [PairViolation::TooFewPairs(1)]);
    let wanted = Group { pairs_wanted: Some(1), ..two() };
    assert_eq!(wrongs(&wanted, [fence(1)]), []);
    assert_eq!(wrongs(&wanted, [fence(0), fence(1)]), [PairViolation::TooFewPairs(0)]);
    let full = Group { pairs_wanted: Some(1), ..whole() };
    assert_eq!(wrongs(&full, [found(1, [3, 4])]), [PairViolation::TooManyPairs(2)]);
    // The last copy of its state may be there.
    let mut with_state = group([1, 3], [pair(0, [1, 2]), pair(1, [3, 4])]);
    with_state.pairs[1].level = Some(1);
    assert_eq!(wrongs(&with_state, [fence(1)]), [PairViolation::StateEnded(1)]);
}

#[test]
fn only_a_pod_that_holds_a_lease_is_called_active() {
    let label = |pod: u128, state| {
        let shown = Shown { state: Some(state), ..Shown::default() };
        PairAction::Label { pod: AgentId(pod), shown }
    };
    let labels = [label(1, HaState::Active), label(2, HaState::Active), label(3, HaState::Standby)];
    assert_eq!(wrongs(&whole(), labels), [PairViolation::WrongActive(AgentId(2))]);
}

#[test]
fn every_violation_says_what_it_is_about() {
    let said = PairViolation::SeatedTwice(AgentId(1)).to_string();
    assert!(said.starts_with("pod 00000000-") && said.ends_with("would be in too many pairs"), "{said}");
    assert_eq!(PairViolation::MayAct(3).to_string(), "a member of pair 3 may act");
}
