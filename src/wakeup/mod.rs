//! The cold gate: protocol, server and client that let a cold backup start.
//!
//! | file | what it holds | may use |
//! |---|---|---|
//! | [`uid`], [`signing`], [`protocol`] | names, keys, tickets, frames, answers, refusals | nothing that waits or talks |
//! | `budget`, `connection` | how much work a second allows; what one connection has sent | nothing that waits or talks |
//! | [`command`], [`settings`], [`install`], `marker`, `place`, `journal`, [`server`] | the gate in the Pod | std and poll(2) |
//! | [`client`] | the operator's side of one wake-up | tokio |
//! | [`keys`], [`secret`] | the operator's key ring, and the Secret that keeps it | kube (`secret` only) |
//!
//! Nothing here decides which Pod is woken; see `plan`.

mod budget;
pub mod client;
pub mod command;
mod connection;
pub mod install;
mod journal;
pub mod keys;
mod marker;
mod place;
pub mod protocol;
pub mod secret;
pub mod server;
pub mod settings;
pub mod signing;
pub mod uid;
