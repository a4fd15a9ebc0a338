//! Accepts lines of the other agent, passes its lifeline to the application, confirms it, and voids it at the end.
//!
//! While this agent lives it says "void" before it ends a control line, whatever the reason: it passes its role on
//! faster by itself. What it keeps is bounded: some greetings for a second, and one pair of lines.

use std::collections::VecDeque;
use std::future::pending;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bps_protocol::Epoch;
use bps_runtime::shutdown::Shutdown;
use bps_runtime::tasks::TaskError;
use futures::StreamExt as _;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio::sync::watch::Receiver;
use tokio::time::{MissedTickBehavior, interval, timeout};
use tracing::{info, warn};

use super::bond::Bond;
use super::frame::{Frame, Origin, Session, Word};
use super::{GREETING_MAX, Line, Tenancy, prepare};
use crate::callers::{Caller, Callers};
use crate::draw::draw;

/// Control lines whose lifeline is not there yet; a further one takes the place of the first.
const CHALLENGED_MAX: usize = 4;
/// How often it is looked whether all processes hold the bond. 1 s: reading the descriptors of a hundred processes
/// takes some milliseconds.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// A connection that has said what it is for.
enum Greeted {
    Control(Session, TcpStream),
    Lifeline(Session, TcpStream),
}

/// The lines of the other agent.
struct Watched {
    session: Session,
    control: TcpStream,
    lifeline: Lifeline,
}

enum Lifeline {
    /// Until there is an application that holds its bond.
    Here(TcpStream),
    With(Arc<Bond>),
}

struct Server {
    line: Line,
    challenged: VecDeque<(Session, TcpStream)>,
    watched: Option<Watched>,
    /// The present application, unless its bond was found to be unfit.
    bond: Tenancy,
}

/// Serves the other agent.
///
/// # Errors
/// None: without a certificate the Lease decides.
pub async fn run(
    line: Line,
    mut callers: Callers,
    mut bonds: Receiver<Tenancy>,
    shutdown: Shutdown,
) -> Result<(), TaskError> {
    let mut server = Server { line, challenged: VecDeque::new(), watched: None, bond: None };
    let mut greetings: FuturesUnordered<BoxFuture<'static, Option<Greeted>>> = FuturesUnordered::new();
    let mut looks = interval(LOOK_EVERY);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    bonds.mark_changed();
    loop {
        let bond = server.passed_to();
        tokio::select! {
            // An end comes before anything that could hide it.
            biased;
            () = shutdown.requested() => break,
            changed = bonds.changed() => match changed {
                Ok(()) => {
                    let bond = bonds.borrow_and_update().clone();
                    server.replace_bond(bond);
                    server.look().await;
                }
                Err(_) => break,
            },
            () = ended(bond) => server.spoil("the application let go of it"),
            _ = looks.tick() => server.look().await,
            Some(greeted) = greetings.next() => if let Some(greeted) = greeted {
                server.take(greeted);
                server.look().await;
            },
            caller = callers.next() => greetings.push(Box::pin(greet(server.line.clone(), caller))),
        }
    }
    server.end_watched();
    Ok(())
}

async fn ended(bond: Option<Arc<Bond>>) {
    match bond {
        Some(bond) => bond.ended().await,
        None => pending().await,
    }
}

async fn greet(line: Line, Caller { mut stream, from, place }: Caller) -> Option<Greeted> {
    let greeted = async {
        let _place = place;
        prepare(&stream)?;
        let keys = line.keys.borrow().clone();
        let frame = Frame::receive(&mut stream, &keys).await?.ok_or(io::ErrorKind::UnexpectedEof)?;
        let partner = line.partner.borrow().map(|(partner, _)| partner);
        if frame.group != line.group || frame.to != line.own || Some(frame.from) != partner {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        let is_end_to_end = |origin| origin == Origin::from(from);
        let answer = |session, word| Frame { from: frame.to, to: frame.from, session, word, ..frame };
        match frame.word {
            Word::Hello(origin) if is_end_to_end(origin) => {
                let session = Session { accepted: draw()?, ..frame.session };
                stream.write_all(&answer(session, Word::Challenge).seal(&keys)).await?;
                Ok(Greeted::Control(session, stream))
            }
            Word::Hello(_) => {
                stream.write_all(&answer(frame.session, Word::Proxied).seal(&keys)).await?;
                Err(io::ErrorKind::PermissionDenied.into())
            }
            Word::Attach(origin) if is_end_to_end(origin) => Ok(Greeted::Lifeline(frame.session, stream)),
            Word::Attach(_) | Word::Challenge | Word::Confirm(_) | Word::Void | Word::Proxied => {
                Err(io::Error::from(io::ErrorKind::InvalidData))
            }
        }
    };
    // Whoever is not greeted in time, or is somebody else, is not answered.
    timeout(GREETING_MAX, greeted).await.ok()?.ok()
}

impl Server {
    fn take(&mut self, greeted: Greeted) {
        match greeted {
            Greeted::Control(session, control) => {
                self.challenged.truncate(CHALLENGED_MAX - 1);
                self.challenged.push_front((session, control));
            }
            Greeted::Lifeline(session, lifeline) => {
                let known = self.challenged.iter().position(|(challenged, _)| *challenged == session);
                let Some((_, control)) = known.and_then(|index| self.challenged.remove(index)) else {
                    return;
                };
                self.end_watched();
                self.watched = Some(Watched { session, control, lifeline: Lifeline::Here(lifeline) });
            }
        }
    }

    fn replace_bond(&mut self, bond: Tenancy) {
        if self.passed_to().is_some() {
            self.end_watched();
        }
        self.bond = bond;
    }

    /// The application that has a lifeline.
    fn passed_to(&self) -> Option<Arc<Bond>> {
        match &self.watched.as_ref()?.lifeline {
            Lifeline::With(bond) => Some(bond.clone()),
            Lifeline::Here(_) => None,
        }
    }

    /// Passes the lifeline on once all processes hold the bond, and gives it up when one does not any more.
    async fn look(&mut self) {
        let Some((epoch, bond)) = self.bond.clone().filter(|_| self.watched.is_some()) else { return };
        let looked = bond.clone();
        // The process list takes its time, and the agent's loop shares this thread.
        let held = tokio::task::spawn_blocking(move || looked.is_held_by_all()).await;
        let is_held = matches!(held, Ok(Ok(true)));
        match (self.passed_to().is_some(), is_held) {
            (false, true) => self.pass(epoch, bond),
            (true, false) => self.spoil("a process does not hold it"),
            (false, false) | (true, true) => {}
        }
    }

    fn pass(&mut self, epoch: Epoch, bond: Arc<Bond>) {
        let Some(Watched { session, control, lifeline: Lifeline::Here(lifeline) }) = self.watched.take()
        else {
            return;
        };
        if let Err(error) = bond.pass(&lifeline) {
            warn!(error = &error as &dyn std::error::Error, %epoch, "Could not pass a lifeline on");
            self.bond = None;
        }
        // The last copy outside the queue.
        drop(lifeline);
        self.watched = Some(Watched { session, control, lifeline: Lifeline::With(bond) });
        if self.bond.is_none() || !self.say(Word::Confirm(epoch)) {
            self.end_watched();
            return;
        }
        info!(%epoch, "Passed a lifeline to the application");
    }

    /// No certificate of this application any more: one of its processes could outlive the bond.
    fn spoil(&mut self, reason: &'static str) {
        info!(reason, "Gave up the lifeline of the application");
        self.bond = None;
        self.end_watched();
    }

    fn end_watched(&mut self) {
        if !self.say(Word::Void) {
            // It must not look like an end in order: a reset is none.
            if let Some(Watched { control, .. }) = &self.watched {
                drop(control.set_zero_linger());
            }
        }
        self.watched = None;
    }

    /// Whether a frame is on its way; a line on which so little was said takes it at once.
    fn say(&self, word: Word) -> bool {
        let (Some(Watched { session, control, .. }), Some((to, _))) =
            (&self.watched, *self.line.partner.borrow())
        else {
            return false;
        };
        let Line { group, own, keys, .. } = &self.line;
        let frame = Frame { group: *group, from: *own, to, session: *session, word };
        let bytes = frame.seal(&keys.borrow());
        control.try_write(&bytes).is_ok_and(|written| written == bytes.len())
    }
}
