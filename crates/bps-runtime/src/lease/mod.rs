//! Elects one leader among replicas by a `coordination.k8s.io` Lease, with the rules of client-go.
//!
//! No clock of another machine is trusted: a lease is expired only after its record has not changed for its whole
//! duration on the local monotonic clock. A leader counts its own time from when it *sent* the renewal, so it always
//! stops before anybody else may begin. Like client-go's this is no fence against a process that is stopped in the
//! middle of a write; therefore each write of ours also carries the resourceVersion it was planned on.
//!
//! | module | does |
//! |---|---|
//! | [`decide`](mod@decide) | the rules, without a clock or a client |
//! | [`Elector`] | the loop that follows them |
//! | [`Leadership`] | what the rest of the process sees |
//! | [`Settings`] | names and times |

mod decide;
mod elector;
mod leadership;
mod lock;
mod settings;

pub use decide::{Decision, Observation, Record, claim, decide};
pub use elector::{DRAIN_MAX, Elector, RELEASE_MAX};
pub use leadership::{Leadership, Permit};
pub use settings::Settings;

/// Why a candidate gave up.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The times contradict each other.
    #[error("accept lease settings: {reason}")]
    Settings {
        /// Which rule they break.
        reason: &'static str,
    },
    /// The operating system has no random numbers.
    #[error("draw a random identity")]
    Identity {
        /// What it said.
        #[source]
        source: getrandom::Error,
    },
    /// The API server refused or could not be reached.
    #[error("{action} lease")]
    Request {
        /// read, create or replace.
        action: &'static str,
        /// What kube returned.
        #[source]
        source: Box<kube::Error>,
    },
    /// The API server did not answer in time.
    #[error("no answer about the lease within {} ms", limit.as_millis())]
    NoAnswer {
        /// The time that had been given.
        limit: std::time::Duration,
    },
    /// The lease of a leader was changed by others between each of its reads and writes.
    #[error("replace a lease that keeps changing")]
    Conflict,
    /// Somebody else holds the lease now.
    #[error("lost the lease to {holder:?}")]
    Taken {
        /// The new holder's identity; empty if somebody released the lease in our name.
        holder: String,
    },
    /// The lease could not be renewed in time.
    #[error("could not renew the lease within {} s", deadline.as_secs())]
    RenewDeadline {
        /// The time that had been given.
        deadline: std::time::Duration,
    },
}

#[cfg(test)]
mod fake;
#[cfg(test)]
mod tests;
