//! Waits, within a limit, until the API server says that something is there.

use std::path::Path;
use std::time::Duration;

use bps_runtime::client;
use http::Request;
use k8s_openapi::api::core::v1::{Namespace, Node, ServiceAccount};
use kube::api::{Api, ListParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use tokio::time::{Instant, sleep};

/// Pause between two questions. Unit: milliseconds.
const POLL_MILLISECONDS: u64 = 50;

/// Why something is not ready.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The kubeconfig could not be read.
    #[error("read the kubeconfig")]
    ReadKubeconfig(#[source] kube::config::KubeconfigError),
    /// The client could not be made from it.
    #[error("make a client")]
    MakeClient(#[source] client::Error),
    /// Time was over.
    #[error("{what} not ready after {seconds} s: {last}")]
    Overdue {
        /// What was waited for.
        what: &'static str,
        /// How long. Unit: seconds.
        seconds: u64,
        /// What the last answer was.
        last: String,
    },
}

/// A client with the rights that a kubeconfig gives.
///
/// # Errors
/// `ReadKubeconfig` or `MakeClient` if the file is missing or not a kubeconfig.
pub async fn client(kubeconfig: &Path) -> Result<kube::Client, Error> {
    let kubeconfig = Kubeconfig::read_from(kubeconfig).map_err(Error::ReadKubeconfig)?;
    let options = KubeConfigOptions::default();
    let config =
        kube::Config::from_custom_kubeconfig(kubeconfig, &options).await.map_err(Error::ReadKubeconfig)?;
    Ok(client::transport(&config).map_err(Error::MakeClient)?.build())
}

/// Waits until the API server answers that it is ready.
///
/// # Errors
/// `Overdue` after `limit`.
pub async fn api_server(client: &kube::Client, limit: Duration) -> Result<(), Error> {
    let ask = || async move {
        let request = Request::get("/readyz").body(Vec::new()).expect("a constant request");
        client.request_text(request).await.map(drop).map_err(|error| error.to_string())
    };
    until("API server", limit, ask).await
}

/// Waits until there is a namespace that the API server makes by itself.
///
/// # Errors
/// `Overdue` after `limit`.
pub async fn namespace(client: &kube::Client, name: &str, limit: Duration) -> Result<(), Error> {
    let namespaces: &Api<Namespace> = &Api::all(client.clone());
    let ask = || async move { namespaces.get(name).await.map(drop).map_err(|error| error.to_string()) };
    until("namespace", limit, ask).await
}

/// Waits until Pods can be created in the namespace `default`.
///
/// # Errors
/// `Overdue` after `limit`.
pub async fn service_account(client: &kube::Client, limit: Duration) -> Result<(), Error> {
    let accounts: &Api<ServiceAccount> = &Api::namespaced(client.clone(), "default");
    let ask = || async move { accounts.get("default").await.map(drop).map_err(|error| error.to_string()) };
    until("service account", limit, ask).await
}

/// Waits until all these nodes are ready for Pods.
///
/// # Errors
/// `Overdue` after `limit`.
pub async fn nodes(client: &kube::Client, names: &[String], limit: Duration) -> Result<(), Error> {
    let api: &Api<Node> = &Api::all(client.clone());
    let ask = || async move {
        let list = api.list(&ListParams::default()).await.map_err(|error| error.to_string())?;
        let ready = list.items.iter().filter(|node| is_ready(node));
        let ready: Vec<_> = ready.filter_map(|node| node.metadata.name.as_ref()).collect();
        let late: Vec<_> = names.iter().filter(|name| !ready.contains(name)).map(String::as_str).collect();
        if late.is_empty() { Ok(()) } else { Err(late.join(", ")) }
    };
    until("nodes", limit, ask).await
}

/// Whether a node says that it is ready and takes Pods.
pub fn is_ready(node: &Node) -> bool {
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_ref());
    let is_ready =
        conditions.is_some_and(|list| list.iter().any(|one| one.type_ == "Ready" && one.status == "True"));
    let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_ref());
    // For some hundred milliseconds a new node is ready but still carries the taint of one that is not.
    is_ready
        && taints.is_none_or(|taints| taints.iter().all(|taint| taint.key != "node.kubernetes.io/not-ready"))
}

async fn until<F, A>(what: &'static str, limit: Duration, ask: F) -> Result<(), Error>
where
    F: Fn() -> A,
    A: Future<Output = Result<(), String>>,
{
    let deadline = Instant::now() + limit;
    let mut last = "no answer".to_owned();
    loop {
        match tokio::time::timeout_at(deadline, ask()).await {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(answer)) => last = answer,
            Err(_) => {}
        }
        if Instant::now() >= deadline {
            return Err(Error::Overdue { what, seconds: limit.as_secs(), last });
        }
        sleep(Duration::from_millis(POLL_MILLISECONDS)).await;
    }
}
