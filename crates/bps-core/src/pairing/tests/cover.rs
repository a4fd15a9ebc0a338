//! Which actives no rollout may delete.

use super::super::cover::{Successor, Uncovered};
use super::*;
use crate::model::Role;

const SECOND: Duration = Duration::from_secs(1);

/// A pair of Pods 1 and 2, of which the first one acts, after a change, as it has been for so long.
fn changed(change: impl Fn(&mut Group), time: Duration) -> Group {
    let mut group = group([1, 2], [pair(0, [1, 2])]);
    change(&mut group);
    let before = group.roster().uncovered(&group.pairs[0], None, now().before(time));
    group.pairs[0].uncovered = group.roster().uncovered(&group.pairs[0], before, now());
    labelled(group)
}

/// Whether its active is kept now, and when that changes if nothing else does.
fn kept(group: &Group) -> (bool, Option<Duration>) {
    let plan = plan_now(group);
    let kept = Shown { is_kept: true, ..group.pods[0].shown.clone() };
    let is_kept = actions(&plan).contains(&PairAction::Label { pod: AgentId(1), shown: kept });
    (is_kept, plan.look_again.map(|at| at.since(now())))
}

fn hears_nothing(group: &mut Group) {
    group.pairs[0].lease.hold = Hold::Api;
}

#[test]
fn an_active_is_kept_while_its_standby_could_not_follow() {
    let [soon, later] = [Duration::ZERO, 2 * SECOND];
    assert_eq!(kept(&changed(|_| {}, later)), (false, None));
    // After most takeovers nothing is written.
    assert_eq!(kept(&changed(hears_nothing, soon)), (false, Some(SECOND)));
    let until_given_up = Some(598 * SECOND);
    let uncovered: [fn(&mut Group); 4] = [
        hears_nothing,
        |group| group.pairs[0].level = Some(1),
        |group| group.pods[1].is_leaving = true,
        |group| {
            group.pods.push(pod(3));
            group.pairs[0].lease.pending = Some(Replacement { leaving: AgentId(2), joining: AgentId(3) });
        },
    ];
    for (index, change) in uncovered.into_iter().enumerate() {
        let (is_kept, until) = kept(&changed(change, later));
        // State is waited for, and an admission is looked after sooner.
        assert!(is_kept && until.is_none_or(|until| until_given_up >= Some(until)), "{index}: {until:?}");
    }
    // The kubelet tells of its readiness later.
    assert_eq!(kept(&changed(|group| group.pods[1].is_ready = false, later)), (false, None));
    // Its agent is woken late and lives on writes, though it is answered.
    let is_late = |group: &mut Group| {
        group.pairs[0].lease.hold = Hold::Api;
        group.pairs[0].is_late = true;
    };
    assert_eq!(kept(&changed(is_late, later)), (false, None));
}

#[test]
fn an_active_is_kept_for_ten_minutes_and_the_only_one_with_the_state_until_another_one_has_it() {
    let has_state = |group: &mut Group| group.pairs[0].level = Some(1);
    let leaves = |group: &mut Group| {
        has_state(group);
        group.pods[1].is_leaving = true;
    };
    assert_eq!(kept(&changed(hears_nothing, 600 * SECOND)), (false, None));
    assert_eq!(kept(&changed(has_state, 6_000 * SECOND)), (true, None));
    assert_eq!(kept(&changed(leaves, 2 * SECOND)), (true, Some(598 * SECOND)));
    assert_eq!(kept(&changed(leaves, 600 * SECOND)), (false, None));
    let both_have_it = |group: &mut Group| group.pairs[0].level = Some(2);
    assert_eq!(kept(&changed(both_have_it, 2 * SECOND)), (false, None));
}

#[test]
fn a_workload_that_becomes_smaller_waits_for_seconds_only() {
    let is_alone = |group: &mut Group| {
        group.pairs[0].level = Some(1);
        group.pods.truncate(1);
    };
    assert_eq!(kept(&changed(is_alone, SECOND)), (true, Some(SECOND)));
    assert_eq!(kept(&changed(is_alone, 2 * SECOND)), (false, None));
    // One that has a place in another pair follows nobody else.
    let beside_others = |group: &mut Group| {
        group.pods.truncate(1);
        group.pods.extend([pod(3), pod(4)]);
        group.pairs.push(pair(1, [3, 4]));
    };
    assert!(!kept(&changed(beside_others, 2 * SECOND)).0);
}

#[test]
fn whoever_is_worth_no_wait_is_not_kept() {
    let in_vain: [fn(&mut Group); 5] = [
        |group| group.pairs[0].is_ending = true,
        |group| group.crash_looping = [0].into(),
        // The operator deletes the Pods of a set itself, and looks at their standbys.
        |group| group.pods[0].role = Some(Role::Primary),
        |group| group.pods[0].is_leaving = true,
        |group| group.pairs[0].lease.holder = None,
    ];
    for (index, change) in in_vain.into_iter().enumerate() {
        let change = |group: &mut Group| {
            hears_nothing(group);
            change(group);
        };
        assert!(!kept(&changed(change, 2 * SECOND)).0, "{index}");
    }
}

/// The application of the active starts again, or the active goes away: whoever has the state is the only one that can act.
#[test]
fn the_only_one_with_the_state_is_kept_while_no_pod_acts_that_stays() {
    let nobody_acts = |group: &mut Group| {
        group.pairs[0].level = Some(1);
        group.pairs[0].level_pods = [AgentId(1)].into();
        group.pairs[0].lease.holder = None;
    };
    let is_kept = |group: Group| {
        let kept = Shown { is_kept: true, ..group.pods[0].shown.clone() };
        actions(&plan_now(&group)).contains(&PairAction::Label { pod: AgentId(1), shown: kept })
    };
    assert!(is_kept(changed(nobody_acts, 6_000 * SECOND)));
    let one_of_two = |group: &mut Group| {
        nobody_acts(group);
        group.pairs[0].level_pods = [AgentId(1), AgentId(2)].into();
    };
    assert!(!is_kept(changed(one_of_two, 2 * SECOND)));
    // The active hands over to it, and takes its own copy along.
    let other_one_leaves = |group: &mut Group| {
        one_of_two(group);
        group.pairs[0].level = Some(2);
        group.pairs[0].lease.holder = Some(AgentId(2));
        group.pods[1].is_leaving = true;
    };
    assert!(is_kept(changed(other_one_leaves, 2 * SECOND)));
}

#[test]
fn a_pod_that_takes_the_state_along_is_kept_although_its_application_ends_soon_after_each_start() {
    let loops = |group: &mut Group| {
        group.pairs[0].level = Some(1);
        group.crash_looping = [0].into();
    };
    assert!(!kept(&changed(loops, 2 * SECOND)).0);
    let loops_in_a_deployment = |group: &mut Group| {
        loops(group);
        group.pods[0].name = "web-7c9d-x2x4q".into();
    };
    assert_eq!(kept(&changed(loops_in_a_deployment, 6_000 * SECOND)), (true, None));
    let has_another_copy = |group: &mut Group| {
        loops_in_a_deployment(group);
        group.pairs[0].level_pods = [AgentId(1), AgentId(2)].into();
    };
    assert!(!kept(&changed(has_another_copy, 2 * SECOND)).0, "the rollout may put it right");
}

#[test]
fn a_workload_that_says_how_many_pairs_there_are_is_protected_as_well() {
    let says_how_many = |group: &mut Group| {
        group.pairs_wanted = Some(1);
        hears_nothing(group);
    };
    assert!(kept(&changed(says_how_many, 2 * SECOND)).0);
}

/// Pod 3 stood by for 1 and 2, took 1 over, and 2 is lost: it alone has the state of the second pair.
#[test]
fn whoever_has_the_only_copy_of_another_pair_is_kept_while_it_acts() {
    let mut group = group([3, 4], [pair(0, [3, 4]), pair(1, [2, 3])]);
    group.further_places = 1;
    group.pairs[1].lease.holder = None;
    (group.pairs[1].level, group.pairs[1].level_pods) = (Some(1), [AgentId(3)].into());
    let kept = |group: &Group| {
        let is_kept = |action: &PairAction| matches!(action, PairAction::Label { pod: AgentId(3), shown } if shown.is_kept);
        actions(&plan_now(group)).iter().any(is_kept)
    };
    assert!(kept(&group));
    group.pods[0].role = Some(Role::Primary);
    assert!(!kept(&group), "the operator deletes the Pods of a set itself");
}

#[test]
fn the_time_of_one_that_is_kept_says_nothing_of_the_next_one() {
    let mut group = group([1, 2], [pair(0, [1, 2])]);
    (group.pairs[0].level, group.pairs[0].level_pods) = (Some(2), [AgentId(1), AgentId(2)].into());
    hears_nothing(&mut group);
    let before = group.roster().uncovered(&group.pairs[0], None, now());
    group.pods[0].is_leaving = true;
    let later = now() + 700 * SECOND;
    let after = group.roster().uncovered(&group.pairs[0], before, later).expect("nobody could follow it");
    assert_eq!((after.held, after.since), (AgentId(2), later));
}

#[test]
fn an_operator_that_knows_nothing_keeps_whom_the_one_before_it_kept_and_lets_go_of_others() {
    let mut group = changed(hears_nothing, Duration::ZERO);
    group.pods[0].shown.is_kept = true;
    assert_eq!(actions(&plan_now(&group)), []);
    let mut covered = changed(|_| {}, Duration::ZERO);
    covered.pods[0].shown.is_kept = true;
    let shown = Shown { is_kept: false, ..covered.pods[0].shown.clone() };
    assert_eq!(actions(&plan_now(&covered)), [PairAction::Label { pod: AgentId(1), shown }]);
}

#[test]
fn what_was_known_before_lasts_as_long_as_nobody_could_follow() {
    let mut group = group([1, 2], [pair(0, [1, 2])]);
    let [first, second] = [now(), now() + SECOND];
    let see = |group: &Group, before, at| group.roster().uncovered(&group.pairs[0], before, at);
    let uncovered = |since, successor| Some(Uncovered { held: AgentId(1), since, successor });
    hears_nothing(&mut group);
    let before = see(&group, None, first);
    assert_eq!(before, uncovered(first, Successor::There));
    group.pods[1].is_leaving = true;
    assert_eq!(see(&group, before, second), uncovered(first, Successor::Expected));
    group.pods.truncate(1);
    let alone = see(&group, before, second);
    assert_eq!(alone, uncovered(first, Successor::Nobody { since: second }));
    assert_eq!(see(&group, alone, second + SECOND), alone);
}
