//! What holds for any set: its plan follows the table of transitions, its status settles and stays within bounds.

use std::collections::BTreeSet;

use bps_api::status::{BackupPodSetStatus, CONVERSIONS_MAX, ConditionStatus, NAMES_MAX};
use bps_core::model::{
    Action, Outcome, PodView, Reason, Refusal, Role, Snapshot, Step, StepResult, TRANSITIONS, transition,
};
use bps_core::plan::plan;
use bps_core::status::{self, StatusInput};
use jiff::SignedDuration;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, TestRunner};

use crate::random::ago;

/// From, to and why.
type Row = (Option<Role>, Option<Role>, Reason);

/// Snapshots that the search for unused rows of the table looks at; half of them are enough.
const SEARCHED_SNAPSHOTS: usize = 40_000;

fn outcome() -> impl Strategy<Value = Outcome> {
    prop_oneof![
        4 => Just(Outcome::Done),
        1 => Just(Outcome::Stale),
        3 => prop::sample::select(Refusal::ALL.to_vec()).prop_map(Outcome::Failed),
    ]
}

fn compute(snapshot: &Snapshot, previous: &BackupPodSetStatus, results: &[StepResult]) -> BackupPodSetStatus {
    compute_withheld(snapshot, previous, (results, None))
}

fn compute_withheld(
    snapshot: &Snapshot,
    previous: &BackupPodSetStatus,
    (results, withheld): (&[StepResult], Option<&str>),
) -> BackupPodSetStatus {
    status::compute(&StatusInput {
        previous,
        snapshot,
        plan: &plan(snapshot),
        results,
        generation: 2,
        images: &["app:1".to_owned()],
        foreign_pods: &[],
        invalid: None,
        withheld,
    })
}

fn results(snapshot: &Snapshot, outcomes: &[Outcome]) -> Vec<StepResult> {
    let result = |(step, outcome)| StepResult {
        step,
        outcome,
        message: None,
        started: ago(1),
        elapsed: SignedDuration::from_millis(5),
    };
    plan(snapshot).steps.into_iter().zip(outcomes.iter().copied()).map(result).collect()
}

proptest! {
    #[test]
    fn every_step_that_changes_a_role_is_a_row_of_the_table(snapshot in crate::random::snapshot()) {
        for step in plan(&snapshot).steps {
            let Some((from, to)) = transition(&step.action) else { continue };
            let row = TRANSITIONS.iter().find(|row| (row.from, row.to) == (from, to));
            let is_listed = row.is_some_and(|row| row.reasons.contains(&step.reason));
            prop_assert!(is_listed, "{:?} -> {:?} because of {} is not in the table", from, to, step.reason);
        }
    }

    #[test]
    fn a_woken_pod_is_given_up_only_if_it_comes_no_further_and_something_better_is_there(
        snapshot in crate::random::snapshot(),
    ) {
        for step in plan(&snapshot).steps.iter().filter(|step| step.reason == Reason::WakeTimedOut) {
            let Action::Delete { pod, .. } = &step.action else { continue };
            let view = snapshot.pods.iter().find(|view| view.pod == *pod).expect("it is there");
            let moved = view.signs.progressed.unwrap_or(view.role_since).max(view.role_since);
            let is_shut_out = view.is_at_gate() || view.gate_trouble.is_some();
            prop_assert!(is_shut_out || !(view.signs.is_at_work || view.is_running));
            prop_assert!(snapshot.now.duration_since(moved) >= snapshot.desired.wakeup_timeout);
            let can_be_woken = |other: &PodView| {
                other.role == Role::Cold && other.is_at_gate() && other.has_known_key && other.pod != *pod
            };
            // One that did not pass its gate is behind a new Pod, which has none.
            let hangs = snapshot.now.duration_since(moved) >= snapshot.desired.unready_deadline;
            prop_assert!(is_shut_out || hangs || snapshot.pods.iter().any(can_be_woken));
        }
    }

    #[test]
    fn a_status_computed_again_is_the_same(
        before in crate::random::snapshot(),
        snapshot in crate::random::snapshot(),
        outcomes in prop::collection::vec(outcome(), 12),
    ) {
        let previous = compute(&before, &BackupPodSetStatus::default(), &results(&before, &outcomes));
        let results = results(&snapshot, &outcomes);
        let first = compute(&snapshot, &previous, &results);
        prop_assert_eq!(&compute(&snapshot, &first, &[]), &first);
        let read_back = serde_json::to_value(&first).and_then(serde_json::from_value::<BackupPodSetStatus>);
        prop_assert_eq!(read_back.expect("a status can be read back"), first);
    }

    #[test]
    fn a_condition_says_only_words_of_its_table(
        snapshot in crate::random::snapshot(),
        outcomes in prop::collection::vec(outcome(), 12),
        withheld in prop::option::weighted(0.2, Just("nobody may act in web-0")),
    ) {
        let results = results(&snapshot, &outcomes);
        let status = compute_withheld(&snapshot, &BackupPodSetStatus::default(), (&results, withheld));
        prop_assert_eq!(status.conditions.len(), status::CONDITIONS.len());
        for (condition, words) in status.conditions.iter().zip(status::CONDITIONS) {
            let listed = if condition.status == ConditionStatus::True { words.when_true } else { words.when_false };
            prop_assert_eq!(&condition.r#type, words.r#type.word);
            prop_assert!(listed.iter().any(|word| word.word == condition.reason), "{:?}", condition);
            prop_assert!(!condition.message.is_empty());
        }
        let is_phrase = |word: &str| {
            let (start, is_open) = word.strip_suffix("<reason>").map_or((word, false), |start| (start, true));
            if is_open { status.state.starts_with(start) } else { status.state == start }
        };
        prop_assert!(status::STATES.iter().any(|state| is_phrase(state.word)), "{}", status.state);
    }

    #[test]
    fn a_status_stays_within_its_bounds(
        snapshots in prop::collection::vec((crate::random::snapshot(), prop::collection::vec(outcome(), 12)), 1..6),
    ) {
        let mut status = BackupPodSetStatus::default();
        for (snapshot, outcomes) in snapshots {
            status = compute(&snapshot, &status, &results(&snapshot, &outcomes));
            prop_assert!(status.conversions.len() <= CONVERSIONS_MAX);
            prop_assert!(status.pods.primaries.len() <= NAMES_MAX);
            prop_assert!(status.conditions.iter().all(|condition| condition.message.chars().count() <= 4_096));
        }
    }
}

#[test]
fn every_row_of_the_table_happens_for_each_of_its_reasons() {
    let mut runner = TestRunner::new_with_rng(
        Config::default(),
        proptest::test_runner::TestRng::deterministic_rng(proptest::test_runner::RngAlgorithm::ChaCha),
    );
    let mut used: BTreeSet<Row> = BTreeSet::new();
    for _ in 0..SEARCHED_SNAPSHOTS {
        let tree = crate::random::snapshot().new_tree(&mut runner).expect("a snapshot can be drawn");
        let row = |step: &Step| transition(&step.action).map(|(from, to)| (from, to, step.reason));
        used.extend(plan(&tree.current()).steps.iter().filter_map(row));
    }
    let listed =
        TRANSITIONS.iter().flat_map(|row| row.reasons.iter().map(|reason| (row.from, row.to, *reason)));
    let unused: Vec<Row> = listed.filter(|row| !used.contains(row)).collect();
    assert_eq!(unused, []);
}

#[test]
fn a_note_is_short_enough_for_an_event() {
    let step = Step { action: Action::PublishService, reason: Reason::ServiceChanged };
    let result = StepResult {
        step,
        outcome: Outcome::Failed(Refusal::Forbidden),
        message: Some("no ".repeat(2_000)),
        started: ago(0),
        elapsed: SignedDuration::ZERO,
    };
    let event = status::event_note(&result).expect("a refusal is worth an event");
    assert_eq!(
        (event.type_, event.reason, event.action.as_str()),
        (status::EventType::Warning, "Forbidden", "publish-service")
    );
    assert_eq!(event.note.chars().count(), 1_024);
}
