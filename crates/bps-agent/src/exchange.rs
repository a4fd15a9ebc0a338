//! One socket for the agents of all seats of a Pod: each gets the datagrams about its own Lease.
//!
//! Reads only the Lease that a datagram claims to be about. The seat that gets it looks whether it is genuine, see
//! `peer`. No task stands between the socket and the seats: the seat that waits reads for all of them, so that a loop
//! that asks what has come gets all of it.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bps_wire::frame::Frame;
use tokio::sync::Notify;

use super::world::Datagrams;

/// Datagrams that wait for one seat; further ones are lost, as in any network. 64: those of two members in some
/// seconds.
const WAITING_MAX: usize = 64;

/// The socket of a Pod. Clones are the same one.
#[derive(Debug)]
pub struct Exchange<By>(Arc<Shared<By>>);

#[derive(Debug)]
struct Shared<By> {
    socket: By,
    waiting: Mutex<Waiting>,
    /// A datagram was put aside for another seat.
    sorted: Notify,
}

/// Datagrams that wait for seats.
#[derive(Debug, Default)]
struct Waiting {
    /// By the Lease that they are about.
    queues: BTreeMap<u128, Queue>,
    /// How many extensions there have been.
    extensions: u64,
}

/// Datagrams that wait for one seat.
#[derive(Debug)]
struct Queue {
    /// Number of the extension that it belongs to: there may be a later one for the same Lease.
    owner: u64,
    datagrams: VecDeque<Vec<u8>>,
}

/// What a seat has of the socket, for one Lease.
#[derive(Debug)]
pub struct Extension<By> {
    exchange: Exchange<By>,
    /// Uid of the Lease; `None` before there is one.
    group: Option<u128>,
    owner: u64,
}

impl<By: Datagrams> Exchange<By> {
    /// Takes over the socket.
    pub fn new(socket: By) -> Self {
        Self(Arc::new(Shared { socket, waiting: Mutex::default(), sorted: Notify::new() }))
    }

    /// The datagrams about this Lease, until the extension is dropped or there is another one for it.
    pub fn extension(&self, group: Option<u128>) -> Extension<By> {
        let mut waiting = self.waiting();
        waiting.extensions += 1;
        let owner = waiting.extensions;
        if let Some(group) = group {
            waiting.queues.insert(group, Queue { owner, datagrams: VecDeque::new() });
        }
        drop(waiting);
        Extension { exchange: self.clone(), group, owner }
    }
}

impl<By> Exchange<By> {
    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        // Each change is one call, so that what a panic left is whole.
        self.0.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<By> Clone for Exchange<By> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<By> Extension<By> {
    /// The oldest datagram that was put aside for this seat.
    fn take(&self, buffer: &mut [u8]) -> Option<usize> {
        let bytes = self.exchange.waiting().queues.get_mut(&self.group?)?.datagrams.pop_front()?;
        let length = bytes.len().min(buffer.len());
        buffer[..length].copy_from_slice(&bytes[..length]);
        Some(length)
    }

    /// Puts a datagram aside if it is for another seat. One that is for none is refused by the seat that read it.
    fn is_sorted(&self, bytes: &[u8]) -> bool {
        let group = Frame::group_of(bytes).filter(|group| Some(*group) != self.group);
        let mut waiting = self.exchange.waiting();
        let Some(other) = group.and_then(|group| waiting.queues.get_mut(&group)) else { return false };
        if other.datagrams.len() < WAITING_MAX {
            other.datagrams.push_back(bytes.to_vec());
        }
        drop(waiting);
        self.exchange.0.sorted.notify_waiters();
        true
    }
}

impl<By: Datagrams> Datagrams for Extension<By> {
    fn send(&self, bytes: &[u8], to: SocketAddr) {
        self.exchange.0.socket.send(bytes, to);
    }

    async fn receive(&self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            // Before the look: what is put aside after it wakes this.
            let sorted = self.exchange.0.sorted.notified();
            if let Some(length) = self.take(buffer) {
                return Ok(length);
            }
            tokio::select! {
                biased;
                received = self.exchange.0.socket.receive(buffer) => {
                    let length = received?;
                    if !self.is_sorted(&buffer[..length]) {
                        return Ok(length);
                    }
                }
                () = sorted => {}
            }
        }
    }
}

impl<By> Drop for Extension<By> {
    fn drop(&mut self) {
        let Some(group) = self.group else { return };
        let mut waiting = self.exchange.waiting();
        if waiting.queues.get(&group).is_some_and(|queue| queue.owner == self.owner) {
            waiting.queues.remove(&group);
        }
    }
}

#[cfg(test)]
mod tests {
    use bps_protocol::{AgentId, BootTime, Incarnation, Message, Ping};
    use bps_wire::frame::FRAME_BYTES;
    use bps_wire::key_ring::KeyRing;
    use futures::FutureExt as _;
    use tokio::sync::Mutex as AsyncMutex;
    use tokio::sync::mpsc;

    use super::*;

    /// A socket to which a test says what comes.
    #[derive(Debug)]
    struct Told(AsyncMutex<mpsc::UnboundedReceiver<Vec<u8>>>);

    impl Datagrams for Told {
        fn send(&self, _: &[u8], _: SocketAddr) {}

        async fn receive(&self, buffer: &mut [u8]) -> io::Result<usize> {
            let bytes = self.0.lock().await.recv().await.ok_or(io::ErrorKind::BrokenPipe)?;
            buffer[..bytes.len()].copy_from_slice(&bytes);
            Ok(bytes.len())
        }
    }

    fn frame(group: u128, sent: u64) -> Vec<u8> {
        let ping = Ping { incarnation: Incarnation(1), sent: BootTime(sent) };
        let frame = Frame { group, from: AgentId(1), to: AgentId(2), content: Message::Ping(ping).into() };
        frame.seal(&KeyRing::parse(&"0f".repeat(32)).unwrap()).to_vec()
    }

    /// What has come for it.
    fn heard(seat: &Extension<Told>) -> Option<Vec<u8>> {
        let mut buffer = [0; FRAME_BYTES + 1];
        let length = seat.receive(&mut buffer).now_or_never()?.ok()?;
        Some(buffer[..length].to_vec())
    }

    fn exchange() -> (mpsc::UnboundedSender<Vec<u8>>, Exchange<Told>) {
        let (arrives, told) = mpsc::unbounded_channel();
        (arrives, Exchange::new(Told(AsyncMutex::new(told))))
    }

    #[tokio::test]
    async fn each_seat_gets_what_is_about_its_lease_in_order_whoever_reads_it() {
        let (arrives, exchange) = exchange();
        let [one, two] = [1, 2].map(|group| exchange.extension(Some(group)));
        for bytes in [frame(2, 1), frame(2, 2), frame(1, 3)] {
            arrives.send(bytes).unwrap();
        }
        assert_eq!(heard(&one), Some(frame(1, 3)));
        assert_eq!([(); 3].map(|()| heard(&two)), [Some(frame(2, 1)), Some(frame(2, 2)), None]);
    }

    #[tokio::test]
    async fn what_is_for_no_seat_goes_to_whoever_reads_it_and_is_refused_there() {
        let (arrives, exchange) = exchange();
        let [one, none] = [Some(1), None].map(|group| exchange.extension(group));
        drop(exchange.extension(Some(2)));
        for bytes in [frame(2, 1), b"noise".to_vec(), frame(1, 2)] {
            arrives.send(bytes).unwrap();
        }
        assert_eq!([(); 2].map(|()| heard(&none)), [Some(frame(2, 1)), Some(b"noise".to_vec())]);
        assert_eq!((heard(&none), heard(&one)), (None, Some(frame(1, 2))));
    }

    #[tokio::test]
    async fn a_later_extension_for_a_lease_keeps_its_datagrams_when_the_former_one_goes() {
        let (arrives, exchange) = exchange();
        let other = exchange.extension(Some(2));
        let former = exchange.extension(Some(1));
        let later = exchange.extension(Some(1));
        drop(former);
        arrives.send(frame(1, 1)).unwrap();
        assert_eq!((heard(&other), heard(&later)), (None, Some(frame(1, 1))));
    }

    #[tokio::test]
    async fn a_seat_that_waits_is_woken_by_what_another_one_reads() {
        let (arrives, exchange) = exchange();
        let [one, two] = [1, 2].map(|group| exchange.extension(Some(group)));
        let reads = tokio::spawn(async move { heard_at_last(&one).await });
        let waits = tokio::spawn(async move { heard_at_last(&two).await });
        tokio::task::yield_now().await;
        arrives.send(frame(2, 1)).unwrap();
        arrives.send(frame(1, 2)).unwrap();
        assert_eq!((waits.await.unwrap(), reads.await.unwrap()), (frame(2, 1), frame(1, 2)));
    }

    async fn heard_at_last(seat: &Extension<Told>) -> Vec<u8> {
        let mut buffer = [0; FRAME_BYTES + 1];
        let length = seat.receive(&mut buffer).await.unwrap();
        buffer[..length].to_vec()
    }

    #[tokio::test]
    async fn a_flood_for_one_seat_is_bounded_and_takes_nothing_from_another() {
        let (arrives, exchange) = exchange();
        let [one, two] = [1, 2].map(|group| exchange.extension(Some(group)));
        for sent in 0..1_000 {
            arrives.send(frame(2, sent)).unwrap();
        }
        arrives.send(frame(1, 1)).unwrap();
        let of_one = count_heard(&one).await;
        assert_eq!((of_one, count_heard(&two).await), (1, WAITING_MAX));
    }

    /// How many come for it at once. After some tokio lets a task read nothing more before it has yielded.
    async fn count_heard(seat: &Extension<Told>) -> usize {
        let mut count = 0;
        for _ in 0..200 {
            count += usize::from(heard(seat).is_some());
            tokio::task::yield_now().await;
        }
        count
    }
}
