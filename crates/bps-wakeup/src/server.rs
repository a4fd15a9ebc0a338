//! Holds a Pod at its gate until a valid ticket comes: one thread, one poll, fixed memory.
//!
//! What a stranger can cost is bounded: connections, connections of one source, time of a connection, accepted
//! connections and signature checks a second, lines of log. A whole frame is never thrown out for another
//! connection, but waits its turn; a connection that has not sent its frame makes room when room is short. So a
//! flood delays an honest ticket by at most the time that the checks before it take.

use std::io::{self, ErrorKind, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::budget::Budget;
use super::connection::{self, Inbox, Progress};
use super::journal::Journal;
use super::posted::Posted;
use super::protocol::{Answer, Refusal, SignedTicket};
use super::settings::Settings;

/// Most connections at once.
pub const CONNECTIONS_MAX: usize = 64;

/// Most connections of one source (an IPv4 address or an IPv6 /64) at once.
pub const CONNECTIONS_PER_SOURCE_MAX: usize = 4;

/// Time that a connection has from its acceptance to the end of its frame, however it is cut up. Unit: 2 s.
pub const CONNECTION_DEADLINE: Duration = Duration::from_secs(2);

/// Signature checks a second: about 2 % of a core at 0.1 ms each, and `CONNECTIONS_MAX` frames wait at most
/// 0.32 s.
pub const SIGNATURE_CHECKS_PER_SECOND: u32 = 200;
const SIGNATURE_CHECKS_BURST: u32 = 8;

/// Connections accepted a second; more wait in the kernel's queue, which is bounded.
pub const ACCEPTS_PER_SECOND: u32 = 2000;
const ACCEPTS_BURST: u32 = 64;

/// Connections that the kernel keeps for us; it lowers this to its own `net.core.somaxconn`.
const BACKLOG: i32 = 1024;

/// Period of the check for a ticket in the Pod's annotations. 1 s: the period in which the kubelet checks its containers.
const POSTED_PAUSE: Duration = Duration::from_secs(1);

/// What is polled: the connections and, last, the listener.
const POLLED: usize = CONNECTIONS_MAX + 1;

/// Why a gate could not be held.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The port is taken or the address is not ours.
    #[error("listen on {address}")]
    Listen {
        /// Where.
        address: SocketAddr,
        /// What the kernel said.
        source: io::Error,
    },
    /// The kernel refused to wait.
    #[error("wait for connections")]
    Wait(#[source] io::Error),
}

/// Returns when the Pod may start: at once if its annotations have a ticket for it, else when a valid one has come.
///
/// # Errors
/// [`Error`]; the Pod must not start then.
pub fn hold(settings: Settings) -> Result<(), Error> {
    if Posted::new(settings.ticket_file.clone()).look(&settings.identity()).is_some() {
        Journal::new(settings.pod, now()).passed();
        return Ok(());
    }
    Gate::bind(settings)?.run()
}

/// A gate that listens.
#[derive(Debug)]
pub struct Gate {
    settings: Settings,
    listener: TcpListener,
    // Never grows past the capacity it is made with.
    connections: Vec<Connection>,
    accepts: Budget,
    checks: Budget,
    journal: Journal,
    posted: Posted,
    /// Time of the next check for a ticket in the Pod's annotations.
    next_look: Instant,
    started: Instant,
}

#[derive(Debug)]
struct Connection {
    stream: TcpStream,
    peer: SocketAddr,
    source: IpAddr,
    deadline: Instant,
    inbox: Inbox,
    // A whole frame that waits for its signature to be checked.
    ticket: Option<SignedTicket>,
}

impl Gate {
    /// Listens, without a check for a ticket that is already there.
    ///
    /// # Errors
    /// [`Error::Listen`].
    pub fn bind(settings: Settings) -> Result<Self, Error> {
        let address = settings.address;
        let listener = listen(address).map_err(|source| Error::Listen { address, source })?;
        let now = now();
        let journal = Journal::new(settings.pod, now);
        let posted = Posted::new(settings.ticket_file.clone());
        Ok(Self {
            settings,
            listener,
            connections: Vec::with_capacity(CONNECTIONS_MAX),
            accepts: Budget::new(ACCEPTS_PER_SECOND, ACCEPTS_BURST, now),
            checks: Budget::new(SIGNATURE_CHECKS_PER_SECOND, SIGNATURE_CHECKS_BURST, now),
            journal,
            posted,
            next_look: now + POSTED_PAUSE,
            started: now,
        })
    }

    /// Where the gate listens.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Returns when a valid ticket has come and is answered, or is in the Pod's annotations.
    ///
    /// # Errors
    /// [`Error::Wait`].
    pub fn run(mut self) -> Result<(), Error> {
        self.journal.started_waiting(self.address().unwrap_or(self.settings.address));
        // Ends with the wake-up; each round waits for work or for a known instant.
        loop {
            let ready = self.wait(now()).map_err(Error::Wait)?;
            let now = now();
            self.read(&ready, now);
            if ready[CONNECTIONS_MAX] {
                self.accept(now);
            }
            self.expire(now);
            if self.check(now) || self.is_posted(now) {
                return Ok(());
            }
        }
    }

    /// Waits for bytes, a connection, a deadline or a budget; says which of the polled are ready.
    fn wait(&self, now: Instant) -> io::Result<[bool; POLLED]> {
        let timeout = timespec(self.next_instant(now).saturating_duration_since(now));
        let mut polled = std::array::from_fn(|index| match self.connections.get(index) {
            Some(connection) if connection.ticket.is_none() => PollFd::new(&connection.stream, PollFlags::IN),
            None if index == CONNECTIONS_MAX && self.accepts.is_ready(now) => {
                PollFd::new(&self.listener, PollFlags::IN)
            }
            // Holds a place: a listener that is asked for nothing reports nothing.
            Some(_) | None => PollFd::new(&self.listener, PollFlags::empty()),
        });
        match poll(&mut polled, Some(&timeout)) {
            Ok(_) => Ok(polled.map(|polled: PollFd<'_>| !polled.revents().is_empty())),
            Err(rustix::io::Errno::INTR) => Ok([false; POLLED]),
            Err(error) => Err(error.into()),
        }
    }

    fn next_instant(&self, now: Instant) -> Instant {
        let deadlines = self.connections.iter().map(|connection| connection.deadline);
        let is_any_waiting = self.connections.iter().any(|connection| connection.ticket.is_some());
        let check = is_any_waiting.then(|| self.checks.ready_at());
        let accept = (!self.accepts.is_ready(now)).then(|| self.accepts.ready_at());
        deadlines.chain(check).chain(accept).fold(self.next_look, Instant::min)
    }

    /// Whether a ticket for this Pod is in its annotations.
    fn is_posted(&mut self, now: Instant) -> bool {
        if now < self.next_look {
            return false;
        }
        self.next_look = now + POSTED_PAUSE;
        let Some(ticket) = self.posted.look(&self.settings.identity()) else { return false };
        self.journal.woken(&ticket, now.saturating_duration_since(self.started));
        true
    }

    fn read(&mut self, ready: &[bool; POLLED], now: Instant) {
        let mut index = 0;
        // Not `retain`: what leaves is answered, which needs the journal and the settings as well.
        for is_ready in ready.iter().take(self.connections.len()) {
            let connection = &mut self.connections[index];
            if !*is_ready || connection.ticket.is_some() {
                index += 1;
                continue;
            }
            match connection.read(&self.settings) {
                Progress::Incomplete => index += 1,
                Progress::Complete(ticket) => {
                    connection.ticket = Some(ticket);
                    index += 1;
                }
                Progress::Refused(refusal) => {
                    let connection = self.connections.remove(index);
                    self.refuse(connection, refusal, now);
                }
                Progress::Gone => drop(self.connections.remove(index)),
            }
        }
    }

    fn accept(&mut self, now: Instant) {
        while self.accepts.is_ready(now) {
            let accepted = self.listener.accept();
            if accepted.as_ref().is_err_and(|error| error.kind() == ErrorKind::WouldBlock) {
                return;
            }
            // A failed call costs as much as a good one, so that an error that stays does not spin.
            self.accepts.take(now);
            if let Ok((stream, peer)) = accepted
                && stream.set_nonblocking(true).is_ok()
            {
                self.admit(Connection::new(stream, peer, now), now);
            }
        }
    }

    /// Reads what came with the connection; only one that needs to wait needs a place.
    fn admit(&mut self, mut connection: Connection, now: Instant) {
        match connection.read(&self.settings) {
            Progress::Gone => return,
            Progress::Refused(refusal) => return self.refuse(connection, refusal, now),
            Progress::Incomplete => {}
            Progress::Complete(ticket) => connection.ticket = Some(ticket),
        }
        if self.make_room(connection.source, now) {
            self.connections.push(connection);
        } else {
            self.refuse(connection, Refusal::Busy, now);
        }
    }

    /// Whether there is a place, if need be that of the oldest connection that has not sent its frame.
    fn make_room(&mut self, source: IpAddr, now: Instant) -> bool {
        let of_source = self.connections.iter().filter(|connection| connection.source == source).count();
        let is_source_full = of_source >= CONNECTIONS_PER_SOURCE_MAX;
        if !is_source_full && self.connections.len() < CONNECTIONS_MAX {
            return true;
        }
        let oldest = self.connections.iter().position(|connection| {
            connection.ticket.is_none() && (!is_source_full || connection.source == source)
        });
        if let Some(index) = oldest {
            let connection = self.connections.remove(index);
            self.refuse(connection, Refusal::Busy, now);
        }
        oldest.is_some()
    }

    fn expire(&mut self, now: Instant) {
        // In order of acceptance, hence of deadline.
        while self.connections.first().is_some_and(|connection| connection.deadline <= now) {
            let connection = self.connections.remove(0);
            self.refuse(connection, Refusal::TooSlow, now);
        }
    }

    /// Checks the frames that wait, the oldest first, as far as the budget goes; true if one opened the gate.
    fn check(&mut self, now: Instant) -> bool {
        while let Some((index, ticket)) = self.oldest_ticket()
            && self.checks.take(now)
        {
            let connection = self.connections.remove(index);
            match ticket.verify(&self.settings.identity(), unix_now()) {
                Ok(()) => {
                    connection.answer(Answer::Accepted);
                    self.journal.woken(&ticket.ticket, now.saturating_duration_since(self.started));
                    return true;
                }
                Err(refusal) => self.refuse(connection, refusal, now),
            }
        }
        false
    }

    fn oldest_ticket(&self) -> Option<(usize, SignedTicket)> {
        let tickets = self.connections.iter().map(|connection| connection.ticket);
        tickets.enumerate().find_map(|(index, ticket)| ticket.map(|ticket| (index, ticket)))
    }

    fn refuse(&mut self, connection: Connection, refusal: Refusal, now: Instant) {
        self.journal.refused(connection.peer, refusal, now);
        connection.answer(Answer::Refused(refusal));
    }
}

impl Connection {
    fn new(stream: TcpStream, peer: SocketAddr, now: Instant) -> Self {
        let (source, deadline) = (connection::source(peer.ip()), now + CONNECTION_DEADLINE);
        Self { stream, peer, source, deadline, inbox: Inbox::new(), ticket: None }
    }

    /// Reads on; a ticket that is refused without its signature never waits for a check.
    fn read(&mut self, settings: &Settings) -> Progress {
        let progress = self.inbox.read_from(&mut self.stream);
        let Progress::Complete(signed) = &progress else { return progress };
        match signed.ticket.permits(&settings.identity(), unix_now()) {
            Ok(()) => progress,
            Err(refusal) => Progress::Refused(refusal),
        }
    }

    /// The last thing that happens to a connection.
    fn answer(mut self, answer: Answer) {
        // Six bytes always fit an empty send buffer; if the other side has left, nobody misses them.
        let _ = self.stream.write_all(&answer.encode());
    }
}

fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let listener = TcpListener::bind(address).or_else(|error| {
        // A node without IPv6.
        let is_any = address.ip().is_unspecified() && error.kind() != ErrorKind::AddrInUse;
        if is_any { TcpListener::bind((Ipv4Addr::UNSPECIFIED, address.port())) } else { Err(error) }
    })?;
    // The standard library asks for a backlog of 128.
    rustix::net::listen(&listener, BACKLOG)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

fn timespec(duration: Duration) -> Timespec {
    Timespec::try_from(duration).expect("a wait is at most as long as until the next look")
}

#[expect(clippy::disallowed_methods, reason = "the gate is plumbing: its deadlines are real")]
fn now() -> Instant {
    Instant::now()
}

#[expect(clippy::disallowed_methods, reason = "a ticket's expiry is compared with the node's clock")]
fn unix_now() -> u64 {
    // A clock before 1970 makes every ticket end too far ahead, so the gate stays closed.
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
