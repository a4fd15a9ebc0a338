//! The tests: whatever happens, one acts at most, and afterwards exactly one; and the same seed is the same run.

use std::collections::HashSet;
use std::fmt::Write as _;
use std::time::Duration;

use bps_protocol::testing::fast_and_short;

use crate::turmoil::machine::Flaw;
use crate::turmoil::record::{What, spans};
use crate::turmoil::scene::{Outcome, run};
use crate::turmoil::script::{Fault, KINDS, Planned, Script};

/// Seeds in every run of the tests; each takes about a second in a build for debugging.
const SEEDS: u64 = 24;
/// Seeds of the long search unless `TURMOIL_SEEDS` says how many.
const SEEDS_OF_SEARCH: u64 = 2_000;

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().map(|text| text.parse().expect("a number"))
}

fn played(seed: u64) -> Outcome {
    played_with(seed, &Script::draw(seed))
}

fn played_with(seed: u64, script: &Script) -> Outcome {
    let outcome = run(seed, script, Flaw::default());
    outcome.unwrap_or_else(|error| panic!("TURMOIL_SEED={seed}: an agent ended with an error: {error}"))
}

/// Seed, script, what happened, what is wrong.
fn told(seed: u64, outcome: &Outcome) -> String {
    let Script { skews, habits, latency, .. } = Script::draw(seed);
    let mut text = format!("TURMOIL_SEED={seed}\n{skews:?}\n{habits:?}\nlatency {latency:?}\n");
    for entry in &outcome.entries {
        writeln!(text, "{entry}").expect("text takes all");
    }
    write!(text, "{:?} {:?}", outcome.objects, outcome.verdict).expect("text takes all");
    text
}

/// How many tenures there were.
fn hold(seeds: impl Iterator<Item = u64>) -> usize {
    let hold = |seed| {
        let outcome = played(seed);
        assert_eq!(outcome.verdict, Ok(()), "{}", told(seed, &outcome));
        spans(&outcome.entries).len()
    };
    seeds.map(hold).sum()
}

#[test]
fn whatever_happens_one_acts_at_most_and_afterwards_exactly_one() {
    match number("TURMOIL_SEED") {
        Some(seed) => {
            println!("{}", told(seed, &played(seed)));
            hold(seed..=seed);
        }
        None => {
            let tenures = hold(0..SEEDS);
            println!("{tenures} tenures in {SEEDS} runs");
            assert!(tenures as u64 >= 2 * SEEDS, "there were {tenures} tenures only");
        }
    }
}

#[test]
fn whatever_happens_holds_for_fast_pairs_as_well() {
    for seed in SEEDS..2 * SEEDS {
        let script = Script { timing: fast_and_short(), ..Script::draw(seed) };
        let outcome = played_with(seed, &script);
        assert_eq!(outcome.verdict, Ok(()), "{}", told(seed, &outcome));
    }
}

#[test]
#[ignore = "a long search, see `make explore`"]
fn many_seeds_hold() {
    let seeds = number("TURMOIL_SEEDS").unwrap_or(SEEDS_OF_SEARCH);
    println!("{} tenures in {seeds} runs", hold(SEEDS..SEEDS + seeds));
}

/// Faults of any two kinds, the second one so many milliseconds after the first; those whose number leaves this rest by two,
/// so that two threads share the work.
fn hold_two(moments: &[u64], rest: usize, is_in: impl Fn(usize, usize) -> bool) -> usize {
    let kinds = (0..KINDS).flat_map(|one| (0..KINDS).map(move |other| (one, other)));
    let chosen = kinds.filter(|(one, other)| is_in(*one, *other)).enumerate();
    let mut runs = 0;
    for (number, (one, other)) in chosen.filter(|(number, _)| number % 2 == rest) {
        for moment in moments {
            let (seed, moment) = (number as u64, Duration::from_millis(*moment));
            let faults = [Fault::of_each_kind(0)[one], Fault::of_each_kind(1)[other]];
            let outcome = run(seed, &Script::of_two(seed, faults, moment), Flaw::default());
            let told = || format!("{faults:?} {moment:?} apart, seed {seed}");
            let outcome = outcome.unwrap_or_else(|error| panic!("{}: an agent ended: {error}", told()));
            assert_eq!(outcome.verdict, Ok(()), "{}: {:#?}", told(), outcome.entries);
            assert!(!spans(&outcome.entries).is_empty(), "{}: nobody ever acted", told());
            runs += 1;
        }
    }
    runs
}

/// At the first Pod the one, at the second Pod the other; the long search has both orders.
fn in_one_order(one: usize, other: usize) -> bool {
    one <= other
}

#[test]
fn faults_of_any_two_kinds_at_once_hold() {
    assert_eq!(hold_two(&[0], 0, in_one_order), 60);
}

#[test]
fn faults_of_any_two_kinds_at_once_hold_in_the_other_half() {
    assert_eq!(hold_two(&[0], 1, in_one_order), 60);
}

#[test]
#[ignore = "a long search, see `make explore`"]
fn faults_of_any_two_kinds_hold_in_any_order() {
    let runs: usize = [0, 1].into_iter().map(|rest| hold_two(&[0, 100, 400], rest, |_, _| true)).sum();
    println!("{runs} runs of two faults");
}

#[test]
fn the_seeds_of_the_tests_draw_every_kind_of_fault() {
    let faults = (0..SEEDS).flat_map(|seed| Script::draw(seed).faults);
    let kinds: HashSet<_> = faults.map(|planned| std::mem::discriminant(&planned.fault)).collect();
    assert_eq!(kinds.len(), KINDS);
    let of_each: HashSet<_> = Fault::of_each_kind(0).iter().map(std::mem::discriminant).collect();
    assert_eq!(of_each.len(), KINDS);
}

#[test]
fn the_same_seed_is_the_same_run() {
    for seed in [3, 7] {
        let [one, two] = [seed; 2].map(played);
        assert_eq!(one.entries, two.entries);
        assert_eq!(one.objects, two.objects);
    }
}

#[test]
fn an_order_to_switch_over_passes_the_role_on_and_the_slice_shows_it() {
    let at = Duration::from_secs(1);
    let order = Planned { at, fault: Fault::SwitchOver, lasts: at };
    let script = Script { faults: vec![order], ..Script::quiet() };
    let outcome = run(1, &script, Flaw::default()).expect("no agent ends with an error");
    assert_eq!(outcome.verdict, Ok(()));
    let spans = spans(&outcome.entries);
    assert_eq!(spans.len(), 2, "{spans:?}");
    assert_ne!(spans[0].node, spans[1].node);
    assert_eq!(outcome.objects.1, format!("\"{}\"", spans[1].epoch));
    let acts = |what: &What| matches!(what, What::Acts(_));
    assert_eq!(outcome.entries.iter().filter(|entry| acts(&entry.what)).count(), 2);
}
