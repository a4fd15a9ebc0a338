//! Wire types of the kinds BackupPodSet and HAGroup, and every string the cluster sees.
//!
//! Nothing here decides or talks: `observe` turns these types into the model, `status` fills the status types.
//! Doc comments of fields are the texts that `kubectl explain backuppodset` prints.
//!
//! | module | what it holds |
//! |---|---|
//! | [`keys`] | labels, annotations, names, ports and environment variables |
//! | [`active_standby`] | pairs of an active and a standby Pod in a set |
//! | [`spec`] | the wish: counts, strategy, timing, update and service settings |
//! | [`disruption`] | what planned disruptions may take at a time |
//! | [`redundancy`] | the model of redundancy that a set promises |
//! | [`topology`] | failure domains, and subsets of the nodes with their shares |
//! | [`template`] | the Pod template and its schema |
//! | [`quantity`] | amounts of resources as numbers |
//! | [`status`] | the report: counts, conditions, last failover, conversions |
//! | [`group`], [`timing`] | the HAGroup kind; its times |
//! | [`crd`] | the CustomResourceDefinition; [`openapi`] makes the schema of the Pod template in it |
//! | [`service`] | the Service that exposes the primaries |

// The derives of the kinds name the crate `kube`. Its facade has a client, which is not built for the kinds alone, so this
// crate has what they need under that name.
extern crate self as kube;
#[doc(hidden)]
pub use kube_core as core;
#[doc(hidden)]
pub use kube_derive::KubeSchema;

pub mod active_standby;
pub mod crd;
pub mod disruption;
pub mod group;
pub mod keys;
pub mod openapi;
pub mod quantity;
pub mod redundancy;
pub mod service;
pub mod spec;
pub mod status;
pub mod subset_rules;
pub mod template;
pub mod timing;
pub mod topology;

pub use active_standby::{ActiveStandby, AgentDelivery, PromoteWhen, StandbyHooks};
pub use disruption::{BudgetPolicy, Disruption};
pub use group::{
    CrashLoop, GroupService, GroupSummary, GroupTopology, HAGroup, HAGroupSpec, HAGroupStatus, HandoverOrder,
    IN_SYNC, LOST_PODS_MAX, LagReason, LostPair, PAIR_CRASH_LOOPING, PAIR_ENDING, PAIR_KEEPER_BUSY,
    PAIR_SILENT, PairStatus, StandbyPlacement, StateLag, Takeover, TakeoverPhases, WITHHELD, ZONE_LABEL,
};
pub use redundancy::{N_WAY_REFUSED, RedundancyModel};
pub use service::{ExposedService, ServicePort, ServiceType, TargetPort};
pub use spec::{
    BackupPodSet, BackupPodSetSpec, CandidateChoice, ColdStart, CountOrPercent, GateDelivery, GateUser,
    ScaleInPolicy, Strategy, UpdateStrategy, UpdateStrategyType,
};
pub use status::{
    BackupPodSetStatus, Condition, ConditionStatus, Conversion, ConversionOutcome, FailoverReport,
    SubsetStatus, Summary, Tier, TierNames,
};
pub use template::{PodTemplate, TemplateMetadata};
pub use timing::{GroupTiming, TimingProfile};
pub use topology::{
    AdaptiveSchedule, NodeOperator, NodeRequirement, NodeSelectorTerm, Rebalance, ScheduleStrategy,
    ScheduleStrategyType, SetTopology, SubsetToleration, TierSpread, TopologySubset,
};
