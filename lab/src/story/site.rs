//! Chooses the cluster: the one of `KUBECONFIG` if it answers, else the local one, started if need be.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use bps_runtime::client::transport;
use kube::Client;
use kube::config::{Config, KubeConfigOptions, Kubeconfig};

use crate::binaries::{self, Component};
use crate::cluster::{self, Cluster, Options};
use crate::paths::{self, RunDirectory};
use crate::progress::Progress;
use crate::state::Purpose;

/// Nodes of the local cluster: as many as are needed for a hot backup and a cold one elsewhere.
const NODES: u8 = 3;
/// How long the cluster of `KUBECONFIG` may take to answer.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);

/// Why there is no cluster.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The local one cannot be found or started.
    #[error("start a local cluster")]
    Start(#[source] Box<cluster::Error>),
    /// The local one has no nodes.
    #[error("the local cluster has no nodes; remove it with `lab down` first")]
    NeedNodes,
}

/// Where the story takes place.
#[derive(Debug, Clone)]
pub enum Site {
    /// A cluster of this machine, made by this program.
    Local(Cluster),
    /// The user's own cluster.
    Foreign {
        /// Address of its API server.
        server: String,
        /// Version of its API server.
        version: String,
    },
}

impl fmt::Display for Site {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Local(cluster) => {
                let nodes = cluster.nodes().map_or(0, |nodes| nodes.len());
                let directory = cluster.run_directory().path().display();
                write!(formatter, "Local cluster of {nodes} nodes in {directory}.")?;
                write!(formatter, "\nIts nodes reach no registry: `nginx:1.14.2` is a stand-in server here.")
            }
            Self::Foreign { server, version } => {
                write!(formatter, "Cluster of KUBECONFIG: {server}, Kubernetes {version}.")?;
                write!(
                    formatter,
                    "\nThe images named in deploy/install.yaml must be available to its nodes; nothing is built \
                     or loaded."
                )
            }
        }
    }
}

/// The cluster to use, and a client for it. One that is made is there for this purpose.
///
/// # Errors
/// See [`enum@Error`].
pub async fn choose(progress: Progress, purpose: Purpose) -> Result<(Client, Site), Error> {
    let start = |source| Error::Start(Box::new(source));
    if let Some(path) = paths::set("KUBECONFIG") {
        match reach().await {
            Some((client, server, version)) => {
                let Some(cluster) = local(&server) else {
                    return Ok((client, Site::Foreign { server, version }));
                };
                cluster.show().map_err(start)?;
                return Ok((client, Site::Local(cluster)));
            }
            None => eprintln!("The cluster of KUBECONFIG={} does not answer; not used.", path.display()),
        }
    }
    Cluster::remove_abandoned(&RunDirectory::from_environment(), progress).map_err(start)?;
    let cluster = match Cluster::attach() {
        Ok(cluster) => cluster,
        Err(cluster::Error::FindNone { .. }) => up(progress, purpose).await.map_err(start)?,
        Err(error) => return Err(start(error)),
    };
    cluster.show().map_err(start)?;
    if cluster.nodes().map_err(start)?.is_empty() {
        return Err(Error::NeedNodes);
    }
    let client = cluster.client().await.map_err(start)?;
    Ok((client, Site::Local(cluster)))
}

async fn up(progress: Progress, purpose: Purpose) -> Result<Cluster, cluster::Error> {
    Cluster::up(Options {
        run: RunDirectory::from_environment(),
        nodes: NODES,
        is_control_plane_only: false,
        progress,
        is_interruptible: true,
        purpose,
        ..Options::default()
    })
    .await
}

/// A client of the cluster that `KUBECONFIG` names, its address and its version; `None` if it does not answer.
async fn reach() -> Option<(Client, String, String)> {
    let kubeconfig = Kubeconfig::from_env().ok()??;
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.ok()?;
    let server = config.cluster_url.to_string();
    let client = transport(&config).ok()?.build();
    let version = tokio::time::timeout(ANSWER_WITHIN, client.apiserver_version()).await.ok()?.ok()?;
    Some((client, server, version.git_version))
}

/// The local cluster, if this is its address.
fn local(server: &str) -> Option<Cluster> {
    let cluster = Cluster::attach().ok()?;
    let state = cluster.state().ok()?;
    let is_same = state.server.trim_end_matches('/') == server.trim_end_matches('/');
    (is_same && !state.nodes.is_empty()).then_some(cluster)
}

/// The command line client of the local cluster.
pub fn kubectl() -> Option<PathBuf> {
    let binaries = binaries::ensure(&[Component::Kubectl], Progress::Silent).ok()?;
    binaries.find(Component::Kubectl).map(PathBuf::from)
}
