//! BackupPodSet keeps a service alive: primary, hot backup and cold backup Pods in one object, converted by
//! priority when something fails or the counts change.
//!
//! **Observe reads, plan decides, apply writes. Nothing does two of these.**
//!
//! | layer | modules | may use |
//! |---|---|---|
//! | pure decisions | [`model`], [`ha`], [`plan`], [`pairing`], [`manifests`], [`status`] | nothing that waits, reads a clock or talks |
//! | wire format | [`api`] | serde, schemars, kube's derive |
//! | plumbing | [`agent`], [`observe`], [`apply`], [`controller`], [`wakeup`], [`runtime`], [`plugin`] | the API server, the network, clocks |
//!
//! Arrows only point down: `model <- ha, plan, pairing, manifests, status <- observe, apply <- controller, plugin <- bin`.

pub mod agent;
pub mod api;
pub mod apply;
pub mod controller;
pub mod ha;
pub mod manifests;
pub mod model;
pub mod observe;
pub mod pairing;
pub mod plan;
pub mod plugin;
pub mod runtime;
pub mod status;
pub mod wakeup;
