//! The socket to the other agents: sends without waiting, and hands on only what is genuine and meant for this agent.
//!
//! Whatever else arrives changes nothing but a number: no memory is kept for it, and nothing is answered.

use std::collections::BTreeMap;
use std::io;
use std::net::{SocketAddr, UdpSocket};

use bps_protocol::{AgentId, Version};
use bps_wire::frame::{Content, FRAME_BYTES, Frame, Refusal};
use bps_wire::key_ring::KeyRing;
use bps_wire::lease::{Directory, Record};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::watch;
use tracing::warn;

use super::world::Datagrams;

/// The socket, and who may be talked to.
#[derive(Debug)]
pub struct Peers<By = Socket> {
    own: AgentId,
    /// The present ones; a task reads them again from time to time.
    keys: watch::Receiver<KeyRing>,
    socket: By,
    /// The group once it is known.
    group: Option<u128>,
    version: Version,
    directory: Directory,
    refused: BTreeMap<Refusal, u64>,
}

/// A socket of the kernel.
#[derive(Debug)]
pub struct Socket(AsyncFd<UdpSocket>);

impl Socket {
    /// Listens on an address.
    ///
    /// # Errors
    /// What the kernel refused.
    pub fn bind(address: SocketAddr) -> io::Result<Self> {
        let socket = UdpSocket::bind(address)?;
        socket.set_nonblocking(true)?;
        #[expect(
            deprecated,
            reason = "a UdpSocket is open until it is dropped: all that the unsafe form asks for"
        )]
        // That it can send again wakes nobody: it would after each datagram.
        let socket = AsyncFd::with_interest(socket, Interest::READABLE)?;
        Ok(Self(socket))
    }
}

impl Datagrams for Socket {
    fn send(&self, bytes: &[u8], to: SocketAddr) {
        // A full buffer and an unreachable network lose it, as any network may.
        drop(self.0.get_ref().send_to(bytes, to));
    }

    async fn receive(&self, buffer: &mut [u8]) -> io::Result<usize> {
        // Counts what it takes, so that a flood leaves other tasks their turns.
        self.0.async_io(Interest::READABLE, |socket| socket.recv(buffer)).await
    }
}

impl<By: Datagrams> Peers<By> {
    /// With a socket, and nobody to talk to yet.
    pub fn new(socket: By, own: AgentId, keys: watch::Receiver<KeyRing>) -> Self {
        let (version, directory, refused) = (Version::default(), Directory::new(), BTreeMap::new());
        Self { own, keys, socket, group: None, version, directory, refused }
    }

    /// Takes over whom a version of the Lease names; `false` if it is another Lease than the first one.
    ///
    /// One that was deleted and made anew has forgotten epochs that were acted with.
    pub fn know(&mut self, record: &Record) -> bool {
        let is_same = *self.group.get_or_insert(record.group) == record.group;
        if is_same && !self.is_behind(record) {
            self.version = record.version;
            self.directory.clone_from(&record.directory);
        }
        is_same
    }

    /// Whether a later version of the same Lease is known: a watch may be behind a read, and a read behind the watch.
    pub fn is_behind(&self, record: &Record) -> bool {
        self.group == Some(record.group) && record.version < self.version
    }

    /// How to reach those that the Lease names.
    pub fn directory(&self) -> &Directory {
        &self.directory
    }

    /// Sends a message, which may get lost.
    pub fn send(&self, to: AgentId, content: impl Into<Content>) {
        let (Some(group), Some(member)) = (self.group, self.directory.get(&to)) else { return };
        let frame = Frame { group, from: self.own, to, content: content.into() };
        self.socket.send(&frame.seal(&self.keys.borrow()), member.address);
    }

    /// Waits for the next datagram; `None` if it is no message for this agent. May be dropped and called again.
    pub async fn receive(&mut self) -> Option<(AgentId, Content)> {
        // One byte more than a frame: what is longer is seen to be longer.
        let mut bytes = [0; FRAME_BYTES + 1];
        // An error belongs to an earlier datagram that was sent.
        let length = self.socket.receive(&mut bytes).await.ok()?;
        match self.open(&bytes[..length]) {
            Ok(said) => Some(said),
            Err(refusal) => {
                self.refuse(refusal);
                None
            }
        }
    }

    fn open(&self, bytes: &[u8]) -> Result<(AgentId, Content), Refusal> {
        let Frame { group, from, to, content } = Frame::open(bytes, &self.keys.borrow())?;
        let is_for_us = Some(group) == self.group && to == self.own;
        if is_for_us && from != self.own && self.directory.contains_key(&from) {
            Ok((from, content))
        } else {
            Err(Refusal::Misdirected)
        }
    }

    /// Counts it, and says so ever more rarely.
    fn refuse(&mut self, refusal: Refusal) {
        let count = self.refused.entry(refusal).or_default();
        *count = count.saturating_add(1);
        if count.is_power_of_two() {
            warn!(reason = %refusal, count = *count, "Refused a datagram");
        }
    }
}

#[cfg(test)]
mod tests {
    use bps_protocol::{BootTime, Incarnation, Message, Ping};
    use bps_wire::testing;

    use super::*;

    const OWN: AgentId = AgentId(1);
    const OTHER: AgentId = AgentId(2);

    fn keys() -> KeyRing {
        KeyRing::parse(&"0f".repeat(32)).unwrap()
    }

    fn peers(address: SocketAddr, own: AgentId) -> Peers {
        Peers::new(Socket::bind(address).unwrap(), own, watch::channel(keys()).1)
    }

    fn ping(sent: u64) -> Message {
        Message::Ping(Ping { incarnation: Incarnation(3), sent: BootTime(sent) })
    }

    fn record(addresses: [SocketAddr; 2], group: u128) -> Record {
        testing::record(group, [OWN, OTHER], addresses)
    }

    #[tokio::test]
    async fn only_genuine_messages_for_this_agent_arrive_and_the_rest_is_counted() {
        let address = "127.0.0.1:0".parse().unwrap();
        let mut own = peers(address, OWN);
        let mut other = peers(address, OTHER);
        let target = own.socket.0.get_ref().local_addr().unwrap();
        let record = record([target, other.socket.0.get_ref().local_addr().unwrap()], 7);
        assert!(own.know(&record) && other.know(&record));

        let frame = Frame { group: 7, from: OTHER, to: OWN, content: ping(1).into() };
        let forger = KeyRing::parse(&"f0".repeat(32)).unwrap();
        let foreign = [
            (frame.seal(&forger).to_vec(), Refusal::Forged),
            (Frame { group: 8, ..frame }.seal(&keys()).to_vec(), Refusal::Misdirected),
            (Frame { from: AgentId(9), ..frame }.seal(&keys()).to_vec(), Refusal::Misdirected),
            (Frame { from: OWN, to: OTHER, ..frame }.seal(&keys()).to_vec(), Refusal::Misdirected),
            (Frame { from: OWN, ..frame }.seal(&keys()).to_vec(), Refusal::Misdirected),
            (Vec::new(), Refusal::NotAFrame),
            ([&frame.seal(&keys())[..], &[0; 4_000]].concat(), Refusal::NotAFrame),
        ];
        for (bytes, refusal) in foreign {
            let before = own.refused.get(&refusal).copied().unwrap_or_default();
            other.socket.0.get_ref().send_to(&bytes, target).unwrap();
            assert_eq!(own.receive().await, None);
            assert_eq!(own.refused[&refusal], before + 1, "{refusal}");
        }
        other.send(OWN, ping(2));
        assert_eq!(own.receive().await, Some((OTHER, ping(2).into())));
        assert_eq!(own.refused.values().sum::<u64>(), 7);
    }

    /// More than tokio lets a task do in a row, and fewer than the kernel keeps for a socket.
    const FLOOD: usize = 200;

    #[tokio::test]
    async fn a_flood_of_datagrams_leaves_other_tasks_their_turns() {
        let mut own = peers("127.0.0.1:0".parse().unwrap(), OWN);
        let target = own.socket.0.get_ref().local_addr().unwrap();
        let flood = UdpSocket::bind("127.0.0.1:0").unwrap();
        for _ in 0..FLOOD {
            flood.send_to(b"flood", target).unwrap();
        }
        // For the first one it waits, in which time everybody has a turn.
        assert_eq!(own.receive().await, None);
        let other = tokio::spawn(async {});
        for _ in 1..FLOOD {
            assert_eq!(own.receive().await, None);
        }
        assert!(other.is_finished(), "it had no turn");
        assert_eq!(own.refused[&Refusal::NotAFrame], FLOOD as u64);
    }

    #[tokio::test]
    async fn a_lease_that_was_made_anew_is_not_known() {
        let address: SocketAddr = "127.0.0.1:0".parse().unwrap();
        let mut own = peers(address, OWN);
        assert!(own.know(&record([address; 2], 7)));
        assert!(!own.know(&record([address; 2], 8)));
    }

    #[tokio::test]
    async fn an_older_version_changes_no_address() {
        let (old, new): (SocketAddr, SocketAddr) =
            ("127.0.0.1:1".parse().unwrap(), "127.0.0.1:2".parse().unwrap());
        let mut own = peers("127.0.0.1:0".parse().unwrap(), OWN);
        assert!(own.know(&Record { version: Version(2), ..record([new; 2], 7) }));
        assert!(own.know(&record([old; 2], 7)));
        assert_eq!(own.directory()[&OTHER].address, new);
    }
}
