//! Decides which tests run beside each other, and which alone.
//!
//! Turns are taken in the order in which they are asked for, so that a test that wants to be alone is not passed by
//! forever.

use tokio::sync::{Semaphore, SemaphorePermit};

/// Tests with agents at the same time. Each waits most of its time: for a Lease to expire, or for the next round.
///
/// libtest starts as many tests as the machine has processors, and a test that waits for its turn counts: the command
/// line needs `--test-threads` of at least this number for the turns to be used.
const BESIDE_EACH_OTHER: u32 = 3;

static PERMITS: Semaphore = Semaphore::const_new(BESIDE_EACH_OTHER as usize);

/// Which other tests a test may run beside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Company {
    /// Others with agents of their own.
    Others,
    /// None: it stops what all of them need, takes a whole processor, or judges what a busy machine changes.
    Nobody,
}

/// Waits for a turn, which lasts until the returned value is dropped.
pub(crate) async fn take(company: Company) -> SemaphorePermit<'static> {
    let permits = match company {
        Company::Others => 1,
        Company::Nobody => BESIDE_EACH_OTHER,
    };
    PERMITS.acquire_many(permits).await.expect("nobody closes it")
}
