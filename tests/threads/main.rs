//! Where threads meet: the operator's queue and the door of a state directory, under schedules that a checker chooses.
//!
//! Both files are compiled here once more, with the primitives of [`runtime::sync`] in the place of those of the system.
//! What each operation does alone is tested beside the files. Whatever else threads share is looked at and changed in one
//! hold of one lock, and nobody waits for it, so that a schedule says no more than a sequence of calls.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod controller;
mod replicate;
mod runtime;
mod schedules;

/// What the queue takes from there.
mod observe {
    pub(crate) use backuppodset::observe::{Change, SetKey};
}

/// What the door takes from there.
mod ha {
    pub(crate) use backuppodset::ha::Epoch;
}
