//! Accepts connections to an agent. The partner has places of its own, so a flood of connections from other Pods does not block it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::{Interval, MissedTickBehavior, interval, sleep};
use tracing::warn;

use super::doorman::{Entrance, is_from};
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

/// Listening socket of an agent.
#[derive(Debug)]
pub struct Listening {
    listener: TcpListener,
    pace: Interval,
}

/// Connection that was accepted.
#[derive(Debug)]
pub struct Accepted {
    /// The connection.
    pub stream: TcpStream,
    /// Source address as the kernel of this machine reports it.
    pub from: SocketAddr,
}

/// Places for unauthenticated connections.
#[derive(Debug)]
pub(crate) struct CallerPlaces(Arc<Semaphore>);

/// Those who connect to an agent about one Lease, with the places for unauthenticated connections.
#[derive(Debug)]
pub struct Callers {
    source: Source,
    partner: watch::Receiver<Option<Partner>>,
    of_partner: CallerPlaces,
    of_others: CallerPlaces,
}

#[derive(Debug)]
enum Source {
    Listening(Listening),
    /// A doorman accepts the connections for all seats of the Pod, and hands over those of this one.
    Entrance(Entrance),
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

impl Listening {
    /// Accepts connections on this socket.
    pub fn new(listener: TcpListener) -> Self {
        let mut pace = interval(ACCEPT_EACH);
        pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self { listener, pace }
    }

    /// Waits for the next connection. The future may be dropped and made again.
    pub(crate) async fn next(&mut self) -> Accepted {
        loop {
            self.pace.tick().await;
            match self.listener.accept().await {
                Ok((stream, from)) => return Accepted { stream, from },
                Err(error) => {
                    warn!(error = &error as &dyn std::error::Error, "Could not accept a connection");
                    sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }
}

impl CallerPlaces {
    /// For connections from the address of a partner.
    pub(crate) fn of_partner() -> Self {
        Self(Arc::new(Semaphore::new(PARTNER_MAX)))
    }

    /// For all others.
    pub(crate) fn of_strangers() -> Self {
        Self(Arc::new(Semaphore::new(OTHERS_MAX)))
    }

    /// A place, if one is free.
    pub(crate) fn take(&self) -> Option<OwnedSemaphorePermit> {
        self.0.clone().try_acquire_owned().ok()
    }
}

impl Callers {
    /// Connections to this socket, of an agent with this partner.
    pub(crate) fn at(listening: Listening, partner: watch::Receiver<Option<Partner>>) -> Self {
        Self::of(Source::Listening(listening), partner)
    }

    /// Connections that a doorman hands to a seat with this partner.
    pub(crate) fn led(entrance: Entrance, partner: watch::Receiver<Option<Partner>>) -> Self {
        Self::of(Source::Entrance(entrance), partner)
    }

    fn of(source: Source, partner: watch::Receiver<Option<Partner>>) -> Self {
        Self {
            source,
            partner,
            of_partner: CallerPlaces::of_partner(),
            of_others: CallerPlaces::of_strangers(),
        }
    }

    /// Waits for the next connection, and closes those without a place. The future may be dropped and made again.
    pub(crate) async fn next(&mut self) -> Caller {
        loop {
            let Accepted { stream, from } = match &mut self.source {
                Source::Listening(listening) => listening.next().await,
                Source::Entrance(entrance) => entrance.next().await,
            };
            let places = if is_from(&self.partner, from) { &self.of_partner } else { &self.of_others };
            if let Some(place) = places.take() {
                return Caller { stream, from, place };
            }
        }
    }
}
