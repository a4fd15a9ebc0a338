//! What became of the steps of a plan.

use jiff::{SignedDuration, Timestamp};

use super::Step;

/// Why a write was not done although nobody else changed the object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Refusal {
    /// A `ResourceQuota` has no room (403 with "exceeded quota").
    QuotaExceeded,
    /// RBAC, Pod security or another admission check said no (403).
    Forbidden,
    /// The API server does not accept the object, mostly because of the template (422 or 400).
    Invalid,
    /// The namespace is being deleted: nothing can be created in it any more (403).
    NamespaceTerminating,
    /// The name belongs to an object of somebody else (409 on create).
    NameTaken,
    /// The API server asks to slow down (429).
    Throttled,
    /// The API server failed (5xx).
    ServerFailed,
    /// No answer within the deadline, or no connection.
    NoAnswer,
    /// The cold gate refused the ticket or could not be reached.
    GateRefused,
}

impl Refusal {
    /// Every refusal, for generated documentation.
    pub const ALL: [Self; 9] = [
        Self::QuotaExceeded,
        Self::Forbidden,
        Self::Invalid,
        Self::NamespaceTerminating,
        Self::NameTaken,
        Self::Throttled,
        Self::ServerFailed,
        Self::NoAnswer,
        Self::GateRefused,
    ];

    /// Whether the API server certainly did not do it, and may once the reason is gone.
    pub const fn is_certain(self) -> bool {
        match self {
            Self::QuotaExceeded
            | Self::Forbidden
            | Self::Invalid
            | Self::NamespaceTerminating
            | Self::Throttled => true,
            Self::NameTaken | Self::ServerFailed | Self::NoAnswer | Self::GateRefused => false,
        }
    }

    /// The word for events, conditions, logs and metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::QuotaExceeded => "QuotaExceeded",
            Self::Forbidden => "Forbidden",
            Self::Invalid => "Invalid",
            Self::NamespaceTerminating => "NamespaceTerminating",
            Self::NameTaken => "NameTaken",
            Self::Throttled => "Throttled",
            Self::ServerFailed => "ServerFailed",
            Self::NoAnswer => "NoAnswer",
            Self::GateRefused => "GateRefused",
        }
    }
}

/// What became of one step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Acknowledged.
    Done,
    /// The object changed or went away meanwhile (409 or 404): the next snapshot decides.
    Stale,
    /// Not done; tried again with growing delay.
    Failed(Refusal),
}

impl Outcome {
    /// The word for logs and metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Done => "Done",
            Self::Stale => "Stale",
            Self::Failed(refusal) => refusal.as_str(),
        }
    }
}

/// One step with what became of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepResult {
    /// The step.
    pub step: Step,
    /// What became of it.
    pub outcome: Outcome,
    /// What the other side said, if it refused; shown to the user.
    pub message: Option<String>,
    /// When the write was sent.
    pub started: Timestamp,
    /// Time until it was acknowledged.
    pub elapsed: SignedDuration,
}
