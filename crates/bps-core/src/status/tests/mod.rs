//! Tests of the whole status.

mod history;
mod progress;
mod situations;
mod survival;
