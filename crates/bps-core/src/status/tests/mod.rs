//! Tests of the whole status.

mod history;
mod progress;
mod redundancy;
mod situations;
mod survival;
