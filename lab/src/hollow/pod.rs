//! What a hollow kubelet does next with one Pod: write a status, remove it, or wait.
//!
//! Pure: no clock, no client. The documents that are written are made in `status`.

use super::status::{self, Stage};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Pod, PodStatus};
use kube::ResourceExt;
use std::net::Ipv4Addr;

/// Name of the init container that keeps a cold Pod cold.
pub const GATE_CONTAINER: &str = "bps-gate";
/// Label with the role of a Pod.
pub const ROLE_LABEL: &str = "backup.example.com/role";
/// Role of a Pod that must stay behind its gate.
pub const COLD_ROLE: &str = "cold";
/// Grace period of a Pod that names none (Kubernetes `terminationGracePeriodSeconds`). Unit: seconds.
const DEFAULT_GRACE_SECONDS: i64 = 30;

/// How long hollow containers take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timings {
    /// From binding to running; a Pod with a gate has its gate running then.
    pub start: SignedDuration,
    /// From the wake-up of a cold Pod to running.
    pub wake: SignedDuration,
    /// From a crash to running again.
    pub restart: SignedDuration,
    /// From SIGTERM to the end of the containers; the Pod's grace period cuts it short.
    pub stop: SignedDuration,
}

impl Default for Timings {
    /// Everything at once, and a second for a restart, which is the kubelet's relist period.
    fn default() -> Self {
        let zero = SignedDuration::ZERO;
        Timings { start: zero, wake: zero, restart: SignedDuration::from_secs(1), stop: zero }
    }
}

/// Where a Pod is on the network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Addresses {
    /// Its own address.
    pub pod: Ipv4Addr,
    /// The address of its node.
    pub host: Ipv4Addr,
}

/// What a container runtime would know of a Pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sandbox {
    /// Address of the Pod.
    pub address: Ipv4Addr,
    /// Address of its node.
    pub host: Ipv4Addr,
    /// When the node learnt of the Pod.
    pub bound_at: Timestamp,
    /// When the gate let the Pod pass; for ever.
    pub woken_at: Option<Timestamp>,
    /// When the application crashed, until it runs again.
    pub crashed_at: Option<Timestamp>,
    /// How often it was started again.
    pub restarts: i32,
    /// Whether its readiness probe is made to fail.
    pub is_unready: bool,
    /// When the node learnt of the deletion.
    pub terminating_since: Option<Timestamp>,
}

impl Sandbox {
    /// The sandbox of a Pod that was just bound.
    ///
    /// A Pod whose status says that it runs was started before this process was: its containers did not stop
    /// with the kubelet.
    pub fn new(pod: &Pod, Addresses { pod: address, host }: Addresses, now: Timestamp) -> Sandbox {
        let status = pod.status.as_ref();
        let is_running = status.and_then(|status| status.phase.as_deref()) == Some("Running");
        let containers = status.and_then(|status| status.container_statuses.as_ref());
        let restarts = containers.into_iter().flatten().map(|container| container.restart_count).max();
        Sandbox {
            address,
            host,
            bound_at: now,
            woken_at: is_running.then_some(now),
            crashed_at: None,
            restarts: restarts.unwrap_or_default(),
            is_unready: false,
            terminating_since: None,
        }
    }

    /// Takes in what the Pod's document and the clock say.
    ///
    /// A role that is no longer cold stands in for the ticket: no gate listens here.
    pub fn notice(&mut self, pod: &Pod, timings: &Timings, now: Timestamp) {
        let is_cold = pod.labels().get(ROLE_LABEL).is_some_and(|role| role == COLD_ROLE);
        if !is_cold && self.woken_at.is_none() {
            self.woken_at = Some(now);
        }
        if pod.metadata.deletion_timestamp.is_some() && self.terminating_since.is_none() {
            self.terminating_since = Some(now);
        }
        if self.crashed_at.is_some_and(|crashed_at| crashed_at + timings.restart <= now) {
            self.crashed_at = None;
            self.restarts += 1;
        }
    }
}

/// What to do with a Pod.
#[derive(Debug, Clone, PartialEq)]
pub enum Next {
    /// Write this status; its echo asks again.
    Write(Box<PodStatus>),
    /// Remove the Pod: its containers have ended.
    Remove,
    /// Nothing before this instant, or before a change.
    Wait(Option<Timestamp>),
}

/// Decides what to do with a bound Pod whose sandbox has noticed `now`.
pub fn next(pod: &Pod, sandbox: &Sandbox, timings: &Timings, now: Timestamp) -> Next {
    let ends_at = sandbox.terminating_since.map(|since| since + timings.stop.min(grace(pod)));
    if ends_at.is_some_and(|ends_at| ends_at <= now) {
        return Next::Remove;
    }
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    if matches!(phase, Some("Failed" | "Succeeded")) {
        // Terminal: no kubelet leaves these phases.
        return Next::Wait(ends_at);
    }
    let (stage, changes_at) = stage(pod, sandbox, timings, now);
    match status::next_status(pod, sandbox, stage, now) {
        Some(status) => Next::Write(Box::new(status)),
        None => Next::Wait(ends_at.into_iter().chain(changes_at).min()),
    }
}

/// Where the Pod is in its life, and when it will be elsewhere by itself.
fn stage(pod: &Pod, sandbox: &Sandbox, timings: &Timings, now: Timestamp) -> (Stage, Option<Timestamp>) {
    let begins_at = sandbox.bound_at + timings.start;
    let runs_at = match (has_gate(pod), sandbox.woken_at) {
        (false, _) => Some(begins_at),
        (true, Some(woken_at)) => Some(begins_at.max(woken_at + timings.wake)),
        (true, None) => None,
    };
    if begins_at > now {
        (Stage::Starting, Some(begins_at))
    } else if runs_at.is_none_or(|runs_at| runs_at > now) {
        (Stage::Gated, runs_at)
    } else if let Some(crashed_at) = sandbox.crashed_at {
        (Stage::Crashed, Some(crashed_at + timings.restart))
    } else {
        (Stage::Running { is_ready: !sandbox.is_unready }, None)
    }
}

fn has_gate(pod: &Pod) -> bool {
    let init = pod.spec.as_ref().and_then(|spec| spec.init_containers.as_ref());
    init.into_iter().flatten().any(|container| container.name == GATE_CONTAINER)
}

fn grace(pod: &Pod) -> SignedDuration {
    let asked = pod.metadata.deletion_grace_period_seconds;
    let own = pod.spec.as_ref().and_then(|spec| spec.termination_grace_period_seconds);
    SignedDuration::from_secs(asked.or(own).unwrap_or(DEFAULT_GRACE_SECONDS))
}

#[cfg(test)]
mod tests;
