//! Waits until the operator's replicas are ready and one of them leads.

use std::time::Duration;

use bps_api::keys::{LEASE_LEADER, OPERATOR, OPERATOR_NAMESPACE};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, ListParams};
use kube::{Client, ResourceExt};
use tokio::time::{Instant, sleep};

use super::Error;
use crate::hollow::is_ready;

/// Selects the operator's Pods.
pub(crate) const OPERATOR_PODS: &str =
    "app.kubernetes.io/name=backuppodset,app.kubernetes.io/component=operator";
/// Pause between two looks.
const POLL: Duration = Duration::from_millis(100);

/// The operator as it runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Replicas {
    /// Number of replicas that are ready.
    pub ready: i32,
    /// Name of the Pod that leads.
    pub leader: String,
}

/// The Pod that leads; `None` if there is none now.
///
/// # Errors
/// `Read` if the API server does not answer.
pub async fn leader(client: &Client) -> Result<Option<String>, Error> {
    let read = |what| move |source| Error::Read { what, source: Box::new(source) };
    let leases: Api<Lease> = Api::namespaced(client.clone(), OPERATOR_NAMESPACE);
    let pods: Api<Pod> = Api::namespaced(client.clone(), OPERATOR_NAMESPACE);
    let lease = leases.get_opt(LEASE_LEADER).await.map_err(read("the leader's lease"))?;
    let holder = lease.and_then(|lease| lease.spec?.holder_identity).unwrap_or_default();
    let pods = pods.list(&ListParams::default().labels(OPERATOR_PODS)).await;
    let pods = pods.map_err(read("the operator's pods"))?;
    // The holder is the Pod's name and something that tells one start of it from another.
    let leads = |pod: &&Pod| is_ready(pod) && holder.starts_with(&pod.name_any());
    Ok(pods.items.iter().find(leads).map(ResourceExt::name_any))
}

/// Whether the operator has been installed.
///
/// # Errors
/// `Read` if the API server does not answer.
pub async fn is_installed(client: &Client) -> Result<bool, Error> {
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), OPERATOR_NAMESPACE);
    let read = |source| Error::Read { what: "the operator's Deployment", source: Box::new(source) };
    Ok(deployments.get_opt(OPERATOR).await.map_err(read)?.is_some())
}

/// Waits until all replicas of the newest revision are ready and one of them leads.
///
/// # Errors
/// `AwaitLeader` with what was seen last.
pub async fn wait(client: &Client, limit: Duration) -> Result<Replicas, Error> {
    let deadline = Instant::now() + limit;
    loop {
        let seen = match look(client).await {
            Ok(Ok(replicas)) => return Ok(replicas),
            Ok(Err(seen)) => seen,
            Err(error) => error.to_string(),
        };
        if Instant::now() >= deadline {
            return Err(Error::AwaitLeader { seen });
        }
        sleep(POLL).await;
    }
}

async fn look(client: &Client) -> Result<Result<Replicas, String>, Error> {
    let read = |source| Error::Read { what: "the operator's Deployment", source: Box::new(source) };
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), OPERATOR_NAMESPACE);
    let deployment = deployments.get(OPERATOR).await.map_err(read)?;
    let wanted = deployment.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1);
    let status = deployment.status.unwrap_or_default();
    let is_current = status.observed_generation == deployment.metadata.generation;
    let (updated, ready) = (status.updated_replicas.unwrap_or(0), status.ready_replicas.unwrap_or(0));
    let total = status.replicas.unwrap_or(0);
    if !is_current || updated < wanted || ready < wanted || total > wanted {
        let reasons = waiting_reasons(client).await?;
        return Ok(Err(format!("{ready} of {wanted} replicas are ready{reasons}")));
    }
    Ok(leader(client).await?.map(|leader| Replicas { ready, leader }).ok_or_else(|| "no leader".to_owned()))
}

/// Why containers of the operator do not run, in the kubelet's words.
async fn waiting_reasons(client: &Client) -> Result<String, Error> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), OPERATOR_NAMESPACE);
    let pods = pods.list(&ListParams::default().labels(OPERATOR_PODS)).await;
    let pods =
        pods.map_err(|source| Error::Read { what: "the operator's pods", source: Box::new(source) })?;
    let statuses = pods.items.iter().filter_map(|pod| pod.status.as_ref()?.container_statuses.as_ref());
    let waiting = statuses.flatten().filter_map(|status| status.state.as_ref()?.waiting.as_ref());
    let mut reasons: Vec<_> = waiting.filter_map(|waiting| waiting.reason.clone()).collect();
    reasons.sort_unstable();
    reasons.dedup();
    Ok(if reasons.is_empty() { String::new() } else { format!(" ({})", reasons.join(", ")) })
}
