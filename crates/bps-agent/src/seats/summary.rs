//! What an agent with several seats shows of itself: one role, and one answer to the kubelet.
//!
//! A Pod has one state file and one probe, and its seats have a role each. While one of them acts, the Pod is what that
//! seat is: the copies of the others are of no use then, and the operator gives their places away. Else it is ready
//! when it could take over in each of its pairs, and no pair of its group waits for a seat that it has free.

use std::future::pending;

use bps_protocol::{Role, SeatNumber};
use bps_runtime::health::{Health, TICK_PERIOD};
use bps_runtime::shutdown::Shutdown;
use bps_runtime::tasks::TaskError;
use futures::future::select_all;
use tokio::sync::watch;
use tokio::time::interval;

use crate::marks::State;
use crate::passage::SharedTurnstile;

/// What one seat shows.
#[derive(Debug)]
pub struct SeatShown {
    /// Its role and epoch; no role while it has no Lease.
    pub states: watch::Receiver<State>,
    /// Whether its loop goes round, and whether it could take over.
    pub health: Health,
}

/// What the agent shows, and what that is made of.
#[derive(Debug)]
pub struct PodShown {
    /// Those of all seats, in the order of their numbers.
    pub seats: Vec<SeatShown>,
    /// Which seat is inside.
    pub turnstile: SharedTurnstile,
    /// Whether no pair of the group waits for a free seat of this agent.
    pub spare: watch::Receiver<bool>,
    /// Role and epoch of the agent.
    pub states: watch::Sender<State>,
    /// The answers to the kubelet.
    pub health: Health,
}

/// A seat at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct SeatNow {
    state: State,
    is_able: bool,
}

impl PodShown {
    /// Shows each change, until the shutdown.
    ///
    /// # Errors
    /// None; the type is that of a task.
    pub async fn run(self, shutdown: Shutdown) -> Result<(), TaskError> {
        let Self { seats, turnstile, mut spare, states, health } = self;
        let mut turnstile = turnstile.watch();
        let mut able: Vec<_> = seats.iter().map(|seat| seat.health.readiness()).collect();
        let loops: Vec<_> = seats.iter().map(|seat| seat.health.clone()).collect();
        let mut roles: Vec<_> = seats.into_iter().map(|seat| seat.states).collect();
        let mut ticks = interval(TICK_PERIOD);
        loop {
            let inside = turnstile.borrow_and_update().inside();
            let is_spare = *spare.borrow_and_update();
            let now = roles.iter_mut().zip(&mut able).map(|(state, is_able)| SeatNow {
                state: *state.borrow_and_update(),
                is_able: *is_able.borrow_and_update(),
            });
            let now: Vec<_> = now.collect();
            let state = foremost(&now);
            states.send_if_modified(|shown| std::mem::replace(shown, state) != state);
            health.set_ready(is_ready(&now, inside, is_spare));
            tokio::select! {
                biased;
                () = shutdown.requested() => return Ok(()),
                // A loop that stands still is one too many.
                _ = ticks.tick() => if loops.iter().all(Health::is_live) { health.tick() },
                () = any_changed(&mut roles) => {}
                () = any_changed(&mut able) => {}
                told = turnstile.changed() => if told.is_err() { return Ok(()) },
                told = spare.changed() => if told.is_err() { return Ok(()) },
            }
        }
    }
}

/// Waits until one of them has changed; for ever once one can change no more. May be dropped and called again.
async fn any_changed<T>(watched: &mut [watch::Receiver<T>]) {
    let changes = watched.iter_mut().map(|one| Box::pin(one.changed()));
    if select_all(changes).await.0.is_err() {
        pending::<()>().await;
    }
}

/// The state of the seat that does most; of the first one of several.
fn foremost(seats: &[SeatNow]) -> State {
    let states = seats.iter().map(|seat| seat.state);
    states.min_by_key(|state| order(state.role)).unwrap_or(State::UNASSIGNED)
}

/// What is shown first.
fn order(role: Option<Role>) -> u8 {
    match role {
        Some(Role::Active) => 0,
        Some(Role::Stopping) => 1,
        Some(Role::Ended) => 2,
        Some(Role::HandedOver) => 3,
        Some(Role::Standby) => 4,
        Some(Role::Lapsed) => 5,
        None => 6,
    }
}

fn is_ready(seats: &[SeatNow], inside: Option<SeatNumber>, is_spare: bool) -> bool {
    let acting = inside.and_then(|inside| seats.get(usize::from(inside.0)));
    if let Some(acting) = acting {
        return acting.is_able;
    }
    let is_taken = |seat: &&SeatNow| seat.state.role.is_some();
    let is_able = seats.iter().filter(is_taken).all(|seat| seat.is_able);
    is_able && (is_spare || seats.iter().all(|seat| is_taken(&seat)))
}

#[cfg(test)]
mod tests {
    use bps_protocol::Epoch;

    use super::*;

    fn seat(role: Option<Role>, term: u32) -> SeatNow {
        SeatNow { state: State { role, epoch: Epoch { term, sequence: 0 } }, is_able: true }
    }

    fn unable(seat: SeatNow) -> SeatNow {
        SeatNow { is_able: false, ..seat }
    }

    #[test]
    fn an_agent_shows_the_seat_that_does_most() {
        let roles = [
            None,
            Some(Role::Lapsed),
            Some(Role::Standby),
            Some(Role::HandedOver),
            Some(Role::Ended),
            Some(Role::Stopping),
            Some(Role::Active),
        ];
        let shown = |seats: &[SeatNow]| foremost(seats).role;
        for (index, role) in roles.into_iter().enumerate() {
            let others: Vec<_> = roles[..=index].iter().map(|role| seat(*role, 9)).collect();
            assert_eq!(shown(&others), role);
        }
        let two = [1, 2].map(|term| seat(Some(Role::Standby), term));
        assert_eq!(foremost(&two), two[0].state);
        assert_eq!(foremost(&[]), State::UNASSIGNED);
    }

    #[test]
    fn an_agent_is_ready_when_nobody_waits_for_one_of_its_seats() {
        let (standby, acting, free) =
            (seat(Some(Role::Standby), 1), seat(Some(Role::Active), 1), unable(seat(None, 0)));
        let second = Some(SeatNumber(1));
        let table = [
            ([free, free], None, false, false),
            ([free, free], None, true, true),
            ([standby, free], None, false, false),
            ([standby, free], None, true, true),
            ([standby, standby], None, false, true),
            ([standby, unable(standby)], None, true, false),
            ([unable(standby), acting], second, false, true),
            ([free, acting], second, false, true),
            ([standby, unable(acting)], second, true, false),
        ];
        for (seats, inside, is_spare, expected) in table {
            assert_eq!(is_ready(&seats, inside, is_spare), expected, "{seats:?} {inside:?} {is_spare}");
        }
    }
}
