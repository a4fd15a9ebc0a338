//! Why something is done or not done: one word for event, condition, log field and metric label.

use std::fmt;

/// Cause of a step or a hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    /// More Pods of a role are wanted than there are.
    ScaledOut,
    /// Fewer Pods of a role are wanted than there are.
    ScaledIn,
    /// A Pod was deleted by somebody else.
    PodDeleted,
    /// A Pod ended for good: failed, evicted or completed.
    PodFinished,
    /// A primary stopped being ready.
    PodUnready,
    /// A primary has not become ready, and a hot backup has.
    SlowStart,
    /// A Pod is gone without a trace.
    PodMissing,
    /// A Pod's node is not ready.
    NodeLost,
    /// A Pod's node does not exist any more or is out of service.
    NodeGone,
    /// A primary's node was cordoned.
    NodeCordoned,
    /// A tier gave a Pod to a higher one.
    Refilled,
    /// A woken Pod did not pass its gate, or came no further behind it, within the wake-up timeout.
    WakeTimedOut,
    /// A Pod was not ready for longer than the deadline.
    UnreadyTooLong,
    /// No ticket can be signed that a cold Pod's gate accepts.
    GateKeyRetired,
    /// The gate of a Pod does not start.
    GateFails,
    /// A cold Pod runs although nobody woke it.
    StartedUnasked,
    /// The template changed.
    TemplateChanged,
    /// A Pod with an awake role still waits at its gate.
    RoleAwake,
    /// A Pod of the set has no controller.
    Orphaned,
    /// A label of a Pod does not say its role.
    LabelsChanged,
    /// The Service is missing or differs from the spec.
    ServiceChanged,
    /// The addresses behind the Service differ from the ready primaries.
    EndpointsChanged,
    /// Another writer may route clients of the Service to other addresses.
    ForeignAddresses,
    /// The PodDisruptionBudget is missing or differs from what the counts want.
    BudgetChanged,
    /// A subset of the nodes has more Pods than its share, and another one fewer.
    Rebalanced,
    /// No node of its subset has had room for a Pod.
    SubsetFull,
    /// A subset of the nodes lacks a Pod of some role, and no Pod of its own is the next to take that role.
    OffBalance,
    /// Another Pod of a pair acts.
    TookOver,
    /// The group of the set's pairs is missing or differs from the spec.
    GroupChanged,
    /// The set is paused.
    Paused,
    /// A primary is not ready, but not for long enough.
    WithinFailoverDelay,
    /// A primary is not ready and no hot backup is ready to take its place.
    NoReadyBackup,
    /// Too many Pods were lost at once.
    StormBrake,
    /// Pods ended soon after they were made; the next one is made later.
    BackingOff,
    /// The specification cannot be used, and no former one is known.
    InvalidSpec,
    /// The rollout waits until every Pod is available again.
    RolloutWaits,
    /// A Pod was converted, but its gate cannot be reached yet.
    AwaitingGate,
    /// A Pod does not run yet.
    AwaitingStart,
    /// An object with a name that the set needs belongs to somebody else.
    ForeignObject,
    /// A step would break an invariant; it was not taken.
    CheckRefused,
}

impl Reason {
    /// Every reason, for generated documentation.
    pub const ALL: [Self; 40] = [
        Self::ScaledOut,
        Self::ScaledIn,
        Self::PodDeleted,
        Self::PodFinished,
        Self::PodUnready,
        Self::SlowStart,
        Self::PodMissing,
        Self::NodeLost,
        Self::NodeGone,
        Self::NodeCordoned,
        Self::Refilled,
        Self::WakeTimedOut,
        Self::UnreadyTooLong,
        Self::GateKeyRetired,
        Self::GateFails,
        Self::StartedUnasked,
        Self::TemplateChanged,
        Self::RoleAwake,
        Self::Orphaned,
        Self::LabelsChanged,
        Self::ServiceChanged,
        Self::EndpointsChanged,
        Self::ForeignAddresses,
        Self::BudgetChanged,
        Self::Rebalanced,
        Self::SubsetFull,
        Self::OffBalance,
        Self::TookOver,
        Self::GroupChanged,
        Self::Paused,
        Self::WithinFailoverDelay,
        Self::NoReadyBackup,
        Self::StormBrake,
        Self::BackingOff,
        Self::InvalidSpec,
        Self::RolloutWaits,
        Self::AwaitingGate,
        Self::AwaitingStart,
        Self::ForeignObject,
        Self::CheckRefused,
    ];

    /// Whether a Pod was lost, as opposed to asked away: what makes a promotion a failover.
    pub const fn is_loss(self) -> bool {
        matches!(
            self,
            Self::PodDeleted
                | Self::PodFinished
                | Self::PodUnready
                | Self::PodMissing
                | Self::NodeLost
                | Self::NodeGone
                | Self::UnreadyTooLong
        )
    }

    /// The word that the cluster sees.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ScaledOut => "ScaledOut",
            Self::ScaledIn => "ScaledIn",
            Self::PodDeleted => "PodDeleted",
            Self::PodFinished => "PodFinished",
            Self::PodUnready => "PodUnready",
            Self::SlowStart => "SlowStart",
            Self::PodMissing => "PodMissing",
            Self::NodeLost => "NodeLost",
            Self::NodeGone => "NodeGone",
            Self::NodeCordoned => "NodeCordoned",
            Self::Refilled => "Refilled",
            Self::WakeTimedOut => "WakeTimedOut",
            Self::UnreadyTooLong => "UnreadyTooLong",
            Self::GateKeyRetired => "GateKeyRetired",
            Self::GateFails => "GateFails",
            Self::StartedUnasked => "StartedUnasked",
            Self::TemplateChanged => "TemplateChanged",
            Self::RoleAwake => "RoleAwake",
            Self::Orphaned => "Orphaned",
            Self::LabelsChanged => "LabelsChanged",
            Self::ServiceChanged => "ServiceChanged",
            Self::EndpointsChanged => "EndpointsChanged",
            Self::ForeignAddresses => "ForeignAddresses",
            Self::BudgetChanged => "BudgetChanged",
            Self::Rebalanced => "Rebalanced",
            Self::SubsetFull => "SubsetFull",
            Self::OffBalance => "OffBalance",
            Self::TookOver => "TookOver",
            Self::GroupChanged => "GroupChanged",
            Self::Paused => "Paused",
            Self::WithinFailoverDelay => "WithinFailoverDelay",
            Self::NoReadyBackup => "NoReadyBackup",
            Self::StormBrake => "StormBrake",
            Self::BackingOff => "BackingOff",
            Self::InvalidSpec => "InvalidSpec",
            Self::RolloutWaits => "RolloutWaits",
            Self::AwaitingGate => "AwaitingGate",
            Self::AwaitingStart => "AwaitingStart",
            Self::ForeignObject => "ForeignObject",
            Self::CheckRefused => "CheckRefused",
        }
    }

    /// What it says, as one sentence for events, conditions and the reference.
    pub const fn meaning(self) -> &'static str {
        match self {
            Self::ScaledOut => "More Pods of a role are wanted than there are.",
            Self::ScaledIn => "Fewer Pods of a role are wanted than there are.",
            Self::PodDeleted => "A Pod was deleted by somebody else.",
            Self::PodFinished => "A Pod ended for good: it failed, was evicted or completed.",
            Self::PodUnready => "A Pod stopped being ready.",
            Self::SlowStart => "A primary has not become ready yet, and a hot backup is.",
            Self::PodMissing => "A Pod is gone without a trace.",
            Self::NodeLost => "The node of a Pod does not answer.",
            Self::NodeGone => "The node of a Pod does not exist any more or is out of service.",
            Self::NodeCordoned => "The node of a primary was cordoned.",
            Self::Refilled => "A role gave a Pod to a higher one and is filled up again.",
            Self::WakeTimedOut => {
                "A woken Pod did not pass its gate, or came no further behind it, within wakeupTimeout."
            }
            Self::UnreadyTooLong => "A Pod was not ready for longer than unreadyDeadlineSeconds.",
            Self::GateKeyRetired => {
                "No ticket of this set can open the gate of a cold Pod: its keys are retired, or it is of a former set."
            }
            Self::GateFails => "The gate of a cold Pod does not start, so the Pod cannot be woken.",
            Self::StartedUnasked => "A cold Pod runs although nobody woke it.",
            Self::TemplateChanged => "The Pod template changed.",
            Self::RoleAwake => "A Pod that shall run still waits at its gate.",
            Self::Orphaned => "A Pod of the set had no controller.",
            Self::LabelsChanged => "A label that says the role of a Pod was changed by somebody else.",
            Self::ServiceChanged => "The exposed Service was missing or differed from spec.service.",
            Self::EndpointsChanged => "The addresses behind the Service differed from the ready primaries.",
            Self::ForeignAddresses => "The Service may lead to addresses that the operator did not write.",
            Self::BudgetChanged => {
                "The PodDisruptionBudget of the set was missing or differed from its counts."
            }
            Self::Rebalanced => "A subset of the nodes had more Pods than its share, and another one fewer.",
            Self::SubsetFull => "No node of its subset had room for a Pod for rescheduleCriticalSeconds.",
            Self::OffBalance => {
                "A subset of the nodes has fewer Pods of a role than its share, and no Pod of its own is the next to take that role."
            }
            Self::TookOver => "Another Pod of a pair acts, and roles follow.",
            Self::GroupChanged => "The HAGroup of the set was missing or differed from the spec.",
            Self::Paused => "The set is paused.",
            Self::WithinFailoverDelay => "A primary is not ready, but not yet for failoverDelaySeconds.",
            Self::NoReadyBackup => "A primary is not ready and no hot backup is ready to take its place.",
            Self::StormBrake => {
                "Too many Pods were lost at once, so none of them is replaced until that is over."
            }
            Self::BackingOff => "Pods ended soon after they were made, so the next ones are made later.",
            Self::InvalidSpec => {
                "The specification cannot be used and no former one is known, so no Pod is created or deleted."
            }
            Self::RolloutWaits => "The rollout waits until every Pod is available again.",
            Self::AwaitingGate => "A Pod was converted, but its gate cannot be reached yet.",
            Self::AwaitingStart => "A Pod does not run yet.",
            Self::ForeignObject => {
                "An object with a name or label that the set needs belongs to somebody else."
            }
            Self::CheckRefused => {
                "A step would break an invariant, so nothing was done; this is a bug of the operator."
            }
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}
