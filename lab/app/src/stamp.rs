//! What every output of a server or a counter carries, and who is told of it.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};

/// Pair of an application that no agent has started.
pub const NO_PAIR: &str = "-";

/// In which tenure an output is made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stamp {
    /// The pair, or [`NO_PAIR`]; without blanks.
    pub pair: String,
    /// The epoch of the tenure; 0 without an agent.
    pub epoch: u64,
    /// Who is told of each output, in a datagram `<pair> <epoch> <pod>`.
    pub sink: Option<SocketAddr>,
}

/// Tells a sink.
#[derive(Debug, Default)]
pub(super) struct Teller {
    to: Option<(UdpSocket, SocketAddr)>,
    output: String,
}

impl Teller {
    pub(super) fn open(Stamp { pair, epoch, sink }: &Stamp, pod: &str) -> io::Result<Self> {
        let open = |address: SocketAddr| {
            let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
            socket.set_nonblocking(true)?;
            Ok::<_, io::Error>((socket, address))
        };
        Ok(Self { to: sink.map(open).transpose()?, output: format!("{pair} {epoch} {pod}") })
    }

    pub(super) fn tell(&self) {
        if let Some((socket, address)) = &self.to {
            // A sink that is not there must not stop anybody.
            let _ = socket.send_to(self.output.as_bytes(), address);
        }
    }
}
