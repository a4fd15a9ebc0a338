//! What goes wrong with whoever serves.

use std::collections::BTreeSet;
use std::time::Duration;

use bps_api::keys::{self, LEASE_LEADER, OPERATOR_NAMESPACE};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams};
use rustix::process::Signal;
use serde_json::json;

use super::site::{Serving, Site};
use super::target::Target;
use crate::bench::Error;
use crate::bench::rounds::Bench;
use crate::cuts::Peer;
use crate::faults::Aim;
use crate::hollow::is_ready;
use crate::{faults, install, ready};

/// How long a node may take to come back.
const NODE_WITHIN: Duration = Duration::from_secs(120);

/// How long a fault is watched that should cost nothing: more than the 2 s of a Lease that is not renewed.
const WATCHED: Duration = Duration::from_secs(6);
/// The API server among the parts of the control plane.
pub(super) const API_SERVER: &str = "kube-apiserver";
/// How long it is away. Long enough that a takeover through the Lease would be seen.
const AWAY: Duration = Duration::from_secs(3);

/// A fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The processes of the application are killed; the agent lives.
    ApplicationKilled,
    /// The first process of the container is killed, and with it all others.
    ContainerKilled,
    /// The process that keeps the Pod's namespaces is killed.
    SandboxKilled,
    /// The Pod is deleted.
    PodDeleted,
    /// The active is asked to hand over.
    SwitchedOver,
    /// The API server does not answer, and the application is killed.
    ApiServerStoppedThenKilled,
    /// All replicas of the operator are killed, then the application.
    OperatorKilledThenKilled,
    /// The node loses power.
    NodeLost,
    /// Nothing gets into the node or out of it.
    NodeCutOff,
    /// Nothing gets from the API server to the node or back.
    ApiServerCutOff,
}

/// What was made ready so that the fault itself takes no time.
#[derive(Debug)]
pub enum Prepared {
    /// Processes to be killed.
    Aim(Aim),
    /// The API server was stopped, and there are processes to be killed.
    Without(Aim),
    /// Processes of the operator, and others that are to be killed after them.
    Unattended(Vec<Aim>, Aim),
    /// The order to hand over, as a patch of the Lease.
    Order(serde_json::Value),
    /// A node that loses power.
    Node(String),
    /// A node, and from what it is cut off.
    Cut(String, Peer),
    /// Nothing.
    Nothing,
}

impl Fault {
    /// All, in the order of the table.
    pub const ALL: [Self; 10] = [
        Self::ApplicationKilled,
        Self::ContainerKilled,
        Self::SandboxKilled,
        Self::PodDeleted,
        Self::SwitchedOver,
        Self::ApiServerStoppedThenKilled,
        Self::OperatorKilledThenKilled,
        Self::ApiServerCutOff,
        Self::NodeCutOff,
        Self::NodeLost,
    ];

    /// For the table.
    pub const fn title(self) -> &'static str {
        match self {
            Self::ApplicationKilled => "application killed",
            Self::ContainerKilled => "container killed",
            Self::SandboxKilled => "sandbox killed",
            Self::PodDeleted => "Pod deleted",
            Self::SwitchedOver => "switched over",
            Self::ApiServerStoppedThenKilled => "API server stopped 3 s, application killed",
            Self::OperatorKilledThenKilled => "operator killed, then application killed",
            Self::NodeLost => "node powered off",
            Self::NodeCutOff => "node cut off from everybody",
            Self::ApiServerCutOff => "node cut off from the API server only",
        }
    }

    /// What a client of a pair should see at most.
    pub const fn target(self) -> Target {
        match self {
            // As without the second fault.
            Self::ApplicationKilled
            | Self::SwitchedOver
            | Self::ApiServerStoppedThenKilled
            | Self::OperatorKilledThenKilled => Target::Both(0.04, 0.1),
            Self::ContainerKilled => Target::Both(0.06, 0.2),
            Self::SandboxKilled => Target::Both(0.1, 0.3),
            Self::NodeLost | Self::NodeCutOff => Target::Worst(2.5),
            Self::PodDeleted | Self::ApiServerCutOff => Target::NoneFailed,
        }
    }

    /// What others needed.
    pub const fn elsewhere(self) -> &'static str {
        match self {
            Self::ApplicationKilled => {
                "thesis 1.205-1.512 s; OpenSAF 0.229-0.795 s; here: Deployment of 1 1.355 / 2.081 s, mitou 2.046 / 2.230 s"
            }
            Self::ContainerKilled => "thesis 1.2-1.4 s; here: as application killed",
            Self::SandboxKilled => "thesis 0.637-0.656 s",
            Self::PodDeleted => "here: Deployment of 1 1.111 / 1.165 s, mitou 1.173 / 1.204 s",
            Self::NodeLost => {
                "thesis 36.9-38.7 s, tuned 2.8-3.0 s; OpenSAF 3.3 s; here: Deployment of 1 351 s, mitou 17.2 s"
            }
            Self::ApiServerStoppedThenKilled | Self::OperatorKilledThenKilled => "no failover anywhere",
            Self::SwitchedOver | Self::NodeCutOff | Self::ApiServerCutOff => "",
        }
    }

    /// The same for a client that keeps its connection, which ends with the active.
    pub const fn target_kept(self) -> Target {
        match self {
            Self::PodDeleted => Target::Unsaid,
            Self::ApplicationKilled
            | Self::ContainerKilled
            | Self::SandboxKilled
            | Self::SwitchedOver
            | Self::ApiServerStoppedThenKilled
            | Self::OperatorKilledThenKilled
            | Self::NodeLost
            | Self::NodeCutOff
            | Self::ApiServerCutOff => self.target(),
        }
    }

    /// The row that it stands beside.
    pub const fn beside(self) -> &'static str {
        match self {
            Self::ApplicationKilled | Self::ContainerKilled => "label switch: application killed",
            Self::SandboxKilled => "label switch: sandbox killed",
            Self::PodDeleted => "label switch: Pod deleted",
            Self::ApiServerStoppedThenKilled | Self::OperatorKilledThenKilled => "pair: application killed",
            Self::NodeCutOff => "pair: node powered off",
            Self::SwitchedOver | Self::NodeLost | Self::ApiServerCutOff => "",
        }
    }

    /// Whether another Pod must serve afterwards.
    const fn costs_the_active(self) -> bool {
        !matches!(self, Self::ApiServerCutOff)
    }

    /// Waits until everything that the fault should bring about has come about.
    ///
    /// # Errors
    /// `Request`, or `Find` if nobody takes over.
    pub async fn over(self, site: &Site, before: &Serving) -> Result<(), Error> {
        if self.costs_the_active() {
            return site.recovered(before).await;
        }
        tokio::time::sleep(WATCHED).await;
        Ok(())
    }

    /// Makes it ready.
    ///
    /// # Errors
    /// Why it cannot be done.
    pub async fn prepare(self, bench: &Bench, site: &Site, serving: &Serving) -> Result<Prepared, Error> {
        let target = site.aim(&serving.pod);
        let cluster = &bench.cluster;
        let aim = |aim: Result<Aim, faults::Error>| aim.map_err(Error::from);
        Ok(match self {
            Self::ApplicationKilled if site.kind().has_agents() => {
                Prepared::Aim(aim(cluster.aim_below_init(&target))?)
            }
            Self::ApplicationKilled | Self::ContainerKilled => {
                Prepared::Aim(aim(cluster.aim_at_process(&target))?)
            }
            Self::SandboxKilled => Prepared::Aim(aim(cluster.aim_at_sandbox(&target))?),
            Self::PodDeleted => Prepared::Nothing,
            Self::SwitchedOver => Prepared::Order(order(site).await?),
            Self::ApiServerStoppedThenKilled => Prepared::Without(aim(cluster.aim_below_init(&target))?),
            Self::OperatorKilledThenKilled => {
                // After the API server was away for a while, nodes and their Pods may have been given up.
                let operators = site
                    .until("Pods of the operator that run", async || {
                        let pods = operator_pods(bench).await?;
                        let is_whole = !pods.is_empty() && pods.iter().all(is_running);
                        Ok(is_whole.then(|| pods.iter().map(target_of).collect::<Vec<_>>()))
                    })
                    .await?;
                let operators = operators.iter().map(|pod| aim(cluster.aim_at_process(pod)));
                let operators = operators.collect::<Result<Vec<_>, _>>()?;
                Prepared::Unattended(operators, aim(cluster.aim_below_init(&target))?)
            }
            Self::NodeLost => Prepared::Node(serving.node.clone()),
            Self::NodeCutOff => Prepared::Cut(serving.node.clone(), Peer::All),
            Self::ApiServerCutOff => Prepared::Cut(serving.node.clone(), Peer::Api),
        })
    }

    /// Does it.
    ///
    /// # Errors
    /// Why it could not be done.
    pub async fn strike(self, bench: &Bench, site: &Site, of: (&Serving, &Prepared)) -> Result<(), Error> {
        let (serving, prepared) = of;
        match prepared {
            Prepared::Aim(aim) => aim.fire(Signal::KILL).map(drop).map_err(Error::from),
            Prepared::Without(aim) => {
                bench.cluster.stop(API_SERVER, true)?;
                let struck = aim.fire(Signal::KILL).map(drop).map_err(Error::from);
                tokio::time::sleep(AWAY).await;
                bench.cluster.start(API_SERVER)?;
                struck
            }
            Prepared::Unattended(operators, aim) => operators
                .iter()
                .chain([aim])
                .try_for_each(|aim| aim.fire(Signal::KILL).map(drop))
                .map_err(Error::from),
            Prepared::Order(patch) => {
                let leases: Api<Lease> = site.api();
                let ordered =
                    leases.patch(&site.lease_name(), &PatchParams::default(), &Patch::Merge(patch)).await;
                ordered.map(drop).map_err(Error::request("order", "a switch-over"))
            }
            Prepared::Cut(node, peer) => bench.cluster.cut(node, peer.clone()).map(drop).map_err(Error::from),
            Prepared::Node(node) => bench.cluster.power_off(node).map(drop).map_err(Error::from),
            Prepared::Nothing => {
                let deleted = site.api::<Pod>().delete(&serving.pod, &DeleteParams::default()).await;
                deleted.map(drop).map_err(Error::request("delete", "the Pod"))
            }
        }
    }

    /// Puts right what does not get right by itself, or not soon: a container that was killed several times is started
    /// again later and later, so its Pod is replaced.
    ///
    /// # Errors
    /// Why it stays broken.
    pub async fn undo(self, bench: &Bench, site: &Site, of: (&Serving, &Prepared)) -> Result<(), Error> {
        let (serving, prepared) = of;
        if matches!(prepared, Prepared::Aim(_)) && !self.leaves_container(site) {
            let deleted = site.api::<Pod>().delete(&serving.pod, &DeleteParams::default()).await;
            return deleted.map(drop).map_err(Error::request("delete", "the Pod"));
        }
        let node = match prepared {
            Prepared::Unattended(..) => return replace_operator(bench).await,
            Prepared::Node(node) => {
                let before = operator_containers(bench, node).await?;
                bench.cluster.power_on(node)?;
                started_again((bench, site), node, &before).await?;
                node
            }
            Prepared::Cut(node, _) => {
                bench.cluster.heal(node)?;
                node
            }
            Prepared::Aim(_) | Prepared::Without(_) | Prepared::Order(_) | Prepared::Nothing => return Ok(()),
        };
        ready::nodes(&bench.client, std::slice::from_ref(node), NODE_WITHIN)
            .await
            .map_err(|_| Error::Find { what: format!("the node {node} ready again") })
    }

    /// Whether the container goes on.
    fn leaves_container(self, site: &Site) -> bool {
        self == Self::ApplicationKilled && site.kind().has_agents()
    }
}

async fn operator_pods(bench: &Bench) -> Result<Vec<Pod>, Error> {
    let pods: Api<Pod> = Api::namespaced(bench.client.clone(), OPERATOR_NAMESPACE);
    let pods = pods.list(&ListParams::default().labels(install::OPERATOR_PODS)).await;
    Ok(pods.map_err(Error::request("list", "the operator's Pods"))?.items)
}

/// Containers of the operator's ready Pods on a node.
async fn operator_containers(bench: &Bench, node: &str) -> Result<BTreeSet<String>, Error> {
    let is_there = |pod: &&Pod| pod.spec.as_ref().is_some_and(|spec| spec.node_name.as_deref() == Some(node));
    let pods = operator_pods(bench).await?;
    let ready = pods.iter().filter(|pod| is_ready(pod)).filter(is_there);
    let statuses = ready.filter_map(|pod| pod.status.as_ref()?.container_statuses.as_ref()).flatten();
    Ok(statuses.filter_map(|status| status.container_id.clone()).collect())
}

/// Waits until the operator's Pods on the node are ready with other containers. That changes a Service, and kube-proxy would
/// program the next change, which is that of the next fault, up to a second later.
async fn started_again(
    (bench, site): (&Bench, &Site),
    node: &str,
    before: &BTreeSet<String>,
) -> Result<(), Error> {
    site.until("the operator's Pods of the node, ready again", async || {
        let now = operator_containers(bench, node).await?;
        Ok((now.len() == before.len() && now.is_disjoint(before)).then_some(()))
    })
    .await
}

fn is_running(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    pod.metadata.deletion_timestamp.is_none() && phase == Some("Running")
}

fn target_of(pod: &Pod) -> faults::Target {
    faults::Target { namespace: OPERATOR_NAMESPACE.to_owned(), pod: pod.name_any(), container: None }
}

/// Replaces the Pods of the operator: a container that was killed several times is started again later and later.
async fn replace_operator(bench: &Bench) -> Result<(), Error> {
    let pods: Api<Pod> = Api::namespaced(bench.client.clone(), OPERATOR_NAMESPACE);
    for pod in operator_pods(bench).await? {
        let deleted = pods.delete(&pod.name_any(), &DeleteParams::default().grace_period(0)).await;
        deleted.map_err(Error::request("delete", "a Pod of the operator"))?;
    }
    // Nobody leads, so nobody is robbed: without this the next one waits for the Lease to expire.
    let leases: Api<Lease> = Api::namespaced(bench.client.clone(), OPERATOR_NAMESPACE);
    let _ = leases.delete(LEASE_LEADER, &DeleteParams::default()).await;
    let led = install::await_leader(&bench.client, install::READY_WITHIN).await;
    led.map(drop).map_err(|error| Error::Install(Box::new(error)))
}

/// Orders the tenure that the Lease shows to end.
async fn order(site: &Site) -> Result<serde_json::Value, Error> {
    let lease = site.api::<Lease>().get(&site.lease_name()).await;
    let lease = lease.map_err(Error::request("read", "the Lease"))?;
    let term = lease.spec.as_ref().and_then(|spec| spec.lease_transitions).unwrap_or_default();
    let sequence = lease.annotations().get(keys::ANNOTATION_HA_SEQUENCE).and_then(|text| text.parse().ok());
    let term = u32::try_from(term).unwrap_or_default();
    let epoch = u64::from(bps_protocol::Epoch { term, sequence: sequence.unwrap_or_default() });
    Ok(json!({"metadata": {"annotations": {(keys::ANNOTATION_HA_SWITCH_OVER): epoch.to_string()}}}))
}
