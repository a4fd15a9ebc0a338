//! Tests of the real operator in the simulated cluster.

use crate::{
    explore::{explore, sampled, singles},
    fault::Plan,
    operator_cases::{CASES, Case, case},
    run::run,
};

/// What the environment asks for; see the head of `main.rs`.
#[expect(clippy::disallowed_methods, reason = "how much is tried is the tester's choice")]
fn asked(variable: &str) -> String {
    std::env::var(variable).unwrap_or_default()
}

fn explore_case(case: Case) {
    let depth = asked("SIM_DEPTH");
    let report = explore(&case, |golden| {
        let mut plans = singles(golden);
        if depth.is_empty() {
            let stride = (plans.len() / SAMPLE).max(1);
            plans = plans.into_iter().step_by(stride).collect();
        }
        if depth == "pairs" {
            plans.extend(sampled(golden, (1, 2), PAIRS));
            plans.extend(sampled(golden, (2, 3), PAIRS / 2));
        }
        plans
    });
    println!("{report}");
    assert!(report.is_clean(), "{report}");
}

/// Single faults that are tried in each scenario unless more is asked for.
const SAMPLE: usize = 20;

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
    for case in CASES.iter().filter(|case| only.is_empty() || case.name == only) {
        explore_case(*case);
    }
    let _ = case("create");
}
