//! Reads the operator's own log: what it did, why, and how long it took.

use std::time::Duration;

use bps_api::keys::OPERATOR_NAMESPACE;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, ListParams, LogParams};
use kube::{Client, ResourceExt};
use serde::{Deserialize, Serialize};
use tokio::time::{Instant, sleep};

use crate::install::OPERATOR_PODS;

/// Message of the line that sums up one look at a set.
const HANDLED: &str = "Handled change";
/// Pause between two readings.
const POLL: Duration = Duration::from_millis(50);

/// One line of the operator's log; fields that it does not have are empty.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, Serialize)]
#[serde(default)]
pub struct Line {
    /// When it was written.
    pub timestamp: Timestamp,
    /// What it says.
    pub message: String,
    /// The set that it is about.
    pub set: String,
    /// The Pod that it is about.
    pub pod: String,
    /// What was done.
    pub action: String,
    /// Role before.
    pub from: String,
    /// Role after.
    pub role: String,
    /// Why.
    pub reason: String,
    /// How it ended.
    pub outcome: String,
    /// What went wrong.
    pub error: String,
    /// Number of steps of the look.
    pub steps: u32,
    /// From the event's arrival to the promotion of the last successor, if a primary was lost. Unit: milliseconds.
    pub promoted_ms: Option<f64>,
    /// From the event's arrival to the acknowledgement of the last step, without the status. Unit: milliseconds.
    pub steps_ms: f64,
    /// From the event's arrival to the acknowledgement of the last write; of one step, its own time. Unit:
    /// milliseconds.
    pub elapsed_ms: f64,
}

impl Line {
    /// Whether it sums up one look at a set in which something was done.
    pub fn is_handled(&self) -> bool {
        self.message == HANDLED
    }
}

/// Reads the lines of a JSON log; what is no JSON object is skipped.
pub fn parse(text: &str) -> Vec<Line> {
    text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

/// All lines of the operator's replicas about a set, written at or after a moment, oldest first.
///
/// # Errors
/// The API server's answer, for example that logs may not be read.
pub async fn read(client: &Client, set: &str, since: Timestamp) -> Result<Vec<Line>, kube::Error> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), OPERATOR_NAMESPACE);
    // Whole seconds, and one of them to spare: the client rounds, and would round half of them up.
    let since_time = Timestamp::from_second(since.as_second() - 1).ok();
    let parameters = LogParams { since_time, ..LogParams::default() };
    let mut lines = Vec::new();
    for pod in pods.list(&ListParams::default().labels(OPERATOR_PODS)).await?.items {
        match pods.logs(&pod.name_any(), &parameters).await {
            Ok(text) => lines.extend(parse(&text)),
            // A replica that does not run yet has no log.
            Err(kube::Error::Api(status)) if status.code == 400 => {}
            Err(error) => return Err(error),
        }
    }
    lines.retain(|line| line.set == set && line.timestamp >= since);
    lines.sort_by_key(|line| line.timestamp);
    Ok(lines)
}

/// Reads until there is a line that sums up a look, or the limit has passed.
///
/// # Errors
/// As [`read`].
pub async fn await_handled(
    client: &Client,
    set: &str,
    (since, limit): (Timestamp, Duration),
) -> Result<Vec<Line>, kube::Error> {
    let deadline = Instant::now() + limit;
    loop {
        let lines = read(client, set, since).await?;
        if lines.iter().any(Line::is_handled) || Instant::now() >= deadline {
            return Ok(lines);
        }
        sleep(POLL).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_operator_are_read_and_others_are_skipped() {
        let text = concat!(
            r#"{"timestamp":"2026-11-20T10:00:00.000001Z","level":"INFO","message":"Handled change","#,
            r#""namespace":"default","set":"web","generation":1,"action":"scale-out","steps":6,"#,
            r#""steps_ms":12.5,"elapsed_ms":15.25,"target":"backuppodset"}"#,
            "\nthread panicked\n",
        );
        let expected = Line {
            timestamp: "2026-11-20T10:00:00.000001Z".parse().unwrap(),
            message: HANDLED.to_owned(),
            set: "web".to_owned(),
            action: "scale-out".to_owned(),
            steps: 6,
            steps_ms: 12.5,
            elapsed_ms: 15.25,
            ..Line::default()
        };
        assert_eq!(parse(text), [expected]);
    }
}
