//! What an agent with several seats shows of itself: one role, and one answer to the kubelet.
//!
//! A Pod has one state file and one probe, and its seats have a role each. While one of them acts, the Pod is what that
//! seat is: the copies of the others are of no use then, and the operator gives their places away. Else it is ready
//! when it could take over in each of its pairs. A Pod without a pair is ready when no pair of its group waits for one;
//! one that has a pair and a free seat is ready without that, as a rollout or a handover may wait for it.

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
                // A loop that stands still is one too many; one that has ended stands still for good.
                _ = ticks.tick() => {
                    let mut loops = roles.iter().zip(&loops);
                    if loops.all(|(state, health)| state.has_changed().is_err() || health.is_live()) {
                        health.tick();
                    }
                }
                () = any_changed(&mut roles) => {}
                () = any_changed(&mut able) => {}
                told = turnstile.changed() => if told.is_err() { return Ok(()) },
                told = spare.changed() => if told.is_err() { return Ok(()) },
            }
        }
    }
}

/// Waits until one of them has changed; those that can change no more do not count. May be dropped and called again.
async fn any_changed<T>(watched: &mut [watch::Receiver<T>]) {
    let changes = watched.iter_mut().map(|one| {
        Box::pin(async {
            if one.changed().await.is_err() {
                pending::<()>().await;
            }
        })
    });
    select_all(changes).await;
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
    let mut taken = seats.iter().filter(|seat| seat.state.role.is_some()).peekable();
    if taken.peek().is_none() { is_spare } else { taken.all(|seat| seat.is_able) }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bps_protocol::Epoch;
    use bps_runtime::health::LIVENESS_MAX;
    use tokio::time::{advance, sleep};

    use super::*;

    /// The ends of what is shown.
    struct Work {
        states: Vec<Option<watch::Sender<State>>>,
        seats: Vec<Health>,
        spare: watch::Sender<bool>,
        shown: watch::Receiver<State>,
        health: Health,
        shutdown: Shutdown,
        task: tokio::task::JoinHandle<Result<(), TaskError>>,
    }

    fn work() -> Work {
        let states: Vec<_> = [(); 2].map(|()| watch::Sender::new(State::UNASSIGNED)).into();
        let seats: Vec<_> = [(); 2].map(|()| Health::new()).into();
        let shown = states.iter().zip(&seats).map(|(states, health): (&watch::Sender<State>, _)| SeatShown {
            states: states.subscribe(),
            health: Health::clone(health),
        });
        let (spare, is_spare) = watch::channel(false);
        let (role, health, shutdown) =
            (watch::Sender::new(State::UNASSIGNED), Health::new(), Shutdown::new());
        let pod = PodShown {
            seats: shown.collect(),
            turnstile: SharedTurnstile::default(),
            spare: is_spare,
            states: role.clone(),
            health: health.clone(),
        };
        let task = tokio::spawn(pod.run(shutdown.clone()));
        let states = states.into_iter().map(Some).collect();
        Work { states, seats, spare, shown: role.subscribe(), health, shutdown, task }
    }

    impl Work {
        fn be(&self, seat: usize, role: Option<Role>) {
            let state = State { role, ..State::UNASSIGNED };
            self.states[seat].as_ref().unwrap().send_replace(state);
        }

        /// What is shown once the task has had its turn.
        async fn shows(&self) -> (Option<Role>, bool) {
            sleep(Duration::from_millis(1)).await;
            (self.shown.borrow().role, *self.health.readiness().borrow())
        }
    }

    #[tokio::test(start_paused = true)]
    async fn each_change_of_a_seat_is_shown_also_after_another_one_has_ended() {
        let mut work = work();
        assert_eq!(work.shows().await, (None, false));
        work.spare.send_replace(true);
        assert_eq!(work.shows().await, (None, true));

        work.be(0, Some(Role::Standby));
        assert_eq!(work.shows().await, (Some(Role::Standby), false));
        work.seats[0].set_ready(true);
        assert_eq!(work.shows().await, (Some(Role::Standby), true));

        work.states[0] = None;
        work.be(1, Some(Role::Active));
        assert_eq!(work.shows().await, (Some(Role::Active), false));
        work.seats[1].set_ready(true);
        assert_eq!(work.shows().await, (Some(Role::Active), true));
        work.shutdown.request();
        work.task.await.unwrap().unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_loop_that_stands_still_counts_until_its_seat_has_ended() {
        /// After as many a loop counts as stuck, and what depends on it, too.
        const ROUNDS: u32 = 14;
        assert!(2 * LIVENESS_MAX < ROUNDS * TICK_PERIOD);
        let mut work = work();
        let later = async |seats: &[Health]| {
            for _ in 0..ROUNDS {
                advance(TICK_PERIOD).await;
                seats.iter().for_each(Health::tick);
                sleep(Duration::from_millis(1)).await;
            }
        };
        later(&work.seats).await;
        assert!(work.health.is_live());
        later(&work.seats[..1]).await;
        assert!(work.seats[0].is_live() && !work.health.is_live());
        work.states[1] = None;
        later(&work.seats[..1]).await;
        assert!(work.health.is_live());
    }

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
    fn an_agent_is_ready_when_it_could_take_over_in_each_pair_or_is_a_spare() {
        let (standby, acting, free) =
            (seat(Some(Role::Standby), 1), seat(Some(Role::Active), 1), unable(seat(None, 0)));
        let second = Some(SeatNumber(1));
        let table = [
            ([free, free], None, false, false),
            ([free, free], None, true, true),
            ([standby, free], None, false, true),
            ([unable(standby), free], None, true, false),
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
