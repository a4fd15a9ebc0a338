//! What every process of the project needs: tasks, leader lease, telemetry, metrics, health.
//!
//! | module | for |
//! |---|---|
//! | [`backoff`] | pauses that double |
//! | [`clock`], [`boot_clock`] | the wall clock, and the clock of the failover protocol |
//! | [`error`] | errors as text |
//! | [`sync`] | what threads meet at, so that a checker can take its place |
//! | [`shutdown`] | one cloneable signal that says "stop" to every task |
//! | [`tasks`] | every task is joined, the first to end stops the process |
//! | [`client`] | the Kubernetes client: bounded requests, no hidden retries, counted |
//! | [`lease`] | leader election on a `coordination.k8s.io` Lease |
//! | [`telemetry`] | logs |
//! | [`metrics`] | counters and histograms, by the names that dashboards know |
//! | [`http_server`] | HTTP within fixed bounds |
//! | [`health`], [`metrics_server`] | what the kubelet and Prometheus ask over HTTP |

pub mod backoff;
pub mod boot_clock;
pub mod client;
pub mod clock;
pub mod error;
pub mod health;
pub mod http_server;
pub mod lease;
pub mod metrics;
pub mod metrics_server;
mod review;
pub mod shutdown;
pub mod sync;
pub mod tasks;
pub mod telemetry;
