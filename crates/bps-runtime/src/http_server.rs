//! Serves HTTP/1 to whoever connects, within fixed bounds; what is answered is up to the router.
//!
//! Each connection carries one request. When there are too many, in all or from one address, new ones are closed at
//! once: the kubelet's probe must get through even if somebody else holds connections open.

use std::collections::BTreeMap;
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
use tokio::task::JoinSet;
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
    set: JoinSet<IpAddr>,
    by_address: BTreeMap<IpAddr, usize>,
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
pub(super) async fn serve(
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
            Some(ended) = connections.set.join_next() => connections.forget(ended.ok()),
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
        let from_address = self.by_address.entry(address).or_default();
        if *from_address >= CONNECTIONS_PER_ADDRESS_MAX || self.set.len() >= CONNECTIONS_MAX {
            debug!(reason = "TooManyConnections", "Closed connection");
            if *from_address == 0 {
                self.by_address.remove(&address);
            }
            return;
        }
        *from_address += 1;
        let serving = serving.clone();
        self.set.spawn(async move {
            // Handlers do not panic; were one to, only the count of this address would stay too high.
            if timeout(CONNECTION_MAX, serving.answer(stream)).await.is_err() {
                debug!(reason = "TooSlow", "Closed connection");
            }
            address
        });
    }

    fn forget(&mut self, ended: Option<IpAddr>) {
        let Some(address) = ended else { return };
        if let Some(count) = self.by_address.get_mut(&address) {
            *count -= 1;
            if *count == 0 {
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
