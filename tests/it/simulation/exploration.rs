//! Tests of the explorer with the toy operator: the correct one is clean, each mistake is caught.

use serde_json::json;

use crate::simulation::{
    explore::{explore, sampled, singles, write_pairs, write_singles},
    fault::{Fault, Plan},
    kinds::BACKUP_POD_SETS,
    oracle::{ROLE_LABEL, standard},
    run::run,
    store::DeleteOptions,
    toy::{Form, Mistake, Toy, add_set, pod},
    world::{Actor, Key, World},
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
fn an_operator_that_gives_up_ends_elsewhere_and_a_crash_mends_it() {
    let report = explore(&toy(Mistake::GivesUp, Form::Passes), write_singles);
    println!("{report}");
    let different: Vec<String> = report.different_end.iter().map(ToString::to_string).collect();
    assert!(different.contains(&"w1:503".to_owned()), "{different:?}");
    assert!(!different.iter().any(|plan| plan.contains("crash")), "{different:?}");
    assert!(!report.is_clean());
}

#[test]
fn an_operator_that_writes_for_ever_never_rests_even_if_nothing_changes_by_it() {
    assert!(!run(&toy(Mistake::Restless, Form::Passes), &Plan::default()).has_converged);
}

/// What the standard oracle says of one change to a healthy primary by an actor.
fn judged(actor: Actor, change: fn(&mut World, Actor)) -> Vec<&'static str> {
    let mut world = World::default();
    let uid = add_set(&mut world, &json!({"replicas": 1}));
    world.create(Actor::User, &Key::pod("a"), pod("a", &uid, "active")).expect("a new Pod");
    world.edit(Actor::Kubelet, &Key::pod("a"), |pod| {
        pod["metadata"]["labels"][ROLE_LABEL] = json!("primary");
        pod["status"]["conditions"] = json!([{"type": "Ready", "status": "True"}]);
    });
    world.oracle = standard();
    change(&mut world, actor);
    world.violations.iter().map(|found| found.invariant).collect()
}

#[test]
fn the_last_primary_may_go_by_anyone_but_the_operator() {
    let demote = |world: &mut World, actor: Actor| {
        world.edit(actor, &Key::pod("a"), |pod| pod["metadata"]["labels"][ROLE_LABEL] = json!("hot"));
    };
    let delete = |world: &mut World, actor: Actor| {
        world.delete(actor, &Key::pod("a"), &DeleteOptions::default()).expect("deleted");
    };
    for change in [demote as fn(&mut World, Actor), delete] {
        assert_eq!(judged(Actor::Operator(1), change), ["LAST-PRIMARY"]);
        assert_eq!(judged(Actor::User, change), [""; 0]);
    }
}

#[test]
fn a_status_from_the_future_is_caught() {
    let lie = |world: &mut World, actor: Actor| {
        let set = Key::new(&BACKUP_POD_SETS, "default", "web");
        world.edit(actor, &set, |set| set["status"] = json!({"observedGeneration": 9}));
    };
    assert_eq!(judged(Actor::Operator(1), lie), ["STATUS-TRUE"]);
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
