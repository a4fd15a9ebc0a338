//! Refusals of the simulated server, with the codes, reasons and messages of a real one.

use serde_json::{Value, json};

use crate::simulation::fault::Fault;
use crate::simulation::kinds::Kind;
use crate::simulation::request::Request;
use crate::simulation::request::Verb;
use crate::simulation::world::Key;

/// A request that the server answers with a `Status` of failure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// HTTP status code.
    pub code: u16,
    /// `reason` of the `Status`; empty when there is none.
    pub reason: &'static str,
    /// `message` of the `Status`.
    pub message: String,
    /// `details` of the `Status`; null when there are none.
    pub details: Value,
}

impl Refusal {
    /// The refusal that a fault stands for. Faults that only watches know read as an internal error.
    pub fn injected(fault: Fault, request: &Request) -> Self {
        let key = &request.key;
        match fault {
            Fault::Conflict if request.verb == Verb::Create => Self::already_exists(key),
            Fault::Conflict => Self::conflict(key, "the object has been modified"),
            Fault::Forbidden => Self::admission(key, "injected"),
            Fault::NotFound => Self::not_found(key),
            Fault::Gone => Self::expired("too old resource version: injected"),
            Fault::Invalid => Self::invalid(key, "spec", "Invalid value: injected"),
            Fault::TooManyRequests(seconds) => Self::too_many_requests(seconds),
            Fault::Unavailable => Self::unavailable(),
            Fault::Internal
            | Fault::LostBefore
            | Fault::LostAfter
            | Fault::TimeoutAfter
            | Fault::Slow(_)
            | Fault::CrashBefore
            | Fault::CrashAfter
            | Fault::Stale(_)
            | Fault::Drop
            | Fault::Duplicate
            | Fault::Gap
            | Fault::Close
            | Fault::Lag(_)
            | Fault::Stall => Self::internal(),
        }
    }

    fn plain(code: u16, reason: &'static str, message: &str) -> Self {
        Self { code, reason, message: message.to_owned(), details: Value::Null }
    }

    fn about(key: &Key, code: u16, reason: &'static str) -> Self {
        let mut details = json!({"name": key.name, "kind": key.kind.plural});
        if !key.kind.group.is_empty() {
            details["group"] = json!(key.kind.group);
        }
        Self { code, reason, message: String::new(), details }
    }

    fn saying(mut self, message: String) -> Self {
        self.message = message;
        self
    }

    fn naming_the_kind(mut self, key: &Key) -> Self {
        self.details["kind"] = json!(key.kind.kind);
        self
    }

    /// 404 for an object.
    pub fn not_found(key: &Key) -> Self {
        Self::about(key, 404, "NotFound").saying(format!(
            "{} \"{}\" not found",
            key.kind.qualified(),
            key.name
        ))
    }

    /// 404 for a route that is not served.
    pub fn no_route() -> Self {
        Self::plain(404, "NotFound", "the server could not find the requested resource")
    }

    /// 409 for a create of a name that is taken.
    pub fn already_exists(key: &Key) -> Self {
        Self::about(key, 409, "AlreadyExists").saying(format!(
            "{} \"{}\" already exists",
            key.kind.qualified(),
            key.name
        ))
    }

    /// 409 for a failed precondition.
    pub fn conflict(key: &Key, why: &str) -> Self {
        let qualified = key.kind.qualified();
        Self::about(key, 409, "Conflict")
            .saying(format!("Operation cannot be fulfilled on {qualified} \"{}\": {why}", key.name))
    }

    /// 409 for a deletion of another incarnation or version; unlike other conflicts it names the kind, not the resource.
    pub fn other_deletion(key: &Key, why: &str) -> Self {
        Self::about(key, 409, "Conflict").naming_the_kind(key).saying(format!(
            "Operation cannot be fulfilled on {} \"{}\": {why}",
            key.kind.qualified_kind(),
            key.name
        ))
    }

    /// 422 for one bad field.
    pub fn invalid(key: &Key, field: &str, why: &str) -> Self {
        let kind = key.kind.qualified_kind();
        let mut refusal = Self::about(key, 422, "Invalid")
            .naming_the_kind(key)
            .saying(format!("{kind} \"{}\" is invalid: {field}: {why}", key.name));
        refusal.details["causes"] = json!([{"reason": "FieldValueInvalid", "message": why, "field": field}]);
        refusal
    }

    /// 403 by an admission plugin (quota, Pod security).
    pub fn admission(key: &Key, why: &str) -> Self {
        Self::about(key, 403, "Forbidden").saying(format!(
            "{} \"{}\" is forbidden: {why}",
            key.kind.qualified(),
            key.name
        ))
    }

    /// 403 by the authoriser; `verb` is the RBAC verb and `resource` may name a subresource.
    pub fn unauthorised(user: &str, verb: &str, resource: &str, kind: &Kind) -> Self {
        Self::plain(
            403,
            "Forbidden",
            &format!(
                "{resource} is forbidden: User \"{user}\" cannot {verb} resource \"{resource}\" in API group \"{}\"",
                kind.group
            ),
        )
    }

    /// 410 for a revision or a continue token that was compacted away.
    pub fn expired(message: &str) -> Self {
        Self::plain(410, "Expired", message)
    }

    /// 400.
    pub fn bad_request(message: &str) -> Self {
        Self::plain(400, "BadRequest", message)
    }

    /// 500 without a reason, as a create of what has a version already.
    pub fn versioned_creation() -> Self {
        Self::plain(500, "", "resourceVersion should not be set on objects to be created")
    }

    /// 405.
    pub fn method_not_allowed() -> Self {
        Self::plain(
            405,
            "MethodNotAllowed",
            "the server does not allow this method on the requested resource",
        )
    }

    /// 415: a patch type that the kind does not take.
    pub fn unsupported_media_type(content_type: &str) -> Self {
        Self::plain(
            415,
            "UnsupportedMediaType",
            &format!("the body of the request was in an unknown format: {content_type}"),
        )
    }

    /// 429 with `Retry-After`, in seconds.
    pub fn too_many_requests(retry_after: u32) -> Self {
        let mut refusal = Self::plain(
            429,
            "TooManyRequests",
            "the server has received too many requests and has asked us to try again later",
        );
        refusal.details = json!({"retryAfterSeconds": retry_after});
        refusal
    }

    /// 500.
    pub fn internal() -> Self {
        Self::plain(500, "InternalError", "Internal error occurred: injected")
    }

    /// 503.
    pub fn unavailable() -> Self {
        Self::plain(503, "ServiceUnavailable", "the server is currently unable to handle the request")
    }

    /// 504; the request may have been carried out.
    pub fn timeout(message: &str) -> Self {
        Self::plain(504, "Timeout", message)
    }

    /// Seconds for the `Retry-After` header, if the refusal carries them.
    pub fn retry_after(&self) -> Option<u64> {
        self.details["retryAfterSeconds"].as_u64()
    }

    /// The body, as the server sends it.
    pub fn to_status(&self) -> Value {
        let mut status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": self.message, "code": self.code,
        });
        if !self.reason.is_empty() {
            status["reason"] = json!(self.reason);
        }
        if !self.details.is_null() {
            status["details"] = self.details.clone();
        }
        status
    }
}
