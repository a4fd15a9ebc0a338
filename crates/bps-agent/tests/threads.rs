//! Receivers carry out batches on threads of their own while the agent lets its application run and ends it.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;

use bps_protocol::Epoch;
use bps_runtime::sync::schedules::{failure, hold};
use bps_wire::level::DirectoryId;
use shuttle::future::block_on;
use shuttle::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use shuttle::thread;

use bps_agent::replicate::door::Door;

/// Terms of the actives that send, one after the other: what an earlier connection has left to do still runs when the
/// next one begins.
const SENDERS: [u32; 2] = [1, 2];
/// Batches of each.
const BATCHES: u32 = 2;
/// How often the application runs.
const TENURES: u32 = 2;

/// What somebody may do wrong around a door that is right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mistake {
    /// The agent does not wait for whoever is inside.
    ActsAtOnce,
    /// A receiver writes after it has given back its pass.
    WritesOutside,
}

/// A state directory and who uses it.
#[derive(Debug, Default)]
struct Course {
    door: Door,
    is_written: AtomicBool,
    does_application_run: AtomicBool,
    /// Term of the last batch.
    last: AtomicU32,
    mistake: Option<Mistake>,
}

fn epoch(term: u32) -> Epoch {
    Epoch { term, sequence: 0 }
}

impl Course {
    fn receive(&self, term: u32) {
        for batch in 0..BATCHES {
            if !self.door.admits(epoch(term)) {
                thread::yield_now();
            }
            let Ok(pass) = self.door.enter(epoch(term), DirectoryId(term.into())) else { continue };
            if self.mistake == Some(Mistake::WritesOutside) {
                drop(pass);
                self.write(term);
            } else {
                assert_eq!(self.door.giver(), Some(DirectoryId(term.into())));
                self.write(term);
                if batch == 0 { pass.done() } else { pass.nothing_done() }
            }
        }
    }

    fn write(&self, term: u32) {
        assert!(!self.is_written.swap(true, Ordering::SeqCst), "two write at the same time");
        assert!(!self.does_application_run.load(Ordering::SeqCst), "written below the application");
        assert!(self.last.swap(term, Ordering::SeqCst) <= term, "an earlier term after a later one");
        self.is_written.store(false, Ordering::SeqCst);
    }

    async fn act(&self) {
        self.door.forget();
        self.door.open(epoch(0));
        for _ in 0..TENURES {
            thread::yield_now();
            self.door.close();
            if self.mistake != Some(Mistake::ActsAtOnce) {
                self.door.distrust();
                self.door.shut().await;
                assert!(self.door.is_shut() && !self.door.is_distrusted());
                assert!(self.mistake.is_some() || !self.door.is_torn(), "it was carried out as a whole");
                assert_eq!(self.door.is_in_order(), !self.door.is_torn(), "nobody is inside");
            }
            self.does_application_run.store(true, Ordering::SeqCst);
            assert!(!self.is_written.load(Ordering::SeqCst), "the application runs below a batch");
            self.does_application_run.store(false, Ordering::SeqCst);
            self.door.open(epoch(0));
        }
    }
}

fn course(mistake: Option<Mistake>) {
    let course = Arc::new(Course { mistake, ..Course::default() });
    let receivers = SENDERS.map(|term| {
        let course = Arc::clone(&course);
        thread::spawn(move || course.receive(term))
    });
    block_on(course.act());
    for receiver in receivers {
        receiver.join().unwrap();
    }
}

#[test]
fn nothing_is_written_once_the_door_was_seen_shut_and_who_waits_for_that_is_told() {
    hold(|| course(None));
}

#[test]
fn an_application_that_does_not_wait_is_found_to_run_below_a_batch() {
    let said = failure(|| course(Some(Mistake::ActsAtOnce)));
    assert!(said.contains("below"), "{said}");
}

#[test]
fn a_write_without_a_pass_is_found() {
    let said = failure(|| course(Some(Mistake::WritesOutside)));
    assert!(["two write", "below", "an earlier term"].iter().any(|word| said.contains(word)), "{said}");
}
