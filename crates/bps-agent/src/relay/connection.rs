//! One relayed connection: waits until its target listens, then passes bytes and ends on in both directions.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use rustix::net::sockopt::{set_socket_linger, set_tcp_cork};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::time::{Instant, sleep, timeout};

/// How long a client waits for a target that listens.
///
/// 2 s: T, after which somebody acts whatever happened; clients have given up by then, or come again.
pub(super) const REACH_MAX: Duration = Duration::from_secs(2);
/// Pause between two attempts to connect. 3 ms: an application that has just started listens within some of them.
const REACH_PAUSE: Duration = Duration::from_millis(3);
/// How long one attempt may take. 200 ms: less than the second after which the kernel repeats a lost packet.
const ATTEMPT_MAX: Duration = Duration::from_millis(200);
/// Connections that try at the same time to reach one port. 8: a few thousand attempts a second are no burden, and some
/// hundred clients are through within milliseconds once their target listens.
const ATTEMPTS_AT_ONCE_MAX: usize = 8;
/// A connection on which nothing was passed on for this long is cut, at the latest after twice as long.
const IDLE_MAX: Duration = Duration::from_secs(3_600);
/// How long nothing is passed on after an answer before a relay that is about to end ends the connection. 1 ms: many times what
/// an answer needs to come whole, and less than what lies between two requests of most clients.
const REST: Duration = Duration::from_millis(1);
/// How long such a relay waits for the next answer of a connection. 20 ms: four times what lies between two requests of the lab's
/// client.
const ASKS_WITHIN: Duration = Duration::from_millis(20);
/// Memory for each direction of a connection.
const BUFFER_BYTES: usize = 8_192;

/// What became of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Fate {
    /// It reached its target.
    Relayed,
    /// Nobody acted, or did not listen in time.
    NotReached,
    /// There were too many.
    TooMany,
    /// It came from another agent of the pair.
    FromPeer,
}

/// Where connections go.
#[derive(Clone, Debug)]
pub(super) struct Way {
    /// The own address.
    pub(super) own: IpAddr,
    /// The Pod that acts.
    pub(super) active: watch::Receiver<Option<IpAddr>>,
    /// The port at both ends.
    pub(super) port: u16,
    /// For all who want to go to that port.
    pub(super) turns: Turns,
}

/// What was passed on.
#[derive(Debug, Default)]
struct Passed {
    count: AtomicU64,
    /// How many pieces were read and are not yet written.
    under_way: AtomicUsize,
    /// The last bytes came from the target.
    is_answered: AtomicBool,
    /// Something was asked after an answer: so the end of the connection is hardly what ends an answer. What sends in turns before
    /// it asks, as TLS does, and then ends an answer so, must know an end that came too soon by itself.
    is_kept: AtomicBool,
    /// One end has nothing more to say, and may wait for the end of the other.
    is_half_closed: AtomicBool,
}

impl Passed {
    fn begin(&self, is_answer: bool) {
        self.under_way.fetch_add(1, Ordering::Relaxed);
        let was_answered = self.is_answered.swap(is_answer, Ordering::Relaxed);
        if was_answered && !is_answer {
            self.is_kept.store(true, Ordering::Relaxed);
        }
    }

    fn done(&self) {
        self.count.fetch_add(1, Ordering::Relaxed);
        self.under_way.fetch_sub(1, Ordering::Relaxed);
    }

    fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    /// Whether its end would be taken for nothing but that, if it came right after an answer.
    fn ends_with_answer(&self) -> bool {
        self.is_kept.load(Ordering::Relaxed) && !self.is_half_closed.load(Ordering::Relaxed)
    }

    /// Whether nobody waits for anything, as far as bytes tell.
    fn is_at_rest(&self) -> bool {
        let is_between_requests = self.is_answered.load(Ordering::Relaxed) && self.ends_with_answer();
        let has_said_nothing = self.count() == 0 && !self.is_half_closed.load(Ordering::Relaxed);
        self.under_way.load(Ordering::Relaxed) == 0 && (is_between_requests || has_said_nothing)
    }

    /// Ends when nothing was passed on for a while.
    async fn idle(&self) {
        loop {
            let before = self.count();
            sleep(IDLE_MAX).await;
            if self.count() == before {
                return;
            }
        }
    }

    /// Ends when a relay that is about to end has passed on an answer, and nobody has asked again since.
    async fn rest(&self, mut is_ending: watch::Receiver<bool>) {
        if is_ending.wait_for(|is_ending| *is_ending).await.is_err() {
            // Without its relay it is cut.
            return std::future::pending().await;
        }
        // Right after an answer the next question is farthest away; whoever asks nothing for a while is let go, too.
        let (began, until) = (self.count(), Instant::now() + ASKS_WITHIN);
        loop {
            let before = self.count();
            sleep(REST).await;
            let is_at_rest = self.count() == before && self.is_at_rest();
            if is_at_rest && (before != began || until <= Instant::now()) {
                return;
            }
        }
    }
}

/// Who waits for its turn to try one port.
#[derive(Clone, Debug)]
pub(super) struct Turns(Arc<Semaphore>);

impl Default for Turns {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(ATTEMPTS_AT_ONCE_MAX)))
    }
}

/// Relays until both directions have ended, or one is broken, or the relay is about to end and nobody waits for an answer.
pub(super) async fn relay(mut client: TcpStream, way: Way, is_ending: watch::Receiver<bool>) -> Fate {
    // Whoever drops this resets the connection: nothing of it must keep the application from its port.
    drop(client.set_zero_linger());
    let Ok(Some(mut target)) = timeout(REACH_MAX, reach(way)).await else { return Fate::NotReached };
    drop(client.set_nodelay(true));
    drop(target.set_nodelay(true));
    // A broken connection is passed on as what it is, too.
    drop(target.set_zero_linger());
    let passed = Passed::default();
    let is_whole = tokio::select! {
        // Bytes come before the end of patience.
        biased;
        copied = copy_both([&mut client, &mut target], &passed, &is_ending) => copied.is_ok(),
        () = passed.rest(is_ending.clone()) => true,
        () = passed.idle() => false,
    };
    if is_whole {
        // What was written last may still be on its way.
        set_socket_linger(&client, None).ok();
        set_socket_linger(&target, None).ok();
    }
    Fate::Relayed
}

/// Connects to who acts, as soon as somebody does and listens; `None` if nobody ever will.
pub(super) async fn reach(mut way: Way) -> Option<TcpStream> {
    loop {
        let _turn = way.turns.0.acquire().await.ok()?;
        let active = *way.active.wait_for(Option::is_some).await.ok()?;
        let target = SocketAddr::new(active?, way.port);
        tokio::select! {
            reached = timeout(ATTEMPT_MAX, connect(way.own, target)) => {
                if let Ok(Ok(target)) = reached {
                    return Some(target);
                }
                sleep(REACH_PAUSE).await;
            }
            // Whoever acts now is not kept waiting for the answer of who does no more.
            Ok(()) = way.active.changed() => {}
        }
    }
}

async fn connect(own: IpAddr, target: SocketAddr) -> io::Result<TcpStream> {
    let socket = if target.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    if !own.is_unspecified() {
        // So that the other agent knows it. What is left of it in TIME_WAIT must not keep anybody from its port.
        socket.set_reuseaddr(true)?;
        socket.bind((own, 0).into())?;
    }
    let stream = socket.connect(target).await?;
    if stream.local_addr()? == target {
        // Where nobody listens, a connection may meet itself.
        stream.set_zero_linger()?;
        return Err(io::ErrorKind::ConnectionRefused.into());
    }
    Ok(stream)
}

async fn copy_both(
    [client, target]: [&mut TcpStream; 2],
    passed: &Passed,
    is_ending: &watch::Receiver<bool>,
) -> io::Result<()> {
    let (from_client, to_client) = client.split();
    let (from_target, to_target) = target.split();
    let questions = |client: &TcpStream, _: &TcpStream| {
        passed.begin(false);
        if *is_ending.borrow() {
            // Whoever asks before the last answer has come does not wait for it.
            set_tcp_cork(client, false).ok();
        }
    };
    let answers = |_: &TcpStream, client: &TcpStream| {
        passed.begin(true);
        if *is_ending.borrow() && passed.ends_with_answer() {
            // Held back until it is known whether more comes, so that the end arrives with the last of it: who asks again at once
            // sees that before. Where this is not to be had the end only comes a little later.
            set_tcp_cork(client, true).ok();
        }
    };
    let questions = copy(from_client, to_target, questions, passed);
    tokio::try_join!(questions, copy(from_target, to_client, answers, passed)).map(drop)
}

/// Passes on bytes until there are no more, and then that; `begin` is called before each write.
async fn copy(
    mut from: ReadHalf<'_>,
    mut to: WriteHalf<'_>,
    begin: impl Fn(&TcpStream, &TcpStream),
    passed: &Passed,
) -> io::Result<()> {
    let mut buffer = vec![0; BUFFER_BYTES];
    loop {
        let read = from.read(&mut buffer).await?;
        if read == 0 {
            passed.is_half_closed.store(true, Ordering::Relaxed);
            return to.shutdown().await;
        }
        begin(from.as_ref(), to.as_ref());
        to.write_all(&buffer[..read]).await?;
        passed.done();
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use tokio::net::TcpListener;
    use tokio::task::yield_now;

    use super::*;

    /// Two ends that are connected.
    async fn connected() -> [TcpStream; 2] {
        let listener = TcpListener::bind((std::net::Ipv4Addr::LOCALHOST, 0)).await.expect("a port is free");
        let address = listener.local_addr().expect("it listens");
        let (one, other) = tokio::join!(TcpStream::connect(address), listener.accept());
        [one.expect("it listens"), other.expect("it connects").0]
    }

    /// As a client that has several questions on the way: what was answered must not be kept from it while it asks on.
    #[tokio::test]
    async fn an_answer_that_was_held_back_is_there_before_the_next_question_is_asked() {
        let [mut client, mut relayed] = connected().await;
        let [mut relaying, mut target] = connected().await;
        let (passed, (_ending, is_ending)) = (Passed::default(), watch::channel(true));
        let script = async {
            for word in [&b"question"[..], b"answer", b"question"] {
                let before = passed.count();
                let from = if word == b"answer" { &mut target } else { &mut client };
                from.write_all(word).await.expect("it is relayed");
                while passed.count() == before {
                    yield_now().await;
                }
            }
            let mut asked = [0; 16];
            target.read_exact(&mut asked).await.expect("both questions");
            let before = passed.count();
            target.write_all(b"answer").await.expect("it is relayed");
            while passed.count() == before {
                yield_now().await;
            }
            client.write_all(b"question").await.expect("it is relayed");
            target.read_exact(&mut asked[..8]).await.expect("the third question");
            // The kernel would let it go by itself, but only after 200 ms.
            let mut client = client.into_std().expect("a socket");
            let mut answers = [0; 12];
            client.read_exact(&mut answers).expect("both answers have come");
            answers
        };
        let script = timeout(Duration::from_secs(60), script);
        tokio::select! {
            ended = copy_both([&mut relayed, &mut relaying], &passed, &is_ending) => panic!("{ended:?}"),
            answers = script => assert_eq!(&answers.expect("it goes on"), b"answeranswer"),
        }
    }
}
