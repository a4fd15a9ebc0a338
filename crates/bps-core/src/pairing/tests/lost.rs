//! Pairs whose Lease somebody deleted, once nobody can act by it any more.

use super::*;

fn said(directories: &str) -> LevelText {
    LevelText { directories: directories.into(), pods: "pods".into() }
}

/// Pairs whose wait is over, with their Pods and what their Leases said.
fn remembered(pods: &[u128], lost: &[(u32, [u128; 2], &str)]) -> Group {
    let lost = lost.iter().map(|(number, pods, level)| {
        Lost::new(*number, pods.map(|pod| format!("web-{pod}")).into(), Some(said(level)), now())
    });
    Group { remembered: lost.collect(), ..group(pods.iter().copied(), []) }
}

fn found(number: u32, seats: [Seat; 2], level: Option<LevelText>) -> PairAction {
    PairAction::Found { number, term: 0, seats, level }
}

fn vacant() -> Seat {
    Seat::vacant(String::new())
}

#[test]
fn a_pair_is_made_anew_of_its_own_pods_and_says_what_it_said() {
    let group = remembered(&[1, 2, 3, 4], &[(0, [1, 4], "a"), (2, [2, 3], "b")]);
    let expected =
        [found(0, [seat(1), seat(4)], Some(said("a"))), found(2, [seat(2), seat(3)], Some(said("b")))];
    assert_eq!(actions(&plan_now(&group)), expected);
}

#[test]
fn whoever_is_left_waits_for_the_other_one_and_spares_make_another_pair() {
    let group = remembered(&[2, 3, 4], &[(0, [1, 2], "a")]);
    let expected = [found(0, [seat(2), vacant()], Some(said("a"))), found(1, [seat(3), seat(4)], None)];
    assert_eq!(actions(&plan_now(&group)), expected);
}

#[test]
fn a_pair_whose_pods_never_come_back_still_says_what_it_said() {
    let mut group = remembered(&[3, 4], &[(0, [1, 2], "a")]);
    // They are for Pods of these names, which come back.
    assert_eq!(actions(&plan_now(&group)), [found(1, [seat(3), seat(4)], None)]);
    group.remembered[0].pods = vec!["web-5d9c-x2x4z".into(), "web-5d9c-7xkzr".into()];
    assert_eq!(actions(&plan_now(&group)), [found(0, [seat(3), seat(4)], Some(said("a")))]);
}

#[test]
fn no_more_pairs_are_made_anew_than_are_wanted() {
    let mut group = remembered(&[1, 2, 3, 4], &[(0, [1, 2], "a"), (1, [3, 4], "b")]);
    group.pairs_wanted = Some(1);
    assert_eq!(actions(&plan_now(&group)), [found(0, [seat(1), seat(2)], Some(said("a")))]);
}
