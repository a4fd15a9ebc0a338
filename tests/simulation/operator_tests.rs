//! Tests of the real operator in the simulated cluster.

use crate::{
    explore::{Report, explore, sampled, singles},
    fault::Plan,
    monkey::Random,
    operator_cases::{CASES, Case},
    run::run,
};

/// What the environment asks for; see the head of `main.rs`.
#[expect(clippy::disallowed_methods, reason = "how much is tried is the tester's choice")]
fn asked(variable: &str) -> String {
    std::env::var(variable).unwrap_or_default()
}

fn explore_case(case: Case) -> Report {
    let depth = asked("SIM_DEPTH");
    explore(&case, |golden| {
        let mut plans = singles(golden);
        if depth.is_empty() {
            plans = thinned(plans, SAMPLE);
        }
        if depth == "pairs" {
            plans.extend(sampled(golden, (1, 2), PAIRS));
            plans.extend(sampled(golden, (2, 3), PAIRS / 2));
        }
        plans
    })
}

/// A seeded choice among plans.
fn thinned(mut plans: Vec<Plan>, count: usize) -> Vec<Plan> {
    let mut random = Random(7);
    let kept = (0..count.min(plans.len())).map(|_| {
        let chosen = random.below(plans.len());
        plans.swap_remove(chosen)
    });
    kept.collect()
}

/// Single faults that are tried in each scenario unless more is asked for.
const SAMPLE: usize = 6;

/// Pairs that are tried in each scenario when they are asked for.
const PAIRS: usize = 400;

#[test]
fn every_scenario_comes_to_rest_without_faults() {
    let only = asked("SIM_ONLY");
    let plan: Plan = asked("SIM_PLAN").parse().expect("a plan");
    let mut bad = Vec::new();
    for case in CASES.iter().filter(|case| only.is_empty() || case.name == only) {
        let outcome = run(case, &plan);
        println!(
            "{}: writes={} reads={} events={} background={} converged={} violations={:?}",
            case.name,
            outcome.writes,
            outcome.reads,
            outcome.events,
            outcome.background,
            outcome.has_converged,
            outcome.violations
        );
        if !only.is_empty() {
            println!("{}\n{}", outcome.journal.join("\n"), outcome.end);
        }
        if !outcome.has_converged || !outcome.violations.is_empty() {
            bad.push(case.name);
        }
    }
    assert_eq!(bad, Vec::<&str>::new());
}

#[test]
fn no_single_fault_leads_any_scenario_astray() {
    let only = asked("SIM_ONLY");
    let mut bad = Vec::new();
    for case in CASES.iter().filter(|case| only.is_empty() || case.name == only) {
        let report = explore_case(*case);
        println!("{report}");
        if !report.is_clean() {
            bad.push(report.to_string());
        }
    }
    assert!(bad.is_empty(), "{}", bad.concat());
}
