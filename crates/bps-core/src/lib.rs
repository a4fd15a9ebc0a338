//! Decisions of the operator. *If it compiles without Kubernetes it is a decision; if it needs Kubernetes it is plumbing.*
//!
//! | module | what it holds |
//! |---|---|
//! | [`model`] | roles, Pods, the wish, the snapshot, steps, holds, reasons, the table of transitions |
//! | [`plan`] | `plan(&Snapshot) -> Plan` for a set: an ordered list of rules, and `check`, a second opinion |
//! | [`forecast`] | what becomes of a set: the plan, carried on until nothing is left to do |
//! | [`pairing`] | `plan(&Group) -> Plan` for a group: who forms a pair, who takes a lost place, which pair ends; and what its objects need |
//! | [`manifests`] | Pod, gate, Service, EndpointSlice, ControllerRevision; the agent into a Pod template and out of it |
//! | [`status`] | what the status, events and conditions say |
//! | [`rbac`] | what the operator may do in the cluster |
//!
//! Nothing here waits, or reads a clock or the environment: everything that is needed is in the arguments.

#![deny(clippy::disallowed_methods, clippy::disallowed_types)]

pub mod forecast;
pub mod manifests;
pub mod model;
pub mod pairing;
pub mod plan;
pub mod rbac;
pub mod status;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
