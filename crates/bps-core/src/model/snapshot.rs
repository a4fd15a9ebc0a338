//! One consistent view of a set: the wish, its Pods, its exposure and the time.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;

use bps_api::service::IpFamily;
use jiff::{SignedDuration, Timestamp};

use super::{Desired, Lifecycle, NodeName, Others, PodName, PodView, Reason, Role, Uid};

/// One address that the set's Service leads to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Endpoint {
    /// The Pod behind it.
    pub pod: PodName,
    /// Its identity.
    pub uid: Uid,
    /// Where it listens.
    pub address: IpAddr,
    /// Node it runs on.
    pub node: Option<NodeName>,
    /// Zone it runs in.
    pub zone: Option<String>,
    /// Whether new connections go to it.
    pub is_ready: bool,
    /// Whether it is going away; kube-proxy uses such an endpoint only when there is no other.
    pub is_terminating: bool,
}

/// What is known of an object with a fixed name that the set wants to have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ObjectState {
    /// There is none.
    Absent,
    /// Controlled by the set and as wanted.
    Current,
    /// Controlled by the set, but not as wanted.
    Outdated,
    /// Somebody else's: it is left alone.
    Foreign,
}

/// The exposed Service and its addresses, as they are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exposure {
    /// The Service named in the spec.
    pub service: ObjectState,
    /// The EndpointSlices that belong to it, one for each family of the Service.
    pub slices: Vec<ExposedSlice>,
    /// Addresses of other writers.
    pub others: Others,
}

/// The EndpointSlice of a Service for one family of addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExposedSlice {
    /// Family of its addresses.
    pub family: IpFamily,
    /// The object.
    pub state: ObjectState,
    /// Addresses in it, sorted.
    pub endpoints: Vec<Endpoint>,
}

impl Exposure {
    /// Addresses in all slices, those of one slice after those of the other.
    pub fn endpoints(&self) -> impl Iterator<Item = &Endpoint> {
        self.slices.iter().flat_map(|slice| &slice.endpoints)
    }

    /// State of the first slice that is not as wanted; `Current` if all are.
    pub fn slice_state(&self) -> ObjectState {
        let states = self.slices.iter().map(|slice| slice.state);
        states.into_iter().find(|state| *state != ObjectState::Current).unwrap_or(ObjectState::Current)
    }

    /// Those of the Pods that new connections go to in every family that both the Service and the Pod have. Families whose slice is
    /// somebody else's are not ours to say.
    pub fn reached<'a>(&self, pods: &'a [PodView]) -> BTreeSet<&'a Uid> {
        let ready = self.endpoints().filter(|endpoint| endpoint.is_ready);
        let ready: BTreeSet<_> =
            ready.map(|endpoint| (&endpoint.uid, IpFamily::of(endpoint.address))).collect();
        let is_reached = |view: &&PodView| {
            let mut states =
                view.families().filter_map(|family| Some((family, self.state(family)?))).peekable();
            let is_shown =
                |(family, state)| state == ObjectState::Foreign || ready.contains(&(&view.pod.uid, family));
            states.peek().is_some() && states.all(is_shown)
        };
        pods.iter().filter(is_reached).map(|view| &view.pod.uid).collect()
    }

    /// Whether whom clients are sent to is not ours to say: the Service, or the names of all its slices, are somebody else's.
    pub fn is_foreign(&self) -> bool {
        let is_foreign = |slice: &ExposedSlice| slice.state == ObjectState::Foreign;
        self.service == ObjectState::Foreign || self.slices.iter().all(is_foreign)
    }

    fn state(&self, family: IpFamily) -> Option<ObjectState> {
        self.slices.iter().find(|slice| slice.family == family).map(|slice| slice.state)
    }
}

/// Kinds of objects that a set keeps beside its Pods and has no use for when its spec changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ExposedKind {
    /// The Service.
    Service,
    /// Its EndpointSlice.
    Slice,
    /// The PodDisruptionBudget.
    Budget,
}

impl ExposedKind {
    /// The kind's name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Service => "Service",
            Self::Slice => "EndpointSlice",
            Self::Budget => "PodDisruptionBudget",
        }
    }
}

/// An object that the set made and that its spec does not want any more.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Leftover {
    /// What it is.
    pub kind: ExposedKind,
    /// Name in the set's namespace.
    pub name: String,
    /// Identity of this incarnation.
    pub uid: Uid,
    /// Version the decision is made on.
    pub resource_version: String,
}

impl fmt::Display for Leftover {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} {}", self.kind.as_str(), self.name)
    }
}

/// How long the silence of nodes is doubted, by the clock of the operator.
///
/// 10 min: twice the time after which Kubernetes evicts Pods from a node that does not answer (300 s, the default of
/// `tolerationSeconds` that the admission plugin `DefaultTolerationSeconds` sets).
pub const STORM_BELIEVED_AFTER: SignedDuration = SignedDuration::from_secs(600);

/// More Pods than usual were lost at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Storm {
    /// Pods of all sets that were lost.
    pub lost: usize,
    /// Pods of all sets.
    pub total: usize,
    /// Nodes with Pods of sets that are silent, sorted.
    pub nodes: Vec<NodeName>,
    /// When their silence will have lasted for so long that it is believed.
    pub until: Timestamp,
}

/// What the operator did to a set's Pods a short while ago; lost with the operator.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recent {
    /// Pods that were woken and deleted because they did not start in time, since one did.
    pub timeouts_in_a_row: usize,
    /// Why the last Pod of each role was deleted.
    pub deleted: BTreeMap<Role, Reason>,
    /// Pods that ended soon after they were made; `None` if the last ones did not.
    pub early_ends: Option<EarlyEnds>,
}

/// Pods that ended soon after they were made: another one of the same template may do so, too.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EarlyEnds {
    /// For each that is to be replaced, until when that waits; sorted.
    pub until: Vec<Timestamp>,
    /// What the last one ended with, by its record; empty if it does not say.
    pub words: String,
}

/// Everything one decision is made from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// The wish.
    pub desired: Desired,
    /// Pods that carry the set's label and are controlled by it or by nobody, sorted by name.
    pub pods: Vec<PodView>,
    /// The exposed Service; `None` if the spec has none.
    pub exposure: Option<Exposure>,
    /// What an earlier spec left behind, sorted.
    pub leftovers: Vec<Leftover>,
    /// The PodDisruptionBudget; `None` if the set is to have none.
    pub budget: Option<ObjectState>,
    /// The group of the set's pairs; `None` if its Pods are not paired.
    pub group: Option<ObjectState>,
    /// Actives whose standby has every acknowledged write; `None` if a standby may act without. By actives, because a standby of several
    /// may have the whole state of one of them and lack that of another one.
    pub level: Option<BTreeSet<PodName>>,
    /// What was done a short while ago.
    pub recent: Recent,
    /// Set while the storm brake is on.
    pub storm: Option<Storm>,
    /// Earliest time at which a fact of this snapshot expires without an event; `None` if none does.
    pub look_by: Option<Timestamp>,
    /// The moment of the snapshot.
    pub now: Timestamp,
}

impl Snapshot {
    /// Whether primaries are actives and hot backups their standbys.
    pub const fn is_paired(&self) -> bool {
        self.group.is_some()
    }

    /// Whether the standby of an active could act with all that was acknowledged.
    pub fn is_level(&self, active: &PodName) -> bool {
        self.level.as_ref().is_none_or(|level| level.contains(active))
    }

    /// Whether the standby of an active could take its place right now.
    pub fn can_follow(&self, active: &PodView, standby: &PodView) -> bool {
        standby.is_ready() && self.is_level(&active.pod.name)
    }

    /// When a Pod that waits for a node of its subset has waited for so long that its place is filled in another one; `None` if it
    /// does not wait, or the set has no such limit.
    pub fn reserved_from(&self, view: &PodView) -> Option<Timestamp> {
        let patience = self.desired.topology.patience?;
        let waits = view.lifecycle == Lifecycle::Unscheduled && view.subset.is_some();
        waits.then(|| view.created.saturating_add(patience).unwrap_or(Timestamp::MAX))
    }

    /// Whether a Pod keeps a place in a subset whose nodes have no room, while another Pod fills it elsewhere.
    pub fn is_reserved(&self, view: &PodView) -> bool {
        self.reserved_from(view).is_some_and(|from| from <= self.now)
    }

    /// Whether every Pod was made from the template as it stands, also those that are on their way out.
    pub fn is_rolled_out(&self) -> bool {
        self.pods.iter().all(|pod| self.desired.is_current(pod))
    }
}
