//! Metrics of requests to the API server, with the names and labels of client-go.

use std::sync::Arc;
use std::time::Duration;

use http::{Method, StatusCode};
use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue, LabelValueEncoder};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use super::seconds_by;

/// Requests to the API server; clones share the values.
#[derive(Clone, Debug)]
pub struct RestMetrics {
    requests: Family<RequestLabels, Counter>,
    seconds: Family<DurationLabels, Histogram>,
}

/// Host and port that requests go to: one value for the life of a client.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Host(Arc<str>);

/// How a request was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Code {
    /// The server answered with this status.
    Status(StatusCode),
    /// No answer: connection failure or timeout. Printed as `<error>`, as client-go does.
    NoAnswer,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    code: Code,
    method: &'static str,
    host: Host,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct DurationLabels {
    verb: &'static str,
    host: Host,
}

impl Host {
    /// The host and port of a URL such as `https://10.0.0.1:443/path`; `unknown` if it has none.
    pub fn of(url: &http::Uri) -> Self {
        Self(
            url.authority()
                .map_or("unknown", |authority| {
                    // Without what stands before `@`: a URL may carry a password.
                    authority.as_str().rsplit('@').next().unwrap_or_default()
                })
                .into(),
        )
    }
}

impl RestMetrics {
    pub(super) fn register(registry: &mut Registry) -> Self {
        let metrics = Self { requests: Family::default(), seconds: seconds_by() };
        let rest = registry.sub_registry_with_prefix("rest_client");
        rest.register("requests", "Requests by status code, method and host", metrics.requests.clone());
        rest.register(
            "request_duration_seconds",
            "Time from sending a request to the head of its answer",
            metrics.seconds.clone(),
        );
        metrics
    }

    /// Counts one request; `elapsed` is the time until the head of the answer, or until it was given up.
    pub fn answered(&self, host: &Host, method: &Method, answer: (Code, Duration)) {
        let (code, elapsed) = answer;
        let method = method_name(method);
        self.requests.get_or_create(&RequestLabels { code, method, host: host.clone() }).inc();
        self.seconds
            .get_or_create(&DurationLabels { verb: method, host: host.clone() })
            .observe(elapsed.as_secs_f64());
    }
}

impl EncodeLabelValue for Host {
    fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> Result<(), std::fmt::Error> {
        EncodeLabelValue::encode(&&*self.0, encoder)
    }
}

impl EncodeLabelValue for Code {
    fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> Result<(), std::fmt::Error> {
        match self {
            Self::Status(status) => EncodeLabelValue::encode(&status.as_str(), encoder),
            Self::NoAnswer => EncodeLabelValue::encode(&"<error>", encoder),
        }
    }
}

fn method_name(method: &Method) -> &'static str {
    const KNOWN: [(&Method, &str); 5] = [
        (&Method::GET, "GET"),
        (&Method::POST, "POST"),
        (&Method::PUT, "PUT"),
        (&Method::PATCH, "PATCH"),
        (&Method::DELETE, "DELETE"),
    ];
    KNOWN.iter().find(|(known, _)| *known == method).map_or("OTHER", |(_, name)| name)
}
