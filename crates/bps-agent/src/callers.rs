//! Accepts connections that only the partner of this agent has a reason to make, so that whoever else connects takes nothing from it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::{Interval, MissedTickBehavior, interval, sleep};
use tracing::warn;

use super::lifeline::Partner;

/// Connections from the partner's address that have not proved yet who they are. 4: an agent makes one or two at a time, and those of
/// an earlier incarnation may still wait.
const PARTNER_MAX: usize = 4;
/// The same of all other addresses together. 1: so the partner is heard, too, if something between the two changes its address.
const OTHERS_MAX: usize = 1;
/// Least time between two connections that are accepted. 1 ms: a flood of them takes some hundredths of a core.
const ACCEPT_EACH: Duration = Duration::from_millis(1);
/// Pause after an error of the socket that accepts, such as too many open files.
const ACCEPT_PAUSE: Duration = Duration::from_secs(1);

/// Where an agent is connected to.
#[derive(Debug)]
pub(crate) struct Callers {
    listener: TcpListener,
    partner: watch::Receiver<Option<Partner>>,
    pace: Interval,
    of_partner: Arc<Semaphore>,
    of_others: Arc<Semaphore>,
}

/// A connection that has not said yet what it is for.
#[derive(Debug)]
pub(crate) struct Caller {
    /// The connection.
    pub(crate) stream: TcpStream,
    /// Where it comes from, as this machine's kernel says.
    pub(crate) from: SocketAddr,
    /// Its place: to be kept until it has proved who it is, or has not.
    pub(crate) place: OwnedSemaphorePermit,
}

impl Callers {
    /// Those that connect to a socket of an agent with this partner.
    pub(crate) fn new(listener: TcpListener, partner: watch::Receiver<Option<Partner>>) -> Self {
        let mut pace = interval(ACCEPT_EACH);
        pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let [of_partner, of_others] = [PARTNER_MAX, OTHERS_MAX].map(|most| Arc::new(Semaphore::new(most)));
        Self { listener, partner, pace, of_partner, of_others }
    }

    /// Waits for the next one; one for which there is no place is closed. May be dropped and called again.
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
