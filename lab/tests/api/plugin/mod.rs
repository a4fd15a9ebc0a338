//! The kubectl plugin against a real API server. No operator and no agent runs: the tests play them.

mod command_line;
mod orders;
mod roles;
pub(super) mod scene;
mod views;
