//! Brings the project into a cluster: images onto the nodes, manifests into the API server, and a leader.
//!
//! | module | what it does |
//! |---|---|
//! | [`images`] | builds the binaries and archives, kept by content, and loads them |
//! | [`manifests`] | reads the shipped manifests and adapts them to the images at hand; pure |
//! | [`chart`] | renders the Helm chart |
//! | `apply` | applies objects one after another, server-side |
//! | `leader` | waits until the operator's replicas are ready and one of them leads |

use std::time::Duration;

use kube::Client;

pub mod chart;
pub mod images;
pub mod manifests;

mod apply;
mod leader;

pub use apply::{apply, establish};
pub(crate) use leader::OPERATOR_PODS;
pub use leader::{Replicas, is_installed, leader, wait as await_leader};

/// How long the operator may take until all replicas are ready and one leads. Source: image in place, start,
/// probe and lease take 3 s on an idle machine; a lease that a killed leader left behind expires after 15 s.
pub const READY_WITHIN: Duration = Duration::from_secs(120);

/// Why the project could not be installed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The manifest cannot be read.
    #[error("read the manifest")]
    ReadManifest(#[source] manifests::Error),
    /// The API server did not take an object.
    #[error("apply {object}")]
    Apply {
        /// Kind and name.
        object: String,
        /// What it said.
        #[source]
        source: Box<kube::Error>,
    },
    /// The API server did not answer a question.
    #[error("read {what}")]
    Read {
        /// What was asked for.
        what: &'static str,
        /// What it said.
        #[source]
        source: Box<kube::Error>,
    },
    /// The custom resource was not served in time.
    #[error("the custom resource BackupPodSet was not served within {} s", READY_WITHIN.as_secs())]
    Establish,
    /// The operator did not get ready in time.
    #[error("the operator was not ready within {} s: {seen}{}", READY_WITHIN.as_secs(), hint(.seen))]
    AwaitLeader {
        /// What was seen last.
        seen: String,
    },
}

fn hint(seen: &str) -> &'static str {
    if seen.contains("ImagePull") || seen.contains("ErrImage") {
        " (the cluster's nodes need the operator's images; see `lab images`)"
    } else {
        ""
    }
}

/// Applies the manifest and waits until the operator works.
///
/// # Errors
/// See [`enum@Error`].
pub async fn install(client: &Client, manifest: &[serde_json::Value]) -> Result<Replicas, Error> {
    let (definitions, others): (Vec<_>, Vec<_>) =
        manifest.iter().cloned().partition(|object| object["kind"] == manifests::DEFINITION);
    apply(client, &definitions).await?;
    establish(client).await?;
    apply(client, &others).await?;
    await_leader(client, READY_WITHIN).await
}
