//! Accepts connections to an agent. The partner has places of its own, so a flood of connections from other Pods does not block it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::{Interval, MissedTickBehavior, interval, sleep};
use tracing::warn;

use super::lifeline::Partner;

/// Most unauthenticated connections from the partner's address. 4: an agent makes one or two at a time, and those of an earlier
/// incarnation may still wait.
const PARTNER_MAX: usize = 4;
/// Most unauthenticated connections from all other addresses together. 1: a proxy may change the address of the partner, and the agent
/// must answer it to detect that.
const OTHERS_MAX: usize = 1;
/// Shortest time between two accepted connections. 1 ms: a flood costs some hundredths of a core.
const ACCEPT_EACH: Duration = Duration::from_millis(1);
/// Pause after an error of the socket that accepts, such as too many open files.
const ACCEPT_PAUSE: Duration = Duration::from_secs(1);

/// Listening socket of an agent, with the places for unauthenticated connections.
#[derive(Debug)]
pub(crate) struct Callers {
    listener: TcpListener,
    partner: watch::Receiver<Option<Partner>>,
    pace: Interval,
    of_partner: Arc<Semaphore>,
    of_others: Arc<Semaphore>,
}

/// Unauthenticated connection.
#[derive(Debug)]
pub(crate) struct Caller {
    /// The connection.
    pub(crate) stream: TcpStream,
    /// Source address as the kernel of this machine reports it.
    pub(crate) from: SocketAddr,
    /// Place of the connection. Dropping it lets the next connection in.
    pub(crate) place: OwnedSemaphorePermit,
}

impl Callers {
    /// Accepts on this socket for an agent with this partner.
    pub(crate) fn new(listener: TcpListener, partner: watch::Receiver<Option<Partner>>) -> Self {
        let mut pace = interval(ACCEPT_EACH);
        pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let [of_partner, of_others] = [PARTNER_MAX, OTHERS_MAX].map(|most| Arc::new(Semaphore::new(most)));
        Self { listener, partner, pace, of_partner, of_others }
    }

    /// Waits for the next connection, and closes those without a place. The future may be dropped and made again.
    pub(crate) async fn next(&mut self) -> Caller {
        loop {
            self.pace.tick().await;
            let (stream, from) = match self.listener.accept().await {
                Ok(accepted) => accepted,
                Err(error) => {
                    warn!(error = &error as &dyn std::error::Error, "Could not accept a connection");
                    sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            };
            if let Ok(place) = self.places(from).clone().try_acquire_owned() {
                return Caller { stream, from, place };
            }
        }
    }

    fn places(&self, from: SocketAddr) -> &Arc<Semaphore> {
        let partner = self.partner.borrow().map(|(_, address)| address.ip().to_canonical());
        if partner == Some(from.ip().to_canonical()) { &self.of_partner } else { &self.of_others }
    }
}
