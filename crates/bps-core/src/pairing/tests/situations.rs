//! Situations that no scenario file can tell: see `tests/scenarios/pairs` for the others.

use bps_protocol::Replacement;

use super::*;
use crate::model::NodeName;

fn steps(group: &Group) -> Vec<PairAction> {
    actions(&plan_now(group))
}

#[test]
fn a_pod_that_is_in_two_pairs_stays_where_it_is_needed() {
    let replaced = |pair: u32| PairAction::Ask { pair, leaving: AgentId(5), joining: seat(6) };
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
fn whoever_acted_alone_is_waited_for_as_long_as_it_may_act_alone() {
    let timing = Timing { lone_wait: Duration::from_secs(7), ..Timing::default() };
    let pair = pair(0, [1, VACANT.0]);
    let pending = Some(Replacement { leaving: AgentId(1), joining: AgentId(3) });
    let lease = Lease { pending, hold: Hold::Api, ..pair.lease };
    let plan = plan_now(&group([3], [Pair { lease, timing, ..pair }]));
    assert_eq!(plan.look_again, Some(now() + timing.lone_wait));
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
fn whoever_is_on_the_lost_node_comes_last_and_whoever_was_silent_itself_not_at_all() {
    let mut group = silent(SILENCE_MAX);
    // Pods 2 and 4 are on one node, 1 and 3 on the other one, where the active is.
    let taken = |group: &Group| {
        let plan = plan_now(group);
        assert_eq!(holds(&plan), [held(PairReason::StandbySilent, Some(0))]);
        actions(&plan).iter().find_map(|step| {
            if let PairAction::Ask { joining, .. } = step { Some(joining.id.0) } else { None }
        })
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
    assert_eq!(actions(&plan_now(&group)), [], "the active has not admitted the other one yet");
    group.pairs[0].lease.hold = Hold::Peer;
    assert_eq!(actions(&plan_now(&group)), [PairAction::Withdraw { pair: 0 }]);
}

#[test]
fn a_standby_that_may_have_all_of_the_state_is_not_replaced_and_any_other_one_later() {
    let with_state = |time, level_pods: &[u128]| {
        let mut group = silent(time);
        group.pairs[0].level = Some(level_pods.len());
        group.pairs[0].level_pods = level_pods.iter().copied().map(AgentId).collect();
        plan_now(&group)
    };
    let ask = PairAction::Ask { pair: 0, leaving: AgentId(2), joining: seat(3) };
    let soon = with_state(SILENCE_MAX, &[1]);
    assert_eq!((actions(&soon), holds(&soon)), (vec![], vec![held(PairReason::StandbySilent, Some(0))]));
    assert_eq!(soon.look_again, Some(now().before(SILENCE_MAX) + SILENCE_WITH_STATE_MAX));
    assert_eq!(actions(&with_state(SILENCE_WITH_STATE_MAX, &[1])), [ask]);
    assert_eq!(actions(&with_state(SILENCE_WITH_STATE_MAX, &[1, 2])), []);
}

#[test]
fn an_active_whose_node_is_to_be_taken_away_hands_over_to_who_can_follow_elsewhere() {
    // Pods 1 and 2 are on different nodes, and the first one acts.
    let planned = |change: fn(&mut Group)| {
        let mut group = labelled(group([1, 2], [pair(0, [1, 2])]));
        group.leaving_nodes = [NodeName("node-1".to_owned())].into();
        change(&mut group);
        actions(&plan_now(&group))
    };
    assert_eq!(planned(|_| {}), [PairAction::SwitchOver { pair: 0 }]);
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
