//! Objects of a group as they are in the cluster, for the decisions that compare them with what is wanted.
//!
//! `bps_observe` reads them. Here nothing is read from a body: bodies are compared as a whole or in parts.

use std::collections::{BTreeMap, BTreeSet};

use bps_protocol::{AgentId, Epoch};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::Value;

/// All that belongs to a group, but for what its pairs are read from.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ExistingObjects {
    /// Its Pods by their uid.
    pub pods: BTreeMap<AgentId, ExistingPod>,
    /// ServiceAccount of each Pod.
    pub accounts: Vec<String>,
    /// The number that each Lease names; `None` if it names none.
    pub numbers: Vec<Option<u32>>,
    /// Its Services.
    pub services: Vec<ExistingObject>,
    /// The EndpointSlices of its pairs.
    pub slices: Vec<ExistingSlice>,
    /// Each Role of its agents.
    pub roles: Vec<ExistingObject>,
    /// Each RoleBinding of its agents.
    pub bindings: Vec<ExistingObject>,
}

/// Name and uid of a Pod, as a write about it needs them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExistingPod {
    /// Its name.
    pub name: String,
    /// Its uid as the API server writes it: the API server compares text.
    pub uid: String,
    /// Numbers of the pairs whose active it has a label for.
    pub standby_of: BTreeSet<u32>,
}

/// An object of any kind.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ExistingObject {
    /// Its name, version, labels and owners.
    pub metadata: ObjectMeta,
    /// All of it.
    pub body: Value,
}

/// The EndpointSlice of a pair.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ExistingSlice {
    /// The slice itself.
    pub object: ExistingObject,
    /// Epoch of the active whose address it shows.
    pub epoch: Option<Epoch>,
    /// Its addresses are IPv6.
    pub is_v6: bool,
    /// Its endpoints.
    pub endpoints: Vec<ShownEndpoint>,
}

/// Content of an endpoint of a slice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShownEndpoint {
    /// Uid of the Pod; `None` if the endpoint names none that can be read.
    pub pod: Option<AgentId>,
    /// Where the Pod is reached.
    pub addresses: Vec<String>,
    /// Clients are led there.
    pub is_ready: bool,
}

impl ExistingObject {
    /// Its name; the API server gives every object one.
    pub(super) fn name(&self) -> &str {
        self.metadata.name.as_deref().unwrap_or_default()
    }
}
