//! When a pair is told in which nobody may act.

use super::super::withheld::RESTART_MAX;
use super::*;

/// Pods 1 and 2 are a pair; the first one acts, and these are level.
fn replicated(pods: &[u128], level: &[u128]) -> Group {
    let level_pods = level.iter().copied().map(AgentId).collect();
    let pair = Pair { level: Some(level.len()), level_pods, ..pair(0, [1, 2]) };
    group(pods.iter().copied(), [pair])
}

fn unready(mut group: Group, id: u128) -> Group {
    for pod in group.pods.iter_mut().filter(|pod| pod.id == AgentId(id)) {
        pod.is_ready = false;
    }
    group
}

#[test]
fn a_pair_is_forsaken_once_who_is_left_lacks_what_nobody_else_has() {
    let fenced = |mut group: Group| {
        group.pairs[0].fenced = vec![AgentId(2)];
        group
    };
    let unknown = |mut group: Group| {
        group.pairs[0].level_pods = BTreeSet::new();
        group
    };
    let leaving = |mut group: Group| {
        group.pods.iter_mut().for_each(|pod| pod.is_leaving = true);
        group
    };
    let table = [
        (replicated(&[1, 2], &[1]), false),
        (unready(replicated(&[1, 2], &[1]), 1), true),
        // Who lacks something is not ready as long as it may not act.
        (unready(replicated(&[1, 2], &[1]), 2), false),
        (replicated(&[2], &[1]), true),
        (replicated(&[2], &[1, 2]), false),
        // Nobody is left who could act without what is lost.
        (replicated(&[], &[1]), false),
        (leaving(unready(replicated(&[1, 2], &[1]), 1)), false),
        // Its directory was lost.
        (unready(replicated(&[1], &[0]), 1), true),
        (unready(replicated(&[1, 2], &[0, 2]), 1), false),
        // It is level, and only slow.
        (unready(replicated(&[2], &[1, 2]), 2), false),
        // It acts without having everything, as it was told to.
        (replicated(&[1], &[2]), false),
        (fenced(replicated(&[2], &[1])), false),
        (unknown(replicated(&[2], &[1])), false),
        (group([2], [pair(0, [1, 2])]), false),
    ];
    for (group, expected) in table {
        assert_eq!(group.roster().is_forsaken(&group.pairs[0]), expected, "{group:?}");
    }
}

fn forsaken(mut group: Group, was_told: bool) -> Group {
    group.pairs[0].forsaken = Some(Forsaken { since: now(), was_told });
    group
}

fn waits(group: &Group, after: Duration) -> (bool, Option<BootTime>) {
    let plan = plan_at(group, now() + after);
    (plan.pairs_held(PairReason::Withheld).contains(&0), plan.look_again)
}

#[test]
fn a_pod_that_is_gone_is_given_a_hold_and_a_restart_and_one_that_is_there_all_the_time_that_it_may_act() {
    let timing = Timing::default();
    let gone = timing.hold + RESTART_MAX;
    for (pods, wait) in [(&[2][..], gone), (&[1, 2], timing.operator_wait)] {
        let group = forsaken(unready(replicated(pods, &[1]), 1), false);
        assert_eq!(waits(&group, wait.mul_f64(0.999)), (false, Some(now() + wait)), "{pods:?}");
        assert_eq!(waits(&group, wait), (true, None), "{pods:?}");
    }
}

#[test]
fn what_was_told_is_told_on_and_also_while_the_group_is_paused() {
    let mut group = forsaken(replicated(&[2], &[1]), true);
    assert_eq!(waits(&group, Duration::ZERO), (true, None));
    group.is_paused = true;
    assert_eq!(
        holds(&plan_now(&group)),
        [held(PairReason::Paused, None), held(PairReason::Withheld, Some(0))]
    );
}

/// The Pod of this number, made anew under its name.
fn again(number: u128) -> Pod {
    Pod { id: AgentId(10 * number), ..pod(number) }
}

fn asked(group: &Group) -> Vec<PairAction> {
    let steps = actions(&plan_now(&labelled(group.clone()))).into_iter();
    steps.filter(|action| !matches!(action, PairAction::Label { .. })).collect()
}

fn ask(pair: u32, leaving: u128, joining: &Pod) -> PairAction {
    let Pod { id, name: pod, address, .. } = joining.clone();
    PairAction::Ask {
        pair,
        leaving: AgentId(leaving),
        joining: Seat { id, pod, address: address.expect("it runs") },
    }
}

#[test]
fn the_place_of_who_alone_has_every_write_is_kept_for_it() {
    let mut group = replicated(&[2, 3], &[1]);
    assert_eq!(asked(&group), [], "a spare could not act, and the place would be lost");
    group.pods.push(again(1));
    assert_eq!(asked(&group), [ask(0, 1, &again(1))]);
    // With a copy that is level a spare is as good.
    for level in [&[2][..], &[1, 2]] {
        assert_eq!(asked(&replicated(&[2, 3], level)), [ask(0, 1, &pod(3))]);
    }
    // Nobody comes back under the name of a Pod of a Deployment.
    let mut group = replicated(&[2, 3], &[1]);
    group.pairs[0].names.insert(AgentId(1), "web-x7k2p".to_owned());
    assert_eq!(asked(&group), [ask(0, 1, &pod(3))]);
}

#[test]
fn who_alone_has_every_write_of_a_pair_gets_no_place_in_another_one_and_no_new_pair() {
    let mut group = replicated(&[2, 3, 4], &[1]);
    group.pairs.push(pair(1, [3, 4]));
    // The first Pod to come back is the other pair's.
    group.pods.retain(|pod| pod.id != AgentId(4));
    group.pods.push(again(4));
    assert_eq!(asked(&group), [ask(1, 4, &again(4))]);
    group.pods.push(again(1));
    assert_eq!(asked(&group), [ask(0, 1, &again(1)), ask(1, 4, &again(4))]);
    // While the Lease of its own pair is written for another reason it waits.
    group.pairs[0].addresses.insert(AgentId(2), ([10, 0, 0, 99], 20_001).into());
    let moved = asked(&group);
    assert!(
        matches!(moved[..], [PairAction::Move { pair: 0, .. }, PairAction::Ask { pair: 1, .. }]),
        "{moved:?}"
    );
}

#[test]
fn one_place_is_kept_and_the_other_one_is_for_anybody_first_for_who_has_a_copy() {
    // Nobody of the pair is there.
    for (level, kept, other) in [(&[1][..], 1, 2), (&[1, 2], 1, 2), (&[2], 2, 1)] {
        let mut group = replicated(&[4], level);
        assert_eq!(asked(&group), [ask(0, other, &pod(4))], "it may act if it was told to do without");
        group.pods.push(again(other));
        assert_eq!(asked(&group), [ask(0, other, &again(other))], "and the spare makes no pair with it");
        group.pods.push(again(kept));
        assert_eq!(asked(&group), [ask(0, kept, &again(kept))]);
    }
}

#[test]
fn a_request_for_another_one_is_taken_back_where_a_place_is_kept() {
    let taken_back = |[leaving, joining]: [u128; 2]| {
        let mut group = replicated(&[3], &[1]);
        group.pairs[0].lease.pending =
            Some(Replacement { leaving: AgentId(leaving), joining: AgentId(joining) });
        group.pairs[0].names.insert(AgentId(3), "web-3".to_owned());
        asked(&group) == [PairAction::Withdraw { pair: 0 }]
    };
    assert!(taken_back([1, 3]));
    assert!(!taken_back([2, 3]), "that place is for anybody");
}
