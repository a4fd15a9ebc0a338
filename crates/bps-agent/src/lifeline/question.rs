//! Asks the other agent by datagrams, which no service mesh relays, whether what the ends of both lines say is true.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use bps_protocol::Epoch;
use bps_wire::frame::{Content, Frame, Question};
use tokio::net::UdpSocket;
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval, timeout};

use super::{Line, Partner};

/// How long an agent that lives may take to answer. 20 ms: some hundred times as long as between two nodes of a network, and as long
/// as whoever believes a certificate waits anyhow before it starts anything.
const ANSWERED_WITHIN: Duration = Duration::from_millis(20);
/// Time between two datagrams with the same question, each of which may get lost.
const ASK_EACH: Duration = Duration::from_millis(5);

/// Whether the other agent says that it acts with this epoch still. Silence is no denial. That nobody listens there any more, which
/// the kernel of a Pod without its agent says at once, ends the wait.
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
        // An answer that has come counts, whatever else has.
        biased;
        is_told = told => is_told,
        _ = asked => false,
    }
}

/// Asks again and again, until the kernel says that nobody listens.
///
/// # Errors
/// Always, in the end.
async fn ask(line: &Line, (to, address): Partner, question: Question) -> io::Result<()> {
    let any = match address {
        SocketAddr::V4(_) => SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
        SocketAddr::V6(_) => SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)),
    };
    // Not the socket for all other datagrams: of that one nobody could tell whose error it is.
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
            // Whoever lives answers to where it is asked always, and not here.
            heard = socket.recv(&mut ignored) => drop(heard?),
        }
    }
}
