//! A Pod's life on a hollow node, second by second.

use super::*;
use k8s_openapi::api::core::v1::ContainerStatus;
use serde_json::json;

const TIMINGS: Timings = Timings {
    start: SignedDuration::from_secs(1),
    wake: SignedDuration::from_secs(2),
    restart: SignedDuration::from_secs(5),
    stop: SignedDuration::from_secs(3),
};
const ADDRESSES: Addresses =
    Addresses { pod: Ipv4Addr::new(198, 18, 128, 1), host: Ipv4Addr::new(198, 19, 128, 1) };

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn plain() -> Pod {
    let document = json!({
        "metadata": { "namespace": "default", "name": "web-1", "uid": "u" },
        "spec": { "nodeName": "n1", "containers": [{ "name": "web", "image": "nginx:1.14.2" }] },
    });
    serde_json::from_value(document).unwrap()
}

fn cold() -> Pod {
    let mut pod = plain();
    pod.labels_mut().insert(ROLE_LABEL.to_owned(), COLD_ROLE.to_owned());
    let init = json!([{ "name": "bps-install" }, { "name": "bps-gate" }, { "name": "own" }]);
    pod.spec.as_mut().unwrap().init_containers = serde_json::from_value(init).unwrap();
    pod
}

/// A Pod on its node, bound at second 0.
struct Life {
    pod: Pod,
    sandbox: Sandbox,
}

impl Life {
    fn new(pod: Pod) -> Life {
        let sandbox = Sandbox::new(&pod, ADDRESSES, at(0));
        Life { pod, sandbox }
    }

    fn next(&mut self, second: i64) -> Next {
        self.sandbox.notice(&self.pod, &TIMINGS, at(second));
        next(&self.pod, &self.sandbox, &TIMINGS, at(second))
    }

    /// Writes what is to be written, and says how the Pod looks then and until when.
    fn seen(&mut self, second: i64) -> (String, Option<i64>) {
        if let Next::Write(mut status) = self.next(second) {
            // As the API server merges: by type, so that the conditions of others stay.
            let previous = self.pod.status.take().and_then(|status| status.conditions);
            let conditions = status.conditions.get_or_insert_default();
            for written in conditions.iter_mut() {
                let former = previous.iter().flatten().find(|it| it.type_ == written.type_);
                // Within a type by field: what is not named stays, and what is empty is left out.
                let former = former.and_then(|it| it.reason.clone());
                written.reason = written.reason.take().or(former).filter(|reason| !reason.is_empty());
            }
            let written: Vec<String> = conditions.iter().map(|it| it.type_.clone()).collect();
            conditions.extend(previous.into_iter().flatten().filter(|it| !written.contains(&it.type_)));
            self.pod.status = Some(*status);
        }
        let Next::Wait(until) = self.next(second) else { panic!("the same status is written twice") };
        (summary(&self.pod), until.map(Timestamp::as_second))
    }
}

/// Phase, readiness, then each container with its state and its restarts.
fn summary(pod: &Pod) -> String {
    let status = pod.status.as_ref().unwrap();
    let container = |status: &ContainerStatus| {
        let state = status.state.as_ref().unwrap();
        let word = match (&state.running, &state.terminated) {
            (Some(_), _) => "running",
            (_, Some(_)) => "ended",
            _ => "waiting",
        };
        format!("{}={word}/{}", status.name, status.restart_count)
    };
    let statuses = [&status.init_container_statuses, &status.container_statuses];
    let containers: Vec<String> =
        statuses.into_iter().flat_map(|list| list.iter().flatten()).map(container).collect();
    let readiness = if super::super::is_ready(pod) { "ready" } else { "unready" };
    format!("{} {readiness} {}", status.phase.as_deref().unwrap(), containers.join(" "))
}

fn shown(text: &str, until: Option<i64>) -> (String, Option<i64>) {
    (text.to_owned(), until)
}

#[test]
fn a_bound_pod_starts_after_its_delay_and_then_rests() {
    let mut life = Life::new(plain());
    assert_eq!(life.seen(0), shown("Pending unready web=waiting/0", Some(1)));
    assert_eq!(life.pod.status.as_ref().unwrap().pod_ip, None);
    assert_eq!(life.seen(1), shown("Running ready web=running/0", None));
    assert_eq!(life.pod.status.as_ref().unwrap().pod_ip.as_deref(), Some("198.18.128.1"));
    assert_eq!(life.next(1000), Next::Wait(None));
}

#[test]
fn a_cold_pod_waits_in_its_gate_until_its_role_changes() {
    let mut life = Life::new(cold());
    let gated = "Pending unready bps-install=ended/0 bps-gate=running/0 own=waiting/0 web=waiting/0";
    let running = "Running ready bps-install=ended/0 bps-gate=ended/0 own=ended/0 web=running/0";
    assert_eq!(life.seen(1), shown(gated, None));
    assert_eq!(life.next(1000), Next::Wait(None));
    life.pod.labels_mut().insert(ROLE_LABEL.to_owned(), "hot".to_owned());
    assert_eq!(life.seen(1000), shown(gated, Some(1002)));
    assert_eq!(life.seen(1002), shown(running, None));
}

#[test]
fn a_woken_pod_stays_awake_even_when_its_role_is_cold_again() {
    let mut life = Life::new(cold());
    life.seen(1);
    life.sandbox.woken_at = Some(at(10));
    assert!(life.seen(12).0.starts_with("Running ready"));
    assert_eq!(life.next(13), Next::Wait(None));
    let taken_over = Sandbox::new(&life.pod, ADDRESSES, at(20));
    assert_eq!(taken_over.woken_at, Some(at(20)));
}

#[test]
fn a_crashed_application_is_unready_at_once_and_restarts_after_its_delay() {
    let mut life = Life::new(plain());
    life.seen(1);
    life.sandbox.crashed_at = Some(at(10));
    assert_eq!(life.seen(10), shown("Running unready web=ended/0", Some(15)));
    assert_eq!(life.seen(15), shown("Running ready web=running/1", None));
}

#[test]
fn a_woken_pod_that_crashes_restarts_too() {
    let mut life = Life::new(cold());
    life.seen(1);
    life.pod.labels_mut().clear();
    life.seen(12);
    life.seen(14);
    life.sandbox.crashed_at = Some(at(20));
    assert_eq!(
        life.seen(20),
        shown("Running unready bps-install=ended/0 bps-gate=ended/0 own=ended/0 web=ended/0", Some(25))
    );
    assert_eq!(
        life.seen(25),
        shown("Running ready bps-install=ended/0 bps-gate=ended/0 own=ended/0 web=running/1", None)
    );
}

#[test]
fn a_failing_probe_leaves_the_container_running() {
    let mut life = Life::new(plain());
    life.seen(1);
    life.sandbox.is_unready = true;
    assert_eq!(life.seen(2), shown("Running unready web=running/0", None));
    life.sandbox.is_unready = false;
    assert_eq!(life.seen(3), shown("Running ready web=running/0", None));
}

#[test]
fn a_deleted_pod_is_removed_when_its_containers_have_ended() {
    let mut life = Life::new(plain());
    life.seen(1);
    life.pod.metadata.deletion_timestamp = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(at(40)));
    assert_eq!(life.seen(10), shown("Running ready web=running/0", Some(13)));
    assert_eq!(life.next(13), Next::Remove);
}

#[test]
fn a_grace_period_shorter_than_the_stop_wins() {
    let mut life = Life::new(plain());
    life.seen(1);
    life.pod.metadata.deletion_timestamp = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(at(11)));
    life.pod.metadata.deletion_grace_period_seconds = Some(1);
    assert_eq!(life.seen(10).1, Some(11));
    assert_eq!(life.next(11), Next::Remove);
}

#[test]
fn a_pod_that_has_failed_is_left_as_it_is() {
    let mut life = Life::new(plain());
    life.pod.status = serde_json::from_value(json!({ "phase": "Failed", "reason": "Evicted" })).unwrap();
    assert_eq!(life.next(10), Next::Wait(None));
}

#[test]
fn a_readiness_gate_holds_ready_back_until_its_condition_is_true() {
    let mut life = Life::new(plain());
    let gates = json!([{ "conditionType": "example.com/switched" }]);
    life.pod.spec.as_mut().unwrap().readiness_gates = serde_json::from_value(gates).unwrap();
    assert_eq!(life.seen(1), shown("Running unready web=running/0", None));
    let switched = json!({ "type": "example.com/switched", "status": "True" });
    let conditions = life.pod.status.as_mut().unwrap().conditions.as_mut().unwrap();
    conditions.push(serde_json::from_value(switched).unwrap());
    assert_eq!(life.seen(2), shown("Running ready web=running/0", None));
}

#[test]
fn a_condition_that_does_not_change_keeps_its_time() {
    let mut life = Life::new(plain());
    life.seen(0);
    life.seen(1);
    let times: Vec<(String, i64)> = life
        .pod
        .status
        .iter()
        .flat_map(|status| status.conditions.iter().flatten())
        .map(|it| (it.type_.clone(), it.last_transition_time.as_ref().unwrap().0.as_second()))
        .collect();
    let expected = [
        ("PodScheduled", 0),
        ("PodReadyToStartContainers", 1),
        ("Initialized", 1),
        ("ContainersReady", 1),
        ("Ready", 1),
    ];
    assert_eq!(times, expected.map(|(type_, second)| (type_.to_owned(), second)));
}
