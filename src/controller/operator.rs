//! Puts the tasks of the operator together.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bps_api::keys;
use bps_observe::{Cache, Change, Scope, StormThreshold};
use bps_runtime::backoff::KeyedBackoff;
use bps_runtime::clock::Clock;
use bps_runtime::health::{self, Health, HealthServer};
use bps_runtime::lease::{self, Elector};
use bps_runtime::metrics::Metrics;
use bps_runtime::metrics_server::{self, MetricsServer};
use bps_runtime::shutdown::{Shutdown, Signals};
use bps_runtime::{client, tasks};
use kube::Client;
use tracing::info;

use super::creations::Creations;
use super::dispatch::dispatch;
use super::events;
use super::groups;
use super::housekeeping::{GateKeys, Housekeeper, SYNC_POLL_PERIOD, beat, known_keys};
use super::limits;
use super::queue::Queue;
use super::reconcile::{Context, RETRY_MAX, STALE_FIRST, after_refusals};
use super::refresh::Refreshes;
use super::report::Reporter;
use super::watch::{Relist, Sink, watch, watches};
use crate::apply::{Applier, TicketSender, send_by_tcp};
use crate::tickets::secret;

/// How long a replica that knows all sets waits for the first lists of groups before it stands for election.
///
/// 15 s: the term of the Lease. A replica that lists them is elected before.
const GROUPS_WITHIN: Duration = Duration::from_secs(15);

/// How the operator runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Namespace of the operator: its Lease and its Secret live there.
    pub namespace: String,
    /// Name of this replica.
    pub pod: String,
    /// Namespaces that are watched; empty for all.
    pub watched_namespaces: Vec<String>,
    /// Image with the `bps-wakeup` program.
    pub wakeup_image: String,
    /// Image with the `bps-agent` program; without it no set can have active and standby Pods.
    pub agent_image: Option<String>,
    /// Above which share of silent nodes their silence is doubted.
    pub storm_threshold: StormThreshold,
    /// Where the kubelet's probes are answered; `None` answers none.
    pub health_bind: Option<SocketAddr>,
    /// Where metrics are served to authorised readers; `None` serves none.
    pub metrics_bind: Option<SocketAddr>,
}

/// Why the operator stopped.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no usable configuration of a cluster.
    #[error("connect to the cluster")]
    Connect(#[source] client::Error),
    /// The keys of the cold gates cannot be read or made.
    #[error("load the keys of the cold gates")]
    LoadKeys(#[source] secret::Error),
    /// The leader election cannot be set up.
    #[error("set up the leader election")]
    Elect(#[source] lease::Error),
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
    #[error("run the tasks of the operator")]
    Run(#[source] tasks::Error),
}

/// What the operator meets outside itself; tests bring their own.
#[derive(Clone)]
pub struct Surroundings {
    /// Talks to the API server.
    pub client: Client,
    /// Tells the time.
    pub clock: Clock,
    /// Hands tickets to cold gates.
    pub send_ticket: TicketSender,
}

/// Runs the operator in the cluster of `KUBECONFIG` or of its own Pod, until a signal or the end of one of its tasks.
///
/// # Errors
/// Why it could not start, or which task ended and why.
pub async fn run(settings: Settings) -> Result<(), Error> {
    let signals = Signals::install().map_err(Error::Signals)?;
    let shutdown = Shutdown::new();
    let metrics = Metrics::new(env!("CARGO_PKG_VERSION"));
    let client = client::connect(client::USER_AGENT_OPERATOR, &metrics.rest).await.map_err(Error::Connect)?;
    let surroundings = Surroundings { client, clock: Clock::system(), send_ticket: send_by_tcp() };
    let mut tasks = tasks::Tasks::new();
    let watching = limits::watch_over(
        surroundings.client.clone(),
        settings.namespace.clone(),
        metrics.sets.clone(),
        shutdown.clone(),
    );
    tasks.spawn_infallible("watch-limits", watching);
    start(&mut tasks, &shutdown, (surroundings, settings, metrics)).await?;
    tasks.run(&shutdown, signals).await.map_err(Error::Run)
}

/// Starts every task of the operator; returns when the first of them work.
///
/// # Errors
/// Why it could not start.
pub async fn start(
    tasks: &mut tasks::Tasks,
    shutdown: &Shutdown,
    (surroundings, settings, metrics): (Surroundings, Settings, Metrics),
) -> Result<(), Error> {
    let Surroundings { client, clock, send_ticket } = surroundings;
    let scopes = scopes(&settings.watched_namespaces);
    let cache = Arc::new(Mutex::new(Cache::expecting(watches(&scopes))));
    let sink = Sink {
        cache,
        queue: Arc::new(Queue::closed()),
        clock: clock.clone(),
        relist: Relist::default(),
        nodes_noted: tokio::sync::watch::Sender::default(),
    };
    sink.cache().know_agent_image(settings.agent_image.clone());
    sink.cache().doubt_losses_above(settings.storm_threshold);
    for target in watches(&scopes) {
        tasks.spawn_infallible("watch", watch(client.clone(), target, sink.clone(), shutdown.clone()));
    }
    serve(tasks, shutdown, (&client, &settings, &metrics, &sink)).await?;
    let keys = GateKeys::new(&client, &settings.namespace, settings.wakeup_image);
    let ring = keys.store.load_or_create(clock.now()).await.map_err(Error::LoadKeys)?;
    let applier = Applier::new(client.clone(), (clock.clone(), send_ticket), keys.kit(&ring));
    sink.change(|cache| cache.know_keys(known_keys(&ring)));
    let lease_settings =
        lease::Settings::new(settings.namespace, keys::LEASE_LEADER, &settings.pod).map_err(Error::Elect)?;
    let elector = Elector::new(client.clone(), lease_settings, &metrics.reconcile).map_err(Error::Elect)?;
    let leadership = elector.leadership();
    let (events, writer) = events::channel(client.clone(), clock, settings.pod, &metrics.sets);
    tasks.spawn_infallible("write-events", writer.run(shutdown.clone()));
    let (ring_shown, ring) = tokio::sync::watch::channel(ring);
    let (applier_kept, metrics_kept) = (applier.clone(), metrics.sets.clone());
    let housekeeper = Housekeeper {
        keys,
        ring: ring_shown,
        applier: applier_kept,
        sink: sink.clone(),
        metrics: metrics_kept,
    };
    let surroundings = groups::Surroundings {
        client: client.clone(),
        clock: sink.clock.clone(),
        leadership: leadership.clone(),
        metrics: metrics.clone(),
        events: events.clone(),
        keys: ring,
        nodes_noted: sink.nodes_noted.subscribe(),
        cache: Arc::clone(&sink.cache),
    };
    let unlisted = groups::start(tasks, shutdown, surroundings, &scopes);
    let (stop, known) = (shutdown.clone(), sink.clone());
    tasks.spawn("elect", async move {
        // A replica that knows less than all would lead and do nothing, while another one could.
        let informed = async {
            synced(&known).await;
            // Sets are served without them.
            tokio::time::timeout(GROUPS_WITHIN, groups::listed(unlisted)).await.ok();
        };
        tokio::select! {
            biased;
            () = stop.requested() => return Ok(()),
            () = informed => {}
        }
        elector.run(stop).await.map_err(Into::into)
    });
    tasks.spawn_infallible("keep-house", housekeeper.run(leadership.clone(), shutdown.clone()));
    let reporter = Reporter::new(client.clone(), events, metrics.sets.clone());
    let context = Context {
        client,
        sink,
        applier,
        reporter,
        leadership,
        metrics,
        refusals: after_refusals(),
        creations: Creations::default(),
        stale: KeyedBackoff::new(STALE_FIRST, RETRY_MAX),
        refreshes: Refreshes::default(),
    };
    tasks.spawn_infallible("reconcile", lead(Arc::new(context), shutdown.clone()));
    Ok(())
}

/// Opens the ports that were asked for.
async fn serve(
    tasks: &mut tasks::Tasks,
    shutdown: &Shutdown,
    (client, settings, metrics, sink): (&Client, &Settings, &Metrics, &Sink),
) -> Result<(), Error> {
    let health = Health::new();
    if let Some(address) = settings.health_bind {
        let server = HealthServer::listen(address, health.clone()).await.map_err(Error::ServeHealth)?;
        tasks.spawn("serve-health", server.run(shutdown.clone()));
    }
    if let Some(address) = settings.metrics_bind {
        let server = MetricsServer::listen(address, metrics.registry(), client.clone());
        tasks.spawn("serve-metrics", server.await.map_err(Error::ServeMetrics)?.run(shutdown.clone()));
    }
    tasks.spawn_infallible("beat", beat(sink.clone(), health, shutdown.clone()));
    Ok(())
}

/// Waits until every watch has listed once.
async fn synced(sink: &Sink) {
    while !sink.cache().is_synced() {
        tokio::time::sleep(SYNC_POLL_PERIOD).await;
    }
}

/// Waits until this replica leads and knows everything, then reconciles until shutdown.
async fn lead(context: Arc<Context>, shutdown: Shutdown) {
    let ready = async {
        synced(&context.sink).await;
        context.leadership.acquired().await;
    };
    tokio::select! {
        biased;
        () = shutdown.requested() => return,
        () = ready => {}
    }
    let queue = Arc::clone(&context.sink.queue);
    queue.open();
    let keys = context.sink.cache().set_keys();
    info!(attempt = keys.len(), "Began to reconcile");
    for key in keys {
        queue.note(key, Change::Ordinary);
    }
    dispatch(context, queue, shutdown).await;
}

fn scopes(namespaces: &[String]) -> Vec<Scope> {
    if namespaces.is_empty() {
        return vec![Scope(None)];
    }
    let distinct: BTreeSet<&String> = namespaces.iter().collect();
    distinct.into_iter().map(|namespace| Scope(Some(namespace.clone()))).collect()
}
