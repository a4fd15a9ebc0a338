//! Whether an event matters to decisions, and whether it can wait for its neighbours.

use std::net::IpAddr;

use bps_core::model::{Gate, Lifecycle, Part, Role, RoleLabels, Signs};
use jiff::Timestamp;

use super::owner::controller_of;
use super::pod;
use super::slim::SlimPod;

/// How soon a set must be looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Change {
    /// Somebody else wrote an object of ours: put right soon, but less soon each time, because two writers that
    /// disagree must not answer each other for ever.
    Contested,
    /// Soon; events that follow within milliseconds are taken together.
    Ordinary,
    /// Somebody changed what is wanted: at once, but after what service depends on, because many sets may be made at the
    /// same time and each of their looks waits until its Pods are admitted.
    Wanted,
    /// At once: service may depend on it.
    Urgent,
}

impl Change {
    /// Whether it goes before all others.
    pub fn is_urgent(self) -> bool {
        self == Self::Urgent
    }

    /// Whether a look at the set that is under way is told of it.
    pub fn interrupts(self) -> bool {
        self >= Self::Wanted
    }
}

/// The facts of a Pod that decisions depend on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Facts {
    uid: Option<String>,
    role: Option<Role>,
    labels: RoleLabels,
    part: Part,
    lifecycle: Lifecycle,
    gate: Gate,
    addresses: [Option<IpAddr>; 2],
    node: Option<String>,
    owner: Option<String>,
    revision: Option<String>,
    is_started: bool,
    is_serving: bool,
    /// How far it has come behind its gate: the end of an init container begins a deadline.
    signs: Signs,
    /// Whether its gate does not start: it is no candidate then.
    is_gate_shut: bool,
}

pub(super) fn facts(pod: &SlimPod) -> Facts {
    let created = pod.metadata.creation_timestamp.as_ref().map_or(Timestamp::UNIX_EPOCH, |time| time.0);
    let labels = pod.metadata.labels.as_ref();
    Facts {
        uid: pod.metadata.uid.clone(),
        role: pod::role(pod),
        labels: pod::role_labels(pod),
        part: pod::part(pod),
        lifecycle: pod::lifecycle(pod, created),
        gate: pod::gate(pod),
        addresses: [pod::address(pod), pod::other_address(pod)],
        node: pod.spec.node_name.clone(),
        owner: controller_of(&pod.metadata).map(|owner| owner.uid.clone()),
        revision: labels.and_then(|labels| labels.get(bps_api::keys::LABEL_REVISION)).cloned(),
        is_started: pod::is_running(pod),
        is_serving: pod::is_serving(pod),
        signs: pod::signs(pod),
        is_gate_shut: pod::gate_trouble(pod).is_some(),
    }
}

/// What an event means; `None` if nothing that matters changed.
pub(super) fn between(old: Option<Facts>, new: Option<Facts>) -> Option<Change> {
    if old == new {
        return None;
    }
    if let (Some(old), Some(new)) = (&old, &new)
        && new.labels == RoleLabels::Wrong
        && (Facts { labels: old.labels, ..new.clone() }) == *old
    {
        return Some(Change::Contested);
    }
    let is_urgent = match (&old, &new) {
        (Some(old), None) => old.lifecycle != Lifecycle::Terminating || old.role != Some(Role::Cold),
        (None, Some(new)) => new.lifecycle != Lifecycle::Unscheduled,
        (Some(old), Some(new)) => is_urgent(old, new),
        (None, None) => false,
    };
    Some(if is_urgent { Change::Urgent } else { Change::Ordinary })
}

fn is_urgent(old: &Facts, new: &Facts) -> bool {
    let is_ready = |facts: &Facts| matches!(facts.lifecycle, Lifecycle::Ready { .. });
    let was_lost = is_ready(old) && !is_ready(new);
    let ends = matches!(new.lifecycle, Lifecycle::Terminating | Lifecycle::Finished)
        && new.lifecycle != old.lifecycle;
    let serves_now = new.role == Some(Role::Primary) && is_ready(new) && !is_ready(old);
    let waits_for_ticket = new.role != Some(Role::Cold)
        && matches!(new.gate, Gate::Listening { .. })
        && new.addresses.iter().any(Option::is_some);
    let was_relabelled = old.role != new.role || old.owner != new.owner || old.part != new.part;
    let was_replaced = old.uid != new.uid;
    was_lost || was_replaced || ends || serves_now || was_relabelled || (waits_for_ticket && old != new)
}
