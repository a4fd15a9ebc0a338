//! What is true on the nodes, whatever the API says: the part of a cluster that no request can change.

use std::collections::{BTreeMap, BTreeSet};

/// What is wrong with a gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GateFault {
    /// It refuses every ticket.
    Refuses,
    /// It never answers.
    Silent,
    /// It accepts, and the Pod never starts.
    Deaf,
}

/// Facts about machines and processes. Pods are named by uid.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Physical {
    /// Cold Pods whose gate was given a valid ticket; survives a re-created sandbox.
    pub woken: BTreeSet<String>,
    /// Cold Pods whose gate is out of order.
    pub broken_gates: BTreeMap<String, GateFault>,
    /// Pods whose application does not answer its readiness probe.
    pub unready: BTreeSet<String>,
    /// Pods whose application has ended for good, with the phase that the kubelet will report.
    pub ended: BTreeMap<String, &'static str>,
    /// Pods that the kubelet does not finish terminating.
    pub stuck: BTreeSet<String>,
    /// Nodes that are powered off or cut off.
    pub stopped_nodes: BTreeSet<String>,
}
