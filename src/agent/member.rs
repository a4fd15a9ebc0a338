//! One agent of a pair from its start to its end: reads what it needs, starts its tasks, and runs the loop.

use std::ffi::OsString;
use std::io;
use std::path::Path;
use std::pin::pin;

use tokio::sync::watch;

use super::clock::{self, Alarm};
use super::key_ring::{self, KeyRing};
use super::marks::{self, State, is_first_start};
use super::pair::Pair;
use super::peer::Peers;
use super::publish::Publisher;
use super::settings::PairSettings;
use super::store::Store;
use super::tenant::Tenant;
use super::tree;
use crate::ha::{Agent, AgentId, Incarnation, Moment, Protocol, Timing, TimingError};
use crate::runtime::metrics::Metrics;
use crate::runtime::shutdown::{Shutdown, Signals};
use crate::runtime::tasks::{self, Tasks};
use crate::runtime::{client, telemetry};

/// Why an agent did not run, or ended without being asked to.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Logs could not be set up.
    #[error("set up logs")]
    Log(#[source] telemetry::Error),
    /// The times of the group are unsafe.
    #[error("check the times of the pair")]
    Time(#[source] TimingError),
    /// There are no keys.
    #[error("read the keys of the pair")]
    ReadKeys(#[source] key_ring::Error),
    /// The system has no random numbers.
    #[error("draw a random number")]
    Draw(#[source] getrandom::Error),
    /// The mark of the first start cannot be made.
    #[error("mark the start in the state folder")]
    Mark(#[source] io::Error),
    /// The peer address cannot be used.
    #[error("listen for the other agent")]
    Listen(#[source] io::Error),
    /// There is no client for the API server.
    #[error("make a client for the API server")]
    Connect(#[source] client::Error),
    /// The kernel refused what supervising an application needs.
    #[error("supervise the application")]
    Supervise(#[source] io::Error),
    /// A task ended.
    #[error("run beside the application")]
    Run(#[source] tasks::Error),
}

/// Runs the command whenever this agent is the active of its pair, until a signal ends it.
///
/// `launcher` is this program. Call it on the main thread, see [`tree::Tree::start`].
///
/// # Errors
/// See [`enum@Error`].
pub async fn run(settings: PairSettings, launcher: &Path, command: Vec<OsString>) -> Result<(), Error> {
    telemetry::init(&settings.logs).map_err(Error::Log)?;
    tree::adopt_orphans().map_err(Error::Supervise)?;
    let (mut tasks, shutdown) = (Tasks::new(), Shutdown::new());
    let tenant = |timing: &Timing| Tenant::new(launcher.to_owned(), command, timing.stop);
    let pair = pair(settings, (&mut tasks, &shutdown), tenant).await?;
    let mut beside = pin!(tasks.run(&shutdown, Signals::none()));
    let mut loops = pin!(pair.run(&shutdown));
    let (first, rest) = tokio::select! {
        // The application comes first.
        biased;
        ended = &mut loops => {
            shutdown.request();
            (ended.map_err(Error::Supervise), beside.await.map_err(Error::Run))
        }
        // A task that failed asks the loop to leave.
        failed = &mut beside => (failed.map_err(Error::Run), loops.await.map_err(Error::Supervise)),
    };
    first.and(rest)
}

async fn pair(
    settings: PairSettings,
    (tasks, shutdown): (&mut Tasks, &Shutdown),
    tenant: impl FnOnce(&Timing) -> Tenant,
) -> Result<Pair, Error> {
    let PairSettings { lease, own, key_file, peer_bind, slice, state_dir, state_file, logs: _ } = settings;
    let timing = Timing::default();
    timing.check().map_err(Error::Time)?;
    let keys = KeyRing::read(&key_file).map_err(Error::ReadKeys)?;
    let (keys, present) = watch::channel(keys);
    let peers = Peers::bind(peer_bind, own.id, present).map_err(Error::Listen)?;
    let metrics = Metrics::new(env!("CARGO_PKG_VERSION"));
    let client = client::connect(&metrics.rest).await.map_err(Error::Connect)?;
    // Last of what may fail: a start that did not come this far has promised nothing.
    let agent = agent(own.id, state_dir.as_deref(), &timing)?;
    let (states, shown) = watch::channel(State { role: agent.role, epoch: agent.epoch });
    let (acting, acted) = watch::channel(None);
    let store = Store::start(tasks, shutdown, (client.clone(), &own.namespace, &lease), timing);
    tasks.spawn("keys", key_ring::follow(key_file, keys, shutdown.clone()));
    if let Some(file) = state_file {
        tasks.spawn("state file", marks::keep_state(file, shown, shutdown.clone()));
    }
    if let Some(slice) = slice {
        let publisher = Publisher::new(client, &slice, own);
        tasks.spawn("publisher", publisher.run(acted, shutdown.clone()));
    }
    let alarm = Alarm::new().map_err(Error::Supervise)?;
    let (protocol, tenant) = (Protocol::new(agent, timing), tenant(&timing));
    Ok(Pair { protocol, timing, tenant, peers, store, alarm, states, acting })
}

/// The agent as it may start: only the first one in a Pod has certainly promised nothing.
fn agent(id: AgentId, state_dir: Option<&Path>, timing: &Timing) -> Result<Agent, Error> {
    let incarnation = Incarnation(getrandom::u64().map_err(Error::Draw)?);
    let is_first =
        state_dir.map_or(Ok(false), |directory| is_first_start(directory, id)).map_err(Error::Mark)?;
    let at = Moment { now: clock::now(), timing };
    Ok(if is_first { Agent::new(id, incarnation) } else { Agent::r7_restarted(&at, id, incarnation) })
}
