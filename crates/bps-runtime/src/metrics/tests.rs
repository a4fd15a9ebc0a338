//! Tests of the exact names and labels in the text that Prometheus reads.

use std::time::Duration;

use http::{Method, StatusCode};

use super::reconcile::ReconcileResult;
use super::rest::{Code, Host};
use super::sets::{Conversion, Spare, StepLabels, Tier, Transition};
use super::*;

/// Every metric, touched once.
fn touched() -> Metrics {
    let metrics = Metrics::new("1.2.3");
    let second = Duration::from_secs(1);
    let reconcile = &metrics.reconcile;
    reconcile.reconciled("backuppodset", ReconcileResult::Error, second);
    reconcile.panicked("backuppodset");
    std::mem::forget(reconcile.start_worker("backuppodset"));
    reconcile.set_max_workers("backuppodset", 8);
    reconcile.queued("backuppodset");
    reconcile.retried("backuppodset");
    reconcile.set_depth("backuppodset", 3);
    reconcile.left_queue("backuppodset", second);
    reconcile.worked("backuppodset", second);
    reconcile.set_leader("bps-operator", true);
    let host = Host::of(&"https://user:secret@10.0.0.1:6443/x".parse().unwrap());
    metrics.rest.answered(&host, &Method::PUT, (Code::Status(StatusCode::CONFLICT), second));
    metrics.rest.answered(&host, &Method::from_bytes(b"BREW").unwrap(), (Code::NoAnswer, second));
    metrics.groups.took_over("LeaseExpired");
    metrics.groups.reached("fenced", second);
    let sets = &metrics.sets;
    sets.converted(&Conversion { from: "hot", to: "primary", reason: "PrimaryLost" });
    sets.stepped(&StepLabels { action: "Promote", reason: "PrimaryLost", outcome: "Done" });
    sets.held("WithinFailoverDelay");
    sets.refused_plan();
    sets.handled("failover", second);
    sets.transitioned(&Transition { from: "cold", to: "hot" }, second);
    sets.woke(second);
    sets.failed_over("detect", second);
    sets.asked_for_spare(Spare::Hit);
    sets.asked_for_spare(Spare::Miss);
    sets.set_pods(&Tier { role: "primary", state: "ready" }, 2);
    sets.set_at_risk("zone", 3);
    sets.set_storm_brake(true);
    sets.set_unlimited(true);
    sets.dropped_event();
    sets.asked_for_relist();
    sets.read_anew();
    metrics
}

#[test]
fn every_metric_has_the_name_and_labels_that_dashboards_expect() {
    let text = touched().encode().unwrap();
    let mut samples: Vec<&str> =
        text.lines().filter(|line| !line.starts_with('#') && !line.contains("_bucket{")).collect();
    samples.sort_unstable();
    let expected = r#"
backuppodset_build_info{version="1.2.3"} 1
backuppodset_conversions_total{from="hot",to="primary",reason="PrimaryLost"} 1
backuppodset_events_dropped_total 1
backuppodset_failover_seconds_count{phase="detect"} 1
backuppodset_failover_seconds_sum{phase="detect"} 1.0
backuppodset_handling_seconds_count{operation="failover"} 1
backuppodset_handling_seconds_sum{operation="failover"} 1.0
backuppodset_holds_total{reason="WithinFailoverDelay"} 1
backuppodset_log_lines_dropped_total 0
backuppodset_plan_violations_total 1
backuppodset_pods{role="primary",state="ready"} 2
backuppodset_refreshes_total 1
backuppodset_relists_total 1
backuppodset_sets_at_risk{loss="zone"} 3
backuppodset_spare_total{result="hit"} 1
backuppodset_spare_total{result="miss"} 1
backuppodset_steps_total{action="Promote",reason="PrimaryLost",outcome="Done"} 1
backuppodset_storm_brake 1
backuppodset_takeover_phase_seconds_count{phase="fenced"} 1
backuppodset_takeover_phase_seconds_sum{phase="fenced"} 1.0
backuppodset_takeovers_total{reason="LeaseExpired"} 1
backuppodset_transition_seconds_count{from="cold",to="hot"} 1
backuppodset_transition_seconds_sum{from="cold",to="hot"} 1.0
backuppodset_unlimited 1
backuppodset_wakeup_seconds_count 1
backuppodset_wakeup_seconds_sum 1.0
controller_runtime_active_workers{controller="backuppodset"} 1
controller_runtime_max_concurrent_reconciles{controller="backuppodset"} 8
controller_runtime_reconcile_errors_total{controller="backuppodset"} 1
controller_runtime_reconcile_panics_total{controller="backuppodset"} 1
controller_runtime_reconcile_time_seconds_count{controller="backuppodset"} 1
controller_runtime_reconcile_time_seconds_sum{controller="backuppodset"} 1.0
controller_runtime_reconcile_total{controller="backuppodset",result="error"} 1
leader_election_master_status{name="bps-operator"} 1
rest_client_request_duration_seconds_count{verb="OTHER",host="10.0.0.1:6443"} 1
rest_client_request_duration_seconds_count{verb="PUT",host="10.0.0.1:6443"} 1
rest_client_request_duration_seconds_sum{verb="OTHER",host="10.0.0.1:6443"} 1.0
rest_client_request_duration_seconds_sum{verb="PUT",host="10.0.0.1:6443"} 1.0
rest_client_requests_total{code="409",method="PUT",host="10.0.0.1:6443"} 1
rest_client_requests_total{code="<error>",method="OTHER",host="10.0.0.1:6443"} 1
workqueue_adds_total{name="backuppodset",controller="backuppodset"} 1
workqueue_depth{name="backuppodset",controller="backuppodset"} 3
workqueue_queue_duration_seconds_count{name="backuppodset",controller="backuppodset"} 1
workqueue_queue_duration_seconds_sum{name="backuppodset",controller="backuppodset"} 1.0
workqueue_retries_total{name="backuppodset",controller="backuppodset"} 1
workqueue_work_duration_seconds_count{name="backuppodset",controller="backuppodset"} 1
workqueue_work_duration_seconds_sum{name="backuppodset",controller="backuppodset"} 1.0
"#;
    assert_eq!(samples, expected.trim().lines().collect::<Vec<_>>());
}

#[test]
fn the_times_of_a_takeover_say_since_when_they_count() {
    let help = "# HELP backuppodset_takeover_phase_seconds Time from the beginning of a takeover to the end of a phase, \
                the phases before it included.";
    let text = touched().encode().unwrap();
    assert!(text.lines().any(|line| line == help), "{text}");
}

#[test]
fn buckets_reach_from_a_millisecond_to_a_minute() {
    let text = touched().encode().unwrap();
    let bounds: Vec<&str> = text
        .lines()
        .filter_map(|line| line.strip_prefix("backuppodset_wakeup_seconds_bucket{le=\""))
        .filter_map(|rest| rest.split('"').next())
        .collect();
    assert_eq!(
        (bounds.first(), bounds.get(15), bounds.last()),
        (Some(&"0.001"), Some(&"60.0"), Some(&"+Inf"))
    );
}

#[test]
fn a_worker_is_counted_only_while_it_works() {
    let metrics = Metrics::new("1.2.3");
    let worker = metrics.reconcile.start_worker("backuppodset");
    assert!(metrics.encode().unwrap().contains("active_workers{controller=\"backuppodset\"} 1\n"));
    drop(worker);
    assert!(metrics.encode().unwrap().contains("active_workers{controller=\"backuppodset\"} 0\n"));
}

#[test]
fn the_text_ends_as_openmetrics_demands() {
    assert!(Metrics::new("1.2.3").encode().unwrap().ends_with("\n# EOF\n"));
}
