//! What a plan consists of: steps that are taken and holds that say why one is not.

use std::net::IpAddr;

use bps_api::service::IpFamily;
use jiff::Timestamp;

use super::{Endpoint, ExposedKind, Leftover, PodName, PodRef, Reason, Role, SubsetName};

/// One write, or one ticket to a cold gate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Makes a Pod.
    Create {
        /// Deterministic name: the same shortage gives the same name again.
        name: PodName,
        /// Role it starts with.
        role: Role,
        /// Place in the set.
        slot: u32,
        /// Subset of the nodes that it is made for, if the set has some.
        subset: Option<SubsetName>,
    },
    /// Changes a Pod's role label.
    Convert {
        /// The Pod.
        pod: PodRef,
        /// Role it has.
        from: Role,
        /// Role it gets.
        to: Role,
    },
    /// Sends a ticket to a Pod whose role is awake but whose gate still waits.
    Wake {
        /// The Pod.
        pod: PodRef,
        /// Where its gate listens.
        address: IpAddr,
    },
    /// Requests a Pod's deletion.
    Delete {
        /// The Pod.
        pod: PodRef,
        /// Role it has.
        role: Role,
        /// Whether it was ready: then a consistent LIST must confirm the step first.
        is_ready: bool,
    },
    /// Sets the controller reference of a Pod that lost its owner.
    Adopt {
        /// The Pod.
        pod: PodRef,
    },
    /// Puts the labels of a Pod right that follow from its role.
    Relabel {
        /// The Pod.
        pod: PodRef,
        /// Role it has.
        role: Role,
    },
    /// Creates or corrects the exposed Service.
    PublishService,
    /// Creates or corrects the group of the set's pairs.
    PublishGroup,
    /// Creates or corrects the PodDisruptionBudget.
    PublishBudget,
    /// Writes all addresses of one family behind the exposed Service, in one write.
    Expose {
        /// The family.
        family: IpFamily,
        /// The addresses, sorted.
        endpoints: Vec<Endpoint>,
    },
    /// Deletes objects of Kubernetes' own controllers behind the exposed Service, and lists those of other writers.
    ClearAddresses,
    /// Deletes an object that the spec does not want any more.
    Retire {
        /// The object.
        object: Leftover,
    },
}

impl Action {
    /// The word for this kind of step in logs and metrics.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Create { .. } => "create",
            Self::Convert { .. } => "convert",
            Self::Wake { .. } => "wake",
            Self::Delete { .. } => "delete",
            Self::Adopt { .. } => "adopt",
            Self::Relabel { .. } => "relabel",
            Self::PublishService => "publish-service",
            Self::PublishGroup => "publish-group",
            Self::PublishBudget => "publish-budget",
            Self::Expose { .. } => "expose",
            Self::ClearAddresses => "clear-addresses",
            Self::Retire { .. } => "retire",
        }
    }

    /// Name of the Pod that the step is about.
    pub const fn pod_name(&self) -> Option<&PodName> {
        match self {
            Self::Create { name, .. } => Some(name),
            Self::Convert { pod, .. }
            | Self::Wake { pod, .. }
            | Self::Delete { pod, .. }
            | Self::Relabel { pod, .. }
            | Self::Adopt { pod } => Some(&pod.name),
            Self::PublishService
            | Self::PublishGroup
            | Self::PublishBudget
            | Self::Expose { .. }
            | Self::ClearAddresses
            | Self::Retire { .. } => None,
        }
    }

    /// Whether the step restores service and therefore must not wait behind refills.
    pub const fn is_urgent(&self) -> bool {
        match self {
            Self::Convert { .. }
            | Self::Wake { .. }
            | Self::Expose { .. }
            | Self::PublishService
            | Self::PublishGroup => true,
            Self::Create { .. }
            | Self::Delete { .. }
            | Self::Adopt { .. }
            | Self::Relabel { .. }
            | Self::ClearAddresses
            | Self::PublishBudget
            | Self::Retire { .. } => false,
        }
    }

    /// Whether the step concerns neither Pods nor their addresses, so that its refusal blocks no other step.
    pub const fn is_aside(&self) -> bool {
        matches!(
            self,
            Self::ClearAddresses
                | Self::PublishBudget
                | Self::Retire { object: Leftover { kind: ExposedKind::Budget, .. } }
        )
    }

    /// Whether the step keeps clients from Pods that are gone or a Pod from missing its ticket, and decides nothing new.
    ///
    /// No pause, brake or doubt holds such a step back: what it says is so already.
    pub const fn protects(&self) -> bool {
        matches!(self, Self::Expose { .. } | Self::ClearAddresses | Self::Wake { .. })
    }

    /// Whether everything else of a plan waits until the step was tried.
    pub const fn goes_first(&self) -> bool {
        matches!(self, Self::Convert { .. } | Self::Expose { .. })
    }

    /// Whether the step is right even if no conversion and no address write of its plan succeeds.
    ///
    /// A primary goes because of its successor, and a former Service because of the one that replaces it.
    const fn needs_no_first_wave(&self) -> bool {
        if self.is_aside() {
            return true;
        }
        match self {
            Self::Create { .. }
            | Self::Wake { .. }
            | Self::Adopt { .. }
            | Self::Relabel { .. }
            | Self::PublishService
            | Self::PublishGroup
            | Self::PublishBudget
            | Self::ClearAddresses
            | Self::Delete { role: Role::Hot | Role::Cold, .. } => true,
            Self::Convert { .. }
            | Self::Expose { .. }
            | Self::Retire { .. }
            | Self::Delete { role: Role::Primary, .. } => false,
        }
    }
}

/// One thing to do and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// What is done.
    pub action: Action,
    /// Why.
    pub reason: Reason,
}

/// "I would, but not yet, because."
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Hold {
    /// Why nothing is done.
    pub reason: Reason,
    /// The Pod it is about, if it is about one.
    pub pod: Option<PodName>,
    /// When to look again even if nothing happens; `None` waits for an event.
    pub until: Option<Timestamp>,
}

/// What to do now. There is no order among the steps; any subset is safe.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// Things to do.
    pub steps: Vec<Step>,
    /// Things not done yet.
    pub holds: Vec<Hold>,
}

impl Plan {
    /// The earliest moment at which a hold ends.
    pub fn next_look(&self) -> Option<Timestamp> {
        self.holds.iter().filter_map(|hold| hold.until).min()
    }

    /// The steps to take first: conversions and addresses if there are any, else all.
    ///
    /// Creations and deletions make nodes busy and compete for the API server; service comes before spares.
    pub fn first_wave(&self) -> Vec<Step> {
        let first: Vec<Step> = self.steps.iter().filter(|step| step.action.goes_first()).cloned().collect();
        if first.is_empty() { self.steps.clone() } else { first }
    }

    /// The steps to take after a first wave that did not succeed: one that fails for ever must not hold up the rest.
    pub fn second_wave(&self) -> Vec<Step> {
        self.steps.iter().filter(|step| step.action.needs_no_first_wave()).cloned().collect()
    }
}
