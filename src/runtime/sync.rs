//! What threads meet at, and the clock by which they wait.
//!
//! `tests/threads` compiles the files that use this once more, beside a module of the same name whose primitives let a
//! checker choose who goes next.

pub use std::sync::{Mutex, MutexGuard};

pub use tokio::sync::Notify;
pub use tokio::time::{Instant, timeout_at};
