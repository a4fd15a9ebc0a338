//! Groups that say how many pairs they want: those of sets with active and standby Pods.

use super::*;
use crate::model::Role;

fn set_group(wanted: usize, pods: &[(u128, Role)], pairs: impl IntoIterator<Item = Pair>) -> Group {
    let pods = pods.iter().map(|(number, role)| Pod { role: Some(*role), ..pod(*number) });
    labelled(Group {
        pods: pods.collect(),
        pairs: pairs.into_iter().collect(),
        pairs_wanted: Some(wanted),
        highest_term: 7,
        ..Group::default()
    })
}

fn alone(number: u32, id: u128) -> PairAction {
    let vacant = Seat::vacant(String::new());
    PairAction::Found { number, term: 7, seats: [seat(id), vacant], level: None }
}

#[test]
fn a_primary_begins_alone_so_that_it_is_the_one_who_acts() {
    let pods = [(1, Role::Hot), (2, Role::Hot), (3, Role::Primary), (4, Role::Primary)];
    assert_eq!(actions(&plan_now(&set_group(2, &pods, []))), [alone(0, 3), alone(1, 4)]);
}

#[test]
fn hot_backups_take_the_open_seats_and_the_rest_are_spares() {
    let pods = [(1, Role::Primary), (2, Role::Primary), (3, Role::Hot), (4, Role::Hot), (5, Role::Hot)];
    let group = set_group(2, &pods, [pair(0, [1, 0]), pair(1, [2, 0])]);
    let ask = |pair, joining| PairAction::Ask { pair, leaving: VACANT, joining: seat(joining) };
    assert_eq!(actions(&plan_now(&group)), [ask(0, 4), ask(1, 3)]);
    let group = set_group(2, &pods, [pair(0, [1, 4]), pair(1, [2, 3])]);
    assert_eq!(plan_now(&group), Plan::default());
}

#[test]
fn a_hot_backup_waits_for_a_primary_but_not_for_ever() {
    let mut group = set_group(2, &[(1, Role::Primary), (2, Role::Hot), (3, Role::Hot)], [pair(0, [1, 2])]);
    let waiting = plan_now(&group);
    assert_eq!((actions(&waiting), holds(&waiting)), (vec![], vec![held(PairReason::PodAlone, None)]));
    group.alone_since = Some(now());
    let at = waiting.look_again.expect("it looks again");
    assert_eq!(actions(&plan_at(&group, at)), [alone(1, 3)]);
}

#[test]
fn pairs_that_are_not_wanted_end_at_once_the_highest_number_first() {
    let pods = [(1, Role::Primary), (2, Role::Primary), (3, Role::Hot), (4, Role::Hot)];
    let group = set_group(1, &pods, [pair(0, [1, 3]), pair(1, [2, 4])]);
    assert_eq!(actions(&plan_now(&group)), [PairAction::Fence { pair: 1 }]);
    let mut released = pair(0, [1, 3]);
    released.lease.holder = None;
    let group = set_group(1, &pods, [released, pair(1, [2, 4])]);
    assert_eq!(actions(&plan_now(&group)), [PairAction::Fence { pair: 0 }]);
}

#[test]
fn a_pair_that_is_not_wanted_ends_instead_of_anything_else_that_its_lease_would_say() {
    let asked = Replacement { leaving: AgentId(1), joining: AgentId(2) };
    let released = Pair {
        lease: Lease { holder: None, pending: Some(asked), ..pair(0, [1, 0]).lease },
        ..pair(0, [1, 0])
    };
    let group = set_group(0, &[(2, Role::Hot)], [released]);
    assert_eq!(actions(&plan_now(&group)), [PairAction::Fence { pair: 0 }]);
}

#[test]
fn the_oldest_active_gets_a_standby_first_where_there_are_too_few() {
    let pods = [(2, Role::Primary), (5, Role::Primary), (6, Role::Hot)];
    let group = set_group(2, &pods, [pair(0, [5, 0]), pair(1, [2, 0])]);
    assert_eq!(actions(&plan_now(&group)), [PairAction::Ask { pair: 1, leaving: VACANT, joining: seat(6) }]);
}

#[test]
fn pods_without_roles_are_paired_two_by_two_up_to_the_wanted_number() {
    let mut group = group([1, 2, 3, 4, 5], []);
    group.pairs_wanted = Some(1);
    let seats = [seat(1), seat(2)];
    assert_eq!(actions(&plan_now(&group)), [PairAction::Found { number: 0, term: 0, seats, level: None }]);
}
