//! Raw status of a Pod to how far it has come; each row is a situation that a real kubelet reports.

use bps_api::keys;
use bps_core::model::{Gate, Lifecycle};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::{at, condition, ended, pod, running, text};
use crate::pod::{gate, gate_trouble, is_at_work, is_running, is_serving, lifecycle, progressed};
use crate::slim::SlimPod;

/// Lifecycle, whether all containers run, whether all answer.
type Read = (Lifecycle, bool, bool);

fn read(pod: &SlimPod) -> Read {
    (lifecycle(pod, at(0)), is_running(pod), is_serving(pod))
}

/// A bound Pod with this phase, conditions and container statuses.
fn with_status(phase: &str, conditions: &[Value], statuses: &[Value]) -> SlimPod {
    let containers: Vec<Value> = (0..statuses.len().max(1)).map(|_| json!({"name": "web"})).collect();
    pod(&json!({
        "spec": {"containers": containers},
        "status": {"phase": phase, "conditions": conditions, "containerStatuses": statuses},
    }))
}

fn waiting(restarts: i32) -> Value {
    json!({"name": "web", "ready": false, "restartCount": restarts, "state": {"waiting": {"reason": "x"}}})
}

fn restarted(since: i64) -> Value {
    let mut status = running(since, false);
    status["restartCount"] = json!(1);
    status
}

fn not_ready(since: i64) -> Value {
    condition("Ready", "False", since)
}

fn ready(since: i64) -> Value {
    condition("Ready", "True", since)
}

#[test]
fn a_pod_starts_until_it_was_ready_once() {
    let unbound = pod(&json!({"spec": {"nodeName": null}, "status": {"phase": "Pending"}}));
    assert_eq!(read(&unbound), (Lifecycle::Unscheduled, false, false));
    let cases = [
        ("bound a moment ago", with_status("Pending", &[], &[]), false),
        ("image is pulled", with_status("Pending", &[not_ready(1)], &[waiting(0)]), false),
        ("runs, probe to come", with_status("Running", &[not_ready(1)], &[running(3, false)]), true),
        (
            "one of two is ready",
            with_status("Running", &[not_ready(1)], &[running(3, true), running(4, false)]),
            true,
        ),
        ("one of two runs", with_status("Running", &[not_ready(1)], &[running(3, true), waiting(0)]), false),
    ];
    for (case, pod, is_running) in cases {
        assert_eq!(read(&pod), (Lifecycle::Starting, is_running, false), "{case}");
    }
}

#[test]
fn a_pod_is_ready_if_condition_phase_and_every_container_agree() {
    let cases = [
        (with_status("Running", &[ready(5)], &[running(3, true)]), true),
        (with_status("Running", &[ready(5)], &[running(3, true), running(4, true)]), true),
        (with_status("Running", &[ready(5)], &[running(3, true), running(4, false)]), false),
        (with_status("Pending", &[ready(5)], &[running(3, true)]), false),
        (with_status("Running", &[not_ready(5)], &[running(3, true)]), false),
        (with_status("Running", &[condition("ContainersReady", "True", 5)], &[running(3, true)]), false),
    ];
    for (pod, is_ready) in cases {
        assert_eq!(read(&pod).0 == Lifecycle::Ready { since: at(5) }, is_ready, "{pod:?}");
    }
}

#[test]
fn a_pod_of_two_containers_does_not_run_while_one_has_no_status() {
    let half = pod(&json!({
        "spec": {"containers": [{"name": "web"}, {"name": "log"}]},
        "status": {"phase": "Running", "conditions": [ready(5)], "containerStatuses": [running(3, true)]},
    }));
    assert_eq!((is_running(&half), is_serving(&half)), (false, false));
}

#[test]
fn a_pod_that_was_ready_or_crashed_is_unready_since_then() {
    let after_crash = {
        let mut status = waiting(0);
        status["lastState"] = ended(89, 137)["state"].clone();
        status
    };
    let cases = [
        ("probe fails", with_status("Running", &[not_ready(20)], &[running(3, false)]), 20, true),
        ("crashed", with_status("Running", &[not_ready(20)], &[ended(19, 1)]), 20, false),
        ("crashed, Ready is stale", with_status("Running", &[ready(5)], &[ended(25, 1)]), 25, false),
        ("crash loop", with_status("Running", &[not_ready(20)], &[waiting(3)]), 20, false),
        ("runs again", with_status("Running", &[not_ready(20)], &[restarted(22)]), 20, true),
        ("kubelet restarted", with_status("Running", &[not_ready(50)], &[running(3, false)]), 50, true),
        (
            "node lost",
            with_status("Running", &[condition("Ready", "Unknown", 40)], &[running(3, true)]),
            40,
            true,
        ),
        (
            "one of two crashed",
            with_status("Running", &[not_ready(20)], &[running(3, true), ended(19, 1)]),
            20,
            false,
        ),
        ("new sandbox, Ready told", with_status("Pending", &[not_ready(93)], &[after_crash]), 93, false),
    ];
    for (case, pod, since, is_running) in cases {
        let (lifecycle, runs, _) = read(&pod);
        assert_eq!((lifecycle, runs), (Lifecycle::Unready { since: at(since) }, is_running), "{case}");
    }
}

/// After a sandbox was killed, Ready stays True for seconds, with the time at which the Pod became ready long ago. Read
/// as "unready since then" it would be deleted at once for having been unready for too long.
#[test]
fn a_stale_ready_condition_does_not_date_the_loss_back() {
    let gate = json!({"name": "bps-gate", "restartCount": 1, "state": {"running": {"startedAt": text(91)}}});
    let conditions = [ready(5), condition("Initialized", "False", 90), condition("PodScheduled", "True", 1)];
    let killed = pod(&json!({
        "spec": {"initContainers": [{"name": "bps-gate"}]},
        "status": {
            "phase": "Pending", "conditions": conditions, "initContainerStatuses": [gate],
            "containerStatuses": [waiting(0)],
        },
    }));
    assert_eq!(read(&killed), (Lifecycle::Unready { since: at(91) }, false, false));
    let without_gate = with_status("Pending", &conditions, &[waiting(0)]);
    assert_eq!(read(&without_gate), (Lifecycle::Unready { since: at(90) }, false, false));
    let ended_before = with_status("Pending", &conditions, &[ended(89, 137)]);
    assert_eq!(read(&ended_before), (Lifecycle::Unready { since: at(90) }, false, false));
}

#[test]
fn a_pod_that_ended_or_goes_away_is_neither_ready_nor_unready() {
    let evicted = with_status("Failed", &[], &[]);
    let failed = with_status("Failed", &[not_ready(20)], &[ended(20, 1)]);
    let done = with_status("Succeeded", &[not_ready(20)], &[ended(20, 0)]);
    let rejected = pod(&json!({"spec": {"nodeName": null}, "status": {"phase": "Failed"}}));
    assert_eq!(
        [evicted, failed, done, rejected].map(|pod| read(&pod)),
        [(Lifecycle::Finished, false, false); 4]
    );
    let mut leaving = with_status("Running", &[ready(5)], &[running(3, true)]);
    leaving.metadata.deletion_timestamp = serde_json::from_value(json!(text(30))).unwrap();
    assert_eq!(read(&leaving), (Lifecycle::Terminating, true, true));
    leaving.status.container_statuses[0].ready = false;
    assert_eq!(read(&leaving), (Lifecycle::Terminating, true, false));
    leaving.status.phase = Some("Failed".into());
    assert_eq!(read(&leaving).0, Lifecycle::Terminating);
}

#[test]
fn a_gate_is_ahead_until_it_listens_and_again_after_it_failed() {
    let with_gate = |state: Value| {
        let statuses = json!([
            {"name": "bps-install", "state": {"terminated": {"exitCode": 0, "finishedAt": text(1)}}},
            {"name": "bps-gate", "state": state},
        ]);
        let init = json!([{"name": "bps-install"}, {"name": "bps-gate"}]);
        pod(&json!({"spec": {"initContainers": init}, "status": {"initContainerStatuses": statuses}}))
    };
    let ended = |code: i32| json!({"terminated": {"exitCode": code, "finishedAt": text(9)}});
    let cases = [
        (pod(&json!({})), Gate::None),
        (pod(&json!({"spec": {"initContainers": [{"name": "own"}]}})), Gate::None),
        (pod(&json!({"spec": {"initContainers": [{"name": "bps-gate"}]}})), Gate::Ahead),
        (with_gate(json!({"waiting": {"reason": "PodInitializing"}})), Gate::Ahead),
        (with_gate(json!({"running": {"startedAt": text(4)}})), Gate::Listening { since: at(4) }),
        (with_gate(json!({"running": {}})), Gate::Listening { since: at(0) }),
        (with_gate(ended(0)), Gate::Passed { since: at(9) }),
        (with_gate(json!({"terminated": {"exitCode": 0}})), Gate::Passed { since: at(0) }),
        (with_gate(ended(1)), Gate::Ahead),
        (with_gate(ended(137)), Gate::Ahead),
    ];
    for (pod, expected) in cases {
        assert_eq!(gate(&pod), expected, "{:?}", pod.status.init_container_statuses);
    }
}

#[test]
fn a_gate_that_its_kubelet_cannot_start_is_told_in_its_words() {
    let trouble = |statuses: Value| {
        let gate = json!([{"name": "bps-install"}, {"name": keys::CONTAINER_GATE}, {"name": "own"}]);
        let changes =
            json!({"spec": {"initContainers": gate}, "status": {"initContainerStatuses": statuses}});
        gate_trouble(&pod(&changes))
    };
    let waiting = |name: &str, reason: &str, message: Option<&str>| {
        let waiting = json!({"reason": reason, "message": message});
        json!({"name": name, "ready": false, "restartCount": 0, "state": {"waiting": waiting}})
    };
    let up = json!({"name": "bps-gate", "ready": false, "restartCount": 0, "state": {"running": {"startedAt": text(3)}}});
    let done = json!({"name": "bps-gate", "ready": true, "restartCount": 0, "state": {
        "terminated": {"exitCode": 0, "finishedAt": text(4)},
    }});
    let said = |words: &str| Some(words.to_owned());
    let pulling = waiting("bps-install", "PodInitializing", None);
    assert_eq!(trouble(json!([pulling, waiting("bps-gate", "PodInitializing", None)])), None);
    assert_eq!(
        trouble(json!([waiting("bps-install", "ErrImagePull", Some("not found")), pulling])),
        said("bps-install: ErrImagePull: not found")
    );
    assert_eq!(
        trouble(json!([waiting("bps-gate", "CrashLoopBackOff", None)])),
        said("bps-gate: CrashLoopBackOff")
    );
    assert_eq!(trouble(json!([up])), None);
    let own = waiting("own", "ErrImagePull", None);
    assert_eq!(trouble(json!([done, own])), None, "behind the gate it is no matter of the gate");
    assert_eq!(
        gate_trouble(&pod(&json!({"status": {"initContainerStatuses": [own]}}))),
        None,
        "it has no gate"
    );
}

/// What a woken Pod with these init containers behind its gate, and these statuses of them, is seen to do.
fn starts(init_containers: &Value, statuses: &[Value]) -> (bool, Option<Timestamp>) {
    let gate = json!({"name": "bps-gate", "state": {"terminated": {"exitCode": 0, "finishedAt": text(5)}}});
    let mut specs = vec![json!({"name": "bps-gate"})];
    specs.extend(init_containers.as_array().unwrap().iter().cloned());
    let statuses: Vec<Value> = std::iter::once(gate).chain(statuses.iter().cloned()).collect();
    let pod = pod(&json!({"spec": {"initContainers": specs}, "status": {"initContainerStatuses": statuses}}));
    (is_at_work(&pod), progressed(&pod))
}

#[test]
fn a_pod_comes_further_with_each_container_and_an_init_container_that_runs_is_at_work() {
    let runs = |name: &str, since: i64, started: bool| json!({"name": name, "started": started, "state": {"running": {"startedAt": text(since)}}});
    let over = |name: &str, restarts: i32| json!({"name": name, "restartCount": restarts, "state": {"terminated": {"finishedAt": text(9)}}});
    let fetch = json!([{"name": "fetch"}]);
    let proxy = json!([{"name": "proxy", "restartPolicy": "Always"}]);
    assert_eq!(starts(&fetch, &[]), (false, Some(at(5))));
    assert_eq!(starts(&fetch, &[runs("fetch", 7, true)]), (true, Some(at(7))));
    assert_eq!(starts(&fetch, &[over("fetch", 0)]), (false, Some(at(9))));
    assert_eq!(starts(&fetch, &[over("fetch", 3)]), (false, Some(at(5))), "over and over is no progress");
    assert_eq!(
        starts(&proxy, &[runs("proxy", 7, false)]),
        (true, Some(at(7))),
        "its startup probe is to come"
    );
    assert_eq!(
        starts(&proxy, &[runs("proxy", 7, true)]),
        (false, Some(at(7))),
        "nobody waits for it any more"
    );
}
