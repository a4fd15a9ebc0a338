//! A local multi-node Kubernetes for tests, demos and measurements.
//!
//! [`cluster::Cluster`] is the whole thing: a control plane and nodes that each have their own network and
//! mount namespace, containerd, kubelet and kube-proxy. [`control_plane::ControlPlane`] is only the API
//! server with its companions, needs no root and starts in seconds. [`faults`] breaks a running cluster on
//! purpose and says when it did. Nothing here is part of the operator.
//!
//! | layer | modules |
//! |---|---|
//! | what people call | `cluster`, `control_plane`, `faults`, `status`, `install`, `story`, `bench` |
//! | one set in a running cluster: acts, sights, the operator's log | `stage` |
//! | parts of a cluster | `node`, `containers`, `daemon`, `state`, `ready`, `binaries`, `cargo`, `packages`, `pause`, `progress` |
//! | what Pods find in a cluster | `dns` (names of Services), `volumes` |
//! | instead of nodes and applications | `hollow` (fake kubelets), `app` (stand-in server and measuring client), `image` |
//! | pure | `addresses`, `config`, `pki`, `cuts` |
//! | the machine | `machine`, `paths` |

#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod addresses;
pub mod bench;
pub mod binaries;
pub mod cargo;
pub mod claims;
pub mod cluster;
pub mod config;
pub mod containers;
pub mod control_plane;
pub mod cuts;
pub mod daemon;
pub mod dns;
pub mod faults;
pub mod hollow;
pub mod image;
pub mod install;
pub mod machine;
pub mod node;
pub mod packages;
pub mod paths;
pub mod pause;
pub mod pki;
pub mod progress;
pub mod ready;
pub mod stage;
pub mod state;
pub mod status;
pub mod story;
pub mod volumes;

pub use lab_app as app;
