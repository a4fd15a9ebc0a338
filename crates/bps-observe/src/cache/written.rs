//! What is learned from our own writes, before a watch shows it.

use bps_api::{BackupPodSet, HAGroup};
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;

use super::{Cleared, SetKey, TakenName};
use crate::readable::Readable;
use crate::slim::SlimPod;

/// A Pod that was made in vain, because admission changed it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TakenBack {
    /// Its set.
    pub set: SetKey,
    /// What became of it, as one sentence without a full stop.
    pub words: String,
}

/// What the API server answered to a write of ours.
#[derive(Debug)]
pub enum Written {
    /// A Pod as it is now.
    Pod(Box<SlimPod>),
    /// A Pod that is gone at once.
    PodGone(Box<SlimPod>),
    /// A Pod that was deleted again as soon as it was made.
    TakenBack(TakenBack),
    /// A set as it is now.
    Set(Box<Readable<BackupPodSet>>),
    /// A Service as it is now.
    Service(Box<Service>),
    /// A group of pairs as it is now.
    Group(Box<HAGroup>),
    /// A slice as it is now.
    Slice(Box<EndpointSlice>),
    /// A Service or slice of somebody else bears the name.
    NameTaken(TakenName),
    /// A PodDisruptionBudget as it is now.
    Budget(Box<PodDisruptionBudget>),
    /// A PodDisruptionBudget that is gone at once.
    BudgetGone(Box<PodDisruptionBudget>),
    /// The operator cleared a Service of addresses of other writers.
    Cleared(Box<Cleared>),
    /// A Service that is gone at once.
    ServiceGone(Box<Service>),
    /// A slice that is gone at once.
    SliceGone(Box<EndpointSlice>),
}
