//! Gives the state to the standby while this agent acts: what it lacks of the newest look, again and again.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bps_protocol::{AgentId, Epoch};
use bps_runtime::shutdown::Shutdown;
use bps_runtime::tasks::TaskError;
use bps_wire::level::DirectoryId;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep, timeout};
use tracing::{error, info, warn};

use super::blockage::{Blockage, StateRefusal};
use super::channel::Channel;
use super::image::Image;
use super::outbox::{BatchEnd, Outbox};
use super::scan::{ENTRIES_MAX, Snapshot};
use super::word::Word;
use super::{GREETING_MAX, Line, Partner, StateDirectory, prepare};

/// Pause between two attempts to connect.
const RETRY_PAUSE: Duration = Duration::from_millis(200);
/// Pause after a connection that has lasted and brought something. 10 ms: whoever ended it has closed its port by then.
const RENEWAL_PAUSE: Duration = Duration::from_millis(10);
/// Pause after the first connection that brought nothing. It doubles with each further one.
const FRUITLESS_PAUSE: Duration = Duration::from_millis(100);
/// Longest of these pauses. 30 s: each connection has the standby read all that it has, and the active send all that it
/// lacks; and a standby that has room again gets the state within this time.
const FRUITLESS_PAUSE_MAX: Duration = Duration::from_secs(30);
/// How long a connection has lasted then, so that one that is lost again and again is not made a hundred times a second.
const LASTING: Duration = Duration::from_secs(1);
/// How long a standby may take to say its last word. 1 s: it has said it before it ended the connection.
const LAST_WORD_MAX: Duration = Duration::from_secs(1);
/// How much is read before it is sent. Unit: bytes.
const BUFFER_BYTES: usize = 1 << 20;

/// Whether the standby is there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reach {
    /// Not connected, and that is all that is known.
    #[default]
    Unknown,
    /// Nobody listens at its address: its agent has ended, or has not started yet.
    Absent,
    /// There is a connection to it.
    Connected,
}

/// How far the standby is.
#[derive(Clone, Debug, Default)]
pub struct Progress {
    /// Whose directory it is, and the number of the last look that it has on disk; what it acknowledged over an earlier
    /// connection counts until there is another one.
    pub acknowledged: Option<(DirectoryId, u64)>,
    /// Whether it is there.
    pub reach: Reach,
    /// Who it is; `None`: there is no standby.
    pub standby: Option<AgentId>,
    /// What it had when it was last heard of; `None`: it was not heard of yet.
    pub has: Option<Arc<Snapshot>>,
    /// The number of a look that it could not be given as it is, and what came of it.
    pub flawed: Option<(u64, BatchEnd)>,
    /// Why it took nothing when it was last connected; `None` once it has carried out a batch.
    pub refusal: Option<StateRefusal>,
}

impl Progress {
    /// Whether what is said here is of this one, and over the connection that there is now.
    pub fn is_of(&self, peer: Option<AgentId>) -> bool {
        self.reach == Reach::Connected && peer.is_some() && self.standby == peer
    }
}

/// What sending needs.
#[derive(Clone)]
pub struct Sender {
    /// Who is who.
    pub line: Line,
    /// Where from.
    pub directory: StateDirectory,
    /// The epoch that this agent acts with; `None`: nothing is sent.
    pub acting: watch::Receiver<Option<Epoch>>,
    /// The newest look; `None` before the first one of a tenure.
    pub snapshots: watch::Receiver<Option<Arc<Snapshot>>>,
    /// How far the standby is.
    pub progress: watch::Sender<Progress>,
}

impl Sender {
    /// Sends to whoever is the other member.
    ///
    /// # Errors
    /// None: without a level standby the active goes on alone.
    pub async fn run(mut self, shutdown: Shutdown) -> Result<(), TaskError> {
        let (mut acting, mut partners) = (self.acting.clone(), self.line.partner.clone());
        loop {
            let (epoch, partner) = (*acting.borrow_and_update(), *partners.borrow_and_update());
            let standby = partner.map(|(id, _)| id);
            self.progress.send_replace(Progress { standby, ..Progress::default() });
            tokio::select! {
                // Nothing may be sent any more once this agent does not act, or to somebody else.
                biased;
                () = shutdown.requested() => return Ok(()),
                changed = acting.changed() => if changed.is_err() { return Ok(()) },
                changed = partners.changed() => if changed.is_err() { return Ok(()) },
                () = self.send(epoch, partner) => {}
            }
        }
    }

    /// Ends only by being dropped.
    async fn send(&mut self, epoch: Option<Epoch>, partner: Option<Partner>) {
        let (Some(epoch), Some(partner)) = (epoch, partner) else { return std::future::pending().await };
        let (mut has_complained, mut pauses) = (false, SendPauses::default());
        loop {
            let (began, mut yielded) = (Instant::now(), Yield::default());
            let Err(error) = self.level(epoch, partner, &mut yielded).await;
            if error.kind() == io::ErrorKind::AlreadyExists && !std::mem::replace(&mut has_complained, true) {
                error!("Sends no state: both Pods use one directory; give each a volume of its own");
            }
            let was_connected = self.progress.borrow().reach == Reach::Connected;
            let refusal = StateRefusal::in_error(&error);
            if was_connected && refusal.is_none() {
                info!(error = &error as &dyn std::error::Error, "Lost the connection to the standby's state");
            }
            let is_refused = error.kind() == io::ErrorKind::ConnectionRefused;
            let reach = if is_refused { Reach::Absent } else { Reach::Unknown };
            self.note_end(reach, refusal, yielded);
            sleep(pauses.next(yielded, began.elapsed())).await;
        }
    }

    /// Keeps why the standby refused, and logs it once. A connection that was not made says nothing about its disk.
    fn note_end(&self, reach: Reach, refusal: Option<StateRefusal>, yielded: Yield) {
        let known = self.progress.borrow().refusal;
        if let Some(refused) = refusal.filter(|_| refusal != known) {
            let reason = Blockage::from(refused).reason.as_str();
            warn!(
                reason,
                error = &refused as &dyn std::error::Error,
                "The standby takes no state: retries after a growing pause"
            );
        }
        self.progress.send_modify(|progress| {
            progress.reach = reach;
            progress.refusal = refusal.or(known.filter(|_| yielded.is_greeted));
        });
    }

    /// One connection; ends only by an error.
    async fn level(
        &mut self,
        epoch: Epoch,
        (to, address): Partner,
        yielded: &mut Yield,
    ) -> io::Result<Infallible> {
        let greeting = timeout(GREETING_MAX, self.greet(epoch, (to, address)));
        let (mut channel, directory) = greeting.await??;
        yielded.is_greeted = true;
        let mirror = manifest(&mut channel).await?;
        // A copy of many names takes a while, and the agent's loop shares this thread.
        let (mut mirror, has) = spawn_blocking(move || (mirror.clone(), mirror)).await?;
        let has = Some(Arc::new(Snapshot { image: has, ..Snapshot::default() }));
        info!(%epoch, "Sends the state to the standby");
        // What it acknowledged before, it may have lost since: it says so again once it has all.
        self.progress.send_modify(|progress| {
            (progress.reach, progress.has, progress.acknowledged) = (Reach::Connected, has, None);
        });
        let mut snapshots = self.snapshots.clone();
        snapshots.mark_changed();
        loop {
            tokio::select! {
                // A standby that says something, or goes, is not to be waited for; so nothing is lost when this is dropped.
                biased;
                word = channel.hear() => return unrefused(word?).and(Err(io::ErrorKind::InvalidData.into())),
                changed = snapshots.changed() => changed.map_err(|_| io::ErrorKind::BrokenPipe)?,
            }
            let Some(snapshot) = snapshots.borrow_and_update().clone() else { continue };
            let (sequence, sent) = (snapshot.sequence, Arc::clone(&snapshot));
            let outbox = Outbox::new(self.directory.clone(), mirror, snapshot);
            let end;
            (mirror, end) = send_batch(&mut channel, outbox).await?;
            sent.kept.clear();
            // What is to be had as it is or not at all was abandoned then.
            let is_committed = end != BatchEnd::Torn || !sent.is_exact;
            if is_committed && unrefused(channel.hear_answer().await?)? != Word::Acknowledge(sequence) {
                return Err(io::ErrorKind::InvalidData.into());
            }
            yielded.has_committed |= is_committed;
            self.progress.send_modify(|progress| {
                let is_exact = end == BatchEnd::Exact;
                let acknowledged = if is_exact { Some((directory, sequence)) } else { progress.acknowledged };
                let has = if is_committed { Some(sent) } else { progress.has.take() };
                let flawed = (!is_exact).then_some((sequence, end));
                let refusal = progress.refusal.filter(|_| !is_committed);
                let reach = Reach::Connected;
                *progress = Progress { acknowledged, reach, standby: Some(to), has, flawed, refusal };
            });
        }
    }

    async fn greet(
        &self,
        epoch: Epoch,
        (to, address): Partner,
    ) -> io::Result<(Channel<TcpStream>, DirectoryId)> {
        let directory = self.directory.clone();
        if !spawn_blocking(move || directory.is_own()).await?? {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let stream = TcpStream::connect(address).await?;
        prepare(&stream)?;
        let Line { group, own, keys, .. } = &self.line;
        let mut channel = Channel::connected(stream, keys.clone(), epoch).await?;
        let directory = self.directory.id();
        channel.say(&[Word::Hello { group: *group, from: *own, to, directory }]).await?;
        channel.take_drawn().await?;
        let Word::Challenge { directory } = channel.hear().await? else {
            return Err(io::ErrorKind::InvalidData.into());
        };
        channel.say(&[Word::Attach]).await?;
        channel.trust();
        Ok((channel, directory))
    }
}

/// What the standby has.
async fn manifest(channel: &mut Channel<TcpStream>) -> io::Result<Image> {
    let mut image = Image::new();
    loop {
        let word = unrefused(channel.hear_answer().await?)?;
        if word == Word::All {
            return Ok(image);
        }
        let Word::Has(path, entry) = word else { return Err(io::ErrorKind::InvalidData.into()) };
        image.insert(path, entry);
        if image.len() > ENTRIES_MAX {
            return Err(io::ErrorKind::QuotaExceeded.into());
        }
    }
}

/// Returns what the standby has once it has carried out what was said, and what came of the batch.
async fn send_batch(channel: &mut Channel<TcpStream>, mut outbox: Outbox) -> io::Result<(Image, BatchEnd)> {
    loop {
        let read = spawn_blocking(move || outbox.next(BUFFER_BYTES).map(|words| (outbox, words)));
        let (next, words) = channel.work(read).await???;
        outbox = next;
        if words.is_empty() {
            return Ok(outbox.into_mirror());
        }
        if let Err(error) = channel.say(&words).await {
            return Err(last_word(channel).await.unwrap_or(error));
        }
    }
}

/// The word, unless the standby refuses.
fn unrefused(word: Word) -> io::Result<Word> {
    if let Word::Refuse(refusal) = word {
        return Err(io::Error::other(refusal));
    }
    Ok(word)
}

/// The refusal of a standby that has ended the connection, if that arrived.
async fn last_word(channel: &mut Channel<TcpStream>) -> Option<io::Error> {
    let word = timeout(LAST_WORD_MAX, channel.hear_answer()).await.ok()?.ok()?;
    unrefused(word).err()
}

/// What a connection has brought.
#[derive(Clone, Copy, Debug, Default)]
struct Yield {
    /// The standby proved that it has a key, so that it is busy with what it has.
    is_greeted: bool,
    /// It carried out a batch.
    has_committed: bool,
}

/// Pauses between connections.
#[derive(Clone, Copy, Debug, Default)]
struct SendPauses {
    /// Connections in a row that brought nothing, or were lost at once.
    fruitless: u32,
}

impl SendPauses {
    /// The pause after a connection that lasted this long.
    ///
    /// How long a connection lasts does not count alone: a standby with a full disk takes gigabytes before it refuses, and
    /// everything is read and sent again then.
    fn next(&mut self, yielded: Yield, lasted: Duration) -> Duration {
        if !yielded.is_greeted {
            // Costs nothing, and a standby that comes back is to be found soon.
            return RETRY_PAUSE;
        }
        if yielded.has_committed && lasted >= LASTING {
            self.fruitless = 0;
            return RENEWAL_PAUSE;
        }
        let doubled = 2_u32.saturating_pow(self.fruitless);
        self.fruitless = self.fruitless.saturating_add(1);
        FRUITLESS_PAUSE.saturating_mul(doubled).min(FRUITLESS_PAUSE_MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(20);

    #[test]
    fn connections_that_bring_nothing_come_ever_later_however_long_they_last() {
        let mut pauses = SendPauses::default();
        let fruitless = Yield { is_greeted: true, has_committed: false };
        let millis: Vec<_> = (0..11).map(|_| pauses.next(fruitless, LONG).as_millis()).collect();
        assert_eq!(millis, [100, 200, 400, 800, 1_600, 3_200, 6_400, 12_800, 25_600, 30_000, 30_000]);
        // It is looked for as often as ever while it is away, which forgets nothing.
        assert_eq!(pauses.next(Yield::default(), LONG), RETRY_PAUSE);
        assert_eq!(pauses.next(fruitless, LONG), FRUITLESS_PAUSE_MAX);
        // A batch that was carried out does.
        let fruitful = Yield { is_greeted: true, has_committed: true };
        assert_eq!(pauses.next(fruitful, LONG), RENEWAL_PAUSE);
        assert_eq!(pauses.next(fruitless, LONG), FRUITLESS_PAUSE);
    }

    #[test]
    fn connections_that_are_lost_at_once_come_ever_later_although_they_bring_something() {
        let (mut pauses, short) = (SendPauses::default(), Duration::from_millis(5));
        let fruitful = Yield { is_greeted: true, has_committed: true };
        let millis = [(); 3].map(|()| pauses.next(fruitful, short).as_millis());
        assert_eq!(millis, [100, 200, 400]);
    }
}
