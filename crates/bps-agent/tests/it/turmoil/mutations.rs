//! The checks can fail: machines that break what the protocol assumes are found out, and only they.

use std::time::Duration;

use crate::turmoil::machine::{Flaw, Skew};
use crate::turmoil::scene::run;
use crate::turmoil::script::{End, Fault, PODS, Planned, Script};

const AT: Duration = Duration::from_secs(1);

fn verdict(faults: &[Fault], skews: Option<[Skew; PODS]>, flaw: Flaw) -> Result<(), String> {
    let planned = |fault: &Fault| Planned { at: AT, fault: *fault, lasts: Duration::from_secs(8) };
    let quiet = Script::quiet();
    let (skews, faults) = (skews.unwrap_or(quiet.skews), faults.iter().map(planned).collect());
    run(1, &Script { skews, faults, ..quiet }, flaw).expect("no agent ends with an error").verdict
}

/// All links of a member.
fn cut_off(pod: usize) -> [Fault; 2] {
    [Fault::Cut(End::Pod(pod), End::Pod(1 - pod)), Fault::Cut(End::Pod(pod), End::Api)]
}

/// The verdicts for either member cut off: one of them acts.
fn verdicts(skews: Option<fn(usize) -> [Skew; PODS]>, flaw: Flaw) -> [Result<(), String>; 2] {
    [0, 1].map(|pod| verdict(&cut_off(pod), skews.map(|skews| skews(pod)), flaw))
}

fn has_two(verdict: &Result<(), String>) -> bool {
    verdict.as_ref().is_err_and(|why| why.starts_with("two act"))
}

#[test]
fn an_active_that_is_cut_off_ends_before_the_other_one_begins() {
    assert_eq!(verdicts(None, Flaw::default()), [Ok(()), Ok(())]);
}

#[test]
fn an_application_that_outlives_its_end_is_found_out() {
    let flaw = Flaw { outlives: Duration::from_millis(300), ..Flaw::default() };
    assert!(has_two(&verdict(&[Fault::SwitchOver], None, flaw)));
}

#[test]
fn a_clock_that_runs_faster_than_the_drift_allows_is_found_out() {
    let skewed = |cut_off: usize| {
        let mut skews = [Skew::default(); PODS];
        skews[1 - cut_off].drift_ppm = 500_000;
        skews
    };
    assert!(verdicts(Some(skewed), Flaw::default()).iter().any(has_two));
}

#[test]
fn an_alarm_that_is_late_is_found_out_unless_there_is_an_enforcer() {
    // Only that of the active that is cut off: if both are late, the other one takes over late, too.
    let verdicts = |lacks_enforcer| {
        let is_late_by = Duration::from_secs(3);
        let flaw = |pod| Flaw { only: Some(pod), is_late_by, lacks_enforcer, ..Flaw::default() };
        [0, 1].map(|pod| verdict(&cut_off(pod), None, flaw(pod)))
    };
    assert!(!verdicts(false).iter().any(has_two));
    assert!(verdicts(true).iter().any(has_two));
}

#[test]
fn an_enforcer_whose_clock_is_slewed_is_in_time_unless_by_more_than_any_time_service_may() {
    let verdicts = |slews_timers_by| {
        let is_late_by = Duration::from_secs(3);
        let flaw = |pod| Flaw { only: Some(pod), is_late_by, slews_timers_by, ..Flaw::default() };
        [0, 1].map(|pod| verdict(&cut_off(pod), None, flaw(pod)))
    };
    assert!(!verdicts(11).iter().any(has_two));
    assert!(verdicts(25).iter().any(has_two));
}
