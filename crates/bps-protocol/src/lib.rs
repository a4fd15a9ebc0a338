//! The protocol of an active/standby pair: who may act, with which epoch, and how the role passes on.
//!
//! The rules are those of `docs/handover-protocol.md`, with the same numbers: `rules` says what is permitted, `policy`
//! when it is done: event in, effects out ([`Protocol::step`]). Nothing here reads a clock, talks to anybody or draws
//! random numbers.

#![deny(clippy::disallowed_methods, clippy::disallowed_types)]

mod agent;
mod chronicle;
mod epoch;
mod event;
mod lease;
mod message;
mod policy;
mod rules;
mod seats;
mod takeover;
mod time;
mod timing;
mod transition;

#[cfg(any(test, feature = "testing"))]
pub mod testing;

pub use agent::{Agent, Peer, Purpose, Role, Seen, Tenure, Unresolved};
pub use chronicle::{Chronicle, Turn};
pub use epoch::Epoch;
pub use event::{Effect, Event, Order};
pub use lease::{AgentId, Hold, Lease, Replacement, Version, Write};
pub use message::{Handover, Incarnation, Message, Ping, Promise, PromiseRequest};
pub use policy::{Protocol, Showing};
pub use rules::{EndEvidence, forced_replacement, nobody_acts, nobody_acts_after};
pub use seats::{SeatNumber, Turnstile};
pub use takeover::{Account, Cause, TakeoverRecord};
pub use time::{BootTime, Moment};
pub use timing::{Timing, TimingError};
pub use transition::{TRANSITIONS, Transition, diagram};
