//! Tests of the explorer with the toy operator: the correct one is clean, each mistake is caught.

use crate::{
    explore::{explore, sampled, singles, write_pairs, write_singles},
    fault::{Fault, Plan},
    run::run,
    toy::{Form, Mistake, Toy},
};

const fn toy(mistake: Mistake, form: Form) -> Toy {
    Toy { mistake, form, is_interleaved: false }
}

fn names_of_violations(toy: Toy) -> Vec<&'static str> {
    let report = explore(&toy, write_singles);
    println!("{report}");
    let mut names: Vec<_> = report.violations.iter().map(|(_, found)| found.invariant).collect();
    names.extend(report.golden.violations.iter().map(|found| found.invariant));
    names.sort_unstable();
    names.dedup();
    names
}

#[test]
fn a_correct_operator_survives_every_single_fault_at_every_request() {
    let report = explore(&toy(Mistake::None, Form::Passes), singles);
    println!("{report}");
    assert!(report.is_clean(), "{report}");
    assert_eq!((report.fired, report.unfired), (report.schedules, 0));
}

#[test]
fn a_correct_operator_survives_faults_while_others_move_between_its_requests() {
    let report = explore(&Toy { is_interleaved: true, ..toy(Mistake::None, Form::Passes) }, singles);
    println!("{report}");
    assert!(report.is_clean(), "{report}");
}

#[test]
fn a_correct_watching_operator_survives_every_single_fault_at_every_request_and_event() {
    let report = explore(&toy(Mistake::None, Form::Task), singles);
    println!("{report}");
    assert!(report.golden.events > 0, "{report}");
    assert!(report.is_clean(), "{report}");
    assert_eq!((report.fired, report.unfired), (report.schedules, 0));
}

#[test]
fn a_correct_operator_survives_pairs_of_crashes_lost_answers_and_conflicts() {
    let faults = [Fault::CrashBefore, Fault::CrashAfter, Fault::LostAfter, Fault::Conflict];
    let report = explore(&toy(Mistake::None, Form::Passes), |golden| write_pairs(golden, &faults));
    println!("{report}");
    assert!(report.is_clean(), "{report}");
}

#[test]
fn a_correct_operator_survives_sampled_triples() {
    let report = explore(&toy(Mistake::None, Form::Passes), |golden| sampled(golden, (1, 3), 200));
    println!("{report}");
    assert!(report.is_clean(), "{report}");
}

#[test]
fn promotion_before_demotion_is_caught_without_any_fault() {
    let outcome = run(&toy(Mistake::PromotesFirst, Form::Passes), &Plan::default());
    assert_eq!(outcome.violations.iter().map(|found| found.invariant).collect::<Vec<_>>(), ["ONE-LABEL"]);
}

#[test]
fn a_swallowed_conflict_is_caught_by_a_409_only() {
    let scenario = toy(Mistake::SwallowsConflict, Form::Passes);
    assert_eq!(run(&scenario, &Plan::default()).violations, []);
    let report = explore(&scenario, write_singles);
    println!("{report}");
    let plans: Vec<String> = report.violations.iter().map(|(plan, _)| plan.to_string()).collect();
    assert_eq!(plans, ["w3:409"]);
    // The printed schedule replays what was found.
    let replayed = run(&scenario, &plans[0].parse().expect("a printed plan parses"));
    assert_eq!(replayed.violations, [report.violations[0].1.clone()]);
}

#[test]
fn unguarded_writes_are_caught() {
    assert!(names_of_violations(toy(Mistake::Unguarded, Form::Passes)).contains(&"GUARDED"));
}

#[test]
fn a_foreign_pod_that_is_deleted_is_caught() {
    assert!(names_of_violations(toy(Mistake::DeletesForeign, Form::Passes)).contains(&"NO-FOREIGN"));
}

#[test]
fn the_same_plan_gives_the_same_run_to_the_last_request() {
    for form in [Form::Passes, Form::Task] {
        let plan: Plan = "w2:lost-after,r2:503,w5:crash-after".parse().expect("a plan");
        let scenario = toy(Mistake::None, form);
        assert_eq!(run(&scenario, &plan), run(&scenario, &plan));
    }
}
