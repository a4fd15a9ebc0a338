//! New connections, none of which meets what an earlier one left in a connection table.
//!
//! A connection that nobody answered stays in its node's table with the Pod that kube-proxy chose for it, for
//! [`FORGOTTEN_AFTER`]. A later one from the same source port goes to that Pod, too, and times out although the Service
//! has long been elsewhere. The kernel chooses source ports at random, so one in fifty new connections met one of the
//! five hundred that a lost node leaves: what they saw was not the outage any more. So each source port is used once in
//! that time.
//!
//! A client that did not get the processor for a while sends all requests at once that were due meanwhile. Each takes the
//! next port that its process did not use, however many they are: one that finds no port would count as an outage.

use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use socket2::{Domain, Socket, Type};

use super::client::remaining;

/// Source: `nf_conntrack_tcp_timeout_syn_sent`, 120 s (Linux, Documentation/networking/nf_conntrack-sysctl.rst).
const FORGOTTEN_AFTER: Duration = Duration::from_secs(120);
/// Source ports: below 30000, where those of Services on nodes and then those begin that the kernel chooses from.
const PORTS: std::ops::Range<u16> = 2_048..30_000;
/// Ports that are tried, if one is taken: by a server, or by another client at the same moment. As many as two clients
/// have requests under way that waited for the processor for 150 ms, twice.
const ATTEMPTS_MAX: u32 = 64;

/// The ports of this process.
static PORTS_USED: Ports = Ports(AtomicU64::new(0));

/// A connection without delay for small packets.
///
/// # Errors
/// As of [`TcpStream::connect_timeout`].
pub(super) fn dial(target: SocketAddr, until: Instant) -> io::Result<TcpStream> {
    dial_with(&PORTS_USED, target, until)
}

fn dial_with(ports: &Ports, target: SocketAddr, until: Instant) -> io::Result<TcpStream> {
    let mut taken = None;
    for _ in 0..ATTEMPTS_MAX {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        match dial_from(ports.next(since), target, until) {
            Err(error) if matches!(error.kind(), ErrorKind::AddrInUse | ErrorKind::AddrNotAvailable) => {
                taken = Some(error);
            }
            dialled => return dialled,
        }
    }
    Err(taken.unwrap_or_else(|| ErrorKind::AddrInUse.into()))
}

/// The ports in turn: each belongs to a few milliseconds of every [`FORGOTTEN_AFTER`]. Holds the first turn that was not
/// used.
struct Ports(AtomicU64);

impl Ports {
    /// The one whose turn it is, or the next one that was not used yet.
    fn next(&self, since: Duration) -> u16 {
        let ports = u128::from(PORTS.end - PORTS.start);
        let turn = since.as_micros() * ports / FORGOTTEN_AFTER.as_micros();
        self.0.fetch_max(u64::try_from(turn).unwrap_or_default(), Ordering::Relaxed);
        let taken = self.0.fetch_add(1, Ordering::Relaxed);
        PORTS.start + u16::try_from(u128::from(taken) % ports).unwrap_or_default()
    }
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

    fn ports() -> Ports {
        Ports(AtomicU64::new(0))
    }

    #[test]
    fn a_client_uses_each_port_once_until_it_is_forgotten() {
        let every = |milliseconds| -> Vec<u16> {
            let (ports, period) = (ports(), Duration::from_millis(milliseconds));
            let times = std::iter::successors(Some(Duration::ZERO), |time| Some(*time + period));
            times.take_while(|time| *time < FORGOTTEN_AFTER).map(|time| ports.next(time)).collect()
        };
        let used = every(5);
        assert_eq!(used.iter().collect::<BTreeSet<_>>().len(), used.len());
        assert!(every(1).iter().all(|port| PORTS.contains(port)));
    }

    #[test]
    fn what_was_late_takes_the_next_ports_and_then_the_clock_leads_again() {
        let (ports, second) = (ports(), Duration::from_secs(1));
        let late = [ports.next(second), ports.next(second), ports.next(second)];
        assert_eq!(late, [late[0], late[0] + 1, late[0] + 2]);
        assert_eq!(ports.next(second * 2), self::ports().next(second * 2));
    }

    #[test]
    fn two_clients_that_are_late_find_a_port_for_each_connection() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let target = listener.local_addr().unwrap();
        let until = Instant::now() + Duration::from_secs(5);
        let clients = [ports(), ports()];
        let streams: Vec<_> =
            (0..40).map(|number| dial_with(&clients[number % 2], target, until).unwrap()).collect();
        let used: BTreeSet<_> = streams.iter().map(|stream| stream.local_addr().unwrap().port()).collect();
        assert_eq!(used.len(), streams.len());
        assert!(used.iter().all(|port| PORTS.contains(port)));
    }
}
