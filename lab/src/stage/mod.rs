//! One set in a running cluster: what is done to it, what is then seen of it, and what the operator says.
//!
//! [`Stage`] acts and measures; `story` prints that for people and `bench` counts it. Times begin right before
//! the request or the signal and end when the change that completes the state arrives from the API server.
//!
//! | module | what it does |
//! |---|---|
//! | [`sight`] | the few facts of a Pod that matter here; pure |
//! | [`scene`] | watches one set's Pods and endpoints, and notes when each change arrived |
//! | [`journal`] | reads the operator's own log |
//! | [`act`] | creates, resizes, and breaks a set |

use std::time::Duration;

pub mod act;
pub mod journal;
pub mod scene;
pub mod sight;

pub use act::{Act, Handling, Stage};
pub use scene::Scene;
pub use sight::{Counts, PodSight};

/// Why an act did not come to its end.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The API server refused.
    #[error("{verb} {what}")]
    Request {
        /// What was asked.
        verb: &'static str,
        /// About which object.
        what: String,
        /// What it said.
        #[source]
        source: Box<kube::Error>,
    },
    /// The watch ended.
    #[error("watch set {set}")]
    Watch {
        /// The set.
        set: String,
    },
    /// The set did not get into the wanted state in time.
    #[error("set {set} is not {wanted} after {} s: {seen}", .limit.as_secs())]
    Overdue {
        /// The set.
        set: String,
        /// The wanted state.
        wanted: String,
        /// How long it was waited for.
        limit: Duration,
        /// What was there instead.
        seen: String,
    },
    /// There is no ready primary to break.
    #[error("set {set} has no ready primary")]
    FindPrimary {
        /// The set.
        set: String,
    },
    /// The fault could not be injected.
    #[error("break a pod")]
    Break(#[source] Box<crate::faults::Error>),
}
