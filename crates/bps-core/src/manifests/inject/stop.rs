//! What the agent is told of the signal that ends the application.

use serde_json::Value;

/// Name of the agent's argument.
const STOP_SIGNAL: &str = "--stop-signal";
/// Signals that agents pass on, as manifests call them.
pub const STOP_SIGNALS: [&str; 7] =
    ["SIGTERM", "SIGINT", "SIGQUIT", "SIGHUP", "SIGUSR1", "SIGUSR2", "SIGWINCH"];

/// The agent's argument for the container's own stop signal, unless somebody wrote one. What the image says is not known here;
/// the agent takes it for the end of the container all the same.
pub(super) fn stop_argument(container: &Value, given: &[String]) -> Option<String> {
    let is_given = given.iter().any(|argument| argument.starts_with(STOP_SIGNAL));
    let signal = wanted(container).filter(|_| !is_given)?;
    Some(format!("{STOP_SIGNAL}={signal}"))
}

/// The container's stop signal, if no agent can pass it on.
pub(super) fn unknown_signal(container: &Value) -> Option<&str> {
    wanted(container).filter(|signal| !STOP_SIGNALS.contains(signal))
}

/// For people.
pub(super) fn known_signals() -> String {
    STOP_SIGNALS.join(", ")
}

fn wanted(container: &Value) -> Option<&str> {
    container["lifecycle"]["stopSignal"].as_str()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_signal_of_a_container_is_that_of_its_application_unless_another_one_is_given() {
        let container = json!({"lifecycle": {"stopSignal": "SIGQUIT"}});
        assert_eq!(stop_argument(&container, &[]).as_deref(), Some("--stop-signal=SIGQUIT"));
        assert_eq!(stop_argument(&container, &["--stop-signal=SIGINT".to_owned()]), None);
        assert_eq!(stop_argument(&json!({}), &[]), None);
        assert_eq!(unknown_signal(&container), None);
        let other = json!({"lifecycle": {"stopSignal": "SIGRTMIN+3"}});
        assert_eq!(unknown_signal(&other), Some("SIGRTMIN+3"));
    }
}
