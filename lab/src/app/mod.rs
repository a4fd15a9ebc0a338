//! The stand-in application that tests and measurements run in Pods, and the client that measures it.
//!
//! Uses the standard library and nothing else but signals: the binary has to start within milliseconds and to
//! stay at a few hundred kilobytes of memory, so that what is measured is the cluster.

#![allow(
    clippy::disallowed_methods,
    reason = "a server and a load client read the clock and their environment"
)]

pub mod arguments;
pub mod client;
pub mod outage;
pub mod sample;
pub mod server;

pub use outage::Outage;
pub use sample::{Outcome, Sample};
