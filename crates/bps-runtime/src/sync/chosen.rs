//! The primitives by which a checker chooses who goes next: a lock of the checker's, and a notice and a clock made with it.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::ops::Add;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use shuttle::rand::{Rng as _, thread_rng};
use shuttle::sync::atomic::{AtomicU32, Ordering};
pub use shuttle::sync::{Mutex, MutexGuard};

/// As tokio's: a notice for one is kept for whoever asks next, a notice for all reaches those who have asked.
#[derive(Debug, Default)]
pub struct Notify {
    notices: std::sync::Mutex<Notices>,
    /// Each operation lets the checker choose, and is one step by itself.
    step: AtomicU32,
}

#[derive(Debug, Default)]
struct Notices {
    is_kept: bool,
    /// How often all were told.
    for_all: u64,
    /// Who waits, in order of arrival; without a waker: has been told.
    waiting: BTreeMap<u64, Option<Waker>>,
    arrivals: u64,
}

/// Somebody who has asked.
pub struct Notified<'a> {
    notify: &'a Notify,
    /// Notices for all before it asked.
    for_all: u64,
    place: Option<u64>,
}

impl Notify {
    /// Waits for the next notice.
    pub fn notified(&self) -> Notified<'_> {
        Notified { notify: self, for_all: self.step().for_all, place: None }
    }

    /// Tells one that waits, else the next one that will.
    pub fn notify_one(&self) {
        self.step().tell_one();
    }

    /// Tells all that wait.
    pub fn notify_waiters(&self) {
        let mut notices = self.step();
        notices.for_all += 1;
        for waker in std::mem::take(&mut notices.waiting).into_values().flatten() {
            waker.wake();
        }
    }

    fn step(&self) -> std::sync::MutexGuard<'_, Notices> {
        self.step.fetch_add(1, Ordering::SeqCst);
        self.notices.lock().unwrap()
    }
}

impl Notices {
    fn tell_one(&mut self) {
        match self.waiting.values_mut().find_map(Option::take) {
            Some(waker) => waker.wake(),
            None => self.is_kept = true,
        }
    }
}

impl Future for Notified<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let notify = self.notify;
        let mut notices = notify.step();
        let is_told = match self.place.map(|place| notices.waiting.get(&place)) {
            None => std::mem::take(&mut notices.is_kept),
            Some(waker) => !matches!(waker, Some(Some(_))),
        };
        if is_told || notices.for_all > self.for_all {
            self.place.take().map(|place| notices.waiting.remove(&place));
            return Poll::Ready(());
        }
        let place = *self.place.get_or_insert_with(|| {
            notices.arrivals += 1;
            notices.arrivals
        });
        notices.waiting.insert(place, Some(context.waker().clone()));
        Poll::Pending
    }
}

impl Drop for Notified<'_> {
    fn drop(&mut self) {
        let mut notices = self.notify.notices.lock().unwrap();
        // A notice for one that nobody has taken is for the next.
        if let Some(None) = self.place.and_then(|place| notices.waiting.remove(&place)) {
            notices.tell_one();
        }
    }
}

thread_local! {
    /// One thread of the system runs all threads of the checker. The clock never goes back, so it may go on from one
    /// schedule to the next.
    static CLOCK: Cell<Duration> = const { Cell::new(Duration::ZERO) };
}

/// A moment of a clock that goes on only where somebody waits for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Instant(Duration);

impl Instant {
    /// The moment that the checker has reached.
    pub fn now() -> Self {
        Self(CLOCK.get())
    }

    /// Time since then.
    pub fn elapsed(self) -> Duration {
        Self::now().duration_since(self)
    }

    /// Time from an earlier moment to this one.
    pub fn duration_since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

impl Add<Duration> for Instant {
    type Output = Self;

    fn add(self, time: Duration) -> Self {
        Self(self.0 + time)
    }
}

/// Waits until this moment at most; the checker chooses whether that comes first.
pub async fn timeout_at(due: Instant, waited_for: impl Future<Output = ()>) -> Result<(), Infallible> {
    let mut waited_for = pin!(waited_for);
    std::future::poll_fn(|context| {
        if waited_for.as_mut().poll(context).is_ready() {
            return Poll::Ready(Ok(()));
        }
        if thread_rng().gen_bool(0.5) {
            CLOCK.set(CLOCK.get().max(due.0));
            return Poll::Ready(Ok(()));
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await
}
