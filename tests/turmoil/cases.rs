//! The tests: whatever happens, one acts at most, and afterwards exactly one; and the same seed is the same run.

use std::collections::HashSet;
use std::fmt::Write as _;
use std::time::Duration;

use crate::machine::Flaw;
use crate::record::{What, spans};
use crate::scene::{Outcome, run};
use crate::script::{Fault, KINDS, Planned, Script};

/// Seeds in every run of the tests; each takes about a second in a build for debugging.
const SEEDS: u64 = 24;
/// Seeds of the long search unless `TURMOIL_SEEDS` says how many.
const SEEDS_OF_SEARCH: u64 = 2_000;

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().map(|text| text.parse().expect("a number"))
}

fn played(seed: u64) -> Outcome {
    let outcome = run(seed, &Script::draw(seed), Flaw::default());
    outcome.unwrap_or_else(|error| panic!("TURMOIL_SEED={seed}: an agent ended with an error: {error}"))
}

/// Seed, script, what happened, what is wrong.
fn told(seed: u64, outcome: &Outcome) -> String {
    let Script { skews, habits, latency, faults: _ } = Script::draw(seed);
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
#[ignore = "a long search, see `make explore`"]
fn many_seeds_hold() {
    let seeds = number("TURMOIL_SEEDS").unwrap_or(SEEDS_OF_SEARCH);
    println!("{} tenures in {seeds} runs", hold(SEEDS..SEEDS + seeds));
}

#[test]
fn the_seeds_of_the_tests_draw_every_kind_of_fault() {
    let faults = (0..SEEDS).flat_map(|seed| Script::draw(seed).faults);
    let kinds: HashSet<_> = faults.map(|planned| std::mem::discriminant(&planned.fault)).collect();
    assert_eq!(kinds.len(), KINDS);
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
