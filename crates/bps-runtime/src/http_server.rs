//! Serves HTTP/1 to whoever connects, within fixed bounds; what is answered is up to the router.
//!
//! Each connection carries one request. When there are too many, in all or from one address, the oldest one of who has most is
//! closed for the new one: the kubelet's probe, which is answered at once, must get through even if somebody else holds
//! connections open.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{self, AbortHandle, JoinSet};
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tracing::{debug, warn};

use super::shutdown::Shutdown;

/// Connections open at once.
const CONNECTIONS_MAX: usize = 128;

/// Connections open at once from one address: the kubelet needs one, a scraper one or two.
const CONNECTIONS_PER_ADDRESS_MAX: usize = 8;

/// Time for a client to send its request's head, and for a TLS handshake.
const HEAD_MAX: Duration = Duration::from_secs(5);

/// Life of a connection; longer than any handler takes, see `review::REVIEW_MAX`.
const CONNECTION_MAX: Duration = Duration::from_secs(20);

/// Memory for a request's head: a service account's token has about 1 KiB, proxies add headers.
const HEAD_MAX_BYTES: usize = 16 * 1024;

/// Time for open connections to end once the process stops.
const STOP_MAX: Duration = Duration::from_secs(2);

/// Pause after a failed `accept`, such as when there are no more file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Why an address cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The address is in use or not ours.
    #[error("listen on {address}")]
    Listen {
        /// Where.
        address: SocketAddr,
        /// What the operating system said.
        #[source]
        source: std::io::Error,
    },
}

/// What connections share.
#[derive(Clone)]
struct Serving {
    router: Router,
    tls: Option<TlsAcceptor>,
}

/// Open connections.
#[derive(Default)]
struct Connections {
    set: JoinSet<()>,
    /// Those of each address that has any, the oldest first.
    by_address: BTreeMap<IpAddr, VecDeque<Connection>>,
    /// Whose each of them is.
    addresses: HashMap<task::Id, IpAddr>,
    opened: u64,
}

/// An open connection.
struct Connection {
    /// How many were opened before it.
    number: u64,
    task: AbortHandle,
}

/// Opens the port; separate from [`serve`] so that a port in use is an error before anything starts.
///
/// `[::]` stands for all addresses, of IPv4 too, also on a node without IPv6.
///
/// # Errors
/// `Listen`.
pub async fn listen(address: SocketAddr) -> Result<TcpListener, Error> {
    let refused = match TcpListener::bind(address).await {
        Err(error) if address.ip().is_unspecified() && error.kind() != ErrorKind::AddrInUse => error,
        bound => return bound.map_err(|source| Error::Listen { address, source }),
    };
    let v4 = TcpListener::bind((Ipv4Addr::UNSPECIFIED, address.port())).await;
    v4.map_err(|_| Error::Listen { address, source: refused })
}

/// Answers by `router`, over TLS if `tls` is given, until `shutdown`.
pub async fn serve(
    listener: TcpListener,
    router: Router,
    tls: Option<Arc<ServerConfig>>,
    shutdown: Shutdown,
) {
    let serving = Serving { router, tls: tls.map(TlsAcceptor::from) };
    let mut connections = Connections::default();
    loop {
        // Shutdown first, then ended connections, so that their places are free when the next is looked at.
        tokio::select! {
            biased;
            () = shutdown.requested() => break,
            Some(ended) = connections.set.join_next_with_id() => {
                connections.forget(ended.map_or_else(|error| error.id(), |(id, ())| id));
            }
            accepted = listener.accept() => match accepted {
                Ok((stream, peer)) => connections.open(&serving, stream, peer.ip()),
                Err(error) => {
                    warn!(error = &error as &dyn std::error::Error, "Could not accept a connection");
                    sleep(ACCEPT_PAUSE).await;
                }
            },
        }
    }
    drop(listener);
    let ended = async { while connections.set.join_next().await.is_some() {} };
    if timeout(STOP_MAX, ended).await.is_err() {
        connections.set.shutdown().await;
    }
}

impl Connections {
    fn open(&mut self, serving: &Serving, stream: TcpStream, address: IpAddr) {
        self.make_room_for(address);
        let serving = serving.clone();
        let task = self.set.spawn(async move {
            if timeout(CONNECTION_MAX, serving.answer(stream)).await.is_err() {
                debug!(reason = "TooSlow", "Closed connection");
            }
        });
        self.addresses.insert(task.id(), address);
        self.by_address.entry(address).or_default().push_back(Connection { number: self.opened, task });
        self.opened += 1;
    }

    /// Closes the oldest connection of this address if it has its share, or of who has most if there are too many in all.
    fn make_room_for(&mut self, address: IpAddr) {
        let own = self.by_address.get(&address).map_or(0, VecDeque::len);
        let crowded = if own >= CONNECTIONS_PER_ADDRESS_MAX {
            Some(address)
        } else if self.addresses.len() >= CONNECTIONS_MAX {
            let rank = |open: &VecDeque<Connection>| {
                (open.len(), Reverse(open.front().map(|connection| connection.number)))
            };
            self.by_address.iter().max_by_key(|(_, open)| rank(open)).map(|(address, _)| *address)
        } else {
            None
        };
        let oldest = crowded.and_then(|address| self.by_address.get(&address)?.front());
        let Some(task) = oldest.map(|connection| connection.task.clone()) else { return };
        debug!(reason = "TooManyConnections", "Closed connection");
        task.abort();
        self.forget(task.id());
    }

    /// It has ended, or is about to; it may be forgotten already.
    fn forget(&mut self, id: task::Id) {
        let Some(address) = self.addresses.remove(&id) else { return };
        if let Some(open) = self.by_address.get_mut(&address) {
            open.retain(|connection| connection.task.id() != id);
            if open.is_empty() {
                self.by_address.remove(&address);
            }
        }
    }
}

impl Serving {
    async fn answer(self, stream: TcpStream) {
        match self.tls {
            None => answer(self.router, stream).await,
            Some(acceptor) => {
                if let Ok(Ok(stream)) = timeout(HEAD_MAX, acceptor.accept(stream)).await {
                    answer(self.router, stream).await;
                } else {
                    debug!(reason = "Handshake", "Closed connection");
                }
            }
        }
    }
}

async fn answer(router: Router, stream: impl AsyncRead + AsyncWrite + Unpin) {
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_MAX)
        .max_buf_size(HEAD_MAX_BYTES)
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router))
        .await;
    if let Err(error) = served {
        debug!(error = &error as &dyn std::error::Error, "Closed connection");
    }
}

#[cfg(test)]
mod tests;
