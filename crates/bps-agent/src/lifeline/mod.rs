//! Death certificates: a connection to the other agent that ends when the last process of the application has ended.
//!
//! The application inherits one end of a pair of sockets, the [`bond`]. Into its queue the agent puts connections that
//! standbys made, and keeps no copy. The kernel closes them when the last process that holds the bond has ended, with
//! the agent or without it: an orderly end (FIN) that a standby reads proves that nobody acts.
//!
//! ```text
//! standby                                   active
//!   control line: hello         ->
//!                               <-   challenge
//!   lifeline: attach            ->          all processes hold the bond: passes the lifeline on
//!                               <-   confirm(epoch), on the control line
//!                               <-   void, on the control line, whatever ends it while the agent lives
//! ```
//!
//! So the certificate is: confirmed, then both lines ended in order and without another word, and the active, asked by datagrams, did
//! not deny it. Lines that something between the two relays are none: their ends are its own.
//!
//! | file | what it does |
//! |---|---|
//! | [`frame`] | what is said on both lines |
//! | [`bond`] | the pair of sockets, and who holds it |
//! | [`listener`] | accepts lines of the other agent, passes lifelines on, confirms and voids |
//! | [`watcher`] | makes lines to the other agent, and reports how they end |
//! | [`question`] | asks by datagrams whether that is true |

pub mod bond;
pub mod frame;
pub mod listener;
mod question;
pub mod watcher;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bps_protocol::{AgentId, Epoch};
use bps_runtime::shutdown::Shutdown;
use bps_runtime::tasks::Tasks;
use bps_wire::frame::Question;
use bps_wire::key_ring::KeyRing;
use bps_wire::lease::Record;
use rustix::fd::AsFd;
use rustix::net::sockopt;
use tokio::net::TcpStream;
use tokio::sync::{mpsc, watch};
use tracing::Instrument as _;

use self::bond::Bond;
pub use self::question::ANSWERED_WITHIN;
use self::watcher::Words;
use super::doorman::Port;

/// How long it may take until both lines are made.
const GREETING_MAX: Duration = Duration::from_secs(1);
/// Silence on a line after which the kernel asks whether the other side is there, and the time between questions.
const KEEP_ALIVE: Duration = Duration::from_secs(1);
/// Questions without an answer after which a line is given up.
const KEEP_ALIVES_MISSED_MAX: u32 = 3;
/// Certificates that wait for the agent's loop. One for each tenure of the peer, which last longer than a turn.
const CERTIFICATES_WAITING_MAX: usize = 4;

/// The other member, and where it listens.
pub type Partner = (AgentId, SocketAddr);

/// The tenure of an application that acts, and the bond with it.
pub type Tenancy = Option<(Epoch, Arc<Bond>)>;

/// What both ends of a line know.
#[derive(Clone, Debug)]
pub struct Line {
    /// Uid of the Lease.
    pub group: u128,
    /// This agent.
    pub own: AgentId,
    /// The present keys.
    pub keys: watch::Receiver<KeyRing>,
    /// The other member, as soon as it is known.
    pub partner: watch::Receiver<Option<Partner>>,
}

/// How far the watch over the other member's application is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Watching {
    /// No lifeline is confirmed.
    #[default]
    Nobody,
    /// Its end would be noticed and believed.
    Confirmed,
    /// Never: something between the two agents has connections of its own.
    Proxied,
}

/// The tasks' other end.
#[derive(Debug)]
pub struct Lifelines {
    own: AgentId,
    partner: watch::Sender<Option<Partner>>,
    /// Tenures of the other member whose application has certainly ended.
    pub certificates: mpsc::Receiver<Epoch>,
    /// How far the watch over the other member's application is.
    pub watching: watch::Receiver<Watching>,
    denied: watch::Sender<Option<Question>>,
}

/// What the tasks of one Lease need.
pub struct Needs<'a> {
    /// Uid of the Lease.
    pub group: u128,
    /// This agent.
    pub own: AgentId,
    /// The present keys.
    pub keys: watch::Receiver<KeyRing>,
    /// Where the other agent connects to.
    pub port: &'a Port,
    /// The bond with the application, while it acts.
    pub bonds: watch::Receiver<Tenancy>,
    /// Time within which a living agent must deny that its application has ended, see [`ANSWERED_WITHIN`].
    pub answered_within: Duration,
}

impl Lifelines {
    /// Starts the tasks for one Lease.
    ///
    /// # Errors
    /// What the kernel refused.
    pub fn start(tasks: &mut Tasks, shutdown: &Shutdown, needs: Needs<'_>) -> io::Result<Self> {
        let Needs { group, own, keys, port, bonds, answered_within } = needs;
        let (partner, known) = watch::channel(None);
        let (reporter, certificates) = mpsc::channel(CERTIFICATES_WAITING_MAX);
        let line = Line { group, own, keys, partner: known };
        let callers = port.callers(group, line.partner.clone())?;
        tasks.spawn(
            "lifelines",
            listener::run(line.clone(), callers, bonds, shutdown.clone()).in_current_span(),
        );
        let (teller, watching) = watch::channel(Watching::default());
        let (denied, denials) = watch::channel(None);
        let words = Words { certificates: reporter, watching: teller, denied: denials, answered_within };
        tasks.spawn("watched lifeline", watcher::run(line, words, shutdown.clone()).in_current_span());
        Ok(Self { own, partner, certificates, watching, denied })
    }

    /// Without lines: certificates come from whoever knows of ends in another way.
    pub fn told(own: AgentId, certificates: mpsc::Receiver<Epoch>) -> Self {
        let watching = watch::channel(Watching::default()).1;
        Self {
            own,
            partner: watch::Sender::new(None),
            certificates,
            watching,
            denied: watch::Sender::new(None),
        }
    }

    /// The other member said that its application lives, when it was asked this.
    pub fn deny(&self, question: Question) {
        self.denied.send_replace(Some(question));
    }

    /// Takes over who the other member is, if this agent is one itself.
    pub fn know(&self, record: &Record) {
        let partner = partner_of(record, self.own);
        self.partner.send_if_modified(|known| std::mem::replace(known, partner) != partner);
    }
}

/// The other member of a pair that this agent is in, and where it listens; a vacant place has no address.
pub(crate) fn partner_of(record: &Record, own: AgentId) -> Option<Partner> {
    let members = record.lease.members;
    let other = members.into_iter().find(|member| *member != own && members.contains(&own))?;
    let address = record.directory.get(&other)?.address;
    Some((other, address)).filter(|_| !address.ip().is_unspecified())
}

/// Makes a line quick to say its end, and to notice that the other side has vanished.
pub(crate) fn prepare(line: &TcpStream) -> io::Result<()> {
    line.set_nodelay(true)?;
    let line = line.as_fd();
    sockopt::set_socket_keepalive(line, true)?;
    sockopt::set_tcp_keepidle(line, KEEP_ALIVE)?;
    sockopt::set_tcp_keepintvl(line, KEEP_ALIVE)?;
    sockopt::set_tcp_keepcnt(line, KEEP_ALIVES_MISSED_MAX)?;
    Ok(())
}
