//! The gate from its outside: frames and keys as bytes, and the real program over real sockets.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod flood;
mod hostile_bytes;
mod protocol;
mod server;
mod support;
