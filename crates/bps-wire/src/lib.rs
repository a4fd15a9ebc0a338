//! What operator, agents and plugin write for each other: the Lease of a pair, and the datagrams between its agents.
//!
//! | module | what it holds |
//! |---|---|
//! | [`lease`] | the Lease of a pair, as the API server keeps it |
//! | [`takeover`], [`times`], [`orders`] | its annotations: the last takeover, the times of the pair, what it asks of its members |
//! | [`shown`] | the epoch that the slice of a pair and its Pods show |
//! | [`crash_loop`] | how an application ends again and again |
//! | [`level`], [`lag`] | which state directories have every acknowledged write, and what the standby lacks |
//! | [`uid`] | uids of Pods and groups |
//! | [`key_ring`], [`frame`] | authenticated datagrams |
//!
//! Nothing here waits, talks or decides.

#![deny(clippy::disallowed_methods, clippy::disallowed_types)]

pub mod crash_loop;
pub mod frame;
pub mod key_ring;
pub mod lag;
pub mod lease;
pub mod level;
pub mod orders;
pub mod shown;
pub mod takeover;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod times;
pub mod uid;
