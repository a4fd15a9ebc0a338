//! Names and times of a leader election.

use std::time::Duration;

use super::Error;

/// Longest lease duration that is used, from settings or from another holder's record.
///
/// 600 s: a wrong record, written by a person or another program, must not keep everybody away for ever.
pub(super) const LEASE_DURATION_MAX: Duration = Duration::from_secs(600);

/// A candidate waits between one and this many further retry periods, so that candidates do not march in step.
///
/// 1.2: client-go's `JitterFactor`.
pub(super) const JITTER_FACTOR: f64 = 1.2;

/// Names and times of a leader election; the defaults of times are client-go's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Namespace of the Lease.
    pub namespace: String,
    /// Name of the Lease; also the label of `leader_election_master_status`.
    pub name: &'static str,
    /// Who we are; different for each run of each replica.
    pub identity: String,
    /// Time after its last change at which others may take a lease. Default 15 s.
    pub lease_duration: Duration,
    /// Time after its last renewal at which a leader stops leading. Default 10 s.
    pub renew_deadline: Duration,
    /// Time between two renewals, and at least between two attempts to acquire. Default 2 s.
    pub retry_period: Duration,
}

impl Settings {
    /// Default times; the identity is `<pod>_<16 hex digits>`, so that a restarted container is another candidate.
    ///
    /// # Errors
    /// `Identity` if the operating system has no random numbers.
    pub fn new(namespace: String, name: &'static str, pod: &str) -> Result<Self, Error> {
        let random = getrandom::u64().map_err(|source| Error::Identity { source })?;
        Ok(Self {
            namespace,
            name,
            identity: format!("{pod}_{random:016x}"),
            lease_duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry_period: Duration::from_secs(2),
        })
    }

    /// Checks the times against each other, as client-go does.
    ///
    /// # Errors
    /// `Settings` with the rule that is broken.
    pub(super) fn check(&self) -> Result<(), Error> {
        let reason = if self.identity.is_empty() {
            "the identity is empty, which means released"
        } else if self.lease_duration > LEASE_DURATION_MAX {
            "the lease duration is more than 600 s"
        } else if self.lease_duration.subsec_nanos() != 0 {
            "the lease duration is not a whole number of seconds"
        } else if self.lease_duration <= self.renew_deadline {
            "the lease duration is not more than the renew deadline"
        } else if self.renew_deadline <= self.retry_period.mul_f64(JITTER_FACTOR) {
            "the renew deadline is not more than 1.2 retry periods"
        } else if self.retry_period.is_zero() {
            "the retry period is zero"
        } else {
            return Ok(());
        };
        Err(Error::Settings { reason })
    }

    /// Time for one attempt, which is up to three requests: half of the renew deadline, so that a second one fits in.
    pub(super) fn attempt_max(&self) -> Duration {
        self.renew_deadline / 2
    }

    /// Time between the end of our leadership and the earliest begin of another.
    pub(super) fn safety_gap(&self) -> Duration {
        self.lease_duration.saturating_sub(self.renew_deadline)
    }
}
