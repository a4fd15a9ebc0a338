//! Which set is looked at next.
//!
//! A set is never handed out twice at the same time, events of one set are merged while they wait, and urgent sets
//! come before all others.

#![cfg_attr(
    not(feature = "shuttle"),
    allow(unreachable_pub, reason = "only tests of threads come from outside")
)]

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bps_observe::{Change, SetKey};
use bps_runtime::backoff::KeyedBackoff;
use bps_runtime::sync::{Instant, Mutex, MutexGuard, Notify, timeout_at};
use tokio::sync::watch;

/// How long an ordinary event waits for its neighbours.
///
/// 50 ms: the events of one scheduler burst, or of Pods that start together, arrive within some tens of milliseconds on
/// a busy machine, while nobody notices 50 ms in a start that takes a second.
pub const ORDINARY_DELAY: Duration = Duration::from_millis(50);

/// Longest time before an object that others keep changing is put right again.
const CONTEST_DELAY_MAX: Duration = Duration::from_secs(30);

/// After this time without a foreign change the next one is put right as soon as the first.
const CONTEST_MEMORY: Duration = Duration::from_secs(120);

/// A set to be looked at.
#[derive(Clone, Debug)]
pub struct Job {
    /// Which set.
    pub key: SetKey,
    /// The most pressing of the merged events.
    pub change: Change,
    /// When the first of the merged events arrived.
    pub since: Instant,
    /// Changes with each event that comes before the look at the set has ended and is not to wait for its end.
    pub urgent: watch::Receiver<()>,
}

/// When a set is looked at again even if nothing happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Again {
    /// Time until then.
    pub after: Duration,
    /// How pressing it is then.
    pub change: Change,
}

impl From<Duration> for Again {
    /// After this time, for nothing that service depends on.
    fn from(after: Duration) -> Self {
        Self { after, change: Change::Ordinary }
    }
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    change: Change,
    since: Instant,
    due: Instant,
}

impl Entry {
    fn merge(self, other: Self) -> Self {
        Self {
            change: self.change.max(other.change),
            since: self.since.min(other.since),
            due: self.due.min(other.due),
        }
    }
}

#[derive(Debug, Default)]
struct State {
    /// Nobody takes sets yet, so that notes are not kept either.
    is_closed: bool,
    waiting: BTreeMap<SetKey, Entry>,
    urgent: BTreeSet<(Instant, SetKey)>,
    ordinary: BTreeSet<(Instant, SetKey)>,
    /// Sets that are being looked at, and what tells their looks of events that are not to wait.
    running: BTreeMap<SetKey, watch::Sender<()>>,
    /// Events of sets that are being looked at.
    again: BTreeMap<SetKey, Entry>,
}

/// Sets that wait to be looked at. Holds at most one entry for each set.
#[derive(Debug)]
pub struct Queue {
    state: Mutex<State>,
    changed: Notify,
    /// Sets whose objects others keep changing.
    contests: KeyedBackoff<SetKey>,
}

impl Default for Queue {
    fn default() -> Self {
        Self::with(State::default())
    }
}

impl Queue {
    /// One that keeps nothing before [`Queue::open`]: an operator that does not lead sees sets come and go for months.
    pub fn closed() -> Self {
        Self::with(State { is_closed: true, ..State::default() })
    }

    fn with(state: State) -> Self {
        let contests = KeyedBackoff::new(ORDINARY_DELAY, CONTEST_DELAY_MAX).forgetting_after(CONTEST_MEMORY);
        Self { state: Mutex::new(state), changed: Notify::default(), contests }
    }

    /// Keeps what is noted from now on; who opens it notes every set after that.
    pub fn open(&self) {
        self.lock().is_closed = false;
    }

    /// Notes that a set changed just now.
    pub fn note(&self, key: SetKey, change: Change) {
        if self.lock().is_closed {
            return;
        }
        let now = Instant::now();
        let delay = match change {
            Change::Urgent | Change::Wanted => Duration::ZERO,
            Change::Ordinary => ORDINARY_DELAY,
            Change::Contested => self.contests.again(&key),
        };
        self.insert(key, Entry { change, since: now, due: now + delay });
    }

    /// Looks at a set again after a while, even if nothing happens.
    pub fn note_later(&self, key: SetKey, again: impl Into<Again>) {
        let Again { after, change } = again.into();
        let due = Instant::now() + after;
        self.insert(key, Entry { change, since: due, due });
    }

    fn insert(&self, key: SetKey, entry: Entry) {
        let mut state = self.lock();
        if state.is_closed {
            return;
        }
        if let Some(urgent) = state.running.get(&key) {
            if entry.change.interrupts() {
                urgent.send_replace(());
            }
            let merged = state.again.get(&key).map_or(entry, |earlier| earlier.merge(entry));
            state.again.insert(key, merged);
            return;
        }
        state.enqueue(key, entry);
        drop(state);
        self.changed.notify_one();
    }

    /// The next set, urgent ones first; waits until there is one. Ordinary ones only if they are allowed.
    pub async fn take(&self, are_ordinary_allowed: bool) -> Job {
        loop {
            let changed = self.changed.notified();
            let next_due = match self.lock().pop(are_ordinary_allowed, Instant::now()) {
                Ok(job) => return job,
                Err(next_due) => next_due,
            };
            match next_due {
                Some(due) => {
                    let _: Result<(), _> = timeout_at(due, changed).await;
                }
                None => changed.await,
            }
        }
    }

    /// A set is done with: events that came meanwhile are due now.
    pub fn done(&self, key: &SetKey) {
        let mut state = self.lock();
        state.running.remove(key);
        if let Some(entry) = state.again.remove(key) {
            state.enqueue(key.clone(), entry);
        }
        drop(state);
        self.changed.notify_one();
    }

    /// Sets that wait.
    pub fn depth(&self) -> usize {
        self.lock().waiting.len()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no holder of this lock panics")
    }
}

impl State {
    fn enqueue(&mut self, key: SetKey, entry: Entry) {
        let merged = match self.waiting.remove(&key) {
            Some(earlier) => {
                self.lane(earlier.change).remove(&(earlier.due, key.clone()));
                earlier.merge(entry)
            }
            None => entry,
        };
        self.lane(merged.change).insert((merged.due, key.clone()));
        self.waiting.insert(key, merged);
    }

    /// The next due set, or when the next one is due.
    fn pop(&mut self, are_ordinary_allowed: bool, now: Instant) -> Result<Job, Option<Instant>> {
        let urgent = self.urgent.first().cloned();
        let ordinary = if are_ordinary_allowed { self.ordinary.first().cloned() } else { None };
        let is_due = |entry: &(Instant, SetKey)| entry.0 <= now;
        let Some((due, key)) = urgent.clone().filter(is_due).or_else(|| ordinary.clone().filter(is_due))
        else {
            return Err(urgent.into_iter().chain(ordinary).map(|(due, _)| due).min());
        };
        let entry = self.waiting.remove(&key).expect("each entry of a lane waits");
        self.lane(entry.change).remove(&(due, key.clone()));
        let (sender, urgent) = watch::channel(());
        self.running.insert(key.clone(), sender);
        Ok(Job { key, change: entry.change, since: entry.since, urgent })
    }

    fn lane(&mut self, change: Change) -> &mut BTreeSet<(Instant, SetKey)> {
        match change {
            Change::Urgent => &mut self.urgent,
            Change::Wanted | Change::Ordinary | Change::Contested => &mut self.ordinary,
        }
    }
}
