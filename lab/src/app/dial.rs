//! New connections, none of which meets what an earlier one left in a connection table.
//!
//! A connection that nobody answered stays in its node's table with the Pod that kube-proxy chose for it, for
//! [`FORGOTTEN_AFTER`]. A later one from the same source port goes to that Pod, too, and times out although the Service
//! has long been elsewhere. The kernel chooses source ports at random, so one in fifty new connections met one of the
//! five hundred that a lost node leaves: what they saw was not the outage any more. So each source port is used once in
//! that time.

use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::time::{Duration, Instant, SystemTime};

use socket2::{Domain, Socket, Type};

use super::client::remaining;

/// Source: `nf_conntrack_tcp_timeout_syn_sent`, 120 s (Linux, Documentation/networking/nf_conntrack-sysctl.rst).
const FORGOTTEN_AFTER: Duration = Duration::from_secs(120);
/// Source ports: below 30000, where those of Services on nodes and then those begin that the kernel chooses from.
const PORTS: std::ops::Range<u16> = 2_048..30_000;
/// Ports that are tried, if one is taken: by a server, or by another client at the same moment.
const ATTEMPTS_MAX: u16 = 8;

/// A connection without delay for small packets.
///
/// # Errors
/// As of [`TcpStream::connect_timeout`].
pub(super) fn dial(target: SocketAddr, until: Instant) -> io::Result<TcpStream> {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let mut taken = None;
    for attempt in 0..ATTEMPTS_MAX {
        match dial_from(source_port(since, attempt), target, until) {
            Err(error) if matches!(error.kind(), ErrorKind::AddrInUse | ErrorKind::AddrNotAvailable) => {
                taken = Some(error);
            }
            dialled => return dialled,
        }
    }
    Err(taken.unwrap_or_else(|| ErrorKind::AddrInUse.into()))
}

/// The ports in turn: each belongs to a few milliseconds of every [`FORGOTTEN_AFTER`].
fn source_port(since: Duration, attempt: u16) -> u16 {
    let ports = u128::from(PORTS.end - PORTS.start);
    let slot = since.as_micros() * ports / FORGOTTEN_AFTER.as_micros() + u128::from(attempt);
    PORTS.start + u16::try_from(slot % ports).unwrap_or_default()
}

fn dial_from(port: u16, target: SocketAddr, until: Instant) -> io::Result<TcpStream> {
    let own: SocketAddr = match target {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, port).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, port).into(),
    };
    let socket = Socket::new(Domain::for_address(target), Type::STREAM, None)?;
    socket.set_reuse_address(true)?;
    socket.bind(&own.into())?;
    socket.connect_timeout(&target.into(), remaining(until)?)?;
    let stream = TcpStream::from(socket);
    stream.set_nodelay(true)?;
    Ok(stream)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn a_client_uses_each_port_once_until_it_is_forgotten() {
        let every = |milliseconds| -> Vec<u16> {
            let period = Duration::from_millis(milliseconds);
            let times = std::iter::successors(Some(Duration::ZERO), |time| Some(*time + period));
            times.take_while(|time| *time < FORGOTTEN_AFTER).map(|time| source_port(time, 0)).collect()
        };
        let ports = every(5);
        assert_eq!(ports.iter().collect::<BTreeSet<_>>().len(), ports.len());
        assert!(every(1).iter().all(|port| PORTS.contains(port)));
        assert_ne!(source_port(Duration::ZERO, 0), source_port(Duration::ZERO, 1));
    }

    #[test]
    fn connections_at_the_same_moment_have_ports_of_their_own() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let target = listener.local_addr().unwrap();
        let until = Instant::now() + Duration::from_secs(5);
        let streams: Vec<_> = (0..4).map(|_| dial(target, until).unwrap()).collect();
        let ports: BTreeSet<_> = streams.iter().map(|stream| stream.local_addr().unwrap().port()).collect();
        assert_eq!(ports.len(), streams.len());
        assert!(ports.iter().all(|port| PORTS.contains(port)));
    }
}
