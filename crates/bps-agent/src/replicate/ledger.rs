//! Keeps barriers: looks at the state directory, waits until all who may act have what was seen, and says in the Lease
//! who that is.
//!
//! Barriers that come together share one look. `gate` decides what one comes to; this only knows and waits.

mod looks;
mod sight;
mod ticket;

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use bps_api::LagReason;
use bps_protocol::{AgentId, Epoch, Version};
use bps_runtime::shutdown::Shutdown;
use bps_runtime::tasks::TaskError;
use bps_wire::lag::Told;
use bps_wire::level::{DirectoryId, Level};
use jiff::Timestamp;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, sleep_until};
use tracing::{info, warn};

use self::looks::{Look, next_look};
use self::sight::{LookSight, Moments};
use self::ticket::{Ticket, Waiter};
use super::StateDirectory;
use super::blockage::Blockage;
use super::door::Door;
use super::gate::{Knowledge, Outcome, PromoteWhen, wanted};
use super::lag::Meter;
use super::left_out::LeftOut;
use super::notes::{lag_note, level_annotations};
use super::scan::{Scanner, Snapshot, Strides};
use super::sender::{Progress, Reach};
use crate::clock;
use crate::metrics::AgentMetrics;
use crate::store::Note;

/// How long a level standby is waited for before it counts as level no more, unless nobody listens at its address.
pub const STANDBY_MAX: Duration = Duration::from_secs(1);
/// How long a barrier may take; the application hears of an error then.
pub const BARRIER_MAX: Duration = Duration::from_secs(10);
/// Time between two looks that nobody asked for.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Time after which a write of the Lease without effect is tried again, and between two of them.
const NOTE_EVERY: Duration = Duration::from_millis(500);
/// Time between two looks at the clock while something waits.
const TICK: Duration = Duration::from_millis(50);
/// Time between two proposals to give the role up. 10 s: the loop may have refused because the standby was away just then.
const RESIGN_EVERY: Duration = Duration::from_secs(10);
/// How long an application that ended waits for its standby; less than the protocol waits for word of it.
const SETTLE_MAX: Duration = Duration::from_millis(800);

/// What the agent's loop knows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct View {
    /// The tenure, until its application has been passed on.
    pub acting: Option<Epoch>,
    /// The version of the Lease.
    pub version: Version,
    /// Whether the Lease has this tenure: nobody else's write of it can succeed any more.
    pub is_written: bool,
    /// What the Lease says of the directories.
    pub level: Level,
    /// Who would be handed over to.
    pub peer: Option<AgentId>,
}

/// A kept barrier, or why it was not kept.
pub type Answer = Result<Kept, Cow<'static, str>>;

/// A barrier that was kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kept {
    /// The tenure.
    pub epoch: Epoch,
    /// The number of the look that has everything.
    pub sequence: u64,
    /// Whether only the own directory has it.
    pub is_alone: bool,
}

/// What the ledger is connected to.
pub struct Wires {
    /// This agent.
    pub own: AgentId,
    /// The state directory.
    pub directory: StateDirectory,
    /// Through which the state came before this tenure.
    pub door: Door,
    /// Which standby may act.
    pub promote_when: PromoteWhen,
    /// What is not replicated.
    pub left_out: LeftOut,
    /// What the agent's loop knows.
    pub views: watch::Receiver<View>,
    /// What the Lease tells of the standby's lag.
    pub told: watch::Receiver<Told>,
    /// Barriers that the application asks for.
    pub barriers: mpsc::Receiver<oneshot::Sender<Answer>>,
    /// Asked when the application has ended.
    pub settle: mpsc::Receiver<()>,
    /// The answer: whether the standby may go on with it.
    pub settled: mpsc::Sender<bool>,
    /// Proposes to give this tenure up, because the own disk fails and the standby has everything.
    pub resigns: mpsc::Sender<Epoch>,
    /// The newest look, for the sender.
    pub snapshots: watch::Sender<Option<Arc<Snapshot>>>,
    /// How far the standby is.
    pub progress: watch::Receiver<Progress>,
    /// Writes of the Lease.
    pub notes: mpsc::Sender<Note>,
    /// Shows how much the standby lacks.
    pub metrics: AgentMetrics,
}

/// A ledger.
pub struct Ledger {
    wires: Wires,
    tenure: Option<Epoch>,
    /// Whether something was looked at in this tenure.
    has_looked: bool,
    scanner: Option<Scanner>,
    /// How far the look is that is under way.
    strides: Strides,
    looking: Option<Look>,
    /// Whether looks succeed.
    sight: LookSight,
    /// What was logged of that last.
    logged: Option<Blockage>,
    next_resign: Instant,
    /// Not looked for yet, being looked for, and looked for with what number.
    waiting: Vec<Ticket>,
    looked_for: Vec<Ticket>,
    looked: Vec<(u64, Ticket)>,
    /// The number of the newest look.
    sequence: u64,
    /// That look was not sent.
    is_kept_back: bool,
    /// Since when looks are kept back, one after the other.
    stale_since: Option<Instant>,
    next_look: Instant,
    /// When to look again for what could not be sent.
    next_repeat: Instant,
    /// Since when a level standby is waited for.
    behind_since: Option<Instant>,
    /// A write that may yet succeed, and who is level by it.
    noted: Option<(Note, BTreeSet<DirectoryId>)>,
    next_note: Instant,
    /// How much the standby lacks.
    meter: Meter,
}

fn moments(instant: Instant) -> Moments {
    Moments { instant, boot: clock::now(), date: Timestamp::now() }
}

impl Ledger {
    /// One that has looked at nothing.
    pub fn new(wires: Wires) -> Self {
        let now = Instant::now();
        let scanner = Scanner::new(wires.directory.clone()).leaving_out(wires.left_out.clone());
        let (strides, meter) = (scanner.strides(), Meter::new(wires.metrics.clone()));
        let (waiting, looked_for, looked) = (Vec::new(), Vec::new(), Vec::new());
        Self {
            wires,
            tenure: None,
            has_looked: false,
            scanner: Some(scanner),
            strides,
            looking: None,
            sight: LookSight::new(moments(now)),
            logged: None,
            next_resign: now,
            waiting,
            looked_for,
            looked,
            sequence: 0,
            is_kept_back: false,
            stale_since: None,
            next_look: now,
            next_repeat: now,
            behind_since: None,
            noted: None,
            next_note: now,
            meter,
        }
    }

    /// Keeps barriers until the process stops.
    ///
    /// # Errors
    /// None: an application that gets no answer is no reason to stop it.
    pub async fn run(mut self, shutdown: Shutdown) -> Result<(), TaskError> {
        loop {
            let wake_at = self.advance(Instant::now());
            let Self { wires, looking, .. } = &mut self;
            tokio::select! {
                // What ends a tenure comes before what belongs to one.
                biased;
                () = shutdown.requested() => return Ok(()),
                changed = wires.views.changed() => if changed.is_err() { return Ok(()) },
                looked = next_look(looking) => self.looked(looked),
                Some(()) = wires.settle.recv() => self.wait(Waiter::Succession),
                changed = wires.progress.changed() => if changed.is_err() { return Ok(()) },
                Some(waiter) = wires.barriers.recv() => self.wait(Waiter::Application(waiter)),
                () = sleep_until(wake_at) => {}
            }
        }
    }

    fn wait(&mut self, waiter: Waiter) {
        self.waiting.push(Ticket { asked: Instant::now(), waiter });
    }

    /// Does all that can be done now; returns when to do so again.
    fn advance(&mut self, now: Instant) -> Instant {
        let view = self.wires.views.borrow_and_update().clone();
        let progress = self.wires.progress.borrow_and_update().clone();
        if self.noted.as_ref().is_some_and(|(note, _)| note.base < view.version) {
            // The Lease has moved on: the write is in what it says, or never will be.
            self.noted = None;
        }
        if self.tenure != view.acting {
            self.begin(view.acting, now);
        }
        let Some(epoch) = view.acting else {
            for ticket in self.waiting.drain(..) {
                ticket.refuse("this agent does not act");
            }
            return now + LOOK_EVERY;
        };
        self.refuse_late(now);
        let knowledge = self.knowledge(&view, &progress);
        self.answer(&knowledge, epoch, now);
        let blockage = self.see(&progress, now);
        self.resign(blockage.as_ref(), &knowledge, now);
        self.note(&view, &knowledge, (&progress, now));
        self.look(&knowledge, (progress, now));
        let is_repeated = self.is_to_be_repeated(&self.wires.progress.borrow());
        let is_asked = [&self.waiting, &self.looked_for].iter().any(|tickets| !tickets.is_empty());
        let is_waiting = is_asked || !self.looked.is_empty() || self.noted.is_some();
        let is_busy = is_repeated || is_waiting || self.behind_since.is_some();
        if is_busy { now + TICK } else { self.next_look.max(now + TICK) }
    }

    /// Refuses barriers whose look does not end: the first one of a tenure reads everything, and a disk may hang.
    fn refuse_late(&mut self, now: Instant) {
        let is_late = |ticket: &mut Ticket| {
            matches!(ticket.waiter, Waiter::Application(_)) && ticket.asked + BARRIER_MAX <= now
        };
        let late = self.waiting.extract_if(.., is_late).chain(self.looked_for.extract_if(.., is_late));
        late.for_each(|ticket| ticket.refuse("the state directory was not read in time"));
    }

    /// Another tenure, or none.
    fn begin(&mut self, acting: Option<Epoch>, now: Instant) {
        (self.tenure, self.has_looked, self.stale_since) = (acting, false, None);
        let looked = self.looked.drain(..).map(|(_, ticket)| ticket);
        for ticket in self.looked_for.drain(..).chain(looked) {
            ticket.refuse("the tenure has ended");
        }
        self.waiting.retain(|ticket| matches!(ticket.waiter, Waiter::Application(_)));
        self.wires.snapshots.send_replace(None);
        (self.behind_since, self.next_look) = (None, now);
        (self.sight, self.logged, self.next_resign) = (LookSight::new(moments(now)), None, now);
        self.meter.clear();
        self.meter.block(None);
    }

    /// Follows whether looks succeed and the standby takes what is sent; returns why it gets nothing, if it does not.
    fn see(&mut self, progress: &Progress, now: Instant) -> Option<Blockage> {
        let strides = self.looking.is_some().then(|| self.strides.count());
        self.sight.follow(strides, now);
        if let Some(good) = self.sight.blind_since(now).filter(|_| progress.standby.is_some()) {
            // What is there now is not known, so the standby may lack something since then.
            self.meter.miss(good.boot, good.date);
        }

        let own = self.sight.blockage(now);
        if own != self.logged {
            if let Some(Blockage { reason, path }) = &own {
                let (reason, path) = (reason.as_str(), path.as_deref().unwrap_or_default());
                warn!(
                    reason,
                    path, "The state is not replicated: no look at its directory has succeeded for long"
                );
            }
            self.logged.clone_from(&own);
        }
        let blockage = own.or(progress.refusal.map(Blockage::from));
        self.meter.block(blockage.clone());
        blockage
    }

    /// Proposes to give the role up: the own disk fails, so that no barrier is kept here any more, and the standby has all that
    /// was ever acknowledged.
    fn resign(&mut self, blockage: Option<&Blockage>, knowledge: &Knowledge, now: Instant) {
        let is_failing = blockage.is_some_and(|blockage| blockage.reason == LagReason::ActiveDiskFails);
        let Some(epoch) = self.tenure.filter(|_| is_failing && self.next_resign <= now) else { return };
        if !knowledge.may_hand_over(self.sequence) {
            return;
        }
        self.next_resign = now + RESIGN_EVERY;
        // One that waits already is as good.
        let _: Result<(), TrySendError<Epoch>> = self.wires.resigns.try_send(epoch);
    }

    fn knowledge(&self, view: &View, progress: &Progress) -> Knowledge {
        let own = self.wires.directory.id();
        let said = if view.is_written {
            Some(view.level.clone())
        } else {
            // It was handed over, which is done only if exactly both are level.
            self.wires.door.giver().map(|giver| Level::Only(BTreeSet::from([own, giver])))
        };
        let noted = self.noted.iter().map(|(_, level)| Level::Only(level.clone()));
        // Without the first one nothing is certain, whatever the second one says.
        let possible = said.map(|said| std::iter::once(said).chain(noted).collect());
        Knowledge {
            own,
            possible: possible.unwrap_or_default(),
            acknowledged: progress.acknowledged,
            is_at_hand: progress.is_of(view.peer),
        }
    }

    fn answer(&mut self, knowledge: &Knowledge, epoch: Epoch, now: Instant) {
        let promote_when = self.wires.promote_when;
        for (sequence, ticket) in std::mem::take(&mut self.looked) {
            let waited = now.duration_since(ticket.asked);
            let outcome = knowledge.outcome(sequence);
            match ticket.waiter {
                Waiter::Succession => {
                    let may = knowledge.may_hand_over(sequence);
                    let is_hopeless = outcome == Outcome::Alone || waited >= SETTLE_MAX;
                    if may || is_hopeless {
                        self.settled(may || promote_when == PromoteWhen::Always);
                    } else {
                        self.looked.push((sequence, ticket));
                    }
                }
                Waiter::Application(_) if outcome != Outcome::Waiting => {
                    ticket.answer(Ok(Kept { epoch, sequence, is_alone: outcome == Outcome::Alone }));
                }
                Waiter::Application(_) if waited >= BARRIER_MAX => {
                    ticket.refuse("neither the standby nor the API server answered in time");
                }
                Waiter::Application(_) => self.looked.push((sequence, ticket)),
            }
        }
    }

    fn settled(&self, is_level: bool) {
        // Without a receiver the agent is about to end.
        let _: Result<(), TrySendError<bool>> = self.wires.settled.try_send(is_level);
    }

    /// Has the Lease say who is level.
    fn note(&mut self, view: &View, knowledge: &Knowledge, (progress, now): (&Progress, Instant)) {
        let own = knowledge.own;
        let (has_looked, has_sent) = (self.has_looked, self.wires.snapshots.borrow().is_some());
        let level = progress
            .acknowledged
            .filter(|(_, last)| progress.reach == Reach::Connected && *last == self.sequence);
        let level = level.map(|(directory, _)| directory).filter(|_| has_sent);
        let is_unreplicable =
            self.sight.blockage(now).is_some_and(|blockage| blockage.reason == LagReason::Unreplicable);
        let level = level.filter(|_| !is_unreplicable);
        if level.is_some() && self.sight.blind_since(now).is_none() {
            self.meter.clear();
        }
        let is_waited_for = has_looked
            && knowledge.possible.iter().any(|level| level.names_others(own))
            && knowledge.outcome(self.sequence) == Outcome::Waiting;
        self.behind_since = self.behind_since.or(Some(now)).filter(|_| is_waited_for);
        let is_absent = progress.reach == Reach::Absent;
        let is_late = self.behind_since.is_some_and(|since| is_absent || since + STANDBY_MAX <= now);
        // It would be called level for ever, and take over with a copy of any age.
        let is_overdue = is_late || is_unreplicable;
        if !view.is_written || !(has_looked || is_unreplicable) || now < self.next_note {
            return;
        }
        // One write on one version: of two different ones either might succeed.
        let noted = self.noted.clone().or_else(|| {
            let wanted = wanted(&view.level, own, (level, is_overdue))?;
            let standby = progress.standby.filter(|_| wanted.len() > 1);
            let annotations = level_annotations(&wanted, [Some(self.wires.own), standby]);
            Some((Note { base: view.version, annotations }, wanted))
        });
        let Some((note, wanted)) = noted else { return self.tell_lag(view, own) };
        self.next_note = now + NOTE_EVERY;
        if self.wires.notes.try_send(note.clone()).is_ok() {
            let count = wanted.len();
            info!(count, is_absent, "Writes how many directories are level into the Lease");
            self.noted = Some((note, wanted));
        }
    }

    /// Has the Lease tell how much the standby lacks, as long as it is left out. Such a write changes nobody's level, so
    /// nothing needs to know whether it succeeded.
    fn tell_lag(&mut self, view: &View, own: DirectoryId) {
        if !view.level.is(&BTreeSet::from([own])) {
            return;
        }
        let due = self.meter.due(&self.wires.told.borrow(), clock::now());
        if let Some(note) = due.and_then(|lag| lag_note(view.version, &lag)) {
            // Who asks for a write asks again.
            let _: Result<(), TrySendError<Note>> = self.wires.notes.try_send(note);
        }
    }
}
