//! Reads what the API server's refusal means.

use bps_core::model::{Outcome, Refusal};
use bps_runtime::error::chain;
use kube::Error;
use kube::core::Status;

use super::Answer;

/// What a failed write came to. A conflict is never swallowed: it is `Stale`.
pub(super) fn refused<W>(error: &Error) -> Answer<W> {
    let Error::Api(status) = error else {
        return Answer::failed(Refusal::NoAnswer, chain(error));
    };
    let outcome = match status.code {
        404 | 409 => Outcome::Stale,
        403 if is_namespace_ending(status) => Outcome::Failed(Refusal::NamespaceTerminating),
        403 if status.message.contains("exceeded quota") => Outcome::Failed(Refusal::QuotaExceeded),
        401 | 403 => Outcome::Failed(Refusal::Forbidden),
        400 | 422 => Outcome::Failed(Refusal::Invalid),
        429 => Outcome::Failed(Refusal::Throttled),
        _ => Outcome::Failed(Refusal::ServerFailed),
    };
    Answer { outcome, message: Some(status.message.clone()), written: None }
}

/// Whether a write was refused because its namespace is being deleted.
pub(super) fn is_namespace_ending(status: &Status) -> bool {
    let causes = status.details.as_ref().map(|details| details.causes.as_slice()).unwrap_or_default();
    causes.iter().any(|cause| cause.reason == "NamespaceTerminating")
}

/// Whether a creation was refused because somebody has an object of that name.
pub(crate) fn is_name_taken(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.reason == "AlreadyExists")
}

/// Whether another version was met. A name that is taken is not that: somebody else has an object of that name.
pub(crate) fn is_stale(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status)
        if matches!(status.code, 404 | 409) && !is_name_taken(error))
}
