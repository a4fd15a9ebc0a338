//! Tests of the whole status.

mod history;
mod situations;
