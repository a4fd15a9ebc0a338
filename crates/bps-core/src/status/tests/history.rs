//! What the status remembers: the last failover and the list of conversions.

use bps_api::status::{Conversion, ConversionOutcome, FailoverReport, Tier};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;

use crate::model::{Lifecycle, Outcome, PodView, Reason, Refusal, Role};
use crate::status::testing::*;

fn deleted_primary() -> Case {
    let mut case = seen([1, 1, 0], vec![pod("web-primary-0", Role::Primary, Lifecycle::Terminating)])
        .result(convert("web-hot-0", (Role::Hot, Role::Primary), Reason::PodDeleted), Outcome::Done)
        .result(expose("web-hot-0"), Outcome::Done)
        .later(1);
    case.snapshot.pods.push(available("web-hot-0", Role::Primary));
    case
}

#[test]
fn a_failover_names_the_lost_pod_its_successor_and_the_times() {
    let report = FailoverReport {
        time: MicroTime(at(0)),
        lost_pod: "web-primary-0".to_owned(),
        successor: Some("web-hot-0".to_owned()),
        reason: "PodDeleted".to_owned(),
        detected_after_milliseconds: None,
        exposed_after_milliseconds: Some(20),
        ready_after_milliseconds: Some(1_000),
    };
    assert_eq!(deleted_primary().compute().last_failover, Some(report));
}

#[test]
fn a_swap_reports_how_long_the_crash_went_unnoticed() {
    // By the node's record, and not since the operator saw it.
    let crashed = pod("web-primary-0", Role::Hot, Lifecycle::Unready { since: at(0) });
    let crashed = PodView { stopped: Some(at(-2)), ..crashed };
    let case = seen([1, 1, 0], vec![crashed, available("web-hot-0", Role::Primary)])
        .result(convert("web-hot-0", (Role::Hot, Role::Primary), Reason::PodUnready), Outcome::Done)
        .result(convert("web-primary-0", (Role::Primary, Role::Hot), Reason::PodUnready), Outcome::Done);
    let report = case.compute().last_failover.expect("a primary was lost");
    assert_eq!(
        (report.lost_pod.as_str(), report.detected_after_milliseconds, report.exposed_after_milliseconds),
        ("web-primary-0", Some(2_000), None)
    );
}

#[test]
fn a_successor_that_starts_cold_is_ready_and_exposed_in_later_passes() {
    let promotion = convert("web-cold-0", (Role::Cold, Role::Primary), Reason::PodDeleted);
    let woken = |lifecycle| vec![pod("web-cold-0", Role::Primary, lifecycle)];
    let mut case = seen([1, 0, 1], woken(Lifecycle::Starting)).result(promotion, Outcome::Done).next_pass();
    let times = |case: &Case| {
        let report = case.compute().last_failover.expect("a primary was lost");
        (report.exposed_after_milliseconds, report.ready_after_milliseconds)
    };
    assert_eq!(times(&case), (None, None));
    case.snapshot.pods = woken(Lifecycle::Ready { since: at(11) });
    let mut case = case.later(12).result(expose("web-cold-0"), Outcome::Done);
    case.results[0].started = at(12);
    assert_eq!(times(&case), (Some(12_020), Some(12_000)));
    assert_eq!(times(&case.next_pass().later(99)), (Some(12_020), Some(12_000)));
}

#[test]
fn a_promotion_for_a_rollout_or_a_surge_is_no_failover() {
    let reasons = [Reason::TemplateChanged, Reason::ScaledOut, Reason::NodeCordoned, Reason::PodMissing];
    let reports = reasons.map(|reason| {
        let mut pods = full([1, 0, 0]);
        pods.push(available("web-hot-0", Role::Primary));
        seen([1, 1, 0], pods)
            .result(convert("web-hot-0", (Role::Hot, Role::Primary), reason), Outcome::Done)
            .compute()
            .last_failover
    });
    assert_eq!(reports, [const { None }; 4]);
}

fn wakeup(outcome: ConversionOutcome, finished: Option<i64>) -> Conversion {
    Conversion {
        pod: "web-cold-0".to_owned(),
        from: Tier::ColdBackup,
        to: Tier::HotBackup,
        reason: "PodMissing".to_owned(),
        started: MicroTime(at(0)),
        finished: finished.map(|seconds| MicroTime(at(seconds))),
        outcome,
    }
}

#[test]
fn a_conversion_is_listed_until_its_end_is_known() {
    let running = || {
        seen([1, 1, 0], vec![pod("web-cold-0", Role::Hot, Lifecycle::Starting)])
            .result(convert("web-cold-0", (Role::Cold, Role::Hot), Reason::PodMissing), Outcome::Done)
    };
    assert_eq!(running().compute().conversions, [wakeup(ConversionOutcome::InProgress, None)]);
    let ended = |change: fn(Case) -> Case| change(running().next_pass().later(30)).compute().conversions;
    let ready = ended(|mut case| {
        case.snapshot.pods = vec![available("web-cold-0", Role::Hot)];
        case
    });
    assert_eq!(ready, [wakeup(ConversionOutcome::Succeeded, Some(30))]);
    let gone = ended(|mut case| {
        case.snapshot.pods.clear();
        case
    });
    assert_eq!(gone, [wakeup(ConversionOutcome::Superseded, Some(30))]);
    let late =
        ended(|case| case.result(delete("web-cold-0", Role::Hot, Reason::WakeTimedOut), Outcome::Done));
    assert_eq!(late, [wakeup(ConversionOutcome::Failed, Some(30))]);
}

#[test]
fn a_refused_conversion_is_listed_once_however_often_it_is_tried() {
    let step = || convert("web-cold-0", (Role::Cold, Role::Hot), Reason::PodMissing);
    let refused = Outcome::Failed(Refusal::Forbidden);
    let again = seen([1, 1, 1], full([1, 0, 1])).result(step(), refused).next_pass().result(step(), refused);
    let mut expected = wakeup(ConversionOutcome::Failed, Some(0));
    expected.finished = Some(MicroTime(at(0) + millis(20)));
    assert_eq!(again.compute().conversions, [expected]);
}

#[test]
fn the_ledger_drops_the_oldest_finished_entry_first() {
    let mut case = seen([1, 0, 0], full([1, 0, 0]));
    let entry = |index: usize| {
        let is_running = index == 0;
        let finished = (!is_running).then_some(0);
        let outcome = if is_running { ConversionOutcome::InProgress } else { ConversionOutcome::Succeeded };
        Conversion { pod: format!("web-{index}"), ..wakeup(outcome, finished) }
    };
    case.previous.conversions = (0..10).map(entry).collect();
    case.snapshot.pods.push(pod("web-0", Role::Hot, Lifecycle::Starting));
    let case = case.result(convert("web-new", (Role::Cold, Role::Hot), Reason::Refilled), Outcome::Done);
    let names: Vec<String> = case.compute().conversions.into_iter().map(|entry| entry.pod).collect();
    let kept = ["web-0", "web-2", "web-3", "web-4", "web-5", "web-6", "web-7", "web-8", "web-9", "web-new"];
    assert_eq!(names, kept);
}
