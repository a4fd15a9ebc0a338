//! One TCP port for all seats of a Pod: each seat gets the connections whose greeting names its Lease.
//!
//! The doorman peeks at the first bytes of a greeting and does not consume them. They prove nothing: the seat that gets
//! the connection authenticates the greeting, as it does with a port of its own. If a connection does not name the
//! Lease of a seat within [`NAMED_WITHIN`], the doorman closes it.
//!
//! What the doorman keeps is bounded: some connections of each seat's partner, and one of all others together.

use std::collections::BTreeMap;
use std::future::pending;
use std::net::{self, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use std::{fmt, io};

use bps_runtime::shutdown::Shutdown;
use bps_runtime::tasks::TaskError;
use futures::StreamExt as _;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, mpsc, watch};
use tokio::time::{sleep, timeout};

use super::callers::{Accepted, CallerPlaces, Callers, Listening};
use super::lifeline::Partner;

/// How long the first bytes of a greeting may take. 1 s, as a whole greeting.
const NAMED_WITHIN: Duration = Duration::from_secs(1);
/// Pause before it is looked again whether more of a greeting has come. 2 ms: who connects sends all of it at once, so
/// that this is rare.
const LOOK_AGAIN_AFTER: Duration = Duration::from_millis(2);
/// Connections that wait for a seat; further ones are closed. 5: a seat has places for as many.
const WAITING_MAX: usize = 5;

/// Where a greeting names the Lease that it is about.
#[derive(Clone, Copy)]
pub struct Greeting {
    /// How much of it has to be there. Unit: bytes.
    pub bytes: usize,
    /// Uid of the Lease; `None`: it is no greeting.
    pub group_of: fn(&[u8]) -> Option<u128>,
}

/// Hands connections to seats by the Lease in their greeting. Clones share the seats.
#[derive(Clone, Debug)]
pub struct Doorman {
    greeting: Greeting,
    seats: Arc<Mutex<Seats>>,
    strangers: Arc<CallerPlaces>,
}

/// The seats that have a Lease.
#[derive(Debug, Default)]
struct Seats {
    /// By the uid of the Lease.
    all: BTreeMap<u128, Seat>,
    /// How many entrances there have been.
    entrances: u64,
}

#[derive(Debug)]
struct Seat {
    /// Number of the entrance that it belongs to: there may be a later one for the same Lease.
    owner: u64,
    waiting: mpsc::Sender<Accepted>,
    partner: watch::Receiver<Option<Partner>>,
    places: Arc<CallerPlaces>,
}

/// Where the connections about one Lease come in, until it is dropped or there is another one for that Lease.
#[derive(Debug)]
pub struct Entrance {
    doorman: Doorman,
    group: u128,
    owner: u64,
    arrived: mpsc::Receiver<Accepted>,
}

/// The port of an agent, as one seat sees it.
#[derive(Debug)]
pub enum Port {
    /// It has the port for itself. The listener does not wait.
    Own(net::TcpListener),
    /// It shares the port with other seats.
    Shared(Doorman),
}

impl fmt::Debug for Greeting {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Greeting").field("bytes", &self.bytes).finish_non_exhaustive()
    }
}

impl Port {
    /// Those who come there about this Lease, of an agent with this partner.
    ///
    /// # Errors
    /// What the kernel refused.
    pub fn callers(&self, group: u128, partner: watch::Receiver<Option<Partner>>) -> io::Result<Callers> {
        Ok(match self {
            Self::Own(listener) => {
                let listener = tokio::net::TcpListener::from_std(listener.try_clone()?)?;
                Callers::at(Listening::new(listener), partner)
            }
            Self::Shared(doorman) => Callers::led(doorman.entrance(group, partner.clone()), partner),
        })
    }
}

impl Doorman {
    /// For connections that greet so.
    pub fn new(greeting: Greeting) -> Self {
        Self { greeting, seats: Arc::default(), strangers: Arc::new(CallerPlaces::of_strangers()) }
    }

    /// Registers a seat with this Lease, and returns where it receives its connections.
    pub fn entrance(&self, group: u128, partner: watch::Receiver<Option<Partner>>) -> Entrance {
        let (waiting, arrived) = mpsc::channel(WAITING_MAX);
        let mut seats = self.seats();
        seats.entrances += 1;
        let owner = seats.entrances;
        let places = Arc::new(CallerPlaces::of_partner());
        seats.all.insert(group, Seat { owner, waiting, partner, places });
        drop(seats);
        Entrance { doorman: self.clone(), group, owner, arrived }
    }

    /// Accepts connections and hands them to the seats, until the shutdown.
    ///
    /// # Errors
    /// None: without connections the Lease decides.
    pub async fn run(self, mut listening: Listening, shutdown: Shutdown) -> Result<(), TaskError> {
        let mut greetings: FuturesUnordered<BoxFuture<'static, ()>> = FuturesUnordered::new();
        loop {
            tokio::select! {
                biased;
                () = shutdown.requested() => return Ok(()),
                Some(()) = greetings.next() => {}
                accepted = listening.next() => if let Some(place) = self.place(accepted.from) {
                    greetings.push(Box::pin(self.clone().lead(accepted, place)));
                },
            }
        }
    }

    /// A place for a connection from there; `None`: it is closed.
    fn place(&self, from: SocketAddr) -> Option<OwnedSemaphorePermit> {
        let seats = self.seats();
        let mut of_partners = seats.all.values().filter(|seat| is_from(&seat.partner, from)).peekable();
        if of_partners.peek().is_none() {
            return self.strangers.take();
        }
        of_partners.find_map(|seat| seat.places.take())
    }

    /// Hands a connection to the seat that it is for.
    async fn lead(self, accepted: Accepted, place: OwnedSemaphorePermit) {
        let _place = place;
        let named = timeout(NAMED_WITHIN, group_of(&accepted.stream, self.greeting)).await;
        let Ok(Some(group)) = named else { return };
        if let Some(seat) = self.seats().all.get(&group) {
            // A seat that has not taken so many yet takes no more; who connects tries again.
            drop(seat.waiting.try_send(accepted));
        }
    }

    fn seats(&self) -> MutexGuard<'_, Seats> {
        // Each change is one call, so that what a panic left is whole.
        self.seats.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether the partner is there.
pub(super) fn is_from(partner: &watch::Receiver<Option<Partner>>, from: SocketAddr) -> bool {
    let partner = partner.borrow().map(|(_, address)| address.ip().to_canonical());
    partner == Some(from.ip().to_canonical())
}

/// The Lease that a greeting names, once enough of it has come; `None`: it names none, or the connection broke or
/// ended.
async fn group_of(stream: &TcpStream, greeting: Greeting) -> Option<u128> {
    let mut first = vec![0; greeting.bytes];
    loop {
        match stream.peek(&mut first).await {
            Ok(length) if length == greeting.bytes => return (greeting.group_of)(&first),
            Ok(0) | Err(_) => return None,
            // The bytes that are there wake nothing when more of them come.
            Ok(_) => sleep(LOOK_AGAIN_AFTER).await,
        }
    }
}

impl Entrance {
    /// Waits for the next connection. May be dropped and called again.
    pub(super) async fn next(&mut self) -> Accepted {
        match self.arrived.recv().await {
            Some(accepted) => accepted,
            // There is a later entrance for the same Lease.
            None => pending().await,
        }
    }
}

impl Drop for Entrance {
    fn drop(&mut self) {
        let mut seats = self.doorman.seats();
        if seats.all.get(&self.group).is_some_and(|seat| seat.owner == self.owner) {
            seats.all.remove(&self.group);
        }
    }
}

#[cfg(test)]
mod tests {
    use bps_protocol::AgentId;
    use bps_runtime::tasks::Tasks;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;

    /// Longest wait for something that takes milliseconds; only a hang lasts as long.
    const PATIENCE: Duration = Duration::from_secs(60);

    /// A greeting is the mark and the number of a Lease.
    const GREETING: Greeting =
        Greeting { bytes: 3, group_of: |bytes| (bytes[..2] == *b"hi").then(|| u128::from(bytes[2])) };

    /// A doorman at work.
    struct Work {
        doorman: Doorman,
        at: SocketAddr,
        _tasks: Tasks,
    }

    async fn work() -> Work {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = listener.local_addr().unwrap();
        let doorman = Doorman::new(GREETING);
        let mut tasks = Tasks::new();
        tasks.spawn("doorman", doorman.clone().run(Listening::new(listener), Shutdown::new()));
        Work { doorman, at, _tasks: tasks }
    }

    impl Work {
        /// Those for this Lease, whose partner is at this address.
        fn seat(&self, group: u128, partner: &str) -> Callers {
            let partner = (AgentId(2), format!("{partner}:1").parse().unwrap());
            Port::Shared(self.doorman.clone()).callers(group, watch::channel(Some(partner)).1).unwrap()
        }

        /// Connects, and says these pieces of a greeting.
        async fn caller(&self, pieces: &[&[u8]]) -> TcpStream {
            let mut stream = TcpStream::connect(self.at).await.unwrap();
            for piece in pieces {
                stream.write_all(piece).await.unwrap();
                sleep(5 * LOOK_AGAIN_AFTER).await;
            }
            stream
        }
    }

    /// All that the next one for a seat says, in so many bytes.
    async fn said(seat: &mut Callers, length: usize) -> Vec<u8> {
        let mut caller = timeout(PATIENCE, seat.next()).await.expect("a connection");
        let mut said = vec![0; length];
        caller.stream.read_exact(&mut said).await.unwrap();
        said
    }

    async fn is_closed(mut stream: TcpStream) -> bool {
        // In order or not: some of what was said may not have been read.
        matches!(timeout(PATIENCE, stream.read(&mut [0])).await.expect("an end"), Ok(0) | Err(_))
    }

    #[tokio::test]
    async fn each_seat_gets_whole_greetings_about_its_lease_however_they_come() {
        let work = work().await;
        let [mut one, mut two] = [1, 2].map(|group| work.seat(group, "127.0.0.1"));
        let _callers = [
            work.caller(&[b"hi\x02, two"]).await,
            work.caller(&[b"h", b"i\x01", b", one"]).await,
            work.caller(&[b"hi\x01, who"]).await,
        ];
        assert_eq!(said(&mut two, 8).await, b"hi\x02, two");
        assert_eq!(said(&mut one, 8).await, b"hi\x01, one");
        assert_eq!(said(&mut one, 8).await, b"hi\x01, who");
    }

    #[tokio::test]
    async fn who_names_no_seat_is_closed_and_who_names_nothing_is_so_in_time() {
        let work = work().await;
        let mut seat = work.seat(1, "127.0.0.1");
        drop(work.seat(3, "127.0.0.1"));
        for first in [&b"hi\x02"[..], b"hi\x03", b"noise", b"h", b""] {
            let stream = work.caller(&[first]).await;
            assert!(is_closed(stream).await, "{first:?}");
        }
        let _caller = work.caller(&[b"hi\x01"]).await;
        assert_eq!(said(&mut seat, 3).await, b"hi\x01");
    }

    #[tokio::test]
    async fn a_flood_of_strangers_takes_no_place_of_a_partner() {
        let work = work().await;
        let mut seat = work.seat(1, "127.0.0.1");
        // Another Lease whose partner says nothing takes its own places only.
        let silent = work.doorman.place("10.0.0.9:1".parse().unwrap());
        assert!(silent.is_some() && work.doorman.place("10.0.0.8:1".parse().unwrap()).is_none());
        let _caller = work.caller(&[b"hi\x01"]).await;
        assert_eq!(said(&mut seat, 3).await, b"hi\x01");
        drop(silent);
        assert!(work.doorman.place("10.0.0.8:1".parse().unwrap()).is_some());
    }

    #[tokio::test]
    async fn a_later_entrance_for_a_lease_stays_when_the_former_one_goes() {
        let work = work().await;
        let former = work.seat(1, "127.0.0.1");
        let mut later = work.seat(1, "127.0.0.1");
        drop(former);
        let _caller = work.caller(&[b"hi\x01"]).await;
        assert_eq!(said(&mut later, 3).await, b"hi\x01");
    }
}
