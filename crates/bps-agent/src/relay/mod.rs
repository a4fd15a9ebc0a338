//! Relays what still reaches a Pod that does not act to the one that does.
//!
//! The rules of a node follow a handover late: kube-proxy programs them up to a second after the address was published.
//! Until then clients come to the old Pod, whose application has ended. So the agent listens in its place, and passes
//! their bytes on. It decides nothing and nobody's safety depends on it: it forwards, and the protocol does not hear of it.
//!
//! | file | what it does |
//! |---|---|
//! | [`aftermath`] | how long: until every node has learnt where to lead clients, if there is anybody |
//! | [`aim`] | where to: who acts, as far as this agent knows |
//! | [`station`] | the listeners and all connections, in one place that can be closed at once |
//! | [`connection`] | one connection: finds its target, passes bytes on in both directions |

pub mod aftermath;
pub mod aim;
mod connection;
mod station;

use std::collections::BTreeSet;
use std::future::{pending, poll_fn};
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bps_runtime::shutdown::Shutdown;
use bps_runtime::tasks::{TaskError, Tasks};
use futures::FutureExt as _;
use futures::future::{BoxFuture, join_all};
use tokio::sync::watch;
use tokio::time::error::Elapsed;
use tokio::time::{sleep, timeout};

use self::aim::Aim;
use self::connection::reach;
use self::station::Station;
use super::clock::{self, Alarm};
use super::world::{AlarmClock as _, Timer as _};

/// Shortest time that tokio's timers tell from nothing.
const TOKIO_TICK: Duration = Duration::from_millis(1);

/// How long an agent that leaves goes on relaying after it handed over.
///
/// 2 s: kube-proxy programs a change at most a second (its `minSyncPeriod`) after it heard of it.
pub(crate) const LINGER: Duration = Duration::from_secs(2);

/// How long connections are given to end between two requests before the process does. 250 ms: what an answer may take that waits
/// for a busy disk; with 50 such a request was cut in 1 of 20 deletions.
const FINISH_MAX: Duration = Duration::from_millis(250);

/// Where to listen.
#[derive(Clone, Debug)]
pub struct RelaySettings {
    /// Own address; connections to the other agent come from it, too, unless it is the unspecified one.
    pub ip: IpAddr,
    /// TCP ports. Without any nothing is relayed.
    pub ports: BTreeSet<u16>,
}

/// The end of the relay that the agent's loop holds.
#[derive(Debug)]
pub struct Relay {
    /// Nothing if there are no ports.
    station: Option<Arc<Mutex<Station>>>,
    /// Whether it is open, for its task.
    wishes: watch::Sender<bool>,
}

impl Relay {
    /// Without ports: it does nothing.
    pub fn idle() -> Self {
        Self { station: None, wishes: watch::Sender::new(false) }
    }

    /// Starts the task; the relay is closed.
    pub fn start(tasks: &mut Tasks, shutdown: &Shutdown, settings: RelaySettings) -> Self {
        let (wishes, heard) = watch::channel(false);
        if settings.ports.is_empty() {
            return Self { station: None, wishes };
        }
        let station = Arc::new(Mutex::new(Station::new(settings)));
        tasks.spawn("relay", run(station.clone(), heard, shutdown.clone()));
        Self { station: Some(station), wishes }
    }

    /// Listens as soon as the application does not, and relays to whom it is aimed at. Where it does not listen yet it
    /// tries again at once: whatever happened may have been the end of the application.
    pub fn open(&self, aim: Aim) {
        let Some(station) = &self.station else { return };
        let is_complete = locked(station).open(aim);
        self.wishes.send_if_modified(|is_open| !(std::mem::replace(is_open, true) && is_complete));
    }

    /// Where it relays from, if it does.
    pub fn settings(&self) -> Option<RelaySettings> {
        self.station.as_ref().map(|station| locked(station).settings().clone())
    }

    /// Keeps the sockets on which an application listens that is about to end, so that nobody who connects is refused.
    pub fn keep(&self, sockets: Vec<OwnedFd>) {
        if let Some(station) = &self.station {
            locked(station).keep(sockets);
        }
    }

    /// The application has ended: serves whoever has connected to what was kept.
    pub fn inherit(&self) {
        if self.station.as_ref().is_some_and(|station| locked(station).inherit()) {
            // Its task does not know of them yet.
            self.wishes.send_modify(|_| {});
        }
    }

    /// Closes all listeners before it returns, so that an application finds its ports free; the task cuts all
    /// connections as its next turn.
    pub fn close(&self) {
        let Some(station) = &self.station else { return };
        locked(station).close();
        self.wishes.send_if_modified(|is_open| std::mem::replace(is_open, false));
    }

    /// Waits until the application of this Pod listens at every port that is relayed; at once if there is none.
    ///
    /// That Pod must have said that it acts: until then it may listen there itself.
    pub fn served(&self, active: IpAddr) -> BoxFuture<'static, ()> {
        let ways = self.station.as_ref().map(|station| locked(station).ways(active)).unwrap_or_default();
        Box::pin(join_all(ways.into_iter().map(reach)).map(drop))
    }

    /// Before the process ends: ends connections in order as soon as nobody waits for an answer, and waits for that, but not
    /// long. What it cuts then was in the middle of something.
    pub async fn finish(&self) {
        let Some(station) = &self.station else { return };
        locked(station).finish();
        let all_ended = async {
            while !locked(station).is_empty() {
                sleep(TOKIO_TICK).await;
            }
        };
        // Whoever goes on is cut with the process.
        let _: Result<(), Elapsed> = timeout(FINISH_MAX, all_ended).await;
    }

    /// How long to go on after a handover before the process ends.
    pub fn linger(&self) -> Duration {
        if self.station.is_some() { LINGER } else { Duration::ZERO }
    }
}

async fn run(
    station: Arc<Mutex<Station>>,
    mut wishes: watch::Receiver<bool>,
    shutdown: Shutdown,
) -> Result<(), TaskError> {
    loop {
        let is_open = *wishes.borrow_and_update();
        let cut = locked(&station).cut();
        // Without the lock, for which the loop would have to wait.
        drop(cut);
        tokio::select! {
            // What ends comes before what goes on.
            biased;
            () = shutdown.requested() => break,
            changed = wishes.changed() => if changed.is_err() { break },
            () = serve(&station, is_open) => {}
        }
    }
    locked(&station).close();
    Ok(())
}

/// Ends only by being dropped.
async fn serve(station: &Mutex<Station>, is_open: bool) {
    if !is_open {
        pending::<()>().await;
    }
    let alarm = Alarm::new().ok();
    loop {
        let pause = locked(station).listen();
        tokio::select! {
            // A port that became free comes before what the others have to do.
            biased;
            () = wait(alarm.as_ref(), pause.unwrap_or_default()), if pause.is_some() => {}
            () = poll_fn(|context| locked(station).poll(context)) => {}
        }
    }
}

/// Waits; less than a millisecond by the kernel's timer, as tokio's would round it up.
async fn wait(alarm: Option<&Alarm>, time: Duration) {
    if let Some(alarm) = alarm.filter(|_| time < TOKIO_TICK) {
        let is_set = alarm.set(Some(clock::now() + time)).is_ok();
        if is_set && alarm.rung().await.is_ok() {
            return;
        }
    }
    sleep(time).await;
}

/// A panic while it was locked ends the process; until then there is nothing in it that could be half done.
fn locked(station: &Mutex<Station>) -> MutexGuard<'_, Station> {
    station.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
