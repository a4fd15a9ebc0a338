//! Builds wishes and Pods for tests; everything that a test does not name is healthy and settled.
//!
//! Compiled into the library's unit tests and into the tests of this folder, so the model comes from the parent.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use bps_api::service::IpFamily;
use jiff::{SignedDuration, Timestamp};

use crate::model::{
    Desired, Endpoint, ExposedSlice, Exposure, Gate, Lifecycle, NodeHealth, NodeName, NodeView, ObjectState,
    Others, Ownership, Part, PodName, PodRef, PodShare, PodView, Recent, Revision, Role, RoleLabels, ScaleIn,
    Signs, Snapshot, Storm, Strategies, Topology, Uid, UpdateKind, UpdatePolicy,
};

/// Age of a Pod about which a test says nothing.
const SETTLED_SECONDS: i64 = 1_000;

/// The moment at which every snapshot is taken: 2026-01-01T00:00:00Z.
pub fn now() -> Timestamp {
    Timestamp::constant(1_767_225_600, 0)
}

/// A moment before [`now`].
pub fn seconds_ago(seconds: i64) -> Timestamp {
    now() - SignedDuration::from_secs(seconds)
}

/// The revision of the template as it stands.
pub fn current() -> Revision {
    Revision("current".into())
}

/// The revision of the template before its last change.
pub fn outdated() -> Revision {
    Revision("outdated".into())
}

/// A wish for so many primaries, hot and cold backups.
pub fn desired([replicas, hot_backups, cold_backups]: [usize; 3]) -> Desired {
    Desired {
        name: "web".into(),
        uid: Uid("set-uid".into()),
        replicas,
        hot_backups,
        cold_backups,
        standby_for: 1,
        promise: None,
        strategies: Strategies::default(),
        wakeup_timeout: SignedDuration::from_secs(5),
        min_ready: SignedDuration::ZERO,
        progress_deadline: SignedDuration::from_secs(600),
        failover_delay: SignedDuration::ZERO,
        unready_deadline: SignedDuration::from_secs(300),
        topology: Topology::default(),
        scale_in: ScaleIn::Delete,
        update: UpdatePolicy {
            kind: UpdateKind::BackupFirst,
            max_unavailable: PodShare::Pods(1),
            max_surge: PodShare::Pods(1),
            partition: 0,
        },
        paused: false,
        can_create: true,
        revision: current(),
        collisions: 0,
        is_new_generation: false,
    }
}

/// A snapshot without a Service.
pub fn snapshot(desired: Desired, mut pods: Vec<PodView>) -> Snapshot {
    pods.sort_by(|left, right| left.pod.name.cmp(&right.pod.name));
    Snapshot {
        desired,
        pods,
        exposure: None,
        leftovers: vec![],
        budget: None,
        group: None,
        level: None,
        recent: Recent::default(),
        storm: None,
        look_by: None,
        now: now(),
    }
}

/// A Service that is as wanted, with a slice of IPv4 addresses in this state.
pub fn exposure(slice: ObjectState, endpoints: Vec<Endpoint>) -> Exposure {
    Exposure {
        service: ObjectState::Current,
        slices: vec![ExposedSlice { family: IpFamily::IPv4, state: slice, endpoints }],
        others: Others::None,
    }
}

/// A healthy, settled Pod with a node of its own: ready, or, if cold, at its gate.
pub fn pod(name: &str, role: Role, slot: u32) -> PodView {
    let since = seconds_ago(SETTLED_SECONDS);
    let is_cold = role == Role::Cold;
    PodView {
        pod: PodRef {
            name: PodName(name.into()),
            uid: Uid(format!("uid-{name}")),
            resource_version: "1".into(),
        },
        ownership: Ownership::Ours,
        role,
        labels: RoleLabels::Right,
        role_since: since,
        part: Part::None,
        slot,
        revision: current(),
        subset: None,
        created: since,
        lifecycle: if is_cold { Lifecycle::Starting } else { Lifecycle::Ready { since } },
        gate: if is_cold { Gate::Listening { since } } else { Gate::None },
        has_known_key: true,
        stopped: None,
        gate_trouble: None,
        first_ticket: None,
        next_ticket: None,
        is_running: !is_cold,
        signs: Signs::default(),
        is_serving: !is_cold,
        node: Some(node(&format!("node-{name}"), NodeHealth::Healthy)),
        address: Some(address(slot)),
        other_address: None,
    }
}

/// A second slice, of IPv6 addresses, for a Service that has one of IPv4 addresses.
pub fn dual_stack(exposure: Exposure, endpoints: Vec<Endpoint>) -> Exposure {
    let mut slices = exposure.slices;
    let state = slices[0].state;
    slices.push(ExposedSlice { family: IpFamily::IPv6, state, endpoints });
    Exposure { slices, ..exposure }
}

/// A storm in which so many of all Pods are lost; it is doubted for a minute more.
pub fn storm(lost: usize, total: usize) -> Storm {
    Storm { lost, total, nodes: vec![NodeName("n1".into())], until: now() + SignedDuration::from_secs(60) }
}

/// A node without a zone or another failure domain.
pub fn node(name: &str, health: NodeHealth) -> NodeView {
    NodeView { name: NodeName(name.into()), zone: None, domain: None, health }
}

/// The address of the Pod in a slot, out of the range that RFC 2544 keeps for tests.
pub fn address(slot: u32) -> IpAddr {
    IpAddr::V4(Ipv4Addr::from_bits(Ipv4Addr::new(198, 18, 0, 1).to_bits() + slot))
}

/// Address of the other family that a Pod of this slot has in a cluster with two.
pub fn other_address(slot: u32) -> IpAddr {
    IpAddr::V6(Ipv6Addr::from_bits(Ipv6Addr::new(0x2001, 2, 0, 0, 0, 0, 0, 1).to_bits() + u128::from(slot)))
}
