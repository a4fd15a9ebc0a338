//! The stand-in applications that tests and measurements run in Pods, and the clients that measure them.
//!
//! | module | what it is |
//! |---|---|
//! | [`server`], [`client`] | answers with its Pod's name; asks for that all the time |
//! | [`kept_client`] | the same over one connection, made anew only when it fails |
//! | [`counter`], [`counter_client`] | keeps what it acknowledges; adds all the time and says what was lost |
//! | [`stamp`] | in which tenure an output is made |
//! | [`sink`] | is told of every output of every server or counter, and says whether two put out at once |
//! | [`dial`] | new connections |
//! | [`sample`], [`outage`], [`tenures`] | what was measured, and what it means; pure |
//! | [`arguments`] | the command line |
//!
//! Uses the standard library and little else, signals and options of sockets: the binary has to start within
//! milliseconds and to stay at a few hundred kilobytes of memory, so that what is measured is the cluster.

#![allow(
    clippy::disallowed_methods,
    reason = "a server and a load client read the clock and their environment"
)]

pub mod arguments;
pub mod client;
pub mod counter;
pub mod counter_client;
mod dial;
pub mod kept_client;
mod listen;
pub mod outage;
pub mod sample;
pub mod server;
pub mod sink;
pub mod stamp;
pub mod tenures;

pub use listen::FINISH_WITHIN;
pub use outage::Outage;
pub use sample::{Outcome, Sample};
