//! Looks at the state directory: when, and what of them is sent.
//!
//! A standby that may act must never get a mixture of moments: what was acknowledged may be in none of them. So a look that
//! found no such moment is kept back from it, and who waits for it waits for the next one, or for the Lease to leave the
//! standby out. One that is left out gets whatever can be had, so that little is left to send at the moment that counts.

use std::future::pending;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bps_protocol::Epoch;
use futures::future::BoxFuture;
use jiff::Timestamp;
use tokio::task::spawn_blocking;
use tokio::time::Instant;
use tracing::warn;

use super::super::blockage::Blockage;
use super::super::gate::{Knowledge, Outcome};
use super::super::lag::{Amount, lacking};
use super::super::outbox::BatchEnd;
use super::super::scan::{Scanner, Snapshot};
use super::super::sender::{Progress, Reach};
use super::ticket::{Ticket, Waiter};
use super::{LOOK_EVERY, Ledger, STANDBY_MAX, TICK, moments};
use crate::clock;

/// How long looks are kept back that nobody waits for. 10 s: then a standby that is called level would have little of what the
/// application does, and is better left out.
pub(super) const STALE_MAX: Duration = Duration::from_secs(10);

pub(super) type Look = BoxFuture<'static, Looked>;

/// The end of a look.
pub(super) struct Looked {
    scanner: Scanner,
    /// The tenure in which it began.
    tenure: Option<Epoch>,
    /// What it has found, and how much of it the standby lacks.
    found: io::Result<(Snapshot, Amount)>,
}

impl Ledger {
    /// Whether the newest look did not become the standby's, and only another one can.
    pub(super) fn is_to_be_repeated(&self, progress: &Progress) -> bool {
        let is_missed = self.is_kept_back && !self.looked.is_empty();
        is_missed || progress.flawed == Some((self.sequence, BatchEnd::Torn))
    }

    /// Looks, if somebody asked for it or it is time, and what was seen before is not on its way to the standby: one that is
    /// not connected yet gets the newest look.
    pub(super) fn look(&mut self, knowledge: &Knowledge, (progress, now): (Progress, Instant)) {
        let is_repeated = self.is_to_be_repeated(&progress);
        let is_due =
            is_repeated && self.next_repeat <= now || !self.waiting.is_empty() || self.next_look <= now;
        let is_behind = !is_repeated
            && progress.reach == Reach::Connected
            && knowledge.outcome(self.sequence) == Outcome::Waiting
            && self.behind_since.is_some_and(|since| now < since + STANDBY_MAX);
        let Some(mut scanner) = self.scanner.take_if(|_| is_due && !is_behind) else { return };
        self.strides = scanner.strides();
        (self.next_look, self.next_repeat) = (now + LOOK_EVERY, now + TICK);
        self.looked_for.append(&mut self.waiting);
        let (sequence, tenure) = (self.sequence + 1, self.tenure);
        let (directory, left_out) = (self.wires.directory.clone(), self.wires.left_out.clone());
        self.looking = Some(Box::pin(async move {
            let looked = spawn_blocking(move || {
                let Progress { standby, has, .. } = progress;
                let has = standby.map(|_| has.unwrap_or_default());
                let found = scanner.look(sequence).map(|snapshot| {
                    let amount = has.map(|has| lacking(&has, &snapshot)).unwrap_or_default();
                    (snapshot, amount)
                });
                Looked { scanner, tenure, found }
            });
            // A look that panicked knows nothing any more.
            let anew = |error| {
                let scanner = Scanner::new(directory).leaving_out(left_out);
                Looked { scanner, tenure, found: Err(error) }
            };
            looked.await.unwrap_or_else(|error| anew(error.into()))
        }));
    }

    pub(super) fn looked(&mut self, Looked { scanner, tenure, found }: Looked) {
        (self.scanner, self.looking) = (Some(scanner), None);
        if tenure != self.tenure {
            // What it found may be from before other agents acted.
            return;
        }
        // One that takes long is not followed by another one at once.
        self.next_look = Instant::now() + LOOK_EVERY;
        match found {
            Ok((snapshot, amount)) => {
                self.sight.succeeded(moments(Instant::now()));
                if self.tenure.is_some() {
                    self.meter.measure(amount, (clock::now(), Timestamp::now()));
                }
                if let Some(path) = snapshot.passed_over.clone() {
                    self.refuse_passed_over(&path);
                }
                self.publish(snapshot);
                let sequence = self.sequence;
                self.looked.extend(self.looked_for.drain(..).map(|ticket| (sequence, ticket)));
            }
            Err(error) => {
                self.next_repeat = self.next_look;
                warn!(error = &error as &dyn std::error::Error, "Could not look at the state directory");
                let blockage = Blockage::of_look(&error);
                for ticket in std::mem::take(&mut self.looked_for) {
                    match ticket.waiter {
                        Waiter::Application(_) => ticket.refuse(blockage.refusal()),
                        Waiter::Succession => self.settled(false),
                    }
                }
                self.sight.failed(blockage);
            }
        }
    }

    /// Refuses the barriers of a look that passed something over: its answer would say that the standby has all that there was.
    fn refuse_passed_over(&mut self, path: &str) {
        let is_barrier = |ticket: &mut Ticket| matches!(ticket.waiter, Waiter::Application(_));
        for ticket in self.looked_for.extract_if(.., is_barrier) {
            ticket.refuse(format!(
                "{path} is neither a regular file nor a folder, so it is not replicated: move it out of the state directory"
            ));
        }
    }

    /// Has a look sent, if it says something new and may be.
    fn publish(&mut self, snapshot: Snapshot) {
        self.has_looked = true;
        let view = self.wires.views.borrow().clone();
        let progress = self.wires.progress.borrow().clone();
        let is_exact = self.knowledge(&view, &progress).may_others_act();
        if is_exact && !snapshot.is_whole {
            let now = Instant::now();
            let is_stale = *self.stale_since.get_or_insert(now) + STALE_MAX <= now;
            if is_stale || !self.looked_for.is_empty() {
                // Who waits for it must not be content with an earlier one, and the standby not be called level by it.
                (self.sequence, self.is_kept_back) = (snapshot.sequence, true);
            }
            return;
        }
        let known = self.wires.snapshots.borrow().clone();
        let is_missed =
            self.is_kept_back || progress.flawed.is_some_and(|(sequence, _)| sequence == self.sequence);
        self.stale_since = None;
        if is_missed || known.is_none_or(|known| known.image != snapshot.image) {
            (self.sequence, self.is_kept_back) = (snapshot.sequence, false);
            self.wires.snapshots.send_replace(Some(Arc::new(Snapshot { is_exact, ..snapshot })));
        }
    }
}

pub(super) async fn next_look(looking: &mut Option<Look>) -> Looked {
    match looking {
        Some(look) => look.await,
        None => pending().await,
    }
}

#[cfg(test)]
mod tests {
    use bps_protocol::AgentId;
    use bps_wire::lag::Told;
    use bps_wire::level::{DirectoryId, Level};
    use tokio::sync::{mpsc, oneshot, watch};
    use tokio::time::advance;

    use super::super::super::directory::StateDirectory;
    use super::super::super::door::Door;
    use super::super::super::gate::PromoteWhen;
    use super::super::super::left_out::LeftOut;
    use super::super::super::notes::level_annotations;
    use super::super::super::scan::LookTrouble;
    use super::super::{BARRIER_MAX, View, Wires};
    use super::*;
    use crate::metrics::AgentMetrics;

    const EPOCH: Option<Epoch> = Some(Epoch { term: 1, sequence: 0 });

    /// In its tenure, by a Lease that calls this other directory level; nothing is connected to it.
    fn ledger(folder: &std::path::Path, other: Option<DirectoryId>) -> Ledger {
        let directory = StateDirectory::open(folder).expect("a directory");
        let level = Level::Only(other.into_iter().chain([directory.id()]).collect());
        let view = View { acting: EPOCH, is_written: true, level, ..View::default() };
        let wires = Wires {
            own: AgentId(1),
            directory,
            door: Door::default(),
            promote_when: PromoteWhen::InSync,
            left_out: LeftOut::default(),
            views: watch::channel(view).1,
            told: watch::channel(Told::default()).1,
            barriers: mpsc::channel(1).1,
            settle: mpsc::channel(1).1,
            settled: mpsc::channel(1).0,
            resigns: mpsc::channel(1).0,
            snapshots: watch::channel(None).0,
            progress: watch::channel(Progress::default()).1,
            notes: mpsc::channel(1).0,
            metrics: AgentMetrics::default(),
        };
        let mut ledger = Ledger::new(wires);
        ledger.begin(EPOCH, Instant::now());
        ledger
    }

    /// A look ends that found nothing, at one moment or not. Returns what was sent last: its number, and whether it is to be
    /// had as it is.
    fn end(
        ledger: &mut Ledger,
        tenure: Option<Epoch>,
        (sequence, is_whole): (u64, bool),
    ) -> Option<(u64, bool)> {
        let scanner = Scanner::new(ledger.wires.directory.clone());
        let snapshot = Snapshot { sequence, is_whole, ..Snapshot::default() };
        ledger.looked(Looked { scanner, tenure, found: Ok((snapshot, Amount::default())) });
        let sent = ledger.wires.snapshots.borrow();
        sent.as_ref().map(|snapshot| (snapshot.sequence, snapshot.is_exact))
    }

    const OTHER: Option<DirectoryId> = Some(DirectoryId(7));

    #[tokio::test(start_paused = true)]
    async fn a_look_that_found_no_moment_is_kept_back_and_who_waits_for_it_is_not_content_with_less() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut ledger = ledger(folder.path(), OTHER);
        assert_eq!(end(&mut ledger, EPOCH, (1, true)), Some((1, true)));
        assert_eq!(end(&mut ledger, EPOCH, (2, false)), Some((1, true)));
        assert_eq!((ledger.sequence, ledger.is_kept_back), (1, false), "nobody waits for it");

        let (waiter, _answer) = oneshot::channel();
        ledger.wait(Waiter::Application(waiter));
        ledger.looked_for.append(&mut ledger.waiting);
        assert_eq!(end(&mut ledger, EPOCH, (2, false)), Some((1, true)));
        assert_eq!(ledger.looked.iter().map(|(sequence, _)| *sequence).collect::<Vec<_>>(), [2]);
        assert!(ledger.is_to_be_repeated(&Progress::default()));
        // With what was sent before, but the standby is to acknowledge the new number.
        assert_eq!(end(&mut ledger, EPOCH, (3, true)), Some((3, true)));
        assert!(!ledger.is_to_be_repeated(&Progress::default()));
    }

    #[tokio::test(start_paused = true)]
    async fn a_standby_for_which_there_is_no_moment_for_long_is_called_level_no_more() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut ledger = ledger(folder.path(), OTHER);
        end(&mut ledger, EPOCH, (1, true));
        end(&mut ledger, EPOCH, (2, false));
        advance(STALE_MAX).await;
        assert_eq!(end(&mut ledger, EPOCH, (2, false)), Some((1, true)));
        assert_eq!((ledger.sequence, ledger.is_kept_back), (2, true));
    }

    #[tokio::test(start_paused = true)]
    async fn a_look_of_another_tenure_says_nothing_about_this_one() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut ledger = ledger(folder.path(), OTHER);
        let former = Some(Epoch { term: 0, sequence: 9 });
        assert_eq!(end(&mut ledger, former, (1, true)), None);
        assert!(ledger.scanner.is_some() && !ledger.has_looked);
    }

    #[tokio::test(start_paused = true)]
    async fn who_waits_for_a_standby_that_is_not_connected_yet_is_looked_for_at_once() {
        let folder = tempfile::tempdir().expect("a folder");
        for (reach, is_looked_for) in [(Reach::Unknown, true), (Reach::Connected, false)] {
            let mut ledger = ledger(folder.path(), OTHER);
            let (progress, received) = watch::channel(Progress { reach, ..Progress::default() });
            ledger.wires.progress = received;
            end(&mut ledger, EPOCH, (1, true));
            let (waiter, _answer) = oneshot::channel();
            ledger.wait(Waiter::Application(waiter));
            ledger.advance(Instant::now());
            assert_eq!(ledger.looking.is_some(), is_looked_for, "{reach:?}");
            drop(progress);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_barrier_whose_look_does_not_end_is_refused_in_time() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut ledger = ledger(folder.path(), OTHER);
        // The look of another tenure has the scanner; or the look has begun.
        ledger.scanner = None;
        for has_begun in [false, true] {
            let (waiter, mut answer) = oneshot::channel();
            ledger.wait(Waiter::Application(waiter));
            if has_begun {
                ledger.looked_for.append(&mut ledger.waiting);
            }
            let wake_at = ledger.advance(Instant::now());
            assert!(wake_at <= Instant::now() + TICK, "it looks at the clock");
            assert!(answer.try_recv().is_err());
            advance(BARRIER_MAX).await;
            ledger.advance(Instant::now());
            assert!(answer.try_recv().expect("an answer").is_err());
        }
    }

    /// A look ends with this error, and everything that can be done is done.
    fn fail(ledger: &mut Ledger, error: io::Error) {
        let scanner = Scanner::new(ledger.wires.directory.clone());
        ledger.looked(Looked { scanner, tenure: EPOCH, found: Err(error) });
        // What is looked at meanwhile is another matter.
        ledger.scanner = None;
        ledger.advance(Instant::now());
    }

    fn unreplicable() -> io::Error {
        let (path, advice) = ("a/b".to_owned(), "too long".to_owned());
        io::Error::other(LookTrouble::Unreplicable { path, advice })
    }

    #[tokio::test(start_paused = true)]
    async fn a_standby_is_left_out_once_looks_have_failed_for_long_because_of_what_is_there() {
        let folder = tempfile::tempdir().expect("a folder");
        // Also if no look of the tenure has succeeded.
        for has_looked in [true, false] {
            let mut ledger = ledger(folder.path(), OTHER);
            let (notes, mut written) = mpsc::channel(1);
            ledger.wires.notes = notes;
            if has_looked {
                end(&mut ledger, EPOCH, (1, true));
                let standby = Some(AgentId(2));
                let acknowledged = OTHER.map(|other| (other, 1));
                let reach = Reach::Connected;
                let progress = Progress { acknowledged, reach, standby, ..Progress::default() };
                ledger.wires.progress = watch::channel(progress).1;
            }
            fail(&mut ledger, unreplicable());
            advance(STALE_MAX.saturating_sub(TICK)).await;
            fail(&mut ledger, unreplicable());
            assert!(written.try_recv().is_err(), "it may be over soon");

            advance(TICK).await;
            fail(&mut ledger, unreplicable());
            let own = [ledger.wires.directory.id()].into();
            let expected = level_annotations(&own, [Some(AgentId(1)), None]);
            assert_eq!(written.try_recv().expect("a note").annotations, expected, "{has_looked}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_disk_that_fails_gives_the_role_to_a_standby_that_has_everything_and_stays_level() {
        let folder = tempfile::tempdir().expect("a folder");
        for reach in [Reach::Connected, Reach::Unknown] {
            let mut ledger = ledger(folder.path(), OTHER);
            let ((notes, mut written), (resigns, mut resigned)) = (mpsc::channel(1), mpsc::channel(1));
            (ledger.wires.notes, ledger.wires.resigns) = (notes, resigns);
            end(&mut ledger, EPOCH, (1, true));
            let standby = Some(AgentId(2));
            let acknowledged = OTHER.map(|other| (other, 1));
            let progress = Progress { acknowledged, reach, standby, ..Progress::default() };
            ledger.wires.progress = watch::channel(progress).1;
            let view = View { peer: standby, ..ledger.wires.views.borrow().clone() };
            ledger.wires.views = watch::channel(view).1;

            let failed = || io::Error::from_raw_os_error(rustix::io::Errno::IO.raw_os_error());
            fail(&mut ledger, failed());
            assert!(resigned.try_recv().is_err(), "it may be over soon");
            advance(STALE_MAX).await;
            fail(&mut ledger, failed());
            let is_at_hand = reach == Reach::Connected;
            assert_eq!(resigned.try_recv().ok(), EPOCH.filter(|_| is_at_hand), "{reach:?}");
            fail(&mut ledger, failed());
            assert!(resigned.try_recv().is_err(), "not again at once");
            assert!(written.try_recv().is_err(), "it may act with its copy");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_barrier_whose_look_failed_is_refused_with_the_path() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut ledger = ledger(folder.path(), OTHER);
        let (waiter, mut answer) = oneshot::channel();
        ledger.wait(Waiter::Application(waiter));
        ledger.looked_for.append(&mut ledger.waiting);
        fail(&mut ledger, unreplicable());
        let answer = answer.try_recv().expect("an answer");
        assert_eq!(
            answer,
            Err("the state directory cannot be replicated: a/b; see the log of the agent".into())
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_barrier_over_what_is_passed_over_is_refused_with_the_path_and_what_to_do() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut ledger = ledger(folder.path(), None);
        let path = folder.path().join("current");
        std::os::unix::fs::symlink("release-42", &path).expect("a link");
        drop(std::os::unix::net::UnixListener::bind(folder.path().join("app.sock")).expect("a socket"));
        let barrier = async |ledger: &mut Ledger| {
            let (waiter, mut answer) = oneshot::channel();
            ledger.wait(Waiter::Application(waiter));
            ledger.advance(Instant::now());
            let looked = next_look(&mut ledger.looking).await;
            ledger.looked(looked);
            ledger.advance(Instant::now());
            answer.try_recv().expect("an answer").map(|kept| kept.is_alone)
        };
        let said = "current is neither a regular file nor a folder, so it is not replicated: \
                    move it out of the state directory";
        assert_eq!(barrier(&mut ledger).await, Err(said.into()));

        std::fs::remove_file(path).expect("a link");
        assert_eq!(barrier(&mut ledger).await, Ok(true), "a socket has no content");
    }

    #[tokio::test(start_paused = true)]
    async fn who_may_not_act_gets_what_can_be_had() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut ledger = ledger(folder.path(), None);
        assert_eq!(end(&mut ledger, EPOCH, (1, false)), Some((1, false)));
    }
}
