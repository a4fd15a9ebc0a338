//! Why something is done or not done about the pairs of a group: one word for log field, plugin and reference.

use std::fmt;

/// Cause of a step or a hold. Those of holds come first, the most important ones before the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PairReason {
    /// The group is paused.
    Paused,
    /// No member of the pair may act: no ready Pod has every acknowledged write.
    Withheld,
    /// The only Pod that has every acknowledged write of a pair acts in another one.
    KeeperBusy,
    /// A pair has no standby, and there is no Pod for that place.
    NoPod,
    /// A pair has no standby, because each Pod that could be one is in the failure domain of its active.
    NoOtherDomain,
    /// The active was asked to admit a Pod and has not done so yet.
    Admission,
    /// A member of the pair may still act although none of them is to be seen.
    MayAct,
    /// The standby does not answer its active.
    StandbySilent,
    /// Another writer deleted the Lease of a pair.
    LeaseLost,
    /// A single Pod is in no pair, and no other one has come.
    PodAlone,
    /// There are more pairs than Pods can fill.
    Surplus,
    /// A step would break an invariant, so no step was taken; this is a bug of the operator.
    CheckRefused,
    /// Two Pods are in no pair.
    PodsUnpaired,
    /// A primary of a set begins alone, so that it acts; its standby is admitted next.
    PrimaryFirst,
    /// A pair was made of one Pod, and there is a second one now.
    PlaceVacant,
    /// A member of the pair is gone or goes.
    MemberGone,
    /// The standby acts in another pair, and another Pod is to take its place.
    StandbyBusy,
    /// The Pod that the active was asked to admit is gone, or is not needed any more.
    RequestVoid,
    /// A member has another address than the Lease says.
    AddressChanged,
    /// No member of the pair acts, and none will.
    NoneActs,
    /// The standby is in the failure domain of its active, and a ready Pod is in another one.
    StandbyBeside,
    /// The node of the active is about to be taken away.
    NodeLeaving,
    /// There are more pairs than the group wants.
    Unwanted,
    /// Another writer allowed a member of a pair that ends to act.
    FenceLifted,
    /// The labels of a Pod do not say its part in its pair.
    PartChanged,
    /// No other Pod can act in the place of this one, so that no rollout may delete it now.
    NotCovered,
    /// A rollout may delete the Pod again.
    Covered,
}

impl PairReason {
    /// Every reason, for generated documentation.
    pub const ALL: [Self; 27] = [
        Self::Paused,
        Self::Withheld,
        Self::KeeperBusy,
        Self::NoPod,
        Self::NoOtherDomain,
        Self::Admission,
        Self::MayAct,
        Self::StandbySilent,
        Self::LeaseLost,
        Self::PodAlone,
        Self::Surplus,
        Self::CheckRefused,
        Self::PodsUnpaired,
        Self::PrimaryFirst,
        Self::PlaceVacant,
        Self::MemberGone,
        Self::StandbyBusy,
        Self::RequestVoid,
        Self::AddressChanged,
        Self::NoneActs,
        Self::StandbyBeside,
        Self::NodeLeaving,
        Self::Unwanted,
        Self::FenceLifted,
        Self::PartChanged,
        Self::NotCovered,
        Self::Covered,
    ];

    /// The word for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Paused => "Paused",
            Self::Withheld => "Withheld",
            Self::KeeperBusy => "KeeperBusy",
            Self::NoPod => "NoPod",
            Self::NoOtherDomain => "NoOtherDomain",
            Self::Admission => "Admission",
            Self::MayAct => "MayAct",
            Self::StandbySilent => "StandbySilent",
            Self::LeaseLost => "LeaseLost",
            Self::PodAlone => "PodAlone",
            Self::Surplus => "Surplus",
            Self::CheckRefused => "CheckRefused",
            Self::PodsUnpaired => "PodsUnpaired",
            Self::PrimaryFirst => "PrimaryFirst",
            Self::PlaceVacant => "PlaceVacant",
            Self::MemberGone => "MemberGone",
            Self::StandbyBusy => "StandbyBusy",
            Self::RequestVoid => "RequestVoid",
            Self::AddressChanged => "AddressChanged",
            Self::NoneActs => "NoneActs",
            Self::StandbyBeside => "StandbyBeside",
            Self::NodeLeaving => "NodeLeaving",
            Self::Unwanted => "Unwanted",
            Self::FenceLifted => "FenceLifted",
            Self::PartChanged => "PartChanged",
            Self::NotCovered => "NotCovered",
            Self::Covered => "Covered",
        }
    }

    /// What it says, as one sentence.
    pub const fn meaning(self) -> &'static str {
        match self {
            Self::Paused => "The group is paused.",
            Self::Withheld => "No member of the pair may act: no ready Pod has every acknowledged write.",
            Self::KeeperBusy => {
                "The only Pod that has every acknowledged write of a pair acts in another one, and is to hand over there."
            }
            Self::NoPod => "A pair has no standby, and there is no Pod for that place.",
            Self::NoOtherDomain => {
                "A pair has no standby, because each Pod that could be one is in the failure domain of its active."
            }
            Self::Admission => "The active was asked to admit a Pod and has not done so yet.",
            Self::MayAct => "A member of the pair may still act although none of them is to be seen.",
            Self::StandbySilent => "The standby does not answer its active.",
            Self::LeaseLost => "Another writer deleted the Lease of a pair.",
            Self::PodAlone => "A single Pod is in no pair, and no other one has come.",
            Self::Surplus => "There are more pairs than Pods can fill.",
            Self::CheckRefused => {
                "A step would break an invariant, so no step was taken; this is a bug of the operator."
            }
            Self::PodsUnpaired => "Two Pods are in no pair.",
            Self::PrimaryFirst => {
                "A primary of a set begins alone, so that it acts; its standby is admitted next."
            }
            Self::PlaceVacant => "A pair was made of one Pod, and there is a second one now.",
            Self::MemberGone => "A member of the pair is gone or goes.",
            Self::StandbyBusy => "The standby acts in another pair, and another Pod is to take its place.",
            Self::RequestVoid => {
                "The Pod that the active was asked to admit is gone, or is not needed any more."
            }
            Self::AddressChanged => "A member has another address than the Lease says.",
            Self::NoneActs => "No member of the pair acts, and none will.",
            Self::StandbyBeside => {
                "The standby is in the failure domain of its active, and a ready Pod is in another one."
            }
            Self::NodeLeaving => "The node of the active is about to be taken away.",
            Self::Unwanted => "There are more pairs than the group wants.",
            Self::FenceLifted => "Another writer allowed a member of a pair that ends to act.",
            Self::PartChanged => "The labels of a Pod do not say its part in its pair.",
            Self::NotCovered => {
                "No other Pod can act in the place of this one, so that no rollout may delete it now."
            }
            Self::Covered => "A rollout may delete the Pod again.",
        }
    }
}

impl fmt::Display for PairReason {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}
