//! What threads meet at, and the clock by which they wait.
//!
//! With the feature `shuttle` these are primitives by which a checker chooses which thread continues. The tests of
//! `make test-threads` run the code that uses this module under many such schedules (`schedules`).

#[cfg(feature = "shuttle")]
mod chosen;
#[cfg(feature = "shuttle")]
pub mod schedules;

#[cfg(feature = "shuttle")]
pub use chosen::{Instant, Mutex, MutexGuard, Notified, Notify, timeout_at};
#[cfg(not(feature = "shuttle"))]
pub use std::sync::{Mutex, MutexGuard};
#[cfg(not(feature = "shuttle"))]
pub use tokio::sync::Notify;
#[cfg(not(feature = "shuttle"))]
pub use tokio::time::{Instant, timeout_at};
