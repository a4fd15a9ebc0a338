//! The status documents that a hollow kubelet writes.
//!
//! Pure. Decides how a stage looks to the API, and whether it looks so already.

use std::net::Ipv4Addr;

use super::pod::{GATE_CONTAINER, Sandbox};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{
    Container, ContainerState, ContainerStateRunning, ContainerStateTerminated, ContainerStateWaiting,
    ContainerStatus, HostIP, Pod, PodCondition, PodIP, PodStatus,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

/// Exit code of a container that SIGKILL ended (128 + 9).
const KILLED_EXIT_CODE: i32 = 137;

/// Where a Pod is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// Bound, nothing runs yet.
    Starting,
    /// The gate runs, the application waits behind it.
    Gated,
    /// The application runs.
    Running {
        /// Whether its readiness probe succeeds.
        is_ready: bool,
    },
    /// The application has crashed and waits for its restart.
    Crashed,
}

/// The status to write for a Pod at this stage, or `None` if its document says all of it.
pub fn next_status(pod: &Pod, sandbox: &Sandbox, stage: Stage, now: Timestamp) -> Option<PodStatus> {
    let desired = status(pod, sandbox, stage, now);
    let is_written = pod.status.as_ref().is_some_and(|current| is_same(current, &desired));
    (!is_written).then_some(desired)
}

fn status(pod: &Pod, sandbox: &Sandbox, stage: Stage, now: Timestamp) -> PodStatus {
    let spec = pod.spec.as_ref();
    let init = spec.and_then(|spec| spec.init_containers.as_deref()).unwrap_or_default();
    let containers = spec.map(|spec| spec.containers.as_slice()).unwrap_or_default();
    let has_sandbox = stage != Stage::Starting;
    let host = sandbox.host.to_string();
    let address = has_sandbox.then(|| sandbox.address.to_string());
    let started = Time(sandbox.bound_at);
    let previous_start = pod.status.as_ref().and_then(|status| status.start_time.clone());
    PodStatus {
        phase: Some(
            match stage {
                Stage::Starting | Stage::Gated => "Pending",
                Stage::Running { .. } | Stage::Crashed => "Running",
            }
            .to_owned(),
        ),
        conditions: Some(conditions(pod, stage, now)),
        host_ip: Some(host.clone()),
        host_ips: Some(vec![HostIP { ip: host }]),
        pod_ips: has_sandbox.then(|| addresses(sandbox.address)),
        pod_ip: address,
        start_time: Some(previous_start.unwrap_or(started)),
        init_container_statuses: (!init.is_empty()).then(|| init_statuses(pod, init, sandbox, stage)),
        container_statuses: Some(
            containers.iter().map(|container| application(pod, container, sandbox, stage)).collect(),
        ),
        ..PodStatus::default()
    }
}

/// Addresses of a Pod in a cluster with two families: the second one ends as the first one.
fn addresses(address: Ipv4Addr) -> Vec<PodIP> {
    let [high, low] = [address.to_bits() >> 16, address.to_bits() & 0xffff];
    vec![PodIP { ip: address.to_string() }, PodIP { ip: format!("2001:2::{high:x}:{low:x}") }]
}

fn init_statuses(pod: &Pod, init: &[Container], sandbox: &Sandbox, stage: Stage) -> Vec<ContainerStatus> {
    let gate = init.iter().position(|container| container.name == GATE_CONTAINER).unwrap_or(init.len());
    let form = |index: usize| match stage {
        Stage::Starting => waiting("PodInitializing"),
        Stage::Gated if index == gate => running(sandbox.bound_at),
        Stage::Gated if index > gate => waiting("PodInitializing"),
        Stage::Gated | Stage::Running { .. } | Stage::Crashed => {
            terminated(0, "Completed", sandbox.woken_at.unwrap_or(sandbox.bound_at))
        }
    };
    let document = |(index, container): (usize, &Container)| {
        let form = form(index);
        let has_completed = form.terminated.is_some();
        ContainerStatus { ready: has_completed, ..container_status(pod, container, form) }
    };
    init.iter().enumerate().map(document).collect()
}

fn application(pod: &Pod, container: &Container, sandbox: &Sandbox, stage: Stage) -> ContainerStatus {
    let has_init = pod.spec.as_ref().is_some_and(|spec| spec.init_containers.is_some());
    let form = match stage {
        Stage::Starting | Stage::Gated if has_init => waiting("PodInitializing"),
        Stage::Starting | Stage::Gated => waiting("ContainerCreating"),
        Stage::Running { .. } => running(sandbox.woken_at.unwrap_or(sandbox.bound_at)),
        Stage::Crashed => {
            terminated(KILLED_EXIT_CODE, "Error", sandbox.crashed_at.unwrap_or(sandbox.bound_at))
        }
    };
    ContainerStatus {
        ready: matches!(stage, Stage::Running { is_ready: true }),
        restart_count: sandbox.restarts,
        ..container_status(pod, container, form)
    }
}

fn container_status(pod: &Pod, container: &Container, state: ContainerState) -> ContainerStatus {
    let uid = pod.metadata.uid.as_deref().unwrap_or_default();
    let image = container.image.clone().unwrap_or_default();
    ContainerStatus {
        name: container.name.clone(),
        image_id: format!("hollow:{image}"),
        image,
        container_id: state.waiting.is_none().then(|| format!("hollow://{uid}/{}", container.name)),
        started: Some(state.running.is_some()),
        state: Some(state),
        ..ContainerStatus::default()
    }
}

fn waiting(reason: &str) -> ContainerState {
    let waiting = ContainerStateWaiting { reason: Some(reason.to_owned()), message: None };
    ContainerState { waiting: Some(waiting), ..ContainerState::default() }
}

fn running(since: Timestamp) -> ContainerState {
    let running = ContainerStateRunning { started_at: Some(Time(since)) };
    ContainerState { running: Some(running), ..ContainerState::default() }
}

fn terminated(exit_code: i32, reason: &str, at: Timestamp) -> ContainerState {
    let terminated = ContainerStateTerminated {
        exit_code,
        reason: Some(reason.to_owned()),
        finished_at: Some(Time(at)),
        ..ContainerStateTerminated::default()
    };
    ContainerState { terminated: Some(terminated), ..ContainerState::default() }
}

fn conditions(pod: &Pod, stage: Stage, now: Timestamp) -> Vec<PodCondition> {
    let is_initialized = !matches!(stage, Stage::Starting | Stage::Gated);
    let is_ready = matches!(stage, Stage::Running { is_ready: true });
    let not_ready = if is_ready { "ReadinessGatesNotReady" } else { "ContainersNotReady" };
    [
        ("PodScheduled", true, ""),
        ("PodReadyToStartContainers", stage != Stage::Starting, ""),
        ("Initialized", is_initialized, "ContainersNotInitialized"),
        ("ContainersReady", is_ready, "ContainersNotReady"),
        ("Ready", is_ready && readiness_gates_pass(pod), not_ready),
    ]
    .map(|(type_, is_true, reason)| {
        let status = if is_true { "True" } else { "False" };
        let previous = condition(pod.status.as_ref(), type_);
        let unchanged = previous.filter(|previous| previous.status == status);
        PodCondition {
            type_: type_.to_owned(),
            status: status.to_owned(),
            // Empty, not left out: a patch that does not name the reason would leave the former one there.
            reason: Some(if is_true { String::new() } else { reason.to_owned() }),
            last_transition_time: unchanged
                .and_then(|previous| previous.last_transition_time.clone())
                .or(Some(Time(now))),
            ..PodCondition::default()
        }
    })
    .to_vec()
}

fn condition<'a>(status: Option<&'a PodStatus>, type_: &str) -> Option<&'a PodCondition> {
    status?.conditions.iter().flatten().find(|condition| condition.type_ == type_)
}

/// The API server leaves an empty reason out.
fn reason(condition: &PodCondition) -> &str {
    condition.reason.as_deref().unwrap_or_default()
}

fn readiness_gates_pass(pod: &Pod) -> bool {
    let gates = pod.spec.as_ref().and_then(|spec| spec.readiness_gates.as_ref());
    gates.into_iter().flatten().all(|gate| {
        condition(pod.status.as_ref(), &gate.condition_type).is_some_and(|it| it.status == "True")
    })
}

/// Whether `current` says what `desired` says. Times are left out, because they follow from the rest, and so
/// are the conditions of others.
fn is_same(current: &PodStatus, desired: &PodStatus) -> bool {
    let statuses = |list: &Option<Vec<ContainerStatus>>| {
        let digest = |status: &ContainerStatus| {
            let state = status.state.as_ref();
            let is_running = state.is_some_and(|state| state.running.is_some());
            let is_terminated = state.is_some_and(|state| state.terminated.is_some());
            (status.name.clone(), status.ready, status.restart_count, is_running, is_terminated)
        };
        list.iter().flatten().map(digest).collect::<Vec<_>>()
    };
    current.phase == desired.phase
        && current.host_ip == desired.host_ip
        && current.pod_ip == desired.pod_ip
        && statuses(&current.init_container_statuses) == statuses(&desired.init_container_statuses)
        && statuses(&current.container_statuses) == statuses(&desired.container_statuses)
        && desired.conditions.iter().flatten().all(|wanted| {
            condition(Some(current), &wanted.type_)
                .is_some_and(|it| it.status == wanted.status && reason(it) == reason(wanted))
        })
}
