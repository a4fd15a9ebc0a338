//! The operator: keeps BackupPodSets and HAGroups as their users want them.
//!
//! **Observe reads, plan decides, apply writes. Nothing does two of these.** What observes is the crate `bps_observe`, what
//! decides is `bps_core`; both are pure. Here is what waits, writes and reads a clock.
//!
//! | module | what it does |
//! |---|---|
//! | [`apply`] | one bounded write for each step of a plan |
//! | [`controller`] | watches, queue, dispatch, reconcile, report; `groups`: the same for HA groups |
//! | [`tickets`] | what wakes a cold backup: the keys that sign tickets, and the request to its gate |

pub mod apply;
pub mod controller;
pub mod tickets;
