//! Watches note sets on their threads while the dispatcher takes them and looks at them in tasks of their own.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bps_observe::{Change, SetKey};
use bps_runtime::sync::Instant;
use bps_runtime::sync::schedules::{failure, hold};
use futures::StreamExt as _;
use futures::future::{Either, select};
use futures::stream::FuturesUnordered;
use shuttle::future::{JoinHandle, block_on, spawn};
use shuttle::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use shuttle::thread;

use backuppodset::controller::queue::{Job, Queue};

/// Sets, each with events of every urgency.
const SETS: [&str; 2] = ["a", "b"];
/// What each of the two watches tells of both sets.
const WATCHES: [[Change; 2]; 2] = [[Change::Ordinary, Change::Urgent], [Change::Urgent, Change::Contested]];
/// Most looks at once at sets that are not urgent.
const ORDINARY_MAX: usize = 1;
/// After its first look a set is to be looked at once more, after this time.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// What somebody may do wrong around a queue that is right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mistake {
    /// A watch tells the queue of a change before others can see it.
    NotesTooEarly,
    /// A look goes on after the queue was told that it is done.
    IsDoneTooEarly,
    /// Who begins to lead notes every set before the queue keeps what is noted.
    OpensTooLate,
}

/// A set as the looks see it.
#[derive(Debug, Default)]
struct Set {
    /// Changes that were made, and those that a look has seen.
    changes: AtomicU32,
    seen: AtomicU32,
    is_looked_at: AtomicBool,
    looks: AtomicU32,
}

#[derive(Debug)]
struct Course {
    queue: Queue,
    sets: BTreeMap<SetKey, Set>,
    mistake: Option<Mistake>,
}

impl Course {
    fn watch(&self, changes: [Change; 2]) {
        for change in changes {
            for (key, set) in &self.sets {
                if self.mistake == Some(Mistake::NotesTooEarly) {
                    self.queue.note(key.clone(), change);
                    set.changes.fetch_add(1, Ordering::SeqCst);
                } else {
                    set.changes.fetch_add(1, Ordering::SeqCst);
                    self.queue.note(key.clone(), change);
                }
            }
        }
    }

    /// As an operator does that begins to lead.
    fn begin(&self) {
        let note_all = || self.sets.keys().for_each(|key| self.queue.note(key.clone(), Change::Ordinary));
        if self.mistake == Some(Mistake::OpensTooLate) {
            note_all();
            self.queue.open();
        } else {
            self.queue.open();
            note_all();
        }
    }

    /// Returns how long after it the set is to be looked at once more.
    fn look(&self, key: &SetKey) -> Option<Duration> {
        let set = &self.sets[key];
        assert!(!set.is_looked_at.swap(true, Ordering::SeqCst), "two looks at one set at the same time");
        let seen = set.changes.load(Ordering::SeqCst);
        if self.mistake == Some(Mistake::IsDoneTooEarly) {
            self.queue.done(key);
        }
        set.seen.store(seen, Ordering::SeqCst);
        set.is_looked_at.store(false, Ordering::SeqCst);
        (set.looks.fetch_add(1, Ordering::SeqCst) == 0).then_some(LOOK_AGAIN)
    }

    fn settle(&self, job: Job, again: Option<Duration>) {
        self.queue.done(&job.key);
        if let Some(delay) = again {
            self.queue.note_later(job.key, delay);
        }
    }

    fn is_all_seen(&self) -> bool {
        let changes = u32::try_from(WATCHES.as_flattened().len()).unwrap();
        self.sets
            .values()
            .all(|set| set.seen.load(Ordering::SeqCst) == changes && set.looks.load(Ordering::SeqCst) > 1)
    }
}

/// As `controller::dispatch` does: whatever has ended first, and a wait for the next set may be given up.
async fn dispatch(course: &Arc<Course>) {
    let mut running: FuturesUnordered<JoinHandle<(Job, Option<Duration>)>> = FuturesUnordered::new();
    let mut ordinary = 0;
    while !running.is_empty() || !course.is_all_seen() {
        let next = {
            let taken = pin!(course.queue.take(ordinary < ORDINARY_MAX));
            if running.is_empty() {
                Either::Right(taken.await)
            } else {
                match select(running.next(), taken).await {
                    Either::Left((ended, _)) => Either::Left(ended.unwrap().unwrap()),
                    Either::Right((job, _)) => Either::Right(job),
                }
            }
        };
        match next {
            Either::Left((job, again)) => {
                ordinary -= usize::from(!job.change.is_urgent());
                course.settle(job, again);
            }
            Either::Right(job) => {
                assert!(job.since <= Instant::now(), "it was handed out before its time");
                assert!(job.urgent.has_changed().is_ok(), "nobody would tell the look of what is urgent");
                ordinary += usize::from(!job.change.is_urgent());
                assert!(ordinary <= ORDINARY_MAX, "more than was allowed");
                let course = Arc::clone(course);
                running.push(spawn(async move {
                    let again = course.look(&job.key);
                    (job, again)
                }));
            }
        }
    }
}

fn course(mistake: Option<Mistake>) {
    let key = |name: &str| SetKey { namespace: "shop".into(), name: name.into() };
    let sets = SETS.map(|name| (key(name), Set::default())).into();
    let course = Arc::new(Course { queue: Queue::closed(), sets, mistake });
    let watches = WATCHES.map(|changes| {
        let course = Arc::clone(&course);
        thread::spawn(move || course.watch(changes))
    });
    block_on(async {
        course.begin();
        dispatch(&course).await;
    });
    for watch in watches {
        watch.join().unwrap();
    }
    assert!(course.queue.depth() <= SETS.len(), "a set waits more than once");
}

#[test]
fn every_change_is_looked_at_and_no_set_by_two_at_once() {
    hold(|| course(None));
}

#[test]
fn a_change_that_is_noted_too_early_is_found_to_be_lost() {
    let said = failure(|| course(Some(Mistake::NotesTooEarly)));
    assert!(said.contains("deadlock"), "{said}");
}

#[test]
fn a_queue_that_is_opened_too_late_is_found_to_have_lost_a_change() {
    let said = failure(|| course(Some(Mistake::OpensTooLate)));
    assert!(said.contains("deadlock"), "{said}");
}

#[test]
fn a_look_that_goes_on_after_its_end_is_found_to_meet_another() {
    let said = failure(|| course(Some(Mistake::IsDoneTooEarly)));
    assert!(said.contains("two looks at one set"), "{said}");
}
