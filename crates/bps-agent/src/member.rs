//! An agent from its start to its end: reads what it needs, belongs to one Lease after the other, and starts what runs
//! beside the loop.

use std::ffi::OsString;
use std::io;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::time::Duration;

use bps_api::HandoverOrder;
use bps_protocol::{Agent, AgentId, Incarnation, Moment, Protocol, SeatNumber, Timing, TimingError};
use bps_runtime::health::{self, Health, HealthServer};
use bps_runtime::metrics::Metrics;
use bps_runtime::shutdown::{Shutdown, Signals};
use bps_runtime::tasks::{self, Tasks};
use bps_runtime::{client, telemetry};
use bps_wire::key_ring::KeyRing;
use bps_wire::lease::Record;
use kube::Client;
use tokio::sync::watch;
use tokio::time::sleep;
use tracing::{Instrument as _, info};

use super::clock::{self, Alarm};
use super::doorman::Port;
use super::enforcer::{Leash, Lent};
use super::exchange::{Exchange, Extension};
use super::hook::Hooks;
use super::identity::Identity;
use super::lifeline::{ANSWERED_WITHIN, Lifelines, Needs};
use super::marks::{self, State, is_first_start};
use super::metrics::{self, AgentMetrics};
use super::outages::Outages;
use super::pair::{Body, End, Pair};
use super::passage::{Passage, SharedTurnstile};
use super::peer::{Peers, Socket};
use super::publish::Publisher;
use super::relay::aim::Aim;
use super::relay::{Relay, RelaySettings};
use super::replicate::Replication;
use super::search::{Found, Membership, Search};
use super::seats::folders::check_for_one;
use super::settings::PairSettings;
use super::store::Store;
use super::tenant::Tenant;
use super::tree;
use super::world::Kernel;
use super::{init, key_file};

mod rotation;
mod seating;
mod several;

/// How many turns of tasks may come between two of the agent's loop, for the runtime that both are in.
///
/// 4: a full turn of the relay takes about a millisecond, and a heartbeat that is late by some of them is none the worse.
pub const TURNS_BESIDE_LOOP: u32 = 4;

/// Connections to the API server that are kept open beside that of the watch: a claim and the address that is shown are
/// written at the same time.
const CONNECTIONS_KEPT: usize = 2;

/// Pause after a Lease that could not be joined because of the state directory. 1 s: a disk that is full may have room
/// again.
const JOIN_AGAIN_AFTER: Duration = Duration::from_secs(1);

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
    ReadKeys(#[source] key_file::Error),
    /// The system has no random numbers.
    #[error("draw a random number")]
    Draw(#[source] getrandom::Error),
    /// The mark of the first start cannot be made.
    #[error("mark the start in the state folder")]
    Mark(#[source] io::Error),
    /// The state directory cannot be replicated.
    #[error("replicate the state directory")]
    Replicate(#[source] io::Error),
    /// The peer address cannot be used.
    #[error("listen for the other agent")]
    Listen(#[source] io::Error),
    /// The port for probes cannot be used.
    #[error("listen for probes")]
    ServeHealth(#[source] io::Error),
    /// There is no client for the API server.
    #[error("make a client for the API server")]
    Connect(#[source] client::Error),
    /// The kernel refused what supervising an application needs.
    #[error("supervise the application")]
    Supervise(#[source] io::Error),
    /// There is no process above this one that shares its timer and the port for probes.
    #[error("take what the enforcer lends")]
    Enforce(#[source] io::Error),
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
    let _lines = telemetry::init(&settings.logs).map_err(Error::Log)?;
    tree::adopt_orphans().map_err(Error::Supervise)?;
    let timing = Timing::default();
    timing.check().map_err(Error::Time)?;
    let program = Program { launcher, command: &command, stop: timing.stop };
    if settings.standby_for > 1 {
        return several::run(settings, &program, &timing).await;
    }
    let replication = settings.replicate.as_ref().map(|wanted| {
        check_for_one(&wanted.directory)?;
        Replication::open(wanted, settings.peer_bind)
    });
    let replication = replication.transpose().map_err(Error::Replicate)?;
    let tenant = program.tenant(&settings, replication.as_ref());
    let metrics = vec![tenant.metrics().clone()];
    let relay = RelaySettings { ip: settings.peer_bind.ip(), ports: settings.relay_ports.clone() };
    let (mut tasks, shutdown) = (Tasks::new(), Shutdown::new());
    let SharedParts { kit, leash, listener, health, states } =
        SharedParts::start(settings, (&mut tasks, &shutdown), &timing, metrics).await?;
    let member = kit.member(OwnParts {
        tenant,
        replication,
        port: Port::Own(listener),
        relay: Relay::start(&mut tasks, &shutdown, relay),
        passage: SharedTurnstile::default().passage(SeatNumber::default()),
        leash,
        health,
        states,
    })?;
    beside(tasks, &shutdown, Box::pin(member.run(&shutdown))).await
}

/// What applications are started with.
struct Program<'a> {
    /// This program.
    launcher: &'a Path,
    command: &'a [OsString],
    /// How long stopping it may take.
    stop: Duration,
}

impl Program<'_> {
    /// One that keeps this state.
    fn tenant(&self, settings: &PairSettings, replication: Option<&Replication>) -> Tenant {
        let sync_socket = replication.map(Replication::socket_path);
        let hooks = Hooks { sync_socket, ..settings.hooks.clone() };
        Tenant::new(Kernel, (self.launcher.to_owned(), self.command.to_vec()), hooks, self.stop)
            .pausing_at_most(settings.restart_pause_max)
            .leaving_out(replication.and_then(Replication::left_out))
            .telling_last_lines(settings.tell_last_lines)
    }
}

/// Says for ever that the agent works, for one that waits for a Lease.
async fn tick(health: &Health) {
    let mut ticks = tokio::time::interval(health::TICK_PERIOD);
    loop {
        ticks.tick().await;
        health.tick();
    }
}

/// Runs a loop beside its tasks. The end of either asks the other one to end; the loop comes first.
async fn beside<Output>(
    tasks: Tasks,
    shutdown: &Shutdown,
    work: impl Future<Output = Result<Output, Error>>,
) -> Result<Output, Error> {
    let mut tasks = pin!(tasks.run(shutdown, Signals::none()));
    let mut work = pin!(work);
    tokio::select! {
        // The application comes first.
        biased;
        ended = &mut work => {
            shutdown.request();
            let rest = tasks.await.map_err(Error::Run);
            ended.and_then(|output| rest.map(|()| output))
        }
        // A task that failed asks the loop to leave.
        failed = &mut tasks => {
            let ended = work.await;
            failed.map_err(Error::Run).and(ended)
        }
    }
}

/// A Lease that an agent begins with.
#[derive(Debug)]
struct Start {
    found: Found,
    /// The Pod comes to it for the first time.
    is_first: bool,
}

/// What all seats of an agent have in common, with or without a Lease.
#[derive(Clone)]
struct Kit {
    keys: watch::Receiver<KeyRing>,
    /// The socket to the other agents.
    exchange: Exchange<Socket>,
    client: Client,
    membership: Membership,
    own: Identity,
    /// EndpointSlice to publish in, if the Lease is given by name.
    slice: Option<String>,
    state_dir: Option<PathBuf>,
    timing: Timing,
    handover: Option<HandoverOrder>,
    end_within: Duration,
}

/// What there is once in a process.
struct SharedParts {
    kit: Kit,
    leash: Leash,
    /// Where other agents make their lines to.
    listener: TcpListener,
    /// The answers to the kubelet.
    health: Health,
    /// To the state file.
    states: watch::Sender<State>,
}

/// What each seat has for itself.
struct OwnParts {
    tenant: Tenant,
    replication: Option<Replication>,
    port: Port,
    relay: Relay,
    passage: Passage,
    leash: Leash,
    health: Health,
    states: watch::Sender<State>,
}

/// An agent, with or without a Lease; or one of its seats.
struct Member {
    body: Body,
    kit: Kit,
    /// Where the other agent makes its lines to.
    port: Port,
    /// What is replicated, if anything.
    replication: Option<Replication>,
}

impl SharedParts {
    /// Starts what an agent needs with or without a Lease; `counted` is what is told to those who have the token.
    async fn start(
        settings: PairSettings,
        (tasks, shutdown): (&mut Tasks, &Shutdown),
        timing: &Timing,
        counted: Vec<AgentMetrics>,
    ) -> Result<Self, Error> {
        let PairSettings {
            membership,
            own,
            key_file,
            api_files,
            peer_bind,
            slice,
            state_dir,
            handover,
            end_within,
            ..
        } = settings;
        let health = Health::new();
        let enforcer = settings.enforcer.ok_or(io::ErrorKind::NotConnected);
        let lent = enforcer.map_err(io::Error::from).and_then(|name| Lent::take(&name));
        let Lent { leash, probes } = lent.map_err(Error::Enforce)?;
        // First: the kubelet may have asked already.
        if let Some(probes) = probes {
            let server = HealthServer::at(probes, health.clone()).map_err(Error::ServeHealth)?;
            let server = server.with(metrics::router(counted, &key_file));
            tasks.spawn("health", server.run(shutdown.clone()));
        }
        let keys = key_file::read(&key_file).map_err(Error::ReadKeys)?;
        let (keys, present) = watch::channel(keys);
        let exchange = Exchange::new(Socket::bind(peer_bind).map_err(Error::Listen)?);
        let listener = TcpListener::bind(peer_bind).map_err(Error::Listen)?;
        listener.set_nonblocking(true).map_err(Error::Listen)?;
        let requests = Metrics::new(env!("CARGO_PKG_VERSION")).rest;
        let client = match &api_files {
            Some(api_files) => client::connect_by(api_files, client::USER_AGENT_AGENT, &requests).await,
            None => client::connect_to_own(client::USER_AGENT_AGENT, &requests).await,
        };
        let client = client.map_err(Error::Connect)?;
        tasks.spawn("connections", client::keep_open(client.clone(), CONNECTIONS_KEPT, shutdown.clone()));
        let (states, shown) = watch::channel(State::UNASSIGNED);
        tasks.spawn("keys", key_file::follow(key_file, keys, shutdown.clone()));
        if let Some(file) = settings.state_file {
            tasks.spawn("state file", marks::keep_state(file, shown, shutdown.clone()));
        }
        let kit = Kit {
            keys: present,
            exchange,
            client,
            membership,
            own,
            slice,
            state_dir,
            timing: *timing,
            handover,
            end_within,
        };
        Ok(Self { kit, leash, listener, health, states })
    }
}

impl Kit {
    /// An agent or a seat without a Lease.
    fn member(self, parts: OwnParts) -> Result<Member, Error> {
        let OwnParts { tenant, replication, port, relay, passage, leash, health, states } = parts;
        let body = Body {
            machine: Kernel,
            tenant,
            leash,
            peers: self.peers(None),
            relay,
            alarm: Alarm::new().map_err(Error::Supervise)?,
            signals: init::passed_on().map_err(Error::Supervise)?,
            states,
            health,
            timing: self.timing,
            handover: self.handover,
            end_within: self.end_within,
            passage,
        };
        Ok(Member { body, kit: self, port, replication })
    }

    /// The other agents of this Lease; none before there is one.
    fn peers(&self, group: Option<u128>) -> Peers<Extension<Socket>> {
        Peers::new(self.exchange.extension(group), self.own.id, self.keys.clone())
    }

    /// One for the Leases that name this Pod.
    fn search(&self) -> Search {
        Search::new(self.client.clone(), self.membership.clone(), self.own.clone())
    }
}

impl Member {
    /// Belongs to one Lease after the other, until it is asked to end; ends what it relays first.
    async fn run(mut self, shutdown: &Shutdown) -> Result<(), Error> {
        self.belong_to_all(shutdown).await?;
        // Closes the port: who acts must not wait for the answer of an agent that receives no state any more.
        self.replication = None;
        self.body.relay.finish().await;
        Ok(())
    }

    async fn belong_to_all(&mut self, shutdown: &Shutdown) -> Result<(), Error> {
        let search = self.kit.search();
        let health = self.body.health.clone();
        let mut outages = Outages::default();
        loop {
            let (kit, replication) = (&self.kit, self.replication.as_ref());
            let found = async {
                let tell = |is_spare| health.set_ready(is_spare);
                let start = find(&search, kit.state_dir.as_deref(), kit.own.id, tell).await?;
                Ok::<_, Error>(prepared(start, replication, &mut outages).await)
            };
            let start = tokio::select! {
                // No application runs; what is relayed ends after this.
                biased;
                () = self.body.asked_to_end() => return Ok(()),
                () = shutdown.requested() => return Ok(()),
                found = found => found?,
                () = tick(&health) => return Ok(()),
            };
            let Some(start) = start else { continue };
            match self.belong(start, shutdown).await? {
                End::Left => return Ok(()),
                End::Dismissed | End::Bereft => self.forget(),
            }
        }
    }

    /// Belongs to no Lease any more.
    fn forget(&mut self) {
        self.body.health.set_ready(false);
        self.body.peers = self.kit.peers(None);
        self.body.relay.open(Aim::default());
        self.body.states.send_replace(State::UNASSIGNED);
        self.body.tenant.metrics().show_role(None);
        self.body.tenant.metrics().show_pair(None);
        info!("Left the Lease");
    }

    /// Belongs to one Lease; its tasks end with it.
    async fn belong(&mut self, start: Start, shutdown: &Shutdown) -> Result<End, Error> {
        let Start { found, is_first } = start;
        let (mut tasks, over) = (Tasks::new(), Shutdown::new());
        let Record { group, timing, .. } = found.record;
        self.body.peers = self.kit.peers(Some(group));
        self.body.peers.know(&found.record);
        self.body.timing = timing;
        self.body.tenant.join(found.name.clone(), timing.stop);
        self.body.tenant.metrics().show_pair(Some(&found.name));
        let is_of_group = matches!(self.kit.membership, Membership::Group(_));
        let slice = if is_of_group { found.record.slice.clone() } else { self.kit.slice.clone() };
        let agent = agent((self.kit.own.id, is_first), &timing)?;
        let access = (self.kit.client.clone(), &*self.kit.own.namespace, found);
        let store = Store::start(&mut tasks, &over, access, timing);
        let (showing, to_show) = watch::channel(None);
        let retries = self.body.tenant.metrics().publish_retries.clone();
        let (slice, names) = watch::channel(slice);
        let publisher = Publisher::new(
            self.body.machine,
            (self.kit.client.clone(), names),
            self.kit.own.clone(),
            retries,
        );
        let shown = publisher.shown();
        tasks.spawn("publisher", publisher.run(to_show, over.clone()).in_current_span());
        let needs = Needs {
            group,
            own: self.kit.own.id,
            keys: self.kit.keys.clone(),
            port: &self.port,
            bonds: self.body.tenant.bonds(),
            answered_within: ANSWERED_WITHIN,
        };
        let lifelines = Lifelines::start(&mut tasks, &over, needs).map_err(Error::Listen)?;
        let protocol = Protocol::new(agent, timing);
        let replica = self.replication.as_ref().map(|replication| {
            let of = (group, self.kit.own.id);
            let metrics = self.body.tenant.metrics().clone();
            replication.start((&mut tasks, &over), of, (self.kit.keys.clone(), store.notes(), metrics))
        });
        let replica = replica.transpose().map_err(Error::Replicate)?;
        let protocol = if replica.is_some() { protocol.keeping_state() } else { protocol };
        let pair = Pair { protocol, store, lifelines, replica, showing, slice, shown, is_of_group };
        let work = async { self.body.run(pair, [shutdown, &over]).await.map_err(Error::Supervise) };
        beside(tasks, &over, Box::pin(work)).await
    }
}

/// Waits until there is a Lease to start in; `None`: it was another agent's by the time that was sure. Tells meanwhile
/// whether this agent is a spare. May be dropped and called again.
async fn find(
    search: &Search,
    state_dir: Option<&Path>,
    id: AgentId,
    tell: impl Fn(bool),
) -> Result<Option<Start>, Error> {
    let found = search.find(tell).await;
    let is_first = is_first(state_dir, id, found.record.group)?;
    let found = if is_first { Some(found) } else { search.present(&found).await };
    Ok(found.map(|found| Start { found, is_first }))
}

/// The same start, once the state directory is noted as that of its Lease; `None`, after a pause: that failed. The
/// agent must not join the Lease then, because its former Lease may call the directory in sync.
async fn prepared(
    start: Option<Start>,
    replication: Option<&Replication>,
    outages: &mut Outages,
) -> Option<Start> {
    let start = start?;
    let Some(replication) = replication else { return Some(start) };
    let Record { group, level, .. } = &start.found.record;
    match replication.belong_to(*group, level.clone()).await {
        Ok(()) => {
            outages.end("Joins a Lease again");
            Some(start)
        }
        Err(error) => {
            outages.begin("Does not join the Lease: could not note it in the state directory", &error);
            sleep(JOIN_AGAIN_AFTER).await;
            None
        }
    }
}

/// Whether the Pod comes to this Lease for the first time.
fn is_first(state_dir: Option<&Path>, id: AgentId, lease: u128) -> Result<bool, Error> {
    state_dir.map_or(Ok(false), |directory| is_first_start(directory, id, lease)).map_err(Error::Mark)
}

/// The agent as it may start: only one that comes to a Lease for the first time has certainly promised nothing in it.
fn agent((id, is_first): (AgentId, bool), timing: &Timing) -> Result<Agent, Error> {
    let incarnation = Incarnation(getrandom::u64().map_err(Error::Draw)?);
    let at = Moment { now: clock::now(), timing };
    Ok(if is_first { Agent::new(id, incarnation) } else { Agent::r7_restarted(&at, id, incarnation) })
}

#[cfg(test)]
mod tests {
    use bps_wire::level::Level;
    use bps_wire::testing::record;

    use super::*;
    use crate::replicate::ReplicateSettings;
    use crate::replicate::directory::StateDirectory;
    use crate::replicate::gate::{PromoteWhen, may_take};
    use crate::replicate::left_out::LeftOut;

    #[tokio::test(start_paused = true)]
    async fn no_lease_is_joined_before_the_state_directory_is_noted_as_its_own() {
        let folder = tempfile::tempdir().unwrap();
        let directory = StateDirectory::open(folder.path()).unwrap();
        let settings = ReplicateSettings {
            directory: folder.path().to_owned(),
            promote_when: PromoteWhen::InSync,
            left_out: LeftOut::default(),
        };
        let replication = Replication::open(&settings, "127.0.0.1:0".parse().unwrap()).unwrap();
        let mut outages = Outages::default();
        let mut joins = async |lease: u128, level: Level| {
            let addresses = ["10.0.0.1:1", "10.0.0.2:1"].map(|address| address.parse().unwrap());
            let record = Record { level, ..record(lease, [1, 2].map(AgentId), addresses) };
            let found = Found { name: format!("web-{lease}"), record };
            let start = Start { found, is_first: true };
            prepared(Some(start), Some(&replication), &mut outages).await.is_some()
        };

        let in_sync = Level::Only([directory.id()].into());
        assert!(joins(8, in_sync.clone()).await);
        assert!(!joins(9, Level::Unreadable).await, "it may name the directory");
        directory.read_number().unwrap();
        assert!(
            may_take(PromoteWhen::InSync, &in_sync, directory.id()),
            "it has the state of the former Lease"
        );

        // The agent receives the state of another pair from here on.
        assert!(joins(9, Level::Unsaid).await);
        directory.read_number().unwrap();
        assert!(!may_take(PromoteWhen::InSync, &in_sync, directory.id()));
        assert!(joins(8, in_sync.clone()).await);
        directory.read_number().unwrap();
        assert!(!may_take(PromoteWhen::InSync, &in_sync, directory.id()), "not by its former Lease either");
        assert_eq!(prepared(None, Some(&replication), &mut Outages::default()).await.map(drop), None);
    }
}
