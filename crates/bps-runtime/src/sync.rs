//! What threads meet at, and the clock by which they wait.
//!
//! With the feature `shuttle` these are primitives by which a checker chooses who goes next; see
//! [`schedules`](https://docs.rs/shuttle). Whatever uses this module is then checked under its schedules.

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
