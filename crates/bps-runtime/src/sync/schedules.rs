//! Runs a course under many schedules: chosen at random, and by priorities that change a few times.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use shuttle::scheduler::{PctScheduler, RandomScheduler, Scheduler};
use shuttle::{Config, FailurePersistence, Runner};

/// So that a failure is one of every run.
const SEED: u64 = 7;
/// Schedules of each kind.
const SCHEDULES: usize = 2_000;
/// Changes of priority in a schedule of the second kind: most mistakes need two or three.
const CHANGES: usize = 3;

/// Holds if no schedule makes the course panic or wait for ever.
pub fn hold(course: impl Fn() + Send + Sync + 'static) {
    let course = Arc::new(course);
    run(RandomScheduler::new_from_seed(SEED, SCHEDULES), Arc::clone(&course));
    run(PctScheduler::new_from_seed(SEED, CHANGES, SCHEDULES), course);
}

/// What the first schedule that does not hold says; a check that never fails says nothing.
pub fn failure(course: impl Fn() + Send + Sync + 'static) -> String {
    let held = catch_unwind(AssertUnwindSafe(|| hold(course)));
    let said = held.expect_err("no schedule was caught");
    let text = said.downcast_ref::<String>().cloned();
    text.or_else(|| said.downcast_ref::<&str>().map(|text| (*text).to_owned())).unwrap()
}

fn run(scheduler: impl Scheduler + 'static, course: Arc<impl Fn() + Send + Sync + 'static>) {
    let mut config = Config::new();
    config.failure_persistence = FailurePersistence::None;
    Runner::new(scheduler, config).run(move || course());
}
