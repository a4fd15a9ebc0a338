//! An agent with several seats, see `seats`: each runs the loop of an agent for the Lease that it has, and one search
//! gives them Leases.
//!
//! All loops are one task, so that no two of them take a step at the same time. What belongs to the process they share:
//! the sockets, the keys, the client, the enforcer's timer.

use std::convert::Infallible;
use std::future::pending;
use std::io;
use std::net::TcpListener;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bps_protocol::{SeatNumber, Timing};
use bps_runtime::health::Health;
use bps_runtime::shutdown::Shutdown;
use bps_runtime::tasks::Tasks;
use futures::future::try_join_all;
use kube::Client;
use tokio::sync::{mpsc, watch};
use tokio::task::spawn_blocking;
use tokio::time::sleep;
use tracing::{info, warn};

use super::{Error, Member, Program, Start, beside, find};
use crate::callers::Listening;
use crate::clock::Alarm;
use crate::doorman::{Doorman, Port};
use crate::identity::Identity;
use crate::init;
use crate::lifeline::frame::GREETING as GREETING_OF_LINES;
use crate::marks::State;
use crate::metrics::AgentMetrics;
use crate::pair::{Body, End};
use crate::passage::{Passage, SharedTurnstile};
use crate::relay::Relay;
use crate::replicate::channel::GREETING as GREETING_OF_STATE;
use crate::replicate::{self, ReplicateSettings, Replication};
use crate::search::{Membership, Search};
use crate::seats::choice::choose;
use crate::seats::folders::{self, SeatFolder};
use crate::seats::link::ActiveLink;
use crate::seats::summary::{PodShown, SeatShown};
use crate::settings::PairSettings;
use crate::tenant::Tenant;

/// Pause after a Lease for which no seat could be noted. 1 s: a disk that is full may have room again.
const TAKE_AGAIN_AFTER: Duration = Duration::from_secs(1);

/// One seat, and how it gets a Lease.
struct Seat {
    member: Member,
    number: SeatNumber,
    assigned: mpsc::Receiver<Start>,
    table: Table,
}

/// Which seat has which Lease. Clones are the same table.
#[derive(Clone)]
struct Table {
    /// Uid of the Lease of each seat; `None`: it is free.
    leases: watch::Sender<Vec<Option<u128>>>,
    folders: Arc<[SeatFolder]>,
}

/// Gives Leases to seats.
struct Usher {
    client: Client,
    membership: Membership,
    own: Identity,
    state_dir: Option<PathBuf>,
    table: Table,
    turnstile: SharedTurnstile,
    /// To the seats, in the order of their numbers.
    assign: Vec<mpsc::Sender<Start>>,
    /// Whether no pair of the group waits for a free seat.
    spare: watch::Sender<bool>,
}

/// Runs the command whenever a seat of this agent is the active of its pair, until a signal ends the agent.
///
/// # Errors
/// See [`enum@Error`].
pub(super) async fn run(settings: PairSettings, program: &Program<'_>, timing: Timing) -> Result<(), Error> {
    let (mut tasks, shutdown) = (Tasks::new(), Shutdown::new());
    let (seats, usher) = set_up(settings, program, timing, &mut tasks, &shutdown).await?;
    beside(tasks, &shutdown, Box::pin(sit_all(seats, usher, &shutdown))).await
}

/// Makes all that the seats need before they have a Lease.
async fn set_up(
    settings: PairSettings,
    program: &Program<'_>,
    timing: Timing,
    tasks: &mut Tasks,
    shutdown: &Shutdown,
) -> Result<(Vec<Seat>, Usher), Error> {
    let replicate = settings.replicate.clone().ok_or(io::ErrorKind::InvalidInput);
    let replicate = replicate.map_err(|kind| Error::Replicate(kind.into()))?;
    let folders = folders::open(&replicate.directory, settings.standby_for).map_err(Error::Replicate)?;
    let listener = replicate::listen(settings.peer_bind).map_err(Error::Replicate)?;
    let of_state = Doorman::new(GREETING_OF_STATE);
    let mut applications = Vec::new();
    for folder in &folders {
        let replication = Replication::of_seat(&replicate, folder.directory.clone(), of_state.clone());
        let tenant = program.tenant(&settings, Some(&replication));
        applications.push((tenant_of(tenant, folder.number, &replicate)?, replication));
    }
    serve(of_state, listener, tasks, shutdown).map_err(Error::Replicate)?;
    let counted = applications.iter().map(|(tenant, _)| tenant.metrics().clone()).collect();

    let turnstile = SharedTurnstile::default();
    let mut applications = applications.into_iter();
    let first = applications.next().ok_or(io::ErrorKind::InvalidInput);
    let (tenant, replication) = first.map_err(|kind| Error::Replicate(kind.into()))?;
    let mut first = Member::start(settings, (&mut *tasks, shutdown), (tenant, timing), counted).await?;
    first.replication = Some(replication);
    first.body.passage = turnstile.passage(SeatNumber::default());
    let of_lines = Doorman::new(GREETING_OF_LINES);
    if let Port::Own(listener) = std::mem::replace(&mut first.port, Port::Shared(of_lines.clone())) {
        serve(of_lines, listener, tasks, shutdown).map_err(Error::Listen)?;
    }
    // What it was started with shows all seats.
    let health = std::mem::replace(&mut first.body.health, Health::new());
    let states = std::mem::replace(&mut first.body.states, watch::Sender::new(State::UNASSIGNED));
    let mut members = vec![first];
    for ((tenant, replication), number) in applications.zip(1..) {
        let sibling = members[0].sibling(tenant, replication, turnstile.passage(SeatNumber(number)))?;
        members.push(sibling);
    }
    let shown = members.iter().map(|Member { body, .. }| SeatShown {
        states: body.states.subscribe(),
        health: body.health.clone(),
    });
    let (spare, is_spare) = watch::channel(false);
    let seats = shown.collect();
    let summary = PodShown { seats, turnstile: turnstile.clone(), spare: is_spare, states, health };
    tasks.spawn("summary", summary.run(shutdown.clone()));
    Ok(seat_all(members, folders, turnstile, spare))
}

/// The application of a seat.
fn tenant_of(tenant: Tenant, seat: SeatNumber, replicate: &ReplicateSettings) -> Result<Tenant, Error> {
    let link = ActiveLink { directory: replicate.directory.clone(), seat };
    // Without a link the application would use the state of another pair.
    let text = link.text().ok_or(io::ErrorKind::InvalidInput);
    let text = text.map_err(|kind| Error::Replicate(kind.into()))?;
    Ok(tenant.counting(AgentMetrics::of_seat(seat)).pointing(Some(text)))
}

/// Shows those the way who come to this port.
fn serve(doorman: Doorman, listener: TcpListener, tasks: &mut Tasks, shutdown: &Shutdown) -> io::Result<()> {
    let listening = Listening::new(tokio::net::TcpListener::from_std(listener)?);
    tasks.spawn("doorman", doorman.run(listening, shutdown.clone()));
    Ok(())
}

/// Puts these agents on the seats with these directories; all seats are free.
fn seat_all(
    members: Vec<Member>,
    folders: Vec<SeatFolder>,
    turnstile: SharedTurnstile,
    spare: watch::Sender<bool>,
) -> (Vec<Seat>, Usher) {
    let leases = watch::Sender::new(vec![None; folders.len()]);
    let table = Table { leases, folders: folders.into() };
    let Member { client, membership, own, state_dir, .. } = &members[0];
    let mut usher = Usher {
        client: client.clone(),
        membership: membership.clone(),
        own: own.clone(),
        state_dir: state_dir.clone(),
        table: table.clone(),
        turnstile,
        assign: Vec::new(),
        spare,
    };
    let seats = members.into_iter().zip(table.folders.iter()).map(|(member, folder)| {
        let (assign, assigned) = mpsc::channel(1);
        usher.assign.push(assign);
        Seat { member, number: folder.number, assigned, table: table.clone() }
    });
    (seats.collect(), usher)
}

/// Runs until all seats have ended; a search that fails asks them to.
async fn sit_all(seats: Vec<Seat>, usher: Usher, shutdown: &Shutdown) -> Result<(), Error> {
    let seats = try_join_all(seats.into_iter().map(|seat| Box::pin(seat.sit(shutdown))));
    let mut seats = pin!(seats);
    tokio::select! {
        // The applications come first.
        biased;
        ended = &mut seats => ended.map(drop),
        failed = usher.run() => {
            shutdown.request();
            seats.await?;
            failed.map(|never| match never {})
        }
    }
}

impl Member {
    /// Another seat of the same Pod, with an application and its state.
    fn sibling(&self, tenant: Tenant, replication: Replication, passage: Passage) -> Result<Self, Error> {
        let Body { machine, leash, timing, handover, end_within, .. } = &self.body;
        let body = Body {
            machine: *machine,
            tenant,
            leash: leash.share().map_err(Error::Enforce)?,
            peers: self.peers(None),
            relay: Relay::idle(),
            alarm: Alarm::new().map_err(Error::Supervise)?,
            signals: init::passed_on().map_err(Error::Supervise)?,
            states: watch::Sender::new(State::UNASSIGNED),
            health: Health::new(),
            timing: *timing,
            handover: *handover,
            end_within: *end_within,
            passage,
        };
        Ok(Self {
            body,
            keys: self.keys.clone(),
            exchange: self.exchange.clone(),
            port: self.port.try_clone().map_err(Error::Listen)?,
            client: self.client.clone(),
            membership: self.membership.clone(),
            own: self.own.clone(),
            slice: self.slice.clone(),
            state_dir: self.state_dir.clone(),
            replication: Some(replication),
        })
    }
}

impl Seat {
    /// Belongs to one Lease after the other, as it is given them, until the agent is asked to end.
    async fn sit(mut self, shutdown: &Shutdown) -> Result<(), Error> {
        loop {
            let start = tokio::select! {
                biased;
                () = self.member.body.asked_to_end() => break,
                () = shutdown.requested() => break,
                start = self.assigned.recv() => start,
            };
            let Some(start) = start else { break };
            if self.member.belong(start, shutdown).await? == End::Left {
                break;
            }
            self.member.forget();
            self.table.give_up(self.number).await;
        }
        Ok(())
    }
}

impl Table {
    /// Gives the seat that suits it best to this Lease, and notes that; `None`: no seat is free.
    async fn take(&self, start: &Start) -> io::Result<Option<SeatNumber>> {
        let (lease, level) = (start.found.record.group, start.found.record.level.clone());
        let (leases, folders) = (self.leases.borrow().clone(), self.folders.clone());
        let choice = spawn_blocking(move || {
            let free = folders.iter().zip(&leases).filter(|(_, lease)| lease.is_none());
            let free = free.map(|(folder, _)| folder.as_free()).collect::<io::Result<Vec<_>>>()?;
            let chosen = choose(&free, lease, &level);
            let folder = folders.iter().find(|folder| Some(folder.number) == chosen);
            folder.map_or(Ok(()), |folder| folder.take(lease, &level)).map(|()| chosen)
        });
        let chosen = choice.await??;
        if let Some(number) = chosen {
            self.set(number, Some(lease));
        }
        Ok(chosen)
    }

    /// The seat is free. What could not be noted counts as needed by its Lease, and is given away last.
    async fn give_up(&self, number: SeatNumber) {
        let folders = self.folders.clone();
        let noted = spawn_blocking(move || {
            let folder = folders.iter().find(|folder| folder.number == number);
            folder.map_or(Ok(()), |folder| folder.give_up(&folders))
        });
        if let Err(error) = noted.await.map_err(io::Error::from).and_then(|noted| noted) {
            warn!(error = &error as &dyn std::error::Error, "Could not note that a seat was given up");
        }
        self.set(number, None);
    }

    fn set(&self, number: SeatNumber, lease: Option<u128>) {
        self.leases.send_modify(|leases| leases[usize::from(number.0)] = lease);
    }
}

impl Usher {
    /// Searches while a seat is free and none is inside.
    async fn run(self) -> Result<Infallible, Error> {
        let (mut leases, mut turnstile) = (self.table.leases.subscribe(), self.turnstile.watch());
        loop {
            let leases_now = leases.borrow_and_update().clone();
            let is_any_inside = turnstile.borrow_and_update().inside().is_some();
            let may_search = !is_any_inside && leases_now.iter().any(Option::is_none);
            self.tell_spare(false);
            let search = Search::new(self.client.clone(), self.membership.clone(), self.own.clone());
            let search = search.except(leases_now.into_iter().flatten().collect());
            let found = async {
                if !may_search {
                    return pending().await;
                }
                let state_dir = self.state_dir.as_deref();
                find(&search, state_dir, self.own.id, |is_spare| self.tell_spare(is_spare)).await
            };
            let found = tokio::select! {
                biased;
                _ = leases.changed() => continue,
                _ = turnstile.changed() => continue,
                found = found => found?,
            };
            if let Some(start) = found {
                self.assign(start).await;
            }
        }
    }

    async fn assign(&self, start: Start) {
        let number = match self.table.take(&start).await {
            Ok(Some(number)) => number,
            Ok(None) => return,
            Err(error) => {
                let told = &error as &dyn std::error::Error;
                warn!(error = told, lease = start.found.name, "Could not give the Lease a seat");
                sleep(TAKE_AGAIN_AFTER).await;
                return;
            }
        };
        info!(seat = number.0, lease = start.found.name, "Gave the Lease a seat");
        if let Some(seat) = self.assign.get(usize::from(number.0)) {
            // A seat takes no Lease once the agent was asked to end.
            drop(seat.send(start).await);
        }
    }

    fn tell_spare(&self, is_spare: bool) {
        self.spare.send_if_modified(|shown| std::mem::replace(shown, is_spare) != is_spare);
    }
}

#[cfg(test)]
mod tests {
    use bps_protocol::AgentId;
    use bps_wire::level::Level;
    use bps_wire::testing::record;

    use super::*;
    use crate::search::Found;

    fn table(folder: &std::path::Path) -> Table {
        let folders = folders::open(folder, 2).unwrap();
        Table { leases: watch::Sender::new(vec![None; folders.len()]), folders: folders.into() }
    }

    fn start(lease: u128, level: Level) -> Start {
        let addresses = ["10.0.0.1:1", "10.0.0.2:1"].map(|address| address.parse().unwrap());
        let record = record(lease, [1, 2].map(AgentId), addresses);
        let record = bps_wire::lease::Record { level, ..record };
        Start { found: Found { name: format!("web-{lease}"), record }, is_first: true }
    }

    #[tokio::test]
    async fn a_seat_has_one_lease_until_it_is_given_up_and_the_next_one_suits_it() {
        let folder = tempfile::tempdir().unwrap();
        let table = table(folder.path());
        let seat = |number: u8| Some(SeatNumber(number));
        let take = async |lease, level| table.take(&start(lease, level)).await.unwrap();
        assert_eq!(take(7, Level::Unsaid).await, seat(0));
        assert_eq!(take(8, Level::Unsaid).await, seat(1));
        assert_eq!(take(9, Level::Unsaid).await, None);
        assert_eq!(*table.leases.borrow(), [Some(7), Some(8)]);

        for number in [1, 0] {
            table.give_up(SeatNumber(number)).await;
        }
        assert_eq!(*table.leases.borrow(), [None, None]);
        let in_sync = Level::Only([table.folders[0].directory.id()].into());
        assert_eq!(take(9, in_sync).await, seat(0), "its directory is in sync");
        assert_eq!(take(8, Level::Unsaid).await, seat(1), "it had it last");
    }
}
