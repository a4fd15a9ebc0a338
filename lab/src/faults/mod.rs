//! Breaks a running cluster on purpose, and says exactly when.
//!
//! Each fault is what the hardware or the kernel would do, never a request that a component could answer
//! politely. What only signals processes takes no lock and writes nothing, so that its delay is that of one
//! system call.
//!
//! | module | what it breaks |
//! |---|---|
//! | `processes` | processes and containers of Pods |
//! | `network` | nodes, and the ways between nodes and between Pods |
//! | `parts` | the cluster's own programs |

use crate::cluster;
use crate::machine;
use crate::state;

mod network;
mod parts;
mod processes;

pub use network::PodPair;
pub use processes::Aim;

/// Why a fault could not be injected.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The cluster or the node is not there.
    #[error("find what to break")]
    FindCluster(#[source] cluster::Error),
    /// No such container runs on any node.
    #[error("{target} is not running on any node")]
    FindContainer {
        /// What was looked for.
        target: String,
    },
    /// The Pod has several containers and none was named.
    #[error("pod {pod} runs several containers; name one of {}", .names.join(", "))]
    ChooseContainer {
        /// The Pod.
        pod: String,
        /// Its running containers.
        names: Vec<String>,
    },
    /// The Pod has no address of its own: it uses the node's network, or has none yet.
    #[error("pod {pod} has no address of its own")]
    FindAddress {
        /// The Pod.
        pod: String,
    },
    /// There is no such part.
    #[error("there is no part {part}; there are {known}")]
    FindPart {
        /// What was asked for.
        part: String,
        /// What there is.
        known: String,
    },
    /// The node is on already, or off already.
    #[error("node {node} is {}", if *.is_on { "on" } else { "off" })]
    FindSwitched {
        /// The node.
        node: String,
        /// How it is.
        is_on: bool,
    },
    /// The part is running already, or is not.
    #[error("{part} is {}", if *.is_running { "running" } else { "not running" })]
    FindStarted {
        /// The part.
        part: String,
        /// How it is.
        is_running: bool,
    },
    /// The machine refused.
    #[error("{action}")]
    Act {
        /// What was tried.
        action: &'static str,
        /// Why not.
        #[source]
        source: machine::Error,
    },
    /// The state file could not be kept.
    #[error("keep the state")]
    KeepState(#[source] state::Error),
}

impl From<cluster::Error> for Error {
    fn from(source: cluster::Error) -> Self {
        Self::FindCluster(source)
    }
}

/// A Pod, and if need be one of its containers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// Namespace of the Pod.
    pub namespace: String,
    /// Name of the Pod.
    pub pod: String,
    /// One of its containers; may be left out if only one runs.
    pub container: Option<String>,
}

impl Target {
    fn name(&self) -> String {
        format!("{}/{}", self.namespace, self.pod)
    }

    fn describe(&self) -> String {
        let container = self.container.as_ref().map(|name| format!(" container {name}")).unwrap_or_default();
        format!("pod {}{container}", self.name())
    }
}

fn acting(action: &'static str) -> impl Fn(machine::Error) -> Error {
    move |source| Error::Act { action, source }
}
