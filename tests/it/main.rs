//! The operator from its outside, and what the repository says of itself.
//!
//! | file | what it says |
//! |---|---|
//! | `simulation` | the real operator behind a simulated API server, with a fault at every request |
//! | `agents` | what manifests say to agents, agents understand |
//! | `key_store` | the Secret of the wake-up keys |
//! | `policies` | what the shipped NetworkPolicies let through |
//! | `examples`, `generated`, `reference` | shipped and generated files are what the code says |
//! | `architecture` | what Cargo cannot say about the sources |

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod agents;
mod architecture;
mod examples;
mod generated;
mod key_store;
mod policies;
mod reference;
mod render;
mod simulation;
