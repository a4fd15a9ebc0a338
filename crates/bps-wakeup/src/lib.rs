//! The cold gate: protocol, server and client that let a cold backup start.
//!
//! | file | what it holds | may use |
//! |---|---|---|
//! | [`uid`], [`signing`], [`protocol`] | names, keys, tickets, frames, answers, refusals | nothing that waits or talks |
//! | `budget`, `connection` | how much work a second allows; what one connection has sent | nothing that waits or talks |
//! | [`command`], [`settings`], [`install`], `place`, `posted`, `journal`, [`server`] | the gate in the Pod | std and poll(2) |
//! | `client` | the operator's side of one wake-up; a feature | tokio |
//!
//! Nothing here decides which Pod is woken; see `plan`.

mod budget;
#[cfg(feature = "client")]
pub mod client;
pub mod command;
mod connection;
#[cfg(any(test, feature = "testing"))]
pub mod fuzzing;
pub mod install;
mod journal;
mod place;
mod posted;
pub mod protocol;
pub mod server;
pub mod settings;
pub mod signing;
pub mod uid;
