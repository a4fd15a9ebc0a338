//! Listening sockets of other processes, held open so that who has connected is not turned away when those processes end.

use std::collections::BTreeSet;
use std::fs::{DirEntry, ReadDir, read_dir, read_link};
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;

use rustix::io::Errno;
use rustix::net::getsockname;
use rustix::net::sockopt::socket_acceptconn;
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};

use super::relay::RelaySettings;

/// Most descriptors that are looked at, of whatever kind: each takes some 8 us, and the agent's loop waits for them before
/// the application is asked to end.
const DESCRIPTORS_MAX: usize = 2_048;
/// Most of them in one process. Servers listen before they accept, so that their listeners have low numbers.
const DESCRIPTORS_PER_PROCESS_MAX: usize = 1_024;

/// The TCP sockets on which one of these processes listens for those who come there, each once.
///
/// They are the very sockets of the processes: connections come to whoever accepts first.
///
/// # Errors
/// The kernel lets nobody have a descriptor, and none was had. The seccomp profiles of container runtimes do not, and a
/// process that changed its user must not be looked into.
pub(super) fn listening(processes: &BTreeSet<i32>, at: &RelaySettings) -> io::Result<Vec<OwnedFd>> {
    let mut search = Search { at, looks: DESCRIPTORS_MAX, known: BTreeSet::new(), found: Vec::new() };
    let mut refused = None;
    for process in processes {
        refused = search.look_into(*process).err().or(refused);
    }
    match refused {
        Some(error) if search.found.is_empty() => Err(error),
        Some(_) | None => Ok(search.found),
    }
}

struct Search<'a> {
    at: &'a RelaySettings,
    /// How many descriptors may still be looked at.
    looks: usize,
    /// Sockets that were looked at: processes share them.
    known: BTreeSet<PathBuf>,
    found: Vec<OwnedFd>,
}

impl Search<'_> {
    fn look_into(&mut self, number: i32) -> io::Result<()> {
        let Some(pid) = Pid::from_raw(number) else { return Ok(()) };
        let process = match pidfd_open(pid, PidfdFlags::empty()) {
            // It has ended since it was listed.
            Err(Errno::SRCH) => return Ok(()),
            opened => opened?,
        };
        for file in descriptors(number)?.into_iter().flatten().take(DESCRIPTORS_PER_PROCESS_MAX) {
            let Some(looks) = self.looks.checked_sub(1) else { break };
            self.looks = looks;
            let Some((descriptor, socket)) = socket_of(&file?) else { continue };
            if !self.known.insert(socket) {
                continue;
            }
            match pidfd_getfd(&process, descriptor, PidfdGetfdFlags::empty()) {
                Ok(copy) if is_listening(&copy, self.at) => self.found.push(copy),
                // It was closed since it was listed.
                Ok(_) | Err(Errno::BADF | Errno::SRCH) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}

/// The descriptors of a process, lowest number first; `None` if it has ended.
fn descriptors(process: i32) -> io::Result<Option<ReadDir>> {
    match read_dir(format!("/proc/{process}/fd")) {
        Ok(files) => Ok(Some(files)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Number of the descriptor, and the name of the socket, which is the same in all processes; `None` if it is none.
fn socket_of(file: &DirEntry) -> Option<(i32, PathBuf)> {
    let descriptor = file.file_name().to_str()?.parse().ok()?;
    // It may have been closed since the list was read.
    let target = read_link(file.path()).ok()?;
    target.to_str()?.starts_with("socket:").then_some((descriptor, target))
}

fn is_listening(socket: &impl AsFd, at: &RelaySettings) -> bool {
    address_of(socket).is_some_and(|address| is_meant(address, at)) && accepts(socket)
}

/// Whether clients who come there would come to the relay if nobody listened.
fn is_meant(address: SocketAddr, at: &RelaySettings) -> bool {
    let ip = address.ip().to_canonical();
    // Who listens at all addresses of a Pod need not be told which they are.
    let is_reached = ip == at.ip || at.ip.is_unspecified() && !ip.is_loopback();
    at.ports.contains(&address.port()) && (ip.is_unspecified() || is_reached)
}

/// Whether a socket listens: one that an application has shut down does so no more, whoever has a copy.
pub(super) fn accepts(socket: &impl AsFd) -> bool {
    socket_acceptconn(socket).unwrap_or(false)
}

fn address_of(socket: &impl AsFd) -> Option<SocketAddr> {
    SocketAddr::try_from(getsockname(socket).ok()?).ok()
}

/// The own port of a socket of the Internet.
pub(super) fn port_of(socket: &impl AsFd) -> Option<u16> {
    address_of(socket).map(|address| address.port())
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    /// The sockets of this very process.
    fn own(port: u16) -> Vec<OwnedFd> {
        let number = i32::try_from(std::process::id()).expect("a number of a process");
        listening(&BTreeSet::from([number]), &at(port)).expect("it may look into itself")
    }

    fn at(port: u16) -> RelaySettings {
        RelaySettings { ip: "127.0.0.1".parse().unwrap(), ports: BTreeSet::from([port]) }
    }

    #[test]
    fn a_listening_socket_is_found_once_and_outlives_its_owner() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let second = listener.try_clone().unwrap();
        let mut found = own(address.port());
        assert_eq!(found.iter().map(port_of).collect::<Vec<_>>(), [Some(address.port())]);

        let client = TcpStream::connect(address).unwrap();
        drop((listener, second));
        let kept = TcpListener::from(found.remove(0));
        assert_eq!(kept.accept().unwrap().1, client.local_addr().unwrap());
    }

    #[test]
    fn connections_and_other_addresses_are_left_alone() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let elsewhere = TcpListener::bind("127.0.0.23:0").unwrap();
        assert!(own(elsewhere.local_addr().unwrap().port()).is_empty());
        assert!(own(client.local_addr().unwrap().port()).is_empty());
    }

    #[test]
    fn sockets_at_the_address_of_the_pod_are_meant_and_those_of_the_loopback_are_not() {
        let meant = |own: &str, socket: &str| {
            let at = RelaySettings { ip: own.parse().unwrap(), ..at(80) };
            is_meant(socket.parse().unwrap(), &at)
        };
        for own in ["0.0.0.0", "::", "10.0.0.1"] {
            for socket in ["0.0.0.0:80", "[::]:80", "10.0.0.1:80", "[::ffff:10.0.0.1]:80"] {
                assert!(meant(own, socket), "{own} {socket}");
            }
            for socket in ["127.0.0.1:80", "[::1]:80", "10.0.0.1:81"] {
                assert!(!meant(own, socket), "{own} {socket}");
            }
        }
        assert!(!meant("10.0.0.1", "10.0.0.2:80"));
    }

    #[test]
    fn a_listener_is_found_among_many_descriptors() {
        // Fewer than a process may have, and more than a test before this one opens.
        const MANY: usize = 500;
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let file = std::fs::File::open("/dev/null").unwrap();
        let many: Vec<_> = (0..MANY).map(|_| file.try_clone().unwrap()).collect();
        let found = own(listener.local_addr().unwrap().port());
        assert_eq!((found.len(), many.len()), (1, MANY));
    }

    #[test]
    fn a_process_that_has_ended_has_no_sockets() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        child.wait().unwrap();
        let number = i32::try_from(child.id()).unwrap();
        assert!(listening(&BTreeSet::from([number]), &at(80)).unwrap().is_empty());
    }
}
