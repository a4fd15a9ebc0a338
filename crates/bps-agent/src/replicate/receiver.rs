//! Takes the state from the other agent while this one does not act: brings the directory level, then follows.
//!
//! One connection at a time, and nothing of an agent that acts with an older epoch than one seen before.
//!
//! If its own disk takes nothing, it says why with its last word. After a batch for which the volume had no room, it
//! compares the free space before it reads what it has, so that neither side works for a batch that cannot fit.

use std::convert::Infallible;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bps_runtime::shutdown::Shutdown;
use bps_runtime::tasks::TaskError;
use bps_wire::level::DirectoryId;
use futures::StreamExt as _;
use futures::future::{BoxFuture, pending};
use futures::stream::FuturesUnordered;
use tokio::net::TcpStream;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, timeout};
use tracing::{info, warn};

use super::blockage::StateRefusal;
use super::channel::Channel;
use super::door::{Door, Pass};
use super::inbox::Inbox;
use super::scan::Scanner;
use super::word::Word;
use super::{GREETING_MAX, Line, StateDirectory, prepare};
use crate::callers::{Caller, Callers};

/// How much is kept in memory before it is written. Unit: bytes.
const BUFFER_BYTES: usize = 1 << 20;

/// How long a batch for which there was no room counts. 5 min: the next one may be smaller, as when the application has
/// removed a file, and only a whole attempt finds that out.
const SHORTAGE_MAX: Duration = Duration::from_secs(300);

/// A batch for which there was no room.
#[derive(Clone, Copy, Debug)]
struct Shortage {
    /// How much of it had come when the disk was full: it needs more. Unit: bytes.
    needed: u64,
    at: Instant,
}

/// A connection of somebody who has proved to act in this pair.
struct Session {
    channel: Channel<TcpStream>,
    giver: DirectoryId,
    /// Why the own disk takes nothing more.
    refusal: Option<StateRefusal>,
}

/// What receiving needs.
#[derive(Clone)]
pub struct Receiver {
    /// Who is who.
    pub line: Line,
    /// Where to.
    pub directory: StateDirectory,
    /// When.
    pub door: Door,
    shortage: Arc<Mutex<Option<Shortage>>>,
}

impl Receiver {
    /// One that has received nothing yet.
    pub fn new(line: Line, directory: StateDirectory, door: Door) -> Self {
        Self { line, directory, door, shortage: Arc::default() }
    }

    /// Receives from whoever acts and calls.
    ///
    /// # Errors
    /// None: without a level standby the active goes on alone.
    pub async fn run(self, mut callers: Callers, shutdown: Shutdown) -> Result<(), TaskError> {
        let mut greetings: FuturesUnordered<BoxFuture<'static, io::Result<Session>>> =
            FuturesUnordered::new();
        let mut session: BoxFuture<'static, io::Result<()>> = Box::pin(pending());
        loop {
            tokio::select! {
                // A new connection takes the place of one that may be dead, but no flood of them keeps words away.
                biased;
                () = shutdown.requested() => return Ok(()),
                ended = &mut session => {
                    if let Err(error) = ended {
                        tell_end(&error);
                    }
                    session = Box::pin(pending());
                }
                Some(greeted) = greetings.next() => if let Ok(greeted) = greeted {
                    // The one before ends here; what it does on a thread ends before this one gets its turn.
                    session = Box::pin(self.clone().follow(greeted));
                },
                Caller { stream, place, .. } = callers.next() => {
                    let greeting = self.clone().greet(stream);
                    greetings.push(Box::pin(async {
                        let _place = place;
                        timeout(GREETING_MAX, greeting).await?
                    }));
                }
            }
        }
    }

    async fn greet(self, stream: TcpStream) -> io::Result<Session> {
        prepare(&stream)?;
        let refused = || io::Error::from(io::ErrorKind::PermissionDenied);
        let mut channel = Channel::accepted(stream, self.line.keys.clone()).await?;
        let Word::Hello { group, from, to, directory } = channel.hear().await? else { return Err(refused()) };
        let partner = *self.line.partner.borrow();
        let is_partner = partner.is_some_and(|(partner, _)| partner == from);
        let is_for_us = group == self.line.group && to == self.line.own;
        if !is_for_us || !is_partner || !self.door.admits(channel.epoch()) {
            return Err(refused());
        }
        // If the active uses the very same directory, and gave it another number, that is found out by the number the next time.
        let directory_now = self.directory.clone();
        if !spawn_blocking(move || directory_now.read_number()).await?? {
            return Err(refused());
        }
        channel.draw().await?;
        channel.say(&[Word::Challenge { directory: self.directory.id() }]).await?;
        if channel.hear().await? != Word::Attach {
            return Err(refused());
        }
        channel.trust();
        if directory == self.directory.id() {
            // Both are copies of one volume. Which of them has acknowledged writes is the active's to say.
            warn!(
                "The state directory has the number of the active's: it gets another one, and what it has is brought level"
            );
            spawn_blocking(move || self.directory.renew()).await??;
            return Err(refused());
        }
        Ok(Session { channel, giver: directory, refusal: None })
    }

    /// Ends only by an error; says why, if the own disk is the reason.
    async fn follow(self, mut session: Session) -> io::Result<()> {
        let Err(error) = self.take_in(&mut session).await;
        if let Some(refusal) = session.refusal {
            // The connection may be lost as well, or the active not read: it retries in any case.
            let _: io::Result<()> = session.channel.say(&[Word::Refuse(refusal)]).await;
        }
        Err(error)
    }

    async fn take_in(&self, session: &mut Session) -> io::Result<Infallible> {
        let Session { channel, giver, refusal } = session;
        let giver = *giver;
        let (epoch, directory, group) = (channel.epoch(), self.directory.clone(), self.line.group);
        let shortage = self.shortage();
        let prepared = async {
            let turn = directory.turn().await;
            let prepare = move || {
                if epoch < directory.epoch(group)? {
                    return Err(io::ErrorKind::PermissionDenied.into());
                }
                directory.keep_epoch(group, epoch)?;
                let inbox = Inbox::new(directory.clone(), turn)?;
                if let Some(Shortage { needed, .. }) = shortage {
                    directory.has_room(needed)?;
                }
                // The inbox has the turn, and nobody else writes here while this agent does not act.
                let has = Scanner::read(directory)?;
                Ok::<_, io::Error>((inbox, has))
            };
            spawn_blocking(prepare).await?
        };
        let prepared = channel.work(prepared).await?;
        let (mut inbox, has) = prepared.inspect_err(|error| *refusal = StateRefusal::of(error))?;
        info!(%epoch, "Receives the state of the active");
        for (path, entry) in has {
            channel.say(&[Word::Has(path, entry)]).await?;
        }
        channel.say(&[Word::All]).await?;
        loop {
            let (words, end) = hear_batch(channel).await?;
            let door = self.door.clone();
            let taken = spawn_blocking(move || {
                let taken = take_words(&mut inbox, words, end, || door.enter(epoch, giver));
                match taken {
                    Ok(()) => Ok(inbox),
                    Err(error) => Err((error, inbox.needs())),
                }
            });
            // Somebody waits for the answer to a commit, and for nothing else.
            let taken = match end {
                Some(End::Commit(_)) => channel.work(taken).await??,
                Some(End::Abandon) | None => taken.await?,
            };
            inbox = match taken {
                Ok(inbox) => inbox,
                Err((error, needed)) => {
                    *refusal = StateRefusal::of(&error);
                    self.note_end(*refusal, needed);
                    return Err(error);
                }
            };
            if let Some(End::Commit(sequence)) = end {
                *self.lock_shortage() = None;
                channel.say(&[Word::Acknowledge(sequence)]).await?;
            }
        }
    }

    /// The batch for which there was no room, while that counts.
    fn shortage(&self) -> Option<Shortage> {
        self.lock_shortage().filter(|shortage| shortage.at.elapsed() < SHORTAGE_MAX)
    }

    /// Keeps how much room a batch needed that was refused.
    fn note_end(&self, refusal: Option<StateRefusal>, needed: u64) {
        if refusal == Some(StateRefusal::Full) {
            *self.lock_shortage() = Some(Shortage { needed, at: Instant::now() });
        }
    }

    fn lock_shortage(&self) -> MutexGuard<'_, Option<Shortage>> {
        // Each change is a plain assignment, so that what a panic left is whole.
        self.shortage.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How a batch ends.
#[derive(Clone, Copy)]
enum End {
    Commit(u64),
    Abandon,
}

/// Takes words of a batch, and ends it if they are the last ones.
fn take_words(
    inbox: &mut Inbox,
    words: Vec<Word>,
    end: Option<End>,
    enter: impl FnOnce() -> io::Result<Pass>,
) -> io::Result<()> {
    for word in words {
        inbox.take(word)?;
    }
    match end {
        // Whatever is refused in a commit is refused by the own disk.
        Some(End::Commit(_)) => inbox.commit(enter()?).map_err(io::Error::other),
        Some(End::Abandon) => inbox.abandon(),
        None => Ok(()),
    }
}

/// The words until the end of the batch, or as many as may be kept in memory; and the end.
async fn hear_batch(channel: &mut Channel<TcpStream>) -> io::Result<(Vec<Word>, Option<End>)> {
    let (mut words, mut bytes) = (Vec::new(), 0);
    // Between two batches nothing may be said for a long time.
    let mut word = channel.hear().await?;
    loop {
        if let Word::Commit(sequence) = word {
            return Ok((words, Some(End::Commit(sequence))));
        }
        if word == Word::Abandon {
            return Ok((words, Some(End::Abandon)));
        }
        if word != Word::Busy {
            bytes += if let Word::Piece(piece) = &word { piece.len() } else { 64 };
            words.push(word);
        }
        if bytes >= BUFFER_BYTES {
            return Ok((words, None));
        }
        word = channel.hear_answer().await?;
    }
}

/// A connection that is lost is nothing special. What went wrong here may do so again each time.
fn tell_end(error: &io::Error) {
    use io::ErrorKind::{BrokenPipe, ConnectionReset, PermissionDenied, TimedOut, UnexpectedEof};
    let told = error as &dyn std::error::Error;
    if matches!(error.kind(), BrokenPipe | ConnectionReset | PermissionDenied | TimedOut | UnexpectedEof) {
        info!(error = told, "Lost the connection to the active's state");
    } else {
        warn!(error = told, "Could not take the active's state");
    }
}
