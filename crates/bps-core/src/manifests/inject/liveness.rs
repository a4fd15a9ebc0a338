//! What the agent is told of the application's liveness probe, which the kubelet cannot use any more.

use serde_json::{Value, json};

/// Beginning of the agent's arguments for its check.
const LIVE: &str = "--live-";

/// The agent's arguments for the same check; none if the container has no liveness probe, or one that only the kubelet can
/// do: gRPC, HTTPS, another host, own headers, a port that is not named.
///
/// `given` are arguments that somebody wrote: if they have a check, it counts.
pub(super) fn check_arguments(container: &Value, given: &[String]) -> Vec<String> {
    let probe = &container["livenessProbe"];
    if given.iter().any(|argument| argument.starts_with(LIVE)) {
        return Vec::new();
    }
    let Some(target) = target(container, probe) else { return Vec::new() };
    let startup = &container["startupProbe"];
    let of_startup = if startup.is_object() {
        let time =
            seconds(startup, "periodSeconds", 10).saturating_mul(seconds(startup, "failureThreshold", 3));
        time.saturating_add(seconds(startup, "initialDelaySeconds", 0))
    } else {
        0
    };
    let grace = seconds(probe, "initialDelaySeconds", 0).max(of_startup);
    vec![
        target,
        format!("{LIVE}period={}", seconds(probe, "periodSeconds", 10).clamp(1, 3_600)),
        format!("{LIVE}timeout={}", seconds(probe, "timeoutSeconds", 1).clamp(1, 3_600)),
        format!("{LIVE}failures={}", seconds(probe, "failureThreshold", 3).clamp(1, 1_000)),
        format!("{LIVE}grace={}", grace.min(86_400)),
    ]
}

/// Whether the container has a liveness probe that nobody does once the agent is there.
pub(super) fn is_given_up(container: &Value, given: &[String]) -> bool {
    container["livenessProbe"].is_object()
        && check_arguments(container, given).is_empty()
        && !given.iter().any(|argument| argument.starts_with(LIVE))
}

fn target(container: &Value, probe: &Value) -> Option<String> {
    let (http, tcp) = (&probe["httpGet"], &probe["tcpSocket"]);
    let is_plain = |action: &Value| {
        let scheme = action["scheme"].as_str().unwrap_or("HTTP");
        scheme == "HTTP" && ["host", "httpHeaders"].iter().all(|key| is_empty(&action[*key]))
    };
    if http.is_object() {
        let path = http["path"].as_str().unwrap_or_default().trim_start_matches('/');
        let port = port(container, &http["port"]).filter(|_| is_plain(http))?;
        return Some(format!("{LIVE}http={port}/{path}"));
    }
    if tcp.is_object() {
        return port(container, &tcp["port"])
            .filter(|_| is_plain(tcp))
            .map(|port| format!("{LIVE}tcp={port}"));
    }
    let command = probe["exec"]["command"].as_array().filter(|command| !command.is_empty())?;
    Some(format!("{LIVE}exec={}", json!(command)))
}

/// A port by its number, or by the name that the container gives it.
fn port(container: &Value, wanted: &Value) -> Option<u64> {
    let named = || {
        let ports = container["ports"].as_array().into_iter().flatten();
        let mut named = ports.filter(|port| port["name"].is_string() && port["name"] == *wanted);
        named.next()?["containerPort"].as_u64()
    };
    wanted.as_u64().or_else(named)
}

/// A number of a probe; 0 stands for its default, as in Kubernetes.
fn seconds(probe: &Value, key: &str, default: u64) -> u64 {
    probe[key].as_u64().filter(|number| *number > 0).unwrap_or(default)
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Bool(_) | Value::Number(_) | Value::Object(_) => false,
    }
}
