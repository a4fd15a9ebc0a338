//! Builders for tests of the status: a set with Pods, and results of steps.

use std::net::{IpAddr, Ipv4Addr};

use bps_api::service::IpFamily;
use bps_api::status::{BackupPodSetStatus, Condition};
use jiff::{SignedDuration, Timestamp};

use super::{StatusInput, compute};
use crate::model::{
    Action, Desired, Endpoint, Gate, Lifecycle, NodeHealth, NodeName, NodeView, Outcome, Ownership, Part,
    Plan, PodName, PodRef, PodView, Reason, Revision, Role, Snapshot, Step, StepResult, Uid,
};

/// The moment of every snapshot, in seconds; each second of a test counts from here.
const NOW_SECONDS: i64 = 1_800_000_000;
pub(in crate::status) const GENERATION: i64 = 3;

/// A case under test: everything that `compute` reads, owned.
pub(in crate::status) struct Case {
    pub(in crate::status) previous: BackupPodSetStatus,
    pub(in crate::status) snapshot: Snapshot,
    pub(in crate::status) plan: Plan,
    pub(in crate::status) results: Vec<StepResult>,
    pub(in crate::status) foreign_pods: Vec<String>,
    pub(in crate::status) invalid: Option<String>,
    pub(in crate::status) withheld: Option<String>,
}

impl Case {
    pub(in crate::status) fn compute(&self) -> BackupPodSetStatus {
        compute(&StatusInput {
            previous: &self.previous,
            snapshot: &self.snapshot,
            plan: &self.plan,
            results: &self.results,
            generation: GENERATION,
            images: &["app:1".to_owned(), "log:2".to_owned()],
            foreign_pods: &self.foreign_pods,
            invalid: self.invalid.as_deref(),
            withheld: self.withheld.as_deref(),
        })
    }

    /// The same set one pass later: the status was written and the results are told.
    pub(in crate::status) fn next_pass(mut self) -> Self {
        self.previous = self.compute();
        self.results.clear();
        self
    }

    pub(in crate::status) fn hold(mut self, reason: Reason, pod: &str) -> Self {
        self.plan.holds.push(crate::model::Hold { reason, pod: Some(PodName(pod.to_owned())), until: None });
        self
    }

    /// A step that was planned and came out like this.
    pub(in crate::status) fn result(mut self, step: Step, outcome: Outcome) -> Self {
        let message = match outcome {
            Outcome::Failed(_) => Some("the server says no".to_owned()),
            Outcome::Done | Outcome::Stale => None,
        };
        self.plan.steps.push(step.clone());
        self.results.push(StepResult { step, outcome, message, started: at(0), elapsed: millis(20) });
        self
    }

    pub(in crate::status) fn later(mut self, seconds: i64) -> Self {
        self.snapshot.now = at(seconds);
        self
    }
}

/// A set with these Pods that was seen complete at this generation before.
pub(in crate::status) fn seen(wanted: [usize; 3], pods: Vec<PodView>) -> Case {
    let mut case = new(wanted, full(wanted));
    case.previous = case.compute();
    case.snapshot.pods = pods;
    case.later(10)
}

/// A set with these Pods whose status was never written.
pub(in crate::status) fn new(wanted: [usize; 3], pods: Vec<PodView>) -> Case {
    Case {
        previous: BackupPodSetStatus::default(),
        snapshot: Snapshot {
            desired: desired(wanted),
            pods,
            exposure: None,
            leftovers: vec![],
            budget: None,
            group: None,
            level: None,
            recent: crate::model::Recent::default(),
            storm: None,
            look_by: None,
            now: at(0),
        },
        plan: Plan::default(),
        results: Vec::new(),
        foreign_pods: Vec::new(),
        invalid: None,
        withheld: None,
    }
}

/// What a status says about one thing.
pub(in crate::status) fn said<'a>(status: &'a BackupPodSetStatus, r#type: &str) -> &'a Condition {
    status.conditions.iter().find(|condition| condition.r#type == r#type).expect("every condition is there")
}

fn desired(counts: [usize; 3]) -> Desired {
    Desired {
        uid: Uid("set".to_owned()),
        revision: Revision("r1".to_owned()),
        ..crate::testing::desired(counts)
    }
}

/// So many available Pods of each role.
pub(in crate::status) fn full(pods: [usize; 3]) -> Vec<PodView> {
    let tier = |(role, count): (Role, usize)| {
        (0..count).map(move |index| available(&format!("web-{role}-{index}"), role))
    };
    Role::ALL.into_iter().zip(pods).flat_map(tier).collect()
}

/// A Pod that does what its role asks for.
pub(in crate::status) fn available(name: &str, role: Role) -> PodView {
    match role {
        Role::Primary | Role::Hot => pod(name, role, Lifecycle::Ready { since: at(-100) }),
        Role::Cold => {
            PodView { gate: Gate::Listening { since: at(-100) }, ..pod(name, role, Lifecycle::Starting) }
        }
    }
}

pub(in crate::status) fn pod(name: &str, role: Role, lifecycle: Lifecycle) -> PodView {
    PodView {
        pod: pod_ref(name),
        ownership: Ownership::Ours,
        role,
        labels: crate::model::RoleLabels::Right,
        role_since: at(-100),
        part: Part::None,
        slot: 0,
        revision: Revision("r1".to_owned()),
        subset: None,
        created: at(-200),
        lifecycle,
        gate: Gate::None,
        has_known_key: true,
        stopped: None,
        gate_trouble: None,
        first_ticket: None,
        next_ticket: None,
        is_running: true,
        signs: crate::model::Signs::default(),
        is_serving: true,
        node: Some(NodeView {
            name: NodeName("node-1".to_owned()),
            zone: None,
            domain: None,
            health: NodeHealth::Healthy,
        }),
        address: Some(address()),
        other_address: None,
    }
}

pub(in crate::status) fn on_lost_node(mut view: PodView) -> PodView {
    view.node = Some(NodeView {
        name: NodeName("node-2".to_owned()),
        zone: None,
        domain: None,
        health: NodeHealth::NotReady,
    });
    view
}

pub(in crate::status) fn outdated(view: PodView) -> PodView {
    PodView { revision: Revision("r0".to_owned()), ..view }
}

pub(in crate::status) fn create(name: &str, role: Role, reason: Reason) -> Step {
    Step { action: Action::Create { name: PodName(name.to_owned()), role, slot: 1, subset: None }, reason }
}

pub(in crate::status) fn convert(name: &str, (from, to): (Role, Role), reason: Reason) -> Step {
    Step { action: Action::Convert { pod: pod_ref(name), from, to }, reason }
}

pub(in crate::status) fn delete(name: &str, role: Role, reason: Reason) -> Step {
    Step { action: Action::Delete { pod: pod_ref(name), role, is_ready: false }, reason }
}

pub(in crate::status) fn expose(name: &str) -> Step {
    Step {
        action: Action::Expose { family: IpFamily::IPv4, endpoints: vec![endpoint(name)] },
        reason: Reason::EndpointsChanged,
    }
}

pub(in crate::status) fn endpoint(name: &str) -> Endpoint {
    Endpoint {
        pod: PodName(name.to_owned()),
        uid: Uid(format!("uid-{name}")),
        address: address(),
        node: None,
        zone: None,
        is_ready: true,
        is_terminating: false,
    }
}

pub(in crate::status) fn pod_ref(name: &str) -> PodRef {
    PodRef {
        name: PodName(name.to_owned()),
        uid: Uid(format!("uid-{name}")),
        resource_version: "1".to_owned(),
    }
}

pub(in crate::status) fn address() -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(198, 18, 0, 1))
}

pub(in crate::status) fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(NOW_SECONDS + seconds).expect("within range")
}

pub(in crate::status) fn millis(count: i64) -> SignedDuration {
    SignedDuration::from_millis(count)
}
