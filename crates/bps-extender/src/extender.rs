//! Puts the tasks of the extender together.

use std::net::SocketAddr;

use bps_runtime::health::{self, Health, HealthServer, TICK_PERIOD};
use bps_runtime::http_server::{self, listen, serve};
use bps_runtime::metrics_server::{self, MetricsServer};
use bps_runtime::shutdown::{Shutdown, Signals};
use bps_runtime::{client, tasks};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::Client;
use tokio::time::sleep;
use tracing::info;

use super::answer::Scoring;
use super::metrics::ExtenderMetrics;
use super::serve::{ScoreDesk, SharedSums, is_private};
use super::view::{BalancedResource, NodeSums};
use super::watch::watch;

/// Settings of the extender.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Where the scheduler asks; an address of the loopback interface.
    pub bind: SocketAddr,
    /// Where the kubelet's probes are answered; `None` answers none.
    pub health_bind: Option<SocketAddr>,
    /// Where metrics are served to authorised readers; `None` serves none.
    pub metrics_bind: Option<SocketAddr>,
    /// Resources that are to be used evenly.
    pub resources: Vec<BalancedResource>,
    /// Rules by which nodes are scored.
    pub scoring: Scoring,
}

/// Reasons for which the extender stopped.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Anything that reaches the port would be answered.
    #[error(
        "{0} can be reached from elsewhere, and requests of the scheduler carry no credentials: write --bind=127.0.0.1:8090"
    )]
    Public(SocketAddr),
    /// There is no usable configuration of a cluster.
    #[error("connect to the cluster")]
    Connect(#[source] client::Error),
    /// The port for the scheduler cannot be opened.
    #[error("open the port for the scheduler")]
    Serve(#[source] http_server::Error),
    /// The port for probes cannot be opened.
    #[error("open the port for probes")]
    ServeHealth(#[source] health::Error),
    /// Metrics cannot be served.
    #[error("serve metrics")]
    ServeMetrics(#[source] metrics_server::Error),
    /// The system does not tell about signals.
    #[error("listen to signals")]
    Signals(#[source] bps_runtime::shutdown::Error),
    /// A task ended.
    #[error("run the tasks of the extender")]
    Run(#[source] tasks::Error),
}

/// Runs the extender in the cluster of `KUBECONFIG` or of its own Pod, until a signal or the end of one of its tasks.
///
/// # Errors
/// Why it could not start, or which task ended and why.
pub async fn run(settings: Settings) -> Result<(), Error> {
    let signals = Signals::install().map_err(Error::Signals)?;
    let shutdown = Shutdown::new();
    let metrics = ExtenderMetrics::new(env!("CARGO_PKG_VERSION"));
    let client = client::connect(client::USER_AGENT_EXTENDER, &metrics.rest).await.map_err(Error::Connect)?;
    let mut tasks = tasks::Tasks::new();
    start(&mut tasks, &shutdown, client, settings, metrics).await?;
    tasks.run(&shutdown, signals).await.map_err(Error::Run)
}

/// A running extender.
#[derive(Clone, Debug)]
pub struct Started {
    /// Where the scheduler is answered.
    pub address: SocketAddr,
    /// Sums over the Pods of each node.
    pub shared: SharedSums,
}

/// Starts every task of the extender.
///
/// # Errors
/// Why it could not start.
pub async fn start(
    tasks: &mut tasks::Tasks,
    shutdown: &Shutdown,
    client: Client,
    settings: Settings,
    metrics: ExtenderMetrics,
) -> Result<Started, Error> {
    let Settings { bind, health_bind, metrics_bind, resources, scoring } = settings;
    if !is_private(bind) {
        return Err(Error::Public(bind));
    }
    let shared = SharedSums::new(NodeSums::new(resources));
    let listener = listen(bind).await.map_err(Error::Serve)?;
    let address = listener.local_addr().unwrap_or(bind);

    let health = Health::new();
    if let Some(address) = health_bind {
        let server = HealthServer::listen(address, health.clone()).await.map_err(Error::ServeHealth)?;
        tasks.spawn("serve-health", server.run(shutdown.clone()));
    }
    if let Some(address) = metrics_bind {
        let server = MetricsServer::listen(address, metrics.registry(), client.clone());
        tasks.spawn("serve-metrics", server.await.map_err(Error::ServeMetrics)?.run(shutdown.clone()));
    }
    tasks.spawn_infallible("watch-nodes", watch::<Node>(client.clone(), shared.clone(), shutdown.clone()));
    tasks.spawn_infallible("watch-pods", watch::<Pod>(client, shared.clone(), shutdown.clone()));
    tasks.spawn_infallible("beat", beat(shared.clone(), health, shutdown.clone()));
    let router = ScoreDesk { shared: shared.clone(), scoring, metrics }.router();
    tasks.spawn_infallible("serve", serve(listener, router, None, shutdown.clone()));
    Ok(Started { address, shared })
}

/// Reports that the process lives, and when it is ready. Goes through the view's lock: a process in which that is stuck
/// is restarted.
///
/// It stays ready when the API server goes away. The scheduler beside it asks on the loopback address, ready or not, so
/// stale scores have to fall silent by themselves (`ViewState::Stale`). Readiness concerns rollouts and the
/// PodDisruptionBudget only. For them a Pod is good whose scheduler can lead as soon as there is an API server.
async fn beat(shared: SharedSums, health: Health, shutdown: Shutdown) {
    let mut changed = shared.changes();
    let mut is_ready = false;
    loop {
        let was_ready = is_ready;
        is_ready = shared.view().is_ready();
        if is_ready && !was_ready {
            health.set_ready(true);
            info!("Listed nodes and Pods");
        }
        health.tick();
        tokio::select! {
            biased;
            () = shutdown.requested() => return,
            () = sleep(TICK_PERIOD) => {}
            // Until it is ready each change may be the one; afterwards nothing is waited for.
            _ = changed.changed(), if !is_ready => {}
        }
    }
}
