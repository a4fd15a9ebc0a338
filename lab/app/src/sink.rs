//! Receives a datagram `<pair> <epoch> <pod>` for each output of every application, and says who put out what when.

use std::io::{self, ErrorKind, Write};
use std::net::{Ipv4Addr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::client::realtime_ns;
use super::tenures::Tenures;

/// Longest datagram. Unit: bytes. A number of 64 bits, two blanks, and the names of a pair and a Pod of at most 253 bytes.
const DATAGRAM_MAX_BYTES: usize = 530;
/// How soon a signal is noticed.
const SIGNAL_WITHIN: Duration = Duration::from_millis(100);

/// Receives until SIGTERM or SIGINT, then writes the [`Tenures`].
///
/// # Errors
/// When the port is taken, a signal cannot be caught or the summary cannot be written.
pub fn run(port: u16, output: &mut impl Write) -> io::Result<Tenures> {
    let is_stopped = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGTERM, signal_hook::consts::SIGINT] {
        signal_hook::flag::register(signal, Arc::clone(&is_stopped))?;
    }
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, port))?;
    let tenures = Mutex::default();
    receive((&socket, &tenures), |_| is_stopped.load(Ordering::Relaxed))?;
    let tenures = tenures.into_inner().unwrap_or_else(PoisonError::into_inner);
    writeln!(output, "{tenures}")?;
    output.flush()?;
    Ok(tenures)
}

/// Receives until it is over; others may look at what has come meanwhile.
///
/// # Errors
/// When the socket fails.
pub fn receive(
    (socket, tenures): (&UdpSocket, &Mutex<Tenures>),
    is_over: impl Fn(&Tenures) -> bool,
) -> io::Result<()> {
    socket.set_read_timeout(Some(SIGNAL_WITHIN))?;
    // Every change of what was received is complete before anything can panic.
    let received = || tenures.lock().unwrap_or_else(PoisonError::into_inner);
    let mut buffer = [0; DATAGRAM_MAX_BYTES];
    while !is_over(&received()) {
        match socket.recv(&mut buffer) {
            Ok(length) => {
                // What is no output of an application is not counted as one.
                if let Some(output) = parse(&buffer[..length]) {
                    received().observe(realtime_ns(), output);
                }
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn parse(datagram: &[u8]) -> Option<(&str, u64, &str)> {
    let (pair, output) = std::str::from_utf8(datagram).ok()?.split_once(' ')?;
    let (epoch, pod) = output.split_once(' ')?;
    Some((pair, epoch.parse().ok()?, pod))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_outputs_of_applications_are_counted() {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let sender = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        for datagram in ["web 7 web-0", "hello", "7 web-0", "web 8 web-1"] {
            sender.send_to(datagram.as_bytes(), socket.local_addr().unwrap()).unwrap();
        }
        let is_over = |tenures: &Tenures| tenures.to_string().contains("8,web-1");
        let tenures = Mutex::default();
        receive((&socket, &tenures), is_over).unwrap();
        let text = tenures.into_inner().unwrap().to_string();
        assert!(text.ends_with("# outputs=2 tenures=2 overlaps=0 stale=0"), "{text}");
    }
}
