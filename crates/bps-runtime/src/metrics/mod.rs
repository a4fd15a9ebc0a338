//! Counts what the process does and prints it for Prometheus, by the names that existing dashboards know.
//!
//! Label values are `&'static str` from our own enums, never names of objects: the number of series is bounded by the
//! code, not by the cluster. Exceptions are the status code and the host of a request, both bounded as well.
//!
//! | module | names |
//! |---|---|
//! | [`reconcile`] | `controller_runtime_*`, `workqueue_*`, `leader_election_master_status` |
//! | [`rest`] | `rest_client_*` |
//! | [`groups`] | `backuppodset_takeover*` |
//! | [`sets`] | `backuppodset_*` |
//! | [`lines`] | `backuppodset_log_lines_dropped` |

use std::fmt;
use std::sync::Arc;

use prometheus_client::encoding::text;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;

pub mod groups;
pub mod lines;
pub mod reconcile;
pub mod rest;
pub mod sets;

/// Upper bounds of all histogram buckets.
///
/// Unit: seconds. From 1 ms (one write to the API server takes 4 ms or more) to 60 s (the longest bound of a wake-up
/// or an own write); about three per decade, so that a quantile is off by at most a factor of 2.5.
pub const BUCKETS_SECONDS: [f64; 16] =
    [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 60.0];

/// What the text of [`Metrics::encode`] is, for the `Content-Type` header.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// All metrics of the process; clones share the same values.
#[derive(Clone, Debug)]
pub struct Metrics {
    /// Reconciles, work queue and leadership.
    pub reconcile: reconcile::ReconcileMetrics,
    /// Requests to the API server.
    pub rest: rest::RestMetrics,
    /// What happened in groups of pairs.
    pub groups: groups::GroupMetrics,
    /// What was done to sets of Pods.
    pub sets: sets::SetMetrics,
    registry: Arc<Registry>,
}

/// What every program with a client counts, for further metrics of its own to be registered beside.
#[derive(Debug)]
pub struct Basics {
    /// Requests to the API server.
    pub rest: rest::RestMetrics,
    /// Holds them, the dropped log lines and the build.
    pub registry: Registry,
}

impl Basics {
    /// Registers these metrics, all at zero, and the `version` of this build.
    pub fn new(version: &'static str) -> Self {
        let mut registry = Registry::default();
        registry.register("backuppodset_build", "Version of this build", Info::new([("version", version)]));
        registry.register_collector(Box::new(lines::DroppedLines("backuppodset_log_lines_dropped")));
        Self { rest: rest::RestMetrics::register(&mut registry), registry }
    }
}

/// Returns the text (`OpenMetrics` 1.0) of all metrics of a registry.
///
/// # Errors
/// Only if a metric refuses to be written, which none of ours does.
pub fn encode(registry: &Registry) -> Result<String, fmt::Error> {
    let mut text = String::new();
    text::encode(&mut text, registry)?;
    Ok(text)
}

impl Metrics {
    /// Registers every metric, all at zero, and the `version` of this build.
    pub fn new(version: &'static str) -> Self {
        let Basics { rest, mut registry } = Basics::new(version);
        Self {
            reconcile: reconcile::ReconcileMetrics::register(&mut registry),
            rest,
            groups: groups::GroupMetrics::register(&mut registry),
            sets: sets::SetMetrics::register(&mut registry),
            registry: Arc::new(registry),
        }
    }

    /// Holds all of them.
    pub fn registry(&self) -> Arc<Registry> {
        Arc::clone(&self.registry)
    }

    /// Returns the text of all metrics.
    ///
    /// # Errors
    /// See [`encode()`].
    pub fn encode(&self) -> Result<String, fmt::Error> {
        encode(&self.registry)
    }
}

fn seconds() -> Histogram {
    Histogram::new(BUCKETS_SECONDS)
}

/// A family of histograms in seconds.
fn seconds_by<Labels: Clone + std::hash::Hash + Eq>() -> Family<Labels, Histogram> {
    Family::new_with_constructor(seconds)
}

#[cfg(test)]
mod tests;
