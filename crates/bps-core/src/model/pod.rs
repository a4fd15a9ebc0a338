//! One Pod as decisions see it.

use std::net::IpAddr;

use bps_api::service::IpFamily;
use jiff::Timestamp;

use super::{NodeName, PodName, Revision, Role, Uid};

/// Names one incarnation of a Pod at one version; every write carries all three.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PodRef {
    /// Name in the set's namespace.
    pub name: PodName,
    /// Identity of this incarnation.
    pub uid: Uid,
    /// Version the decision was made on; a write against a newer version is refused with 409.
    pub resource_version: String,
}

/// How far a Pod has come, as far as it matters to decisions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lifecycle {
    /// Not bound to a node yet.
    Unscheduled,
    /// Bound, and its application was never ready so far.
    Starting,
    /// Ready to serve since then.
    Ready {
        /// Last time the Pod became ready.
        since: Timestamp,
    },
    /// Was ready or crashed; not ready since then. It may come back by itself.
    Unready {
        /// When it was last seen to stop being ready, by the operator's clock; if it was so when it was first seen,
        /// when it stopped by its record.
        since: Timestamp,
    },
    /// Phase Failed or Succeeded: it never comes back.
    Finished,
    /// Deletion was requested; it goes away, on a dead node after minutes.
    Terminating,
}

/// Where a Pod stands with its cold gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gate {
    /// The Pod was made without a gate.
    None,
    /// The gate has not started to listen.
    Ahead,
    /// The gate waits for a ticket since then.
    Listening {
        /// Start of the gate's container.
        since: Timestamp,
    },
    /// The gate ended: the application was let through.
    Passed {
        /// End of the gate's container.
        since: Timestamp,
    },
}

/// Whether a node can carry a primary.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum NodeHealth {
    /// Ready and schedulable.
    Healthy,
    /// Ready, but marked unschedulable: somebody is about to drain it.
    Cordoned,
    /// Not heard of: its Pods may run on or not.
    NotReady,
    /// Its object is gone, or it is not ready and carries the out-of-service taint: its Pods do not run any more.
    Gone,
}

/// What a Pod does in its pair, as its labels say. Only sets with active and standby Pods look at it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Part {
    /// It belongs to no pair.
    #[default]
    None,
    /// It acts.
    Active {
        /// The other Pod of its pair, if there is one.
        peer: Option<PodName>,
    },
    /// It takes over when the other Pod of its pair fails; where `standbyFor` is set, from the first of several that does.
    Standby {
        /// The other Pod of each of its pairs.
        peers: Vec<PodName>,
    },
}

impl Part {
    /// The other Pods of its pairs; who acts has one at most.
    pub fn peers(&self) -> &[PodName] {
        match self {
            Self::None => &[],
            Self::Active { peer } => peer.as_slice(),
            Self::Standby { peers } => peers,
        }
    }

    /// The other Pod of the pair that it acts in.
    pub const fn peer_of_active(&self) -> Option<&PodName> {
        match self {
            Self::Active { peer } => peer.as_ref(),
            Self::None | Self::Standby { .. } => None,
        }
    }
}

/// The node a Pod is bound to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeView {
    /// Name of the node.
    pub name: NodeName,
    /// Value of `topology.kubernetes.io/zone`, if the node has one.
    pub zone: Option<String>,
    /// What it fails together with: its value of the label that `topology.key` of the set names, by default the zone;
    /// `None` if it has no such label.
    pub domain: Option<String>,
    /// What is known of it.
    pub health: NodeHealth,
}

/// Who controls a Pod that carries the set's label.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ownership {
    /// Its controller reference is this set.
    Ours,
    /// It has no controller reference: to be adopted.
    Orphan,
}

/// The labels of a Pod that say its role in other words.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RoleLabels {
    /// They say the same.
    #[default]
    Right,
    /// One is missing, or says something else.
    Wrong,
}

/// What the record of a Pod tells of its start and its end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Signs {
    /// Whether an init container behind the gate is at work: it takes the time that it takes.
    pub is_at_work: bool,
    /// When a container last started or ended, by the clock of the node.
    pub progressed: Option<Timestamp>,
    /// Whether the Pod has ended soon after it was made.
    pub has_ended_early: bool,
}

/// Why the gate of a Pod does not start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GateTrouble {
    /// When it was first seen not to, by the operator's clock.
    pub since: Timestamp,
    /// What the record of the Pod says.
    pub words: String,
}

/// One Pod of the set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodView {
    /// Identity and version.
    pub pod: PodRef,
    /// Whether it is controlled by this set.
    pub ownership: Ownership,
    /// Role by its label.
    pub role: Role,
    /// Whether the other labels that follow from the role are as they are to be.
    pub labels: RoleLabels,
    /// When the role label was last written.
    pub role_since: Timestamp,
    /// What it does in its pair.
    pub part: Part,
    /// Place in the set that the Pod's name was derived from.
    pub slot: u32,
    /// Template it was made from.
    pub revision: Revision,
    /// Position of the subset that it was made for among those of the wish; `None` if it was made for none of them.
    pub subset: Option<usize>,
    /// Creation time.
    pub created: Timestamp,
    /// How far it has come.
    pub lifecycle: Lifecycle,
    /// Where it stands with its gate.
    pub gate: Gate,
    /// What keeps the gate from starting, as the record of the Pod says it; `None` if nothing does, or it has started.
    pub gate_trouble: Option<GateTrouble>,
    /// Whether the operator can sign a ticket that the gate accepts: it still holds a key that the gate knows, and the gate is of
    /// this very set. True for Pods without a gate.
    pub has_known_key: bool,
    /// When it stopped being ready by its record, which is written by the clock of its node; `None` if it is not unready.
    pub stopped: Option<Timestamp>,
    /// When this operator first tried a ticket on its gate; `None` if it did not, or has tried none for minutes.
    pub first_ticket: Option<Timestamp>,
    /// Not before then another ticket is sent to its gate; `None` if none was sent lately.
    pub next_ticket: Option<Timestamp>,
    /// Whether every application container runs.
    pub is_running: bool,
    /// How it starts and ends.
    pub signs: Signs,
    /// Whether it still answers although it may be terminating.
    pub is_serving: bool,
    /// Node it is bound to.
    pub node: Option<NodeView>,
    /// Its address, once the sandbox exists.
    pub address: Option<IpAddr>,
    /// Its address of the other family, in a cluster that gives Pods two.
    pub other_address: Option<IpAddr>,
}

impl PodView {
    /// Its addresses: none before the sandbox exists, one of each family at most.
    pub fn addresses(&self) -> impl Iterator<Item = IpAddr> {
        [self.address, self.other_address].into_iter().flatten()
    }

    /// Families of its addresses.
    pub fn families(&self) -> impl Iterator<Item = IpFamily> {
        self.addresses().map(IpFamily::of)
    }

    /// Whether clients can be sent to it.
    pub const fn is_ready(&self) -> bool {
        matches!(self.lifecycle, Lifecycle::Ready { .. })
    }

    /// Since when clients can be sent to it, if they can.
    pub const fn ready_since(&self) -> Option<Timestamp> {
        match self.lifecycle {
            Lifecycle::Ready { since } => Some(since),
            Lifecycle::Unscheduled
            | Lifecycle::Starting
            | Lifecycle::Unready { .. }
            | Lifecycle::Finished
            | Lifecycle::Terminating => None,
        }
    }

    /// Whether it acts in its pair.
    pub const fn acts(&self) -> bool {
        matches!(self.part, Part::Active { .. })
    }

    /// Whether its gate waits for a ticket.
    pub const fn is_at_gate(&self) -> bool {
        matches!(self.gate, Gate::Listening { .. })
    }

    /// Whether a ticket can be sent that opens its gate.
    pub const fn can_be_woken(&self) -> bool {
        self.is_at_gate() && self.has_known_key && self.address.is_some()
    }

    /// What is known of its node; an unbound Pod counts as on a healthy one.
    pub fn node_health(&self) -> NodeHealth {
        self.node.as_ref().map_or(NodeHealth::Healthy, |node| node.health)
    }

    /// Whether nobody can reach it because of its node.
    pub fn is_on_lost_node(&self) -> bool {
        self.node_health() >= NodeHealth::NotReady
    }

    /// Whether the Pod does what its role asks for: ready, or, if cold, waiting at a gate that can be opened.
    pub fn is_available(&self) -> bool {
        match self.role {
            Role::Primary | Role::Hot => self.is_ready(),
            Role::Cold => self.is_at_gate() && self.has_known_key && self.lifecycle == Lifecycle::Starting,
        }
    }
}
