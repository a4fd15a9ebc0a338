//! Wakes cold backups: the operator's keys, the Secret that keeps them, and the request to a gate.
//!
//! The gate itself, and the form of tickets, is the crate `bps_wakeup`. Nothing here decides which Pod is woken.

pub mod keys;
pub mod secret;
