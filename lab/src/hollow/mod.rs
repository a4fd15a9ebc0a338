//! Hollow nodes: thousands of Pods that run nowhere, on a real API server.
//!
//! A fake kubelet registers nodes, sends heartbeats and writes for each bound Pod what a kubelet would write:
//! Pods become Running and Ready, wait behind their gate, crash, end within their grace period. Nothing listens
//! at their addresses, so a cold Pod wakes when its role label is no longer `cold` (the stand-in for a ticket),
//! or by [`HollowNodes::wake`].
//!
//! `pod` and `status` decide and are pure; `state` remembers; `kubelet` reads and writes; `node` is about Nodes.

#![allow(clippy::disallowed_methods, reason = "a fake kubelet reads the clock; its decisions are in `pod`")]

mod kubelet;
mod node;
pub mod pod;
mod state;
pub mod status;

pub use node::{HollowNode, NodeShape};
pub use pod::Timings;

use futures::{StreamExt, TryStreamExt, stream};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::Client;
use kube::runtime::reflector::ObjectRef;
use kubelet::Kubelet;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;

/// Nodes registered or removed at the same time.
const NODES_IN_FLIGHT: usize = 16;
/// Time for the first list of Pods.
const FIRST_LIST_TIMEOUT: Duration = Duration::from_secs(60);

/// Who chooses the node of a Pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Binding {
    /// A scheduler that runs elsewhere.
    #[default]
    Scheduler,
    /// The hollow nodes themselves, through the binding subresource: the node with the fewest Pods. Requests,
    /// taints, selectors and affinity are not looked at, nor is `schedulerName`.
    FewestPods,
}

/// What hollow nodes do with Pods that are bound to them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Conduct {
    /// They start, become ready and end.
    #[default]
    Run,
    /// Nothing: for what only a scheduler does.
    Leave,
}

/// How hollow nodes behave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// Names of the nodes are this, a dash, and a number from 1.
    pub name_prefix: String,
    /// Zones that the nodes are spread over in turn: `z1`, `z2`, ...
    pub zones: u16,
    /// Capacity of a node; with 200 m of CPU and 512 MiB of memory for each.
    pub pods_per_node: usize,
    /// Capacities of the nodes in turn, in place of that one; empty: all have that.
    pub shapes: Vec<NodeShape>,
    /// What becomes of their Pods.
    pub conduct: Conduct,
    /// How long containers take.
    pub timings: Timings,
    /// Who binds.
    pub binding: Binding,
    /// Pods that are written at the same time. 0 is no limit.
    pub writes_in_flight: u16,
    /// Period of the heartbeats (kubelet: a quarter of `nodeLeaseDurationSeconds`, which is 40 s).
    pub heartbeat: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            name_prefix: "hollow".to_owned(),
            zones: 3,
            pods_per_node: 500,
            shapes: Vec::new(),
            conduct: Conduct::default(),
            timings: Timings::default(),
            binding: Binding::default(),
            writes_in_flight: 64,
            heartbeat: Duration::from_secs(10),
        }
    }
}

/// Why something about hollow nodes did not work.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A Node or its Lease.
    #[error("register node {node}")]
    RegisterNode {
        /// Name of the node.
        node: String,
        /// What the API server answered.
        #[source]
        source: kube::Error,
    },
    /// Pods were not listed within a minute.
    #[error("list pods within {} s", FIRST_LIST_TIMEOUT.as_secs())]
    ListPods,
    /// The state of a node.
    #[error("write node {node}")]
    WriteNode {
        /// Name of the node.
        node: String,
        /// What the API server answered.
        #[source]
        source: kube::Error,
    },
    /// The status of a Pod.
    #[error("write pod {pod}")]
    WritePod {
        /// The Pod.
        pod: ObjectRef<Pod>,
        /// What the API server answered.
        #[source]
        source: Box<kube::Error>,
    },
    /// No such Pod on these nodes.
    #[error("no pod {0} on a hollow node")]
    UnknownPod(ObjectRef<Pod>),
    /// No such node among these.
    #[error("no hollow node {0}")]
    UnknownNode(String),
    /// The task that writes for the Pods has ended.
    #[error("the hollow kubelet has ended")]
    Ended,
}

/// How the cluster learns that a node has lost power.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Detection {
    /// By itself: the node lifecycle controller, if one runs, needs 50 s without heartbeats.
    Awaited,
    /// At once: what that controller writes is written here, that is Ready `Unknown` and both `unreachable`
    /// taints on the node, and Ready `False` on its Pods. Evictions are left to it.
    Written,
}

/// Running hollow nodes. Dropping the value stops all heartbeats and writes and leaves the objects behind;
/// [`HollowNodes::remove`] takes the nodes away.
pub struct HollowNodes {
    kubelet: Arc<Kubelet>,
    tasks: JoinSet<()>,
}

impl HollowNodes {
    /// Registers `count` nodes and starts to serve their Pods; returns when the Pods have been listed once.
    ///
    /// # Errors
    /// [`Error::RegisterNode`] or [`Error::ListPods`].
    pub async fn start(client: Client, count: u16, options: Options) -> Result<HollowNodes, Error> {
        let nodes = node::nodes(count, &options);
        let registered = stream::iter(&nodes).map(|node| node::register(&client, node));
        registered.buffer_unordered(NODES_IN_FLIGHT).try_collect::<()>().await?;
        let (kubelet, run) = Kubelet::new(client, nodes, options);
        let mut tasks = JoinSet::new();
        tasks.spawn(kubelet::send_heartbeats(Arc::clone(&kubelet)));
        if kubelet.conduct() == Conduct::Leave {
            return Ok(HollowNodes { kubelet, tasks });
        }
        tasks.spawn(run);
        let listed = tokio::time::timeout(FIRST_LIST_TIMEOUT, kubelet.wait_until_listed());
        listed.await.map_err(|_| Error::ListPods)?;
        Ok(HollowNodes { kubelet, tasks })
    }

    /// The nodes, in the order of their numbers.
    pub fn nodes(&self) -> &[HollowNode] {
        self.kubelet.nodes()
    }

    /// Number of Pods on these nodes whose condition Ready is true, as last seen.
    pub fn ready_pods(&self) -> usize {
        self.kubelet.pods_where(is_ready).len()
    }

    /// Number of Pods on a node, as last seen.
    pub fn pods_on(&self, node: &str) -> usize {
        self.kubelet.pods_on(node).len()
    }

    /// Lets a cold Pod pass its gate, whatever its label says.
    ///
    /// # Errors
    /// [`Error::UnknownPod`] or [`Error::Ended`].
    pub async fn wake(&self, pod: &ObjectRef<Pod>) -> Result<(), Error> {
        let now = Timestamp::now();
        self.kubelet.change(pod, |sandbox| sandbox.woken_at = sandbox.woken_at.or(Some(now))).await
    }

    /// Kills the application of a Pod: not ready at once, running again after [`Timings::restart`].
    ///
    /// # Errors
    /// [`Error::UnknownPod`] or [`Error::Ended`].
    pub async fn crash(&self, pod: &ObjectRef<Pod>) -> Result<(), Error> {
        let now = Timestamp::now();
        self.kubelet.change(pod, |sandbox| sandbox.crashed_at = sandbox.crashed_at.or(Some(now))).await
    }

    /// Makes the readiness of Pods fail at once, until [`HollowNodes::recover_pods`].
    ///
    /// # Errors
    /// [`Error::UnknownPod`] for the first that is unknown, the ones before it have failed; or [`Error::Ended`].
    pub async fn fail_pods(&self, pods: &[ObjectRef<Pod>]) -> Result<(), Error> {
        for pod in pods {
            self.kubelet.change(pod, |sandbox| sandbox.is_unready = true).await?;
        }
        Ok(())
    }

    /// Makes the readiness of Pods succeed again.
    ///
    /// # Errors
    /// As [`HollowNodes::fail_pods`].
    pub async fn recover_pods(&self, pods: &[ObjectRef<Pod>]) -> Result<(), Error> {
        for pod in pods {
            self.kubelet.change(pod, |sandbox| sandbox.is_unready = false).await?;
        }
        Ok(())
    }

    /// Stops the heartbeats of a node and all writes about its Pods, deletions included.
    ///
    /// # Errors
    /// [`Error::UnknownNode`]; with [`Detection::Written`] also [`Error::WriteNode`] and [`Error::WritePod`].
    pub async fn power_off(&self, node: &str, detection: Detection) -> Result<(), Error> {
        self.kubelet.set_power(node, false)?;
        match detection {
            Detection::Awaited => Ok(()),
            Detection::Written => self.kubelet.write_lost(node).await,
        }
    }

    /// Starts a node again. Its Pods go on as they were, as after a cut of its network: containers that did
    /// not stop are not started again.
    ///
    /// # Errors
    /// [`Error::UnknownNode`], [`Error::WriteNode`] or [`Error::Ended`].
    pub async fn power_on(&self, node: &str) -> Result<(), Error> {
        self.kubelet.set_power(node, true)?;
        self.kubelet.write_back(node).await
    }

    /// Stops and deletes the Nodes and their Leases. Pods stay, to be collected like those of any lost node.
    ///
    /// # Errors
    /// [`Error::WriteNode`].
    pub async fn remove(mut self) -> Result<(), Error> {
        self.tasks.shutdown().await;
        let removed = stream::iter(self.nodes()).map(async |it| {
            let failed = |source| Error::WriteNode { node: it.name.clone(), source };
            node::remove(self.kubelet.client(), &it.name).await.map_err(failed)
        });
        removed.buffer_unordered(NODES_IN_FLIGHT).try_collect().await
    }
}

/// Whether the condition Ready of a Pod is true.
pub fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
    conditions.into_iter().flatten().any(|it| it.type_ == "Ready" && it.status == "True")
}
