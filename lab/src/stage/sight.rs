//! The few facts of a Pod that tell whether a set is in place.
//!
//! Pure.

use std::fmt;

use bps_api::keys;
use bps_core::model::Role;
use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use kube::ResourceExt;

use crate::hollow::is_ready;

/// A Pod, as far as it matters here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodSight {
    /// Its name.
    pub name: String,
    /// Its role; `None` if its label says none.
    pub role: Option<Role>,
    /// Whether its condition Ready is true.
    pub is_ready: bool,
    /// Whether its gate runs.
    pub is_at_gate: bool,
    /// Whether it has been deleted and still ends.
    pub is_terminating: bool,
    /// How often its application containers were started again.
    pub restarts: i32,
}

impl PodSight {
    /// Reads the facts.
    pub fn of(pod: &Pod) -> Self {
        let status = pod.status.as_ref();
        let containers = status.and_then(|status| status.container_statuses.as_ref()).into_iter().flatten();
        let gates = status.and_then(|status| status.init_container_statuses.as_ref()).into_iter().flatten();
        let runs = |container: &ContainerStatus| {
            container.name == keys::CONTAINER_GATE
                && container.state.as_ref().is_some_and(|state| state.running.is_some())
        };
        let role = pod.labels().get(keys::LABEL_ROLE).map(String::as_str);
        Self {
            name: pod.name_any(),
            role: role.and_then(Role::parse),
            is_ready: is_ready(pod),
            is_at_gate: gates.into_iter().any(runs),
            is_terminating: pod.metadata.deletion_timestamp.is_some(),
            restarts: containers.map(|container| container.restart_count).sum(),
        }
    }

    /// Whether it does what its role asks for: ready, or at its gate.
    pub fn is_in_place(&self) -> bool {
        !self.is_terminating
            && match self.role {
                Some(Role::Primary | Role::Hot) => self.is_ready,
                Some(Role::Cold) => self.is_at_gate,
                None => false,
            }
    }
}

impl fmt::Display for PodSight {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let role = self.role.map_or("no role", Role::as_str);
        let state = match (self.is_terminating, self.is_ready, self.is_at_gate) {
            (true, ..) => "terminating",
            (false, true, _) => "ready",
            (false, false, true) => "at its gate",
            (false, false, false) => "not ready",
        };
        write!(formatter, "{} {role}, {state}", self.name)
    }
}

/// How many Pods of each role.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counts {
    /// Primaries.
    pub primaries: usize,
    /// Hot backups.
    pub hot: usize,
    /// Cold backups.
    pub cold: usize,
}

impl Counts {
    /// The same number of each.
    pub const fn of_each(count: usize) -> Self {
        Self { primaries: count, hot: count, cold: count }
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}/{}", self.primaries, self.hot, self.cold)
    }
}

/// Whether the Pods that are not terminating are exactly these, each in place.
pub fn are_in_place<'p>(pods: impl IntoIterator<Item = &'p PodSight>, wanted: Counts) -> bool {
    let mut found = Counts::of_each(0);
    for pod in pods.into_iter().filter(|pod| !pod.is_terminating) {
        if !pod.is_in_place() {
            return false;
        }
        match pod.role {
            Some(Role::Primary) => found.primaries += 1,
            Some(Role::Hot) => found.hot += 1,
            Some(Role::Cold) => found.cold += 1,
            None => {}
        }
    }
    found == wanted
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn sight(status: &serde_json::Value, role: &str) -> PodSight {
        let labels = json!({(keys::LABEL_ROLE): role});
        let pod = json!({"metadata": {"name": "web-1", "labels": labels}, "status": status});
        PodSight::of(&serde_json::from_value(pod).unwrap())
    }

    fn ready() -> serde_json::Value {
        json!({"conditions": [{"type": "Ready", "status": "True"}]})
    }

    fn at_gate() -> serde_json::Value {
        json!({"initContainerStatuses": [{
            "name": keys::CONTAINER_GATE, "image": "", "imageID": "", "ready": false, "restartCount": 0,
            "state": {"running": {}},
        }]})
    }

    #[test]
    fn a_cold_pod_is_in_place_at_its_gate_and_others_when_ready() {
        assert!(sight(&at_gate(), "cold").is_in_place());
        assert!(!sight(&ready(), "cold").is_in_place());
        assert!(sight(&ready(), "primary").is_in_place());
        assert!(!sight(&at_gate(), "hot").is_in_place());
        assert!(!sight(&ready(), "elsewhere").is_in_place());
    }

    #[test]
    fn a_set_is_in_place_with_exactly_the_wanted_pods_besides_those_that_end() {
        let (primary, cold) = (sight(&ready(), "primary"), sight(&at_gate(), "cold"));
        let ending = PodSight { is_terminating: true, ..primary.clone() };
        let wanted = Counts { primaries: 1, hot: 0, cold: 1 };
        assert!(are_in_place([&primary, &cold, &ending], wanted));
        assert!(!are_in_place([&primary, &primary, &cold], wanted));
        assert!(!are_in_place([&primary], wanted));
        let unready = PodSight { is_ready: false, ..primary.clone() };
        assert!(!are_in_place([&primary, &cold, &unready], wanted));
    }
}
