//! Asks the other agent by datagrams whether its tenure is over. Service meshes relay no datagrams.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use bps_protocol::Epoch;
use bps_wire::frame::{Content, Frame, Question};
use tokio::net::UdpSocket;
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};

use super::watcher::Words;
use super::{Line, Partner};

/// Time within which a living agent must answer. 20 ms: some hundred round trips between two nodes, and the same as
/// [`certificate_wait`](bps_protocol::Timing::certificate_wait).
pub const ANSWERED_WITHIN: Duration = Duration::from_millis(20);
/// Time between two datagrams with the same question, each of which may get lost.
const ASK_EACH: Duration = Duration::from_millis(5);
/// How late this agent may notice that the wait is over. 20 ms: an agent that slept for longer may have an answer in its
/// socket that it has not read yet, so it asks again.
const LATENESS_MAX: Duration = Duration::from_millis(20);
/// Waits before the agent gives up to find out. 5: an agent that is always woken so late leaves the decision to the Lease.
const WAITS_MAX: usize = 5;

/// What the other agent answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// It still acts with this epoch.
    Denied,
    /// Nothing. If the agent is gone and its Pod is not, the kernel of the Pod refuses the datagram at once, which ends the wait.
    Silence,
    /// This agent was woken too late, each time, to know.
    Unknown,
}

/// Asks the other agent whether it still acts with this epoch.
pub(super) async fn ask_once_more(line: &Line, partner: Partner, epoch: Epoch, words: &mut Words) -> Answer {
    // Without random numbers an earlier answer might count, and only to deny.
    let question = Question { epoch, number: getrandom::u64().unwrap_or_default() };
    for _ in 0..WAITS_MAX {
        let began = Instant::now();
        let told = async { words.denied.wait_for(|denied| *denied == Some(question)).await.is_ok() };
        let asked = timeout(words.answered_within, ask(line, partner, question));
        let is_denied = tokio::select! {
            // A denial that has arrived counts, even if the wait is over.
            biased;
            is_told = told => is_told,
            _ = asked => false,
        };
        if is_denied {
            return Answer::Denied;
        }
        if began.elapsed() <= words.answered_within + LATENESS_MAX {
            return Answer::Silence;
        }
    }
    Answer::Unknown
}

/// Repeats the question until a datagram is refused.
///
/// # Errors
/// The only way in which it ends: a datagram was refused, or the socket failed.
async fn ask(line: &Line, (to, address): Partner, question: Question) -> io::Result<()> {
    let any = match address {
        SocketAddr::V4(_) => SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
        SocketAddr::V6(_) => SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)),
    };
    // A socket of its own: on the shared one, an error could belong to a datagram to another agent.
    let socket = UdpSocket::bind(any).await?;
    socket.connect(address).await?;
    let frame = Frame { group: line.group, from: line.own, to, content: Content::Question(question) };
    let bytes = frame.seal(&line.keys.borrow());
    let mut ignored = [0];
    let mut again = interval(ASK_EACH);
    again.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = again.tick() => drop(socket.send(&bytes).await?),
            // Genuine answers arrive at the shared socket of the agent.
            heard = socket.recv(&mut ignored) => drop(heard?),
        }
    }
}
