//! What the real API server says about the CRD, the manifests and the permissions, the operator on hollow nodes,
//! pairs of real agents, and the kubectl plugin.
//!
//! Needs no root: the control plane runs on the loopback interface and ends with the tests. `KUBECONFIG` may name a
//! cluster to ask instead.

#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

mod agent_source;
mod assignment;
mod chart;
mod churn;
mod conformance;
mod crd;
mod flows;
mod groups;
mod kustomize;
mod operator;
mod pair;
mod plugin;
mod policies;
mod rbac;
mod server;
mod turns;
