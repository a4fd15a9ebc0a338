//! An agent with several seats, see `seats`: each runs the loop of an agent for the Lease that it has, and one search
//! gives them Leases.
//!
//! All loops are one task, so that no two of them take a step at the same time. What belongs to the process they share:
//! the sockets, the keys, the client, the enforcer's timer.

use std::io;
use std::net::TcpListener;
use std::pin::pin;

use bps_protocol::{SeatNumber, Timing};
use bps_runtime::health::Health;
use bps_runtime::shutdown::Shutdown;
use bps_runtime::tasks::Tasks;
use tokio::sync::{mpsc, watch};
use tracing::{Instrument as _, info_span};

use super::rotation::all_in_rotation;
use super::seating::{Table, Usher};
use super::{Error, Member, OwnParts, Program, SharedParts, Start, beside};
use crate::callers::Listening;
use crate::doorman::{Doorman, Port};
use crate::lifeline::frame::GREETING as GREETING_OF_LINES;
use crate::marks::State;
use crate::metrics::AgentMetrics;
use crate::pair::End;
use crate::passage::SharedTurnstile;
use crate::relay::Relay;
use crate::replicate::channel::GREETING as GREETING_OF_STATE;
use crate::replicate::{self, ReplicateSettings, Replication};
use crate::seats::folders::{self, SeatFolder};
use crate::seats::link::ActiveLink;
use crate::seats::summary::{PodShown, SeatShown};
use crate::settings::PairSettings;
use crate::tenant::Tenant;

/// One seat, and how it gets a Lease.
struct Seat {
    member: Member,
    number: SeatNumber,
    assigned: mpsc::Receiver<Start>,
    table: Table,
}

/// The application of a seat, and its state.
struct SeatApplication {
    tenant: Tenant,
    replication: Replication,
}

/// Runs the command whenever a seat of this agent is the active of its pair, until a signal ends the agent.
///
/// # Errors
/// See [`enum@Error`].
pub(super) async fn run(settings: PairSettings, program: &Program<'_>, timing: &Timing) -> Result<(), Error> {
    let (mut tasks, shutdown) = (Tasks::new(), Shutdown::new());
    let (seats, usher) = set_up(settings, program, timing, &mut tasks, &shutdown).await?;
    beside(tasks, &shutdown, Box::pin(sit_all(seats, usher, &shutdown))).await
}

/// Makes all that the seats need before they have a Lease.
async fn set_up(
    settings: PairSettings,
    program: &Program<'_>,
    timing: &Timing,
    tasks: &mut Tasks,
    shutdown: &Shutdown,
) -> Result<(Vec<Seat>, Usher), Error> {
    let replicate = settings.replicate.clone().expect("--standby-for requires --replicate");
    let folders = folders::open(&replicate.directory, settings.standby_for).map_err(Error::Replicate)?;
    let listener = replicate::listen(settings.peer_bind).map_err(Error::Replicate)?;
    let of_state = Doorman::new(GREETING_OF_STATE);
    let applications = applications(&settings, program, &folders, &of_state)?;
    serve(of_state, listener, tasks, shutdown).map_err(Error::Replicate)?;
    let counted = applications.iter().map(|seat| seat.tenant.metrics().clone()).collect();

    let shared = SharedParts::start(settings, (&mut *tasks, shutdown), timing, counted).await?;
    let of_lines = Doorman::new(GREETING_OF_LINES);
    let SharedParts { kit, leash, listener, health, states } = shared;
    serve(of_lines.clone(), listener, tasks, shutdown).map_err(Error::Listen)?;
    let turnstile = SharedTurnstile::default();
    let (mut members, mut shown) = (Vec::new(), Vec::new());
    for (SeatApplication { tenant, replication }, folder) in applications.into_iter().zip(&folders) {
        let (health, states) = (Health::new(), watch::Sender::new(State::UNASSIGNED));
        shown.push(SeatShown { states: states.subscribe(), health: health.clone() });
        members.push(kit.clone().member(OwnParts {
            tenant,
            replication: Some(replication),
            port: Port::Shared(of_lines.clone()),
            relay: Relay::idle(),
            passage: turnstile.passage(folder.number),
            leash: leash.share().map_err(Error::Enforce)?,
            health,
            states,
        })?);
    }

    let (spare, is_spare) = watch::channel(false);
    let summary = PodShown { seats: shown, turnstile: turnstile.clone(), spare: is_spare, states, health };
    tasks.spawn("summary", summary.run(shutdown.clone()));
    let numbers: Vec<_> = folders.iter().map(|folder| folder.number).collect();
    let table = Table::new(folders);
    let mut assign = Vec::new();
    let seats = members.into_iter().zip(numbers).map(|(member, number)| {
        let (to_seat, assigned) = mpsc::channel(1);
        assign.push(to_seat);
        Seat { member, number, assigned, table: table.clone() }
    });
    let seats = seats.collect();
    let (search, id) = (kit.search(), kit.own.id);
    let usher = Usher { search, id, state_dir: kit.state_dir, table, turnstile, assign, spare };
    Ok((seats, usher))
}

/// An application for each of these directories, which comes to its state by the link.
fn applications(
    settings: &PairSettings,
    program: &Program<'_>,
    folders: &[SeatFolder],
    of_state: &Doorman,
) -> Result<Vec<SeatApplication>, Error> {
    let replicate: &ReplicateSettings =
        settings.replicate.as_ref().expect("--standby-for requires --replicate");
    let applications = folders.iter().map(|SeatFolder { number, directory }| {
        let replication = Replication::of_seat(replicate, directory.clone(), of_state.clone());
        let tenant = program.tenant(settings, Some(&replication));
        let link = ActiveLink { directory: replicate.directory.clone(), seat: *number };
        // Without a link the application would use the state of another pair.
        let text = link.text().ok_or_else(|| Error::Replicate(io::ErrorKind::InvalidInput.into()))?;
        let tenant = tenant.counting(AgentMetrics::of_seat(*number)).pointing(Some(text));
        Ok(SeatApplication { tenant, replication })
    });
    applications.collect()
}

/// Hands connections to this port to the seats that they are for.
fn serve(doorman: Doorman, listener: TcpListener, tasks: &mut Tasks, shutdown: &Shutdown) -> io::Result<()> {
    let listening = Listening::new(tokio::net::TcpListener::from_std(listener)?);
    tasks.spawn("doorman", doorman.run(listening, shutdown.clone()));
    Ok(())
}

/// Runs until all seats have ended. A search or a seat that fails asks the others to leave, which hand over first.
async fn sit_all(seats: Vec<Seat>, usher: Usher, shutdown: &Shutdown) -> Result<(), Error> {
    let seats = seats.into_iter().map(|seat| {
        let span = info_span!("seat", seat = seat.number.0);
        asking_others(seat.sit(shutdown), shutdown).instrument(span)
    });
    let mut seats = pin!(all_in_rotation(seats));
    tokio::select! {
        // The applications come first.
        biased;
        ended = &mut seats => ended.into_iter().collect(),
        failed = usher.run() => {
            shutdown.request();
            seats.await.into_iter().collect::<Result<(), _>>()?;
            failed.map(|never| match never {})
        }
    }
}

/// The same end; one with an error asks the other seats to leave.
async fn asking_others(
    seat: impl Future<Output = Result<(), Error>>,
    shutdown: &Shutdown,
) -> Result<(), Error> {
    let ended = seat.await;
    if ended.is_err() {
        shutdown.request();
    }
    ended
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
            let is_needed = match self.member.belong(start, shutdown).await? {
                End::Left => break,
                End::Dismissed => false,
                End::Bereft => true,
            };
            self.member.forget();
            self.table.free_up(self.number, is_needed).await;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use futures::future::LocalBoxFuture;
    use tokio::time::{Duration, sleep};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_seat_that_fails_asks_the_others_to_leave_and_these_take_their_time() {
        let shutdown = Shutdown::new();
        let leaving = async {
            shutdown.requested().await;
            sleep(Duration::from_secs(5)).await;
            Ok(())
        };
        let failing = async { Err(Error::Supervise(io::ErrorKind::Other.into())) };
        let seats: [LocalBoxFuture<'_, Result<(), Error>>; 2] = [Box::pin(leaving), Box::pin(failing)];
        let ended = all_in_rotation(seats.map(|seat| asking_others(seat, &shutdown))).await;
        assert!(matches!(ended[..], [Ok(()), Err(Error::Supervise(_))]), "{ended:?}");
    }
}
