//! Asks the other agent by datagrams whether its tenure is over. Service meshes relay no datagrams.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use bps_protocol::Epoch;
use bps_wire::frame::{Content, Frame, Question};
use tokio::net::UdpSocket;
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval, timeout};

use super::{Line, Partner};

/// Time within which a living agent must answer. 20 ms: some hundred round trips between two nodes, and the same as
/// [`certificate_wait`](bps_protocol::Timing::certificate_wait).
const ANSWERED_WITHIN: Duration = Duration::from_millis(20);
/// Time between two datagrams with the same question, each of which may get lost.
const ASK_EACH: Duration = Duration::from_millis(5);

/// Returns whether the other agent states that it still acts with this epoch. Silence is no denial. If the agent is gone and its Pod is
/// not, the kernel of the Pod refuses the datagram at once, which ends the wait.
pub(super) async fn is_denied(
    line: &Line,
    partner: Partner,
    epoch: Epoch,
    denied: &mut watch::Receiver<Option<Question>>,
) -> bool {
    // Without random numbers an earlier answer might count, and only to deny.
    let question = Question { epoch, number: getrandom::u64().unwrap_or_default() };
    let told = async { denied.wait_for(|denied| *denied == Some(question)).await.is_ok() };
    let asked = timeout(ANSWERED_WITHIN, ask(line, partner, question));
    tokio::select! {
        // A denial that has arrived counts, even if the wait is over.
        biased;
        is_told = told => is_told,
        _ = asked => false,
    }
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
