//! Gives Leases to the seats of an agent: one search for all, and a table of who has what.
//!
//! Searches only while a seat is free and none is inside. A Lease for which no seat can be taken now is passed over for
//! a while, so that it keeps no other Lease from its seat.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::future::pending;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bps_protocol::{AgentId, SeatNumber};
use tokio::sync::{mpsc, watch};
use tokio::task::spawn_blocking;
use tokio::time::sleep;
use tracing::{info, warn};

use super::{Error, Start, find};
use crate::outages::Outages;
use crate::passage::SharedTurnstile;
use crate::search::Search;
use crate::seats::choice::{FreeSeat, LeaseLevel, choose};
use crate::seats::folders::SeatFolder;

/// Pause before a Lease is tried again for which no seat could be taken. 1 s: a disk that is full may have room again,
/// and a seat may have been given up.
const TAKE_AGAIN_AFTER: Duration = Duration::from_secs(1);

/// Why a Lease got no seat.
#[derive(Debug, thiserror::Error)]
enum TakeError {
    /// All copies may be the last ones of other pairs.
    #[error("find a free seat whose copy no other Lease calls in sync")]
    NoSeat,
    /// Nothing is known of any free seat.
    #[error("read the notes of the free seats")]
    ReadNotes(#[source] io::Error),
    /// It is not known which copies are needed.
    #[error("read the other Leases of the group")]
    ReadLeases(#[source] kube::Error),
    /// The seat cannot be noted, or its copy not replaced.
    #[error("take the seat {}", seat.0)]
    TakeSeat {
        /// Which one.
        seat: SeatNumber,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
}

/// The free seats of an agent.
struct FreeSeats {
    /// Those of which the notes could be read.
    read: Vec<FreeSeat>,
    /// Why those of another one could not.
    failed: Option<io::Error>,
}

/// Which seat has which Lease. Clones are the same table.
#[derive(Clone)]
pub(super) struct Table {
    /// Uid of the Lease of each seat; `None`: it is free.
    leases: watch::Sender<Vec<Option<u128>>>,
    folders: Arc<[SeatFolder]>,
}

/// Gives Leases to seats.
pub(super) struct Usher {
    /// For all Leases that name the Pod.
    pub(super) search: Search,
    /// The Pod.
    pub(super) id: AgentId,
    /// Where the marks of first starts are.
    pub(super) state_dir: Option<PathBuf>,
    pub(super) table: Table,
    pub(super) turnstile: SharedTurnstile,
    /// To the seats, in the order of their numbers.
    pub(super) assign: Vec<mpsc::Sender<Start>>,
    /// Whether no pair of the group waits for a free seat, by the last verdict; it counts while no seat has a Lease.
    pub(super) spare: watch::Sender<bool>,
}

impl Table {
    /// All seats are free.
    pub(super) fn new(folders: Vec<SeatFolder>) -> Self {
        Self { leases: watch::Sender::new(vec![None; folders.len()]), folders: folders.into() }
    }

    /// The seats that have no Lease.
    async fn free(&self) -> io::Result<FreeSeats> {
        let (leases, folders) = (self.leases.borrow().clone(), self.folders.clone());
        let read = spawn_blocking(move || {
            let free = folders.iter().zip(&leases).filter(|(_, lease)| lease.is_none());
            let (read, failed): (Vec<_>, Vec<_>) =
                free.map(|(folder, _)| folder.as_free()).partition(Result::is_ok);
            FreeSeats {
                read: read.into_iter().flatten().collect(),
                failed: failed.into_iter().find_map(Result::err),
            }
        });
        Ok(read.await?)
    }

    /// Notes that this Lease has this seat, which is free.
    async fn take(&self, seat: SeatNumber, LeaseLevel { lease, level }: LeaseLevel) -> io::Result<()> {
        let folder = self.folders[usize::from(seat.0)].clone();
        spawn_blocking(move || folder.take(lease, &level)).await??;
        self.set(seat, Some(lease));
        Ok(())
    }

    /// The seat is free. Unless its copy may still be needed that is noted; what could not be noted counts as needed,
    /// and is given away last.
    pub(super) async fn free_up(&self, seat: SeatNumber, is_needed: bool) {
        let folders = self.folders.clone();
        let noted =
            spawn_blocking(
                move || {
                    if is_needed { Ok(()) } else { folders[usize::from(seat.0)].give_up(&folders) }
                },
            );
        if let Err(error) = noted.await.map_err(io::Error::from).and_then(|noted| noted) {
            warn!(error = &error as &dyn std::error::Error, "Could not note that a seat was given up");
        }
        self.set(seat, None);
    }

    fn set(&self, seat: SeatNumber, lease: Option<u128>) {
        self.leases.send_modify(|leases| leases[usize::from(seat.0)] = lease);
    }
}

impl Usher {
    /// Searches while a seat is free and none is inside.
    pub(super) async fn run(self) -> Result<Infallible, Error> {
        let (mut leases, mut turnstile) = (self.table.leases.subscribe(), self.turnstile.watch());
        let (mut outages, mut unreadable) = (Outages::default(), Outages::default());
        // Leases for which no seat could be taken.
        let mut passed_over = BTreeSet::new();
        loop {
            let taken = leases.borrow_and_update().clone();
            let is_any_inside = turnstile.borrow_and_update().inside().is_some();
            let may_search = !is_any_inside && taken.iter().any(Option::is_none);
            let except: BTreeSet<_> =
                taken.into_iter().flatten().chain(passed_over.iter().copied()).collect();
            let search = self.search.clone().except(except);
            let found = async {
                if !may_search {
                    return pending().await;
                }
                let state_dir = self.state_dir.as_deref();
                find(&search, state_dir, self.id, |is_spare| self.tell_spare(is_spare)).await
            };
            let again = async {
                if passed_over.is_empty() {
                    return pending().await;
                }
                sleep(TAKE_AGAIN_AFTER).await;
            };
            let found = tokio::select! {
                biased;
                _ = leases.changed() => None,
                _ = turnstile.changed() => None,
                found = found => Some(found?),
                () = again => None,
            };
            match found {
                None => passed_over.clear(),
                // It was another agent's by the time that was sure.
                Some(None) => {}
                Some(Some(start)) => {
                    let lease = start.found.record.group;
                    match self.assign(start, &mut unreadable).await {
                        Ok(()) => outages.end("Gave a Lease a seat again"),
                        Err(error) => {
                            outages.begin("Could not give a Lease a seat", &error);
                            passed_over.insert(lease);
                        }
                    }
                }
            }
        }
    }

    async fn assign(&self, start: Start, unreadable: &mut Outages) -> Result<(), TakeError> {
        let (lease, level) = (start.found.record.group, start.found.record.level.clone());
        let wanted = LeaseLevel { lease, level };
        let FreeSeats { read: free, failed } = self.table.free().await.map_err(TakeError::ReadNotes)?;
        match failed {
            Some(error) if free.is_empty() => return Err(TakeError::ReadNotes(error)),
            Some(error) => {
                unreadable.begin("Could not read the notes of a free seat: passes it over", &error);
            }
            None => unreadable.end("Read the notes of all free seats again"),
        }

        let mut choice = choose(&free, &wanted, &[]);
        if choice.is_some_and(|choice| choice.replaces_copy) {
            let others = self.search.others(lease).await.map_err(TakeError::ReadLeases)?;
            choice = choose(&free, &wanted, &others);
        }
        let seat = choice.ok_or(TakeError::NoSeat)?.number;
        let taken = self.table.take(seat, wanted).await;
        taken.map_err(|source| TakeError::TakeSeat { seat, source })?;

        info!(seat = seat.0, lease = start.found.name, "Gave the Lease a seat");
        // The next verdict counts once no seat has a Lease any more.
        self.tell_spare(false);
        // A seat takes no Lease once the agent was asked to end.
        drop(self.assign[usize::from(seat.0)].send(start).await);
        Ok(())
    }

    fn tell_spare(&self, is_spare: bool) {
        self.spare.send_if_modified(|shown| std::mem::replace(shown, is_spare) != is_spare);
    }
}

#[cfg(test)]
mod tests;
