//! Acquires, renews and releases the Lease; what to do is decided in `decide`.

use std::time::Duration;

use kube::Client;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout, timeout_at};
use tracing::{debug, info, warn};

use super::leadership::Term;
use super::lock::{Lock, wall_clock};
use super::settings::JITTER_FACTOR;
use super::{Decision, Error, Leadership, Observation, Record, Settings, claim, decide};
use crate::metrics::reconcile::ReconcileMetrics;
use crate::shutdown::Shutdown;

/// How long a stopping leader waits for permits to be dropped before it gives up releasing the lease.
///
/// 5 s, and never more than the gap between renew deadline and lease duration (5 s by default): within it nobody else
/// can have begun to lead. Together with [`RELEASE_MAX`] it fits into the 10 s of `tasks::GRACE_MAX`.
pub const DRAIN_MAX: Duration = Duration::from_secs(5);

/// How long a stopping leader tries to release the lease; if that fails, the lease expires by itself.
pub const RELEASE_MAX: Duration = Duration::from_secs(2);

/// How often a release is tried: a renewal that was still under way may come in between once.
const RELEASE_ATTEMPTS: u32 = 2;

/// A released lease is written with this duration, as client-go does.
const RELEASED_DURATION: Duration = Duration::from_secs(1);

/// One candidate.
pub struct Elector {
    settings: Settings,
    lock: Lock,
    seen: Observation,
    term: watch::Sender<Term>,
    leadership: Leadership,
    metrics: ReconcileMetrics,
    random: u64,
}

/// What an attempt to acquire or renew led to.
enum Attempt {
    /// The Lease is ours; our time runs from when the request was sent.
    Held { sent: Instant },
    /// Somebody else's, at least until then.
    Other { until: Instant },
}

impl Elector {
    /// A candidate that does nothing until [`Elector::run`].
    ///
    /// # Errors
    /// `Settings` if the times contradict each other, `Identity` without random numbers.
    pub fn new(client: Client, settings: Settings, metrics: &ReconcileMetrics) -> Result<Self, Error> {
        settings.check()?;
        let random = getrandom::u64().map_err(|source| Error::Identity { source })?;
        let term = watch::Sender::new(None);
        let leadership = Leadership::new(term.subscribe(), settings.safety_gap());
        metrics.set_leader(settings.name, false);
        Ok(Self {
            lock: Lock::new(client, &settings),
            seen: Observation::nothing(Instant::now()),
            metrics: metrics.clone(),
            settings,
            term,
            leadership,
            // Never 0, from which the generator would not move.
            random: random | 1,
        })
    }

    /// The view of this election for the rest of the process.
    pub fn leadership(&self) -> Leadership {
        self.leadership.clone()
    }

    /// Runs for office until `shutdown`; then waits for permits and releases the Lease.
    ///
    /// # Errors
    /// `Taken` or `RenewDeadline` when leadership was lost: the process should end, as its caches and plans may be
    /// under way. Failed requests are logged and tried again.
    pub async fn run(mut self, shutdown: Shutdown) -> Result<(), Error> {
        let outcome = match self.acquire(&shutdown).await {
            Some(sent) => {
                self.leadership.acquired_at(self.lock.version());
                self.lead(sent);
                info!(reason = "Acquired", "Began to lead");
                self.hold(&shutdown).await
            }
            None => Ok(()),
        };
        self.term.send_replace(None);
        self.metrics.set_leader(self.settings.name, false);
        outcome?;
        self.drain_and_release().await;
        Ok(())
    }

    /// Tries until the Lease is ours; `None` on shutdown.
    async fn acquire(&mut self, shutdown: &Shutdown) -> Option<Instant> {
        loop {
            // Shutdown first: a candidate that is asked to stop must not begin to lead.
            let attempt = tokio::select! {
                biased;
                () = shutdown.requested() => return None,
                attempt = self.attempt() => attempt,
            };
            let mut next = Instant::now() + self.jittered();
            match attempt {
                Ok(Attempt::Held { sent }) if Instant::now() < sent + self.settings.renew_deadline => {
                    return Some(sent);
                }
                // The answer came so late that the term is over; the Lease is still ours, so renew it at once.
                Ok(Attempt::Held { .. }) => continue,
                // As soon as it expires, if that is earlier; the write decides between candidates.
                Ok(Attempt::Other { until }) => {
                    next = next.min(until.max(Instant::now() + self.settings.retry_period));
                }
                Err(error) => warn!(error = &error as &dyn std::error::Error, "Could not acquire lease"),
            }
            tokio::select! {
                biased;
                () = shutdown.requested() => return None,
                () = sleep_until(next) => (),
            }
        }
    }

    /// Renews until shutdown, which is `Ok`, or until leadership is lost.
    async fn hold(&mut self, shutdown: &Shutdown) -> Result<(), Error> {
        loop {
            let deadline = self.term.borrow().expect("set by lead");
            let next = deadline.min(Instant::now() + self.settings.retry_period);
            // Shutdown first in both: a leader that is asked to stop stops renewing.
            tokio::select! {
                biased;
                () = shutdown.requested() => return Ok(()),
                () = sleep_until(next) => (),
            }
            let attempt = tokio::select! {
                biased;
                () = shutdown.requested() => return Ok(()),
                attempt = timeout_at(deadline, self.attempt()) => attempt,
            };
            match attempt {
                Ok(Ok(Attempt::Held { sent })) => self.lead(sent),
                Ok(Ok(Attempt::Other { .. })) => {
                    return Err(Error::Taken { holder: self.holder().to_owned() });
                }
                Ok(Err(error)) => warn!(error = &error as &dyn std::error::Error, "Could not renew lease"),
                Err(_) => (),
            }
            if !self.leadership.is_leader() {
                return Err(Error::RenewDeadline { deadline: self.settings.renew_deadline });
            }
        }
    }

    fn lead(&mut self, sent: Instant) {
        self.term.send_replace(Some(sent + self.settings.renew_deadline));
        self.metrics.set_leader(self.settings.name, true);
    }

    async fn attempt(&mut self) -> Result<Attempt, Error> {
        let limit = self.settings.attempt_max();
        timeout(limit, self.read_and_write()).await.unwrap_or(Err(Error::NoAnswer { limit }))
    }

    async fn read_and_write(&mut self) -> Result<Attempt, Error> {
        // A leader writes over what it wrote last, without reading: one request, and a conflict tells as much.
        let is_leading = self.term.borrow().is_some();
        if is_leading && let Some(attempt) = self.write_claim().await? {
            return Ok(attempt);
        }
        let read = self.lock.read().await?;
        self.seen.update(read, Instant::now());
        // A leader that finds another name, or none, was replaced in between, even if the Lease is free again.
        if is_leading && self.holder() != self.settings.identity {
            return Ok(Attempt::Other { until: Instant::now() });
        }
        match decide(&self.seen, &self.settings.identity, Instant::now()) {
            Decision::Wait { until } => Ok(Attempt::Other { until }),
            Decision::Create | Decision::Renew | Decision::TakeOver => {
                match self.write_claim().await? {
                    Some(attempt) => Ok(attempt),
                    // Ours a moment ago, and changed twice since: the next attempt looks again.
                    None if is_leading => Err(Error::Conflict),
                    None => Ok(Attempt::Other { until: Instant::now() }),
                }
            }
        }
    }

    /// Writes our name into the Lease; `None` if somebody else wrote in between.
    async fn write_claim(&mut self) -> Result<Option<Attempt>, Error> {
        let us = (self.settings.identity.as_str(), self.settings.lease_duration);
        let record = claim(self.seen.record.as_ref(), wall_clock(), us);
        let sent = Instant::now();
        let written = self.lock.write(&record).await?;
        Ok(written.map(|written| {
            self.seen.update(Some(written), Instant::now());
            Attempt::Held { sent }
        }))
    }

    async fn drain_and_release(&mut self) {
        let limit = DRAIN_MAX.min(self.settings.safety_gap());
        if timeout(limit, self.leadership.drained()).await.is_err() {
            warn!(reason = "PermitsHeld", "Left the lease to expire");
            return;
        }
        match timeout(RELEASE_MAX, self.release()).await {
            Ok(Ok(())) => debug!("Released lease"),
            Ok(Err(error)) => warn!(error = &error as &dyn std::error::Error, "Could not release lease"),
            Err(_) => warn!(reason = "NoAnswer", "Could not release lease"),
        }
    }

    /// Takes our name out of the Lease, if it is there: also one that an interrupted attempt wrote.
    async fn release(&mut self) -> Result<(), Error> {
        for _ in 0..RELEASE_ATTEMPTS {
            let Some(before) = self.lock.read().await? else { return Ok(()) };
            if before.holder != self.settings.identity {
                return Ok(());
            }
            let now = Some(wall_clock());
            let record = Record {
                holder: String::new(),
                duration: RELEASED_DURATION,
                acquired: now,
                renewed: now,
                transitions: before.transitions,
            };
            if self.lock.write(&record).await?.is_some() {
                return Ok(());
            }
        }
        Ok(())
    }

    fn holder(&self) -> &str {
        self.seen.record.as_ref().map_or("", |record| record.holder.as_str())
    }

    /// One retry period and up to [`JITTER_FACTOR`] more.
    fn jittered(&mut self) -> Duration {
        // xorshift64: good enough to keep candidates out of step.
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        let share = f64::from(u16::try_from(self.random >> 48).unwrap_or(u16::MAX)) / f64::from(u16::MAX);
        self.settings.retry_period.mul_f64(1.0 + JITTER_FACTOR * share)
    }
}
