//! What the rest of the process sees of the election: whether it leads, now.

use std::sync::{Arc, OnceLock};

use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

/// Until when we lead; `None` while we do not.
pub(super) type Term = Option<Instant>;

/// A cloneable view of the election.
///
/// Leadership has an end that is known beforehand, so a process that was stopped for a while and goes on sees at once
/// that it no longer leads, before the elector's task has run again.
#[derive(Clone, Debug)]
pub struct Leadership {
    term: watch::Receiver<Term>,
    /// Version of the Lease as it was when we began to lead; once, as a process leads once.
    acquired: Arc<OnceLock<u64>>,
    permits: watch::Sender<usize>,
    gap: std::time::Duration,
}

/// Leave to write while leading; the lease is not released before all permits are dropped.
#[derive(Debug)]
pub struct Permit {
    permits: watch::Sender<usize>,
    until: Instant,
}

impl Leadership {
    pub(super) fn new(term: watch::Receiver<Term>, gap: std::time::Duration) -> Self {
        Self { term, acquired: Arc::default(), permits: watch::Sender::new(0), gap }
    }

    /// A view of an election that is won for a day, for tests of what a leader does.
    #[cfg(any(test, feature = "testing"))]
    pub fn won() -> Self {
        let day = std::time::Duration::from_secs(24 * 60 * 60);
        let won = Self::new(watch::channel(Some(Instant::now() + day)).1, day);
        won.acquired_at(0);
        won
    }

    /// Notes the version of the Lease by which we lead.
    pub(super) fn acquired_at(&self, version: u64) {
        self.acquired.get_or_init(|| version);
    }

    /// Version of the cluster's state when we began to lead: what was written at an earlier one may be another replica's. The highest
    /// one before that.
    pub fn acquired_version(&self) -> u64 {
        self.acquired.get().copied().unwrap_or(u64::MAX)
    }

    /// Whether we lead now.
    pub fn is_leader(&self) -> bool {
        self.remaining_term().is_some()
    }

    /// Returns when we lead, at once if we already do. Never returns once the elector has ended.
    pub async fn acquired(&self) {
        let mut term = self.term.clone();
        while !self.is_leader() {
            if term.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    /// Returns when we do not lead, at once if we do not yet: await [`Self::acquired`] first.
    pub async fn lost(&self) {
        let mut term = self.term.clone();
        while let Some(until) = self.remaining_term() {
            // A renewal first: it moves the end that the other branch waits for.
            tokio::select! {
                biased;
                changed = term.changed() => if changed.is_err() { return },
                () = sleep_until(until) => (),
            }
        }
    }

    /// Leave to write; `None` if we do not lead.
    pub fn permit(&self) -> Option<Permit> {
        // Counted before the check: an elector that steps down in between waits for this permit, or it is refused.
        self.permits.send_modify(|count| *count += 1);
        let mut permit = Permit { permits: self.permits.clone(), until: Instant::now() };
        permit.until = self.remaining_term()? + self.gap;
        Some(permit)
    }

    /// Returns when no permit is held.
    pub(super) async fn drained(&self) {
        let mut permits = self.permits.subscribe();
        let outcome = permits.wait_for(|count| *count == 0).await;
        drop(outcome.expect("the sender lives in self"));
    }

    fn remaining_term(&self) -> Term {
        self.term.borrow().filter(|until| Instant::now() < *until)
    }
}

impl Permit {
    /// Until when nobody else can have taken the lease; a write should not wait for its answer longer than this.
    pub fn until(&self) -> Instant {
        self.until
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.permits.send_modify(|count| *count -= 1);
    }
}
