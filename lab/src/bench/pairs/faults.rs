//! What goes wrong with whoever serves.

use std::time::Duration;

use backuppodset::api::keys;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use kube::api::{Api, DeleteParams, Patch, PatchParams};
use rustix::process::Signal;
use serde_json::json;

use super::site::{Serving, Site, lease_name};
use crate::bench::Error;
use crate::bench::rounds::Bench;
use crate::faults::Aim;
use crate::{faults, ready};

/// How long a node may take to come back.
const NODE_WITHIN: Duration = Duration::from_secs(120);

/// The API server among the parts of the control plane.
const API_SERVER: &str = "kube-apiserver";
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
    /// The node loses power.
    NodeLost,
}

/// What was made ready so that the fault itself takes no time.
#[derive(Debug)]
pub enum Prepared {
    /// Processes to be killed.
    Aim(Aim),
    /// The API server was stopped, and there are processes to be killed.
    Without(Aim),
    /// The order to hand over, as a patch of the Lease.
    Order(serde_json::Value),
    /// A node.
    Node(String),
    /// Nothing.
    Nothing,
}

impl Fault {
    /// All, in the order of the table.
    pub const ALL: [Self; 7] = [
        Self::ApplicationKilled,
        Self::ContainerKilled,
        Self::SandboxKilled,
        Self::PodDeleted,
        Self::SwitchedOver,
        Self::ApiServerStoppedThenKilled,
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
            Self::NodeLost => "node powered off",
        }
    }

    /// What a client of a pair should see at most: median / worst.
    pub const fn target(self) -> &'static str {
        match self {
            Self::ApplicationKilled | Self::SwitchedOver => "40 / 100 ms",
            Self::ContainerKilled => "60 / 200 ms",
            Self::SandboxKilled => "100 / 300 ms",
            Self::PodDeleted => "0 failed",
            Self::ApiServerStoppedThenKilled => "-",
            Self::NodeLost => "2500 ms",
        }
    }

    /// Whether putting it right again takes about a minute.
    pub const fn takes_a_minute(self) -> bool {
        matches!(self, Self::NodeLost)
    }

    /// Makes it ready.
    ///
    /// # Errors
    /// Why it cannot be done.
    pub async fn prepare(self, bench: &Bench, site: &Site, serving: &Serving) -> Result<Prepared, Error> {
        let target = site.aim(&serving.pod);
        let cluster = &bench.cluster;
        let aim = |aim: Result<Aim, faults::Error>| aim.map_err(broken);
        Ok(match self {
            Self::ApplicationKilled if site.is_pair() => Prepared::Aim(aim(cluster.aim_below_init(&target))?),
            Self::ApplicationKilled | Self::ContainerKilled => {
                Prepared::Aim(aim(cluster.aim_at_process(&target))?)
            }
            Self::SandboxKilled => Prepared::Aim(aim(cluster.aim_at_sandbox(&target))?),
            Self::PodDeleted => Prepared::Nothing,
            Self::SwitchedOver => Prepared::Order(order(site).await?),
            Self::ApiServerStoppedThenKilled => Prepared::Without(aim(cluster.aim_below_init(&target))?),
            Self::NodeLost => Prepared::Node(serving.node.clone()),
        })
    }

    /// Does it.
    ///
    /// # Errors
    /// Why it could not be done.
    pub async fn strike(self, bench: &Bench, site: &Site, of: (&Serving, &Prepared)) -> Result<(), Error> {
        let (serving, prepared) = of;
        match prepared {
            Prepared::Aim(aim) => aim.fire(Signal::KILL).map(drop).map_err(broken),
            Prepared::Without(aim) => {
                bench.cluster.stop(API_SERVER, true).map_err(broken)?;
                let struck = aim.fire(Signal::KILL).map(drop).map_err(broken);
                tokio::time::sleep(AWAY).await;
                bench.cluster.start(API_SERVER).map_err(broken)?;
                struck
            }
            Prepared::Order(patch) => {
                let leases: Api<Lease> = site.api();
                let ordered =
                    leases.patch(&lease_name(), &PatchParams::default(), &Patch::Merge(patch)).await;
                ordered.map(drop).map_err(Error::request("order", "a switch-over"))
            }
            Prepared::Node(node) => bench.cluster.power_off(node).map(drop).map_err(broken),
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
        let Prepared::Node(node) = prepared else { return Ok(()) };
        bench.cluster.power_on(node).map_err(broken)?;
        ready::nodes(&bench.client, std::slice::from_ref(node), NODE_WITHIN)
            .await
            .map_err(|_| Error::Find { what: format!("the node {node} ready again") })
    }

    /// Whether the container goes on.
    fn leaves_container(self, site: &Site) -> bool {
        self == Self::ApplicationKilled && site.is_pair()
    }
}

fn broken(error: faults::Error) -> Error {
    Error::Act(Box::new(crate::stage::Error::Break(Box::new(error))))
}

/// Orders the tenure that the Lease shows to end.
async fn order(site: &Site) -> Result<serde_json::Value, Error> {
    let lease = site.api::<Lease>().get(&lease_name()).await.map_err(Error::request("read", "the Lease"))?;
    let term = lease.spec.as_ref().and_then(|spec| spec.lease_transitions).unwrap_or_default();
    let sequence = lease.annotations().get(keys::ANNOTATION_HA_SEQUENCE).and_then(|text| text.parse().ok());
    let term = u32::try_from(term).unwrap_or_default();
    let epoch = u64::from(backuppodset::ha::Epoch { term, sequence: sequence.unwrap_or_default() });
    Ok(json!({"metadata": {"annotations": {(keys::ANNOTATION_HA_SWITCH_OVER): epoch.to_string()}}}))
}
