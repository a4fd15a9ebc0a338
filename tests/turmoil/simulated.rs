//! The simulated API server of `tests/simulation`, as it is there.
#![allow(dead_code, reason = "agents use a part of it")]

#[path = "../simulation/actors.rs"]
pub mod actors;
#[path = "../simulation/admission.rs"]
pub mod admission;
#[path = "../simulation/api.rs"]
pub mod api;
#[path = "../simulation/fault.rs"]
pub mod fault;
#[path = "../simulation/kinds.rs"]
pub mod kinds;
#[path = "../simulation/list.rs"]
pub mod list;
#[path = "../simulation/oracle.rs"]
pub mod oracle;
#[path = "../simulation/patch.rs"]
pub mod patch;
#[path = "../simulation/physical.rs"]
pub mod physical;
#[path = "../simulation/refusal.rs"]
pub mod refusal;
#[path = "../simulation/request.rs"]
pub mod request;
#[path = "../simulation/selector.rs"]
pub mod selector;
#[path = "../simulation/serve.rs"]
pub mod serve;
#[path = "../simulation/store.rs"]
pub mod store;
#[path = "../simulation/watch.rs"]
pub mod watch;
#[path = "../simulation/world.rs"]
pub mod world;
