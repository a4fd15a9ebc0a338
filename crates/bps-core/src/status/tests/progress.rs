//! What tools that wait for a set read from its conditions, and when a set counts as stalled.

use bps_api::status::{BackupPodSetStatus, ConditionStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::model::{Exposure, Lifecycle, ObjectState, PodView, Role};
use crate::status::stalls_at;
use crate::status::testing::*;
use crate::testing::exposure;

/// What kstatus makes of an object of a kind that it does not know.
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    Current,
    InProgress,
    Failed,
}

/// The rules of kstatus (sigs.k8s.io/cli-utils v0.37.2, `pkg/kstatus/status/generic.go`) as far as they concern a set: a former
/// generation, then `Reconciling`, then `Stalled`, then `Ready`.
fn verdict(status: &BackupPodSetStatus) -> Verdict {
    let holds = |r#type: &str| {
        let condition = status.conditions.iter().find(|condition| condition.r#type == r#type);
        condition.map(|condition| condition.status == ConditionStatus::True)
    };
    if status.observed_generation != GENERATION || holds("Reconciling") == Some(true) {
        Verdict::InProgress
    } else if holds("Stalled") == Some(true) {
        Verdict::Failed
    } else if holds("Ready") == Some(false) {
        Verdict::InProgress
    } else {
        Verdict::Current
    }
}

fn is_available(status: &BackupPodSetStatus) -> bool {
    said(status, "Available").status == ConditionStatus::True
}

/// A set of one primary and one hot backup that lost the backup; its clock began 10 s after the others.
fn without_backup() -> Case {
    seen([1, 1, 0], full([1, 0, 0])).next_pass()
}

#[test]
fn a_set_that_lacks_a_backup_is_available_and_not_ready() {
    let status = without_backup().compute();
    assert!(is_available(&status));
    assert_eq!(verdict(&status), Verdict::InProgress);
}

#[test]
fn a_service_that_is_not_as_wanted_yet_serves() {
    let mut case = seen([1, 0, 0], full([1, 0, 0]));
    let exposed = |service, slice, endpoints| Exposure { service, ..exposure(slice, endpoints) };
    let endpoints = vec![endpoint("web-primary-0")];
    case.snapshot.exposure = Some(exposed(ObjectState::Outdated, ObjectState::Current, endpoints));
    assert_eq!((is_available(&case.compute()), verdict(&case.compute())), (true, Verdict::InProgress));
    case.snapshot.exposure = Some(exposed(ObjectState::Current, ObjectState::Current, vec![]));
    assert!(!is_available(&case.compute()));
    case.snapshot.exposure = Some(exposed(ObjectState::Current, ObjectState::Absent, vec![]));
    assert!(!is_available(&case.compute()));
}

#[test]
fn a_set_that_stalls_while_it_starts_is_still_called_so() {
    let starting = vec![pod("web-a", Role::Primary, Lifecycle::Starting)];
    let stalled = new([1, 0, 0], starting).next_pass().later(700).next_pass();
    assert_eq!(verdict(&stalled.previous), Verdict::Failed);
    assert_eq!(said(&stalled.previous, "Progressing").reason, "Starting");
    assert_eq!(stalled.compute(), stalled.previous);
}

#[test]
fn a_set_that_lacks_a_primary_is_not_available() {
    let status = seen([2, 0, 0], full([1, 0, 0])).compute();
    assert!(!is_available(&status));
    assert_eq!(said(&status, "Available").message, "1 of 2 primaries");
}

#[test]
fn a_complete_set_is_current_and_its_clock_stands_still() {
    let status = new([1, 1, 1], full([1, 1, 1])).compute();
    assert_eq!((verdict(&status), status.last_progress_time), (Verdict::Current, None));
}

#[test]
fn a_specification_that_cannot_be_used_has_failed_at_once() {
    let mut case = seen([1, 0, 0], full([1, 0, 0]));
    case.invalid = Some("no containers".to_owned());
    let status = case.compute();
    assert_eq!((verdict(&status), is_available(&status)), (Verdict::Failed, true));
}

#[test]
fn a_set_is_stalled_after_its_deadline_and_not_before() {
    let case = without_backup();
    assert_eq!(case.previous.last_progress_time, Some(Time(at(10))));
    assert_eq!(stalls_at(&case.snapshot, &case.previous), Some(at(610)));

    let before = Case { snapshot: case.snapshot.clone(), ..without_backup() }.later(609);
    assert_eq!(verdict(&before.compute()), Verdict::InProgress);

    let late = case.later(610);
    let status = late.compute();
    assert_eq!((verdict(&status), is_available(&status)), (Verdict::Failed, true));
    assert_eq!(status.state, "Degraded: ProgressDeadlineExceeded");
    // The operator goes on trying, and what it does keeps its name.
    assert_eq!(said(&status, "Progressing").reason, "Refilling");
    assert_eq!(late.next_pass().compute(), status);
}

#[test]
fn a_pod_closer_to_the_wish_starts_the_clock_again() {
    let mut case = seen([1, 2, 0], full([1, 0, 0])).next_pass().later(600);
    case.snapshot.pods.extend(full([0, 1, 0]));
    assert_eq!(case.compute().last_progress_time, Some(Time(at(600))));

    let mut updated =
        seen([1, 1, 0], full([1, 1, 0]).into_iter().map(outdated).collect()).next_pass().later(600);
    updated.snapshot.pods[1] = available("web-new", Role::Hot);
    assert_eq!(updated.compute().last_progress_time, Some(Time(at(600))));

    let mut shrunk = seen([1, 0, 0], full([1, 2, 0])).next_pass().later(600);
    shrunk.snapshot.pods.pop();
    assert_eq!(shrunk.compute().last_progress_time, Some(Time(at(600))));
}

#[test]
fn a_pod_that_starts_or_a_further_loss_does_not_start_the_clock_again() {
    let mut case = seen([1, 2, 0], full([1, 1, 0])).next_pass().later(600);
    case.snapshot.pods.push(pod("web-new", Role::Hot, Lifecycle::Starting));
    assert_eq!(case.compute().last_progress_time, Some(Time(at(10))));
    case.snapshot.pods.retain(|view: &PodView| view.role == Role::Primary);
    assert_eq!(case.compute().last_progress_time, Some(Time(at(10))));
}

#[test]
fn the_time_of_a_pause_and_of_min_ready_does_not_count() {
    let mut paused = without_backup();
    paused.snapshot.desired.paused = true;
    let mut resumed = paused.next_pass().later(5_000);
    assert_eq!(resumed.previous.last_progress_time, None);
    resumed.snapshot.desired.paused = false;
    assert_eq!(verdict(&resumed.compute()), Verdict::InProgress);

    let mut patient = without_backup();
    patient.snapshot.desired.min_ready = jiff::SignedDuration::from_secs(60);
    assert_eq!(verdict(&patient.later(669).compute()), Verdict::InProgress);
}

#[test]
fn a_new_generation_starts_the_clock_again() {
    let mut case = without_backup().later(5_000);
    case.previous.observed_generation = GENERATION - 1;
    assert_eq!(verdict(&case.compute()), Verdict::InProgress);
}
