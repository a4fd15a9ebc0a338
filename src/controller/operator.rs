//! Puts the tasks of the operator together.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use kube::{Api, Client};
use tracing::{info, warn};

use super::dispatch::dispatch;
use super::events;
use super::queue::Queue;
use super::reconcile::{Context, Streaks};
use super::report::Reporter;
use super::watch::{Relist, Sink, watch, watches};
use crate::api::keys;
use crate::apply::{Applier, GateKit, TicketSender, send_by_tcp};
use crate::manifests::GateSettings;
use crate::observe::{Cache, Change, KnownKeys, Scope};
use crate::runtime::clock::Clock;
use crate::runtime::lease::{self, Elector, Leadership};
use crate::runtime::metrics::Metrics;
use crate::runtime::shutdown::{Shutdown, Signals};
use crate::runtime::{client, tasks};
use crate::wakeup::keys::KeyRing;
use crate::wakeup::secret::{self, DEFAULT_ROTATION_PERIOD, KeyStore};

/// How often keys, and objects that only our own writes have shown, are looked at.
const HOUSEKEEPING_PERIOD: Duration = Duration::from_secs(10);

/// How often it is checked whether the caches are complete, while they are not.
const SYNC_POLL_PERIOD: Duration = Duration::from_millis(5);

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
    /// The system does not tell about signals.
    #[error("listen to signals")]
    Signals(#[source] crate::runtime::shutdown::Error),
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
    let client = client::connect(&metrics.rest).await.map_err(Error::Connect)?;
    let surroundings = Surroundings { client, clock: Clock::system(), send_ticket: send_by_tcp() };
    let mut tasks = tasks::Tasks::new();
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
    let sink =
        Sink { cache, queue: Arc::new(Queue::default()), clock: clock.clone(), relist: Relist::default() };
    for target in watches(&scopes) {
        spawn(tasks, "watch", watch(client.clone(), target, sink.clone(), shutdown.clone()));
    }
    let keys = GateKeys { store: key_store(&client, &settings.namespace), image: settings.wakeup_image };
    let ring = keys.store.load_or_create(clock.now()).await.map_err(Error::LoadKeys)?;
    let applier = Applier::new(client.clone(), (clock.clone(), send_ticket), keys.kit(&ring));
    sink.cache().know_keys(known_keys(&ring));
    let lease_settings =
        lease::Settings::new(settings.namespace, keys::LEASE_LEADER, &settings.pod).map_err(Error::Elect)?;
    let elector = Elector::new(client.clone(), lease_settings, &metrics.reconcile).map_err(Error::Elect)?;
    let leadership = elector.leadership();
    let stop = shutdown.clone();
    tasks.spawn("elect", async move { elector.run(stop).await.map_err(Into::into) });
    let (events, writer) = events::channel(client.clone(), clock, settings.pod);
    spawn(tasks, "write-events", writer.run(shutdown.clone()));
    let housekeeper = Housekeeper { keys, applier: applier.clone(), sink: sink.clone() };
    spawn(tasks, "keep-house", housekeeper.run(leadership.clone(), shutdown.clone()));
    let reporter = Reporter { client: client.clone(), events, metrics: metrics.sets.clone() };
    let (refusals, stale) = (Streaks::default(), Streaks::default());
    let context = Context { client, sink, applier, reporter, leadership, metrics, refusals, stale };
    spawn(tasks, "reconcile", lead(Arc::new(context), shutdown.clone()));
    Ok(())
}

/// Starts a task that cannot fail.
fn spawn(tasks: &mut tasks::Tasks, name: &'static str, work: impl Future<Output = ()> + Send + 'static) {
    tasks.spawn(name, async move {
        work.await;
        Ok(())
    });
}

/// Waits until this replica leads and knows everything, then reconciles until shutdown.
async fn lead(context: Arc<Context>, shutdown: Shutdown) {
    let ready = async {
        context.leadership.acquired().await;
        while !context.sink.cache().is_synced() {
            tokio::time::sleep(SYNC_POLL_PERIOD).await;
        }
    };
    tokio::select! {
        biased;
        () = shutdown.requested() => return,
        () = ready => {}
    }
    let queue = Arc::clone(&context.sink.queue);
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

fn key_store(client: &Client, namespace: &str) -> KeyStore {
    KeyStore { api: Api::namespaced(client.clone(), namespace), rotation_period: DEFAULT_ROTATION_PERIOD }
}

fn known_keys(ring: &KeyRing) -> KnownKeys {
    let all = [&ring.current, &ring.next].into_iter().chain(&ring.previous);
    KnownKeys(all.map(|key| key.id().to_string()).collect())
}

/// The keys of the cold gates and what is made with them.
struct GateKeys {
    store: KeyStore,
    image: String,
}

impl GateKeys {
    fn kit(&self, ring: &KeyRing) -> GateKit {
        let public_keys = ring.public_keys().map(|key| (key.id().to_string(), hexadecimal(&key.to_string())));
        let settings = GateSettings { image: self.image.clone(), public_keys: public_keys.into() };
        GateKit { ring: ring.clone(), settings }
    }
}

/// The key's part of `<id>:<hex public key>`.
fn hexadecimal(entry: &str) -> String {
    entry.rsplit(':').next().unwrap_or_default().to_owned()
}

/// Rotates keys and has everything listed again when a watch does not confirm what we wrote.
struct Housekeeper {
    keys: GateKeys,
    applier: Applier,
    sink: Sink,
}

impl Housekeeper {
    async fn run(self, leadership: Leadership, shutdown: Shutdown) {
        let mut ticks = tokio::time::interval(HOUSEKEEPING_PERIOD);
        loop {
            tokio::select! {
                biased;
                () = shutdown.requested() => return,
                _ = ticks.tick() => {}
            }
            let now = self.sink.clock.now();
            if self.sink.cache().has_overdue(now) {
                self.sink.relist.ask();
            }
            // Only the leader rotates; the others read what it wrote, so that they can sign when they lead.
            let ring = if leadership.is_leader() {
                self.keys.store.rotate_if_due(now).await
            } else {
                self.keys.store.load_or_create(now).await
            };
            match ring {
                Ok(ring) => {
                    self.sink.cache().know_keys(known_keys(&ring));
                    self.applier.replace_gate_kit(self.keys.kit(&ring));
                }
                Err(error) => {
                    warn!(
                        error = &error as &dyn std::error::Error,
                        "Could not read the keys of the cold gates"
                    );
                }
            }
        }
    }
}
