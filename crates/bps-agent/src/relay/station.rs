//! The listeners and connections of a relay, all in one place, so that closing it closes every listener at once.
//!
//! Who polls it holds its lock for one poll, so that whoever closes it finds nothing that somebody else still holds.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::StreamExt as _;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use rustix::process::{Resource, getrlimit};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::watch;
use tokio::time::Instant;
use tracing::{info, warn};

use super::RelaySettings;
use super::aim::Aim;
use super::connection::{Fate, Turns, Way, relay};
use crate::sockets::{accepts, port_of};

/// Most connections at a time. With 2 x 8 KiB each they take 16 MiB.
const CONNECTIONS_MAX: usize = 1_024;
/// The agent needs descriptors for itself: each connection has two, and all have at most half of those that there are.
const DESCRIPTORS_PER_CONNECTION: u64 = 4;
/// Connections that the kernel keeps until they are accepted.
const BACKLOG: u32 = 1_024;
/// Pause between two attempts to listen at a port that the application has not left yet; who connects in it is refused.
///
/// 150 us: an attempt takes 10 us, so that looking costs less than half of a core, for as long as [`QUICK_ATTEMPTS_MAX`].
const LISTEN_PAUSE: Duration = Duration::from_micros(150);
/// Attempts after which the pause becomes longer: for 0.3 s. Stopping may take 0.2 s by default.
const QUICK_ATTEMPTS_MAX: u32 = 2_000;
/// Pause after those.
const MIDDLE_PAUSE: Duration = Duration::from_millis(1);
/// Attempts after which the pause becomes longer again. An application has ended after a hold (1.9 s).
const ATTEMPTS_MAX: u32 = 6_000;
/// Pause when something else is wrong: a port that belongs to somebody else, too many open files.
const LONG_PAUSE: Duration = Duration::from_millis(100);

/// Dropping it closes all their sockets.
pub(super) type Connections = FuturesUnordered<BoxFuture<'static, Fate>>;

/// See the module.
#[derive(Debug)]
pub(super) struct Station {
    settings: RelaySettings,
    /// Most connections at a time.
    pub(super) connections_max: usize,
    is_open: bool,
    /// Attempts to listen since it was opened.
    attempts: u32,
    /// Until then it accepts nothing.
    accepts_again: Option<Instant>,
    active: watch::Sender<Option<IpAddr>>,
    others: Vec<IpAddr>,
    /// At least one for each port that it has; an application may listen with more.
    listeners: BTreeMap<u16, Vec<TcpListener>>,
    /// Sockets on which the application listens until it has ended.
    kept: Vec<OwnedFd>,
    /// For each port.
    turns: BTreeMap<u16, Turns>,
    connections: Connections,
    /// Whether it is about to end, for its connections.
    is_ending: watch::Sender<bool>,
    /// Those to be cut.
    cut: Vec<Connections>,
    fates: BTreeMap<Fate, u64>,
}

impl Station {
    /// A closed one.
    pub(super) fn new(settings: RelaySettings) -> Self {
        let descriptors = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        let affordable = usize::try_from(descriptors / DESCRIPTORS_PER_CONNECTION).unwrap_or(usize::MAX);
        Self {
            settings,
            connections_max: affordable.min(CONNECTIONS_MAX),
            is_open: false,
            attempts: 0,
            accepts_again: None,
            active: watch::Sender::new(None),
            others: Vec::new(),
            listeners: BTreeMap::new(),
            kept: Vec::new(),
            turns: BTreeMap::new(),
            connections: Connections::new(),
            is_ending: watch::Sender::new(false),
            cut: Vec::new(),
            fates: BTreeMap::new(),
        }
    }

    /// Where it relays from.
    pub(super) fn settings(&self) -> &RelaySettings {
        &self.settings
    }

    /// Opens it, and aims it; whether it listens at all ports. [`Station::listen`] does that.
    pub(super) fn open(&mut self, aim: Aim) -> bool {
        let Aim { active, others } = aim;
        if !std::mem::replace(&mut self.is_open, true) {
            self.attempts = 0;
        }
        self.others = others;
        self.active.send_if_modified(|known| std::mem::replace(known, active) != active);
        self.listeners.len() == self.settings.ports.len()
    }

    /// Keeps sockets of an application that is about to end. Nothing is accepted from them before [`Station::inherit`].
    pub(super) fn keep(&mut self, sockets: Vec<OwnedFd>) {
        self.kept = sockets;
    }

    /// The application has ended: whoever connected to a socket that was kept is served here, too; whether there is one.
    pub(super) fn inherit(&mut self) -> bool {
        let has_kept = !self.kept.is_empty();
        for socket in std::mem::take(&mut self.kept) {
            let Some(port) = port_of(&socket).filter(|_| accepts(&socket)) else { continue };
            let listener = std::net::TcpListener::from(socket);
            match listener.set_nonblocking(true).and_then(|()| TcpListener::from_std(listener)) {
                Ok(listener) => self.listeners.entry(port).or_default().push(listener),
                Err(error) => {
                    warn!(error = &error as &dyn std::error::Error, port, "Could not listen to relay");
                }
            }
        }
        has_kept
    }

    /// Closes the listeners, and passes nothing on any more. The caller need not wait for what [`Station::cut`] does:
    /// resetting a thousand connections takes some ten milliseconds.
    pub(super) fn close(&mut self) {
        self.is_open = false;
        self.kept.clear();
        self.listeners.clear();
        if !self.connections.is_empty() {
            self.cut.push(std::mem::take(&mut self.connections));
        }
    }

    /// Has each connection end once nobody waits for an answer on it.
    pub(super) fn finish(&self) {
        self.is_ending.send_replace(true);
    }

    /// Whether nothing is relayed.
    pub(super) fn is_empty(&self) -> bool {
        self.connections.is_empty()
    }

    /// What is to be cut, for the caller to drop.
    pub(super) fn cut(&mut self) -> Vec<Connections> {
        std::mem::take(&mut self.cut)
    }

    /// Listens where it can; how long to wait before the next attempt, if there is something left to do.
    pub(super) fn listen(&mut self) -> Option<Duration> {
        let now = Instant::now();
        self.accepts_again = self.accepts_again.filter(|at| now < *at);
        let pause = self.accepts_again.map(|at| at.duration_since(now));
        if !self.is_open {
            return None;
        }
        // One that the application shuts down listens no more, and the port is free.
        self.kept.retain(accepts);
        let RelaySettings { ip, ports } = &self.settings;
        let kept: BTreeSet<u16> = self.kept.iter().filter_map(port_of).collect();
        for port in ports.iter().filter(|port| !kept.contains(port)) {
            if self.listeners.contains_key(port) {
                continue;
            }
            match listen((*ip, *port).into()) {
                Ok(listener) => {
                    self.listeners.insert(*port, vec![listener]);
                }
                Err(error) if self.attempts == ATTEMPTS_MAX => {
                    warn!(error = &error as &dyn std::error::Error, port, "Could not listen to relay");
                }
                Err(_) => {}
            }
        }
        if ports.iter().all(|port| kept.contains(port) || self.listeners.contains_key(port)) {
            let may_be_shut = (!kept.is_empty()).then_some(MIDDLE_PAUSE);
            return pause.into_iter().chain(may_be_shut).min();
        }
        self.attempts = self.attempts.saturating_add(1);
        let pauses = [(QUICK_ATTEMPTS_MAX, LISTEN_PAUSE), (ATTEMPTS_MAX, MIDDLE_PAUSE)];
        let pause = pauses.into_iter().find(|(attempts, _)| self.attempts <= *attempts);
        Some(pause.map_or(LONG_PAUSE, |(_, pause)| pause))
    }

    /// The way to each port of this Pod.
    pub(super) fn ways(&self, active: IpAddr) -> Vec<Way> {
        let RelaySettings { ip, ports } = &self.settings;
        let (_, active) = watch::channel(Some(active));
        let way = |port: &u16| Way { own: *ip, active: active.clone(), port: *port, turns: Turns::default() };
        ports.iter().map(way).collect()
    }

    /// Does what can be done without waiting. Ready when it is time to listen again.
    pub(super) fn poll(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let mut accepted = Vec::new();
        let mut is_exhausted = false;
        let listeners = self.listeners.iter().filter(|_| self.accepts_again.is_none());
        for (port, listener) in listeners.flat_map(|(port, all)| all.iter().map(move |one| (port, one))) {
            loop {
                match listener.poll_accept(context) {
                    Poll::Ready(Ok((client, from))) => accepted.push((client, from.ip(), *port)),
                    Poll::Ready(Err(error)) => {
                        warn!(error = &error as &dyn std::error::Error, "Could not accept a connection");
                        is_exhausted = true;
                        break;
                    }
                    Poll::Pending => break,
                }
            }
        }
        for (client, from, port) in accepted {
            self.take(client, from.to_canonical(), port);
        }
        while let Poll::Ready(Some(fate)) = self.connections.poll_next_unpin(context) {
            self.count(fate);
        }
        if is_exhausted {
            self.accepts_again = Some(Instant::now() + LONG_PAUSE);
            return Poll::Ready(());
        }
        Poll::Pending
    }

    fn take(&mut self, client: TcpStream, from: IpAddr, port: u16) {
        let fate = match self.connections.len() {
            _ if self.others.contains(&from) => Fate::FromPeer,
            full if full >= self.connections_max => Fate::TooMany,
            _ => {
                let turns = self.turns.entry(port).or_default().clone();
                let way = Way { own: self.settings.ip, active: self.active.subscribe(), port, turns };
                return self.connections.push(Box::pin(relay(client, way, self.is_ending.subscribe())));
            }
        };
        // Its end must not occupy the port either.
        drop(client.set_zero_linger());
        self.count(fate);
    }

    /// Counts it, and says so ever more rarely.
    fn count(&mut self, fate: Fate) {
        let count = self.fates.entry(fate).or_default();
        *count = count.saturating_add(1);
        if count.is_power_of_two() {
            info!(outcome = ?fate, count = *count, "Ended a connection to relay");
        }
    }
}

fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    // Connections of the application that are not quite over must not keep the relay from its port.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}
