//! How the work of a look at a group grows with its pairs: at most as n log n, counted in what is asked of the roster.

use bps_protocol::Hold;

use super::super::plan::drafted;
use super::*;

/// Pairs of the smaller of two groups that are compared. Two Pods each, and one number of a Pod fits into eight bits.
const PAIRS: u32 = 32;
/// Most questions about a group twice as large, as a multiple: twice as many, and never four times.
const RATIO_MAX: usize = 3;

/// What is the matter with a group of so many pairs.
type Situation = (&'static str, fn(u32) -> Group);

#[test]
fn the_work_of_a_look_grows_with_the_pairs_and_not_with_their_square() {
    let situations: [Situation; 7] = [
        ("nothing", whole),
        ("no Pod has its labels", |count| changed(whole(count), |_| {}, |pod| pod.shown = Shown::default())),
        ("every active lives on writes", |count| changed(whole(count), unanswered, |_| {})),
        ("every standby is gone", |count| {
            let mut group = changed(whole(count), unanswered, |_| {});
            group.pods.retain(|pod| pod.id.0 % 2 == 1);
            group
        }),
        ("every standby goes away", |count| {
            changed(whole(count), unanswered, |pod| pod.is_leaving = pod.id.0.is_multiple_of(2))
        }),
        ("every Pod has another address", |count| {
            changed(whole(count), |_| {}, |pod| pod.address = Some(([10, 1, 0, 1], 20_001).into()))
        }),
        ("every pair is asked to admit a Pod that is gone", |count| {
            changed(
                whole(count),
                |pair| {
                    let [_, leaving] = pair.lease.members;
                    pair.lease.pending = Some(Replacement { leaving, joining: AgentId(250) });
                },
                |_| {},
            )
        }),
    ];
    for (name, situation) in situations {
        let (smaller, larger) = (questions(situation(PAIRS)), questions(situation(2 * PAIRS)));
        assert!(
            larger <= RATIO_MAX * smaller,
            "{name}: {smaller} questions about {PAIRS} pairs, {larger} about twice as many"
        );
    }
}

/// Questions that a look asks: what is known of each pair, and the plan, which breaks no invariant.
fn questions(mut group: Group) -> usize {
    let roster = group.roster();
    let uncovered: Vec<Option<Uncovered>> =
        group.pairs.iter().map(|pair| roster.uncovered(pair, None, now())).collect();
    let forsaken = group.pairs.iter().filter(|pair| roster.is_forsaken(pair)).count();
    let seen = roster.visits();
    assert_eq!(forsaken, 0, "no pair has replicated state");
    for (pair, uncovered) in group.pairs.iter_mut().zip(uncovered) {
        pair.uncovered = uncovered;
    }
    plan_now(&group);
    let timing = Timing::default();
    let moment = Moment { now: now(), timing: &timing };
    let planned = drafted(&group, &moment).roster.visits();
    assert!(planned >= group.pairs.len(), "{planned} questions: they are not counted");
    seen + planned
}

/// A group of so many pairs, each with two Pods, with their labels.
fn whole(count: u32) -> Group {
    let members = |number: u32| [2 * u128::from(number) + 1, 2 * u128::from(number) + 2];
    group(1..=2 * u128::from(count), (0..count).map(|number| pair(number, members(number))))
}

fn unanswered(pair: &mut Pair) {
    pair.lease.hold = Hold::Api;
}

fn changed(mut group: Group, of_pair: impl Fn(&mut Pair), of_pod: impl Fn(&mut Pod)) -> Group {
    group.pairs.iter_mut().for_each(of_pair);
    group.pods.iter_mut().for_each(of_pod);
    group
}
