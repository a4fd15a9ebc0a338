//! Keeps a directory of the active on the standby's disk, too, so that no write that was acknowledged after a barrier is
//! lost with the active.
//!
//! ```text
//! application   sync on a Unix socket  ->  ledger: looks, waits for the standby or for the Lease to leave it out
//! active        batch of changes       ->  standby: keeps it aside, carries it out as a whole, syncs
//! active                               <-  standby: acknowledge
//! ```
//!
//! | file | what it does |
//! |---|---|
//! | [`blockage`] | reasons for which the standby does not get the state |
//! | [`gate`] | who may act because of what its directory has, and when a barrier is kept |
//! | [`ledger`] | barriers, looks, and what the Lease says of the directories |
//! | [`lag`] | how much the standby lacks, and when the Lease tells |
//! | [`resignation`] | how often the role is given up because the own disk fails |
//! | [`notes`] | what agents write into the Lease of their own accord |
//! | [`socket`] | the socket of the application, and the command that uses it |
//! | [`left_out`] | files that belong to one run of the application: not replicated, removed before each start |
//! | [`image`], [`scan`] | what is below a directory; looks that see what changed |
//! | [`outbox`], [`inbox`] | a batch as words, and carried out |
//! | [`directory`] | the directory on disk |
//! | [`door`] | lets batches in only while the application does not run |
//! | [`word`], [`channel`] | words as bytes, and the connection on which they are authenticated |
//! | [`sender`], [`receiver`] | both ends of it |
//!
//! The standby has what the active had at one moment, never a mixture; see `ledger::looks`.

pub mod blockage;
pub mod channel;
pub mod directory;
pub mod door;
pub mod gate;
pub mod image;
pub mod inbox;
pub mod lag;
pub mod ledger;
pub mod left_out;
pub mod notes;
pub mod outbox;
pub mod receiver;
pub mod resignation;
pub mod scan;
pub mod sender;
pub mod socket;
pub mod word;

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::time::Duration;

use bps_api::keys;
use bps_protocol::{AgentId, Epoch};
use bps_runtime::shutdown::Shutdown;
use bps_runtime::tasks::Tasks;
use bps_wire::key_ring::KeyRing;
use bps_wire::lag::Told;
use bps_wire::lease::Record;
use bps_wire::level::{DirectoryId, Level};
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{mpsc, watch};
use tokio::task::spawn_blocking;
use tracing::{Instrument as _, info, warn};

use self::directory::StateDirectory;
use self::directory::lease::FormerState;
use self::door::Door;
use self::gate::{PromoteWhen, may_take};
use self::ledger::{Ledger, View, Wires};
use self::left_out::LeftOut;
use self::notes::{copy_note, level_annotations};
use self::receiver::Receiver;
use self::resignation::Resignation;
use self::sender::{Progress, Sender};
use super::doorman::{Doorman, Port};
use super::lifeline::{Line, Partner, partner_of, prepare};
use super::metrics::AgentMetrics;
use super::store::{Annotations, Note};

/// Folder in a state directory that the agents keep for themselves.
pub const HIDDEN_FOLDER: &str = ".bps-ha";
/// How long both sides may take to prove that they have a key.
const GREETING_MAX: Duration = Duration::from_secs(1);
/// Barriers that wait for the ledger. 256: as many as there are connections.
const BARRIERS_WAITING_MAX: usize = 256;

/// What to replicate, and which standby may act.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplicateSettings {
    /// The state directory.
    pub directory: PathBuf,
    /// Which standby may act.
    pub promote_when: PromoteWhen,
    /// What belongs to one run of the application.
    pub left_out: LeftOut,
}

/// A state directory, from the start of the agent to its end.
#[derive(Debug)]
pub struct Replication {
    directory: StateDirectory,
    door: Door,
    promote_when: PromoteWhen,
    left_out: LeftOut,
    port: Port,
    /// It is that of one of several seats.
    is_of_seat: bool,
}

/// What belongs to one Lease.
#[derive(Debug)]
pub struct Replica {
    own: AgentId,
    directory: StateDirectory,
    /// Closed while the application may run.
    pub door: Door,
    promote_when: PromoteWhen,
    /// The directory is kept for the Lease as long as that calls it in sync.
    is_kept: bool,
    partner: watch::Sender<Option<Partner>>,
    acting: watch::Sender<Option<Epoch>>,
    views: watch::Sender<View>,
    told: watch::Sender<Told>,
    notes: mpsc::Sender<Note>,
    progress: watch::Receiver<Progress>,
    settle: mpsc::Sender<()>,
    /// Whether the standby may go on with what an application that ended has left.
    pub settled: mpsc::Receiver<bool>,
    /// Tenures that are to be given up because the own disk fails.
    pub resigned: mpsc::Receiver<Epoch>,
    /// When it was given up because of that.
    pub resignation: Resignation,
}

impl Replication {
    /// Opens the directory, and listens two ports above that of the agents' other talk.
    ///
    /// # Errors
    /// The directory cannot be used, or the port.
    pub fn open(settings: &ReplicateSettings, peer_bind: SocketAddr) -> io::Result<Self> {
        let ReplicateSettings { directory, promote_when, left_out } = settings.clone();
        let directory = StateDirectory::open(&directory)?;
        let port = Port::Own(listen(peer_bind)?);
        Ok(Self { directory, door: Door::default(), promote_when, left_out, port, is_of_seat: false })
    }

    /// The directory of one of several seats, which share the port.
    pub fn of_seat(settings: &ReplicateSettings, directory: StateDirectory, doorman: Doorman) -> Self {
        let ReplicateSettings { directory: _, promote_when, left_out } = settings.clone();
        let port = Port::Shared(doorman);
        Self { directory, door: Door::default(), promote_when, left_out, port, is_of_seat: true }
    }

    /// Where the application finds the socket for barriers.
    pub fn socket_path(&self) -> PathBuf {
        self.directory.socket_path()
    }

    /// What is removed before each start of the application, see [`LeftOut::text`].
    pub fn left_out(&self) -> Option<String> {
        self.left_out.text(self.directory.path())
    }

    /// Notes that the directory is of this Lease from now on, which says this of state directories; see
    /// [`StateDirectory::belong_to`].
    ///
    /// # Errors
    /// The agent must not join the Lease.
    pub async fn belong_to(&self, lease: u128, level: Level) -> io::Result<()> {
        let (directory, former) = (self.directory.clone(), FormerState::Stays);
        spawn_blocking(move || directory.belong_to(lease, &level, former)).await?
    }

    /// Starts the tasks for one Lease.
    ///
    /// # Errors
    /// What the kernel refused.
    pub fn start(
        &self,
        (tasks, shutdown): (&mut Tasks, &Shutdown),
        (group, own): (u128, AgentId),
        (keys, notes, metrics): (watch::Receiver<KeyRing>, mpsc::Sender<Note>, AgentMetrics),
    ) -> io::Result<Replica> {
        let Self { directory, door, promote_when, left_out, port, is_of_seat } = self;
        door.forget();
        let (partner, known) = watch::channel(None);
        let line = Line { group, own, keys, partner: known };
        let callers = port.callers(group, line.partner.clone())?;
        let receiver = Receiver::new(line.clone(), directory.clone(), door.clone());
        tasks.spawn("state receiver", receiver.run(callers, shutdown.clone()).in_current_span());
        let (acting, acted) = watch::channel(None);
        let (snapshots, seen) = watch::channel(None);
        let (progress, reached) = watch::channel(Progress::default());
        let sender = Sender { line, directory: directory.clone(), acting: acted, snapshots: seen, progress };
        tasks.spawn("state sender", sender.run(shutdown.clone()).in_current_span());
        let (asked, barriers) = mpsc::channel(BARRIERS_WAITING_MAX);
        let socket = socket::bind(&directory.socket_path())?;
        tasks.spawn("barriers", socket::serve(socket, asked, shutdown.clone()).in_current_span());
        let (views, viewed) = watch::channel(View::default());
        let (told, tells) = watch::channel(Told::default());
        let (settle, to_settle) = mpsc::channel(1);
        let (reporter, settled) = mpsc::channel(1);
        let (resigns, resigned) = mpsc::channel(1);
        let wires = Wires {
            own,
            directory: directory.clone(),
            door: door.clone(),
            promote_when: *promote_when,
            left_out: left_out.clone(),
            views: viewed,
            told: tells,
            barriers,
            settle: to_settle,
            settled: reporter,
            resigns,
            snapshots,
            progress: reached.clone(),
            notes: notes.clone(),
            metrics,
        };
        tasks.spawn("state ledger", Ledger::new(wires).run(shutdown.clone()).in_current_span());
        let (directory, door, promote_when) = (directory.clone(), door.clone(), *promote_when);
        Ok(Replica {
            own,
            directory,
            door,
            promote_when,
            is_kept: *is_of_seat,
            partner,
            acting,
            views,
            told,
            notes,
            progress: reached,
            settle,
            settled,
            resigned,
            resignation: Resignation::default(),
        })
    }
}

impl Replica {
    /// Takes over who the other member is, if this agent is one itself, and what the Lease tells of its lag; has it corrected
    /// if it is wrong about whether this Pod has a level copy.
    pub fn know(&self, record: &Record) {
        let partner = partner_of(record, self.own).map(|(other, address)| (other, state_address(address)));
        self.partner.send_if_modified(|known| std::mem::replace(known, partner) != partner);
        let told = self.told.send_replace(record.lag.clone());
        if record.lag == Told::Unreadable && told != Told::Unreadable {
            warn!(annotation = keys::ANNOTATION_HA_LAG, "Ignored an annotation that cannot be read");
        }
        if let Some(note) = copy_note(record, self.own, self.directory.id()) {
            if record.level_pods.contains(&self.own) {
                warn!("The state directory is not the one that the Lease calls level");
            } else {
                info!("This Pod came back with a state directory that the Lease calls level");
            }
            // What finds no place is written after the next version that says the same.
            let _: Result<(), TrySendError<Note>> = self.notes.try_send(note);
        }
    }

    /// Whether this agent may claim a version of the Lease that says this.
    pub fn may_take(&self, level: &Level) -> bool {
        may_take(self.promote_when, level, self.directory.id())
            && self.is_usable()
            && !self.door.is_distrusted()
    }

    /// The directory that the Lease must not call in sync any more before this agent forgets it; `None`: the agent has
    /// one seat, and a Pod that waited here for an active to return could not serve another pair. The next Lease takes
    /// the directory then, see [`StateDirectory::belong_to`].
    pub fn kept(&self) -> Option<DirectoryId> {
        self.is_kept.then(|| self.directory.id())
    }

    /// Whether the application may act with what is in the directory.
    pub fn is_usable(&self) -> bool {
        self.promote_when == PromoteWhen::Always || !self.door.is_torn()
    }

    /// Gives the directory a number that no copy of it has, such as a volume that was made of the same snapshot: before any is
    /// called level.
    pub fn begin_anew(&self) {
        if let Err(error) = self.directory.renew() {
            warn!(
                error = &error as &dyn std::error::Error,
                "Could not give the state directory another number"
            );
        }
    }

    /// How a claim of a version of the Lease that says this leaves the other directory out; `None`: it does not, because it names
    /// no other, or because this one may be something else by the time the tenure begins.
    pub fn leaves_out(&self, level: &Level) -> Option<Annotations> {
        // In this order: a batch that fails gives the directory another number before it leaves.
        let own = self.directory.id();
        let is_sure = self.door.is_in_order() && level.names(own) && level.names_others(own);
        is_sure.then(|| level_annotations(&[own].into(), [Some(self.own), None]))
    }

    /// Whether an order to switch over makes sense: the standby is level, or any may act.
    pub fn may_switch_over(&self, level: &Level) -> bool {
        self.promote_when == PromoteWhen::Always || level.names_others(self.directory.id())
    }

    /// Whether the other member is connected, and a version of the Lease that says this calls its directory level.
    pub fn is_copied(&self, level: &Level, peer: Option<AgentId>) -> bool {
        let progress = self.progress.borrow();
        progress.is_of(peer) && progress.acknowledged.is_some_and(|(directory, _)| level.names(directory))
    }

    /// Whether a tenure that was handed over may act with what is in the directory: somebody has brought it level who acted before.
    /// Its sender saw to that, but not for a directory that took the place of the one that it saw.
    pub fn may_succeed(&self) -> bool {
        self.is_usable() && (self.promote_when == PromoteWhen::Always || self.door.giver().is_some())
    }

    /// Shows what the agent's loop knows.
    pub fn show(&self, view: View) {
        let acting = view.acting;
        self.acting.send_if_modified(|shown| std::mem::replace(shown, acting) != acting);
        self.views.send_if_modified(|shown| {
            let is_news = *shown != view;
            *shown = view;
            is_news
        });
    }

    /// Asks whether the standby may go on with what the application has left.
    pub fn settle(&self) {
        // One that waits already is as good.
        let _: Result<(), TrySendError<()>> = self.settle.try_send(());
    }
}

/// Listens two ports above that of the agents' other talk; does not wait.
///
/// # Errors
/// The port cannot be used.
pub fn listen(peer_bind: SocketAddr) -> io::Result<TcpListener> {
    let listener = TcpListener::bind(state_address(peer_bind))?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Where an agent receives state that listens for other talk at this address.
fn state_address(peer: SocketAddr) -> SocketAddr {
    SocketAddr::new(peer.ip(), peer.port().saturating_add(keys::AGENT_STATE_PORT_ABOVE))
}

/// Removes a socket that an earlier agent left, and nothing else.
fn remove_socket(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests;
