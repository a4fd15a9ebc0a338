//! Every file in `tests/scenarios/pairs` is one situation of a group, with the whole plan that must come of it.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use bps_core::pairing::{
    Group, HaState, PairAction, PairHold, PairReason, PairStep, Plan, Seat, VACANT, check, plan, testing,
};
use bps_protocol::{AgentId, BootTime, Moment, Timing};

use super::pair_situation::{PairScenario, name, read};
use super::scenarios::scenario_files;

/// Where the files are.
const FOLDER: &str = "tests/scenarios/pairs";

/// A reason that no scenario can show: a plan that breaks an invariant is a bug.
const NEVER_PLANNED: [PairReason; 1] = [PairReason::CheckRefused];

#[test]
fn every_scenario_of_a_group_has_the_plan_that_its_file_says() {
    let files = scenario_files(FOLDER);
    let failures: Vec<String> = files.iter().filter_map(|file| failure(file)).collect();
    assert!(failures.is_empty(), "{} of {} failed\n\n{}", failures.len(), files.len(), failures.join("\n"));
}

/// Also finds a folder that lost its files.
#[test]
fn every_reason_is_shown_by_a_scenario() {
    let said: String = scenario_files(FOLDER).iter().map(|file| fs::read_to_string(file).unwrap()).collect();
    let is_shown = |reason: &&PairReason| {
        let has_step = said.contains(&format!(": {reason}\"\n"));
        has_step || said.lines().any(|line| line.trim_start().starts_with(&format!("- \"{reason}")))
    };
    let missing: BTreeSet<&PairReason> = PairReason::ALL
        .iter()
        .filter(|reason| !is_shown(reason) && !NEVER_PLANNED.contains(reason))
        .collect();
    assert!(missing.is_empty(), "no scenario shows {missing:?}");
}

#[test]
fn a_wrong_word_of_a_group_is_refused_with_the_line_it_stands_at() {
    let error = |lines: &str| read(&format!("title: t\nwhy: w\n{lines}\n")).unwrap().group().unwrap_err();
    let see = "see tests/scenarios/pairs/README.md";
    assert_eq!(error("pods: {a: redy}"), format!("pod a: `redy` is not understood; {see}"));
    assert_eq!(error("pairs: {0: 'a b, lat'}"), format!("pair 0: `lat` is not understood; {see}"));
    assert_eq!(error("pairs: {0: a}"), "pair 0: it begins with two members, such as `a b`");
    let unknown = read("title: t\nwhy: w\npears: {}\n").expect_err("a wrong field");
    assert!(unknown.contains("pears"), "{unknown}");
}

#[test]
fn a_wrong_expectation_of_a_group_is_shown_as_a_difference() {
    let scenario = read("title: t\nwhy: w\npods: {a: ready}\nsteps: ['found 0 b: PodAlone']\n").unwrap();
    assert_eq!(
        difference(&scenario, &scenario.group().unwrap()),
        "  - expected  step found 0 b: PodAlone\n  + planned   step found 0 a: PodAlone\n"
    );
}

fn failure(file: &Path) -> Option<String> {
    let text = fs::read_to_string(file).expect("readable");
    let name = file.file_name().expect("a file").display();
    let read = read(&text).and_then(|scenario| Ok((scenario.group()?, scenario)));
    let (group, scenario) = match read {
        Ok(read) => read,
        Err(error) => return Some(format!("{name}: {error}")),
    };
    let difference = difference(&scenario, &group);
    let (title, why) = (&scenario.title, scenario.why.trim());
    (!difference.is_empty()).then(|| format!("{name}: {title}\n  why: {why}\n{difference}"))
}

/// Lines that only one of the two plans has, and a line if their steps have another order.
fn difference(scenario: &PairScenario, group: &Group) -> String {
    let timing = Timing::default();
    let planned = plan(group, &Moment { now: testing::now(), timing: &timing });
    let expected = expected(scenario);
    let actual = lines(&planned);
    let missing = expected.iter().filter(|line| !actual.contains(line));
    let missing = missing.map(|line| format!("  - expected  {line}\n"));
    let added = actual.iter().filter(|line| !expected.contains(line));
    let added = added.map(|line| format!("  + planned   {line}\n"));
    let broken = check(group, &planned, testing::now()).into_iter();
    let broken = broken.map(|violation| format!("  ! breaks    {violation}\n"));
    let difference: String = missing.chain(added).chain(broken).collect();
    let is_reordered = difference.is_empty() && expected != actual;
    if is_reordered { format!("  ! order     {actual:?}\n") } else { difference }
}

fn expected(scenario: &PairScenario) -> Vec<String> {
    let steps = scenario.steps.iter().map(|line| format!("step {line}"));
    let holds = scenario.holds.iter().map(|line| format!("hold {line}"));
    let draining = scenario.draining.iter().map(|pair| format!("draining {pair}"));
    let again = scenario.look_again.iter().map(|time| format!("look again {time}"));
    steps.chain(holds).chain(draining).chain(again).collect()
}

fn lines(plan: &Plan) -> Vec<String> {
    let steps = plan.steps.iter().map(|step| format!("step {}", step_line(step)));
    let holds = plan.holds.iter().map(|hold| format!("hold {}", hold_line(hold)));
    let draining = plan.draining.iter().map(|pair| format!("draining {pair}"));
    let again = plan.look_again.map(|at| format!("look again {}", wait(at)));
    steps.chain(holds).chain(draining).chain(again).collect()
}

fn step_line(PairStep { action, reason }: &PairStep) -> String {
    let action = match action {
        PairAction::Found { number, term: _, seats, level } => {
            let names: Vec<&str> = seats.iter().filter(|seat| seat.id != VACANT).map(pod_name).collect();
            let level = level.as_ref().map(|level| format!(" level {}", level.directories));
            format!("found {number} {}{}", names.join(" "), level.unwrap_or_default())
        }
        PairAction::Restore { pair } => format!("restore {pair}"),
        PairAction::Ask { pair, leaving, joining } if *leaving == VACANT => {
            format!("ask {pair} to admit {}", pod_name(joining))
        }
        PairAction::Ask { pair, leaving, joining } => {
            format!("ask {pair} to admit {} for {}", pod_name(joining), name(*leaving))
        }
        PairAction::Vacate { pair, leaving } => format!("vacate {pair} of {}", name(*leaving)),
        PairAction::Withdraw { pair } => format!("withdraw {pair}"),
        PairAction::Move { pair, seat } => format!("move {} of {pair}", pod_name(seat)),
        PairAction::Force { pair, lease } => {
            let members: Vec<String> = lease.members.iter().copied().map(member_name).collect();
            format!("force {pair} to {}", members.join(" "))
        }
        PairAction::SwitchOver { pair } => format!("switch over {pair}"),
        PairAction::Fence { pair } => format!("fence {pair}"),
        PairAction::End { pair } => format!("end {pair}"),
        PairAction::Label { pod, shown } => {
            let state = shown.state.map_or("nothing", HaState::as_str);
            let peer = shown.peer.as_ref().map(|peer| format!(" beside {peer}")).unwrap_or_default();
            let kept = if shown.is_kept { ", kept" } else { "" };
            let actives: Vec<String> =
                shown.actives.iter().map(|(pair, active)| format!(" for {active} in {pair}")).collect();
            let actives = actives.concat();
            format!("label {} as {state}{peer}{actives}{kept}", name(*pod))
        }
    };
    format!("{action}: {reason}")
}

fn hold_line(PairHold { reason, pair, until }: &PairHold) -> String {
    let pair = pair.map(|pair| format!(" {pair}")).unwrap_or_default();
    let until = until.map(|until| format!(" until {}", wait(until))).unwrap_or_default();
    format!("{reason}{pair}{until}")
}

fn pod_name(seat: &Seat) -> &str {
    &seat.pod
}

fn member_name(id: AgentId) -> String {
    if id == VACANT { "-".to_owned() } else { name(id) }
}

fn wait(at: BootTime) -> String {
    format!("{}s", at.since(testing::now()).as_secs())
}
