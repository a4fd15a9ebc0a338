//! Lets the kubelet do a `preStop` command that only sleeps: its own sleep is the same in both roles, as no other
//! command is.

use bps_api::keys;
use serde_json::{Value, json};

/// Puts the kubelet's own sleep in the place of such a command, and returns what [`restore`] needs; `None` if there is
/// none.
///
/// The kubelet's own sleep needs Kubernetes 1.30. `grace` is the Pod's own grace period in seconds, if it has one. The
/// sleep is a part of it, and the API server refuses a longer one.
pub(super) fn sleep_natively(container: &mut Value, grace: Option<u64>) -> Option<Value> {
    let before = container["lifecycle"]["preStop"].clone();
    let seconds = slept_seconds(&before)?.min(grace.unwrap_or(keys::END_WITHIN_SECONDS));
    if seconds == 0 {
        return None;
    }

    let after = json!({"sleep": {"seconds": seconds}});
    container["lifecycle"]["preStop"] = after.clone();
    Some(json!({"before": before, "after": after}))
}

/// Puts the command back, unless a user has edited the sleep since.
pub(super) fn restore(container: &mut Value, kept: &Value) {
    let Some(hook) = container.pointer_mut("/lifecycle/preStop").filter(|_| kept.is_object()) else { return };
    if *hook == kept["after"] {
        *hook = kept["before"].clone();
    }
}

/// How long a hook sleeps that does nothing else, in whole seconds.
fn slept_seconds(hook: &Value) -> Option<u64> {
    let handlers = hook.as_object()?.iter().filter(|(_, handler)| !handler.is_null());
    let kinds: Vec<&str> = handlers.map(|(kind, _)| kind.as_str()).collect();
    if kinds != ["exec"] {
        return None;
    }

    let command = hook["exec"]["command"].as_array()?;
    let words: Vec<&str> = command.iter().map(Value::as_str).collect::<Option<_>>()?;
    match words[..] {
        ["sh" | "/bin/sh", "-c", script] => slept(&script.split_whitespace().collect::<Vec<_>>()),
        _ => slept(&words),
    }
}

fn slept(words: &[&str]) -> Option<u64> {
    let ["sleep" | "/bin/sleep", seconds] = words else { return None };
    // No sign, fraction or unit.
    seconds.bytes().all(|byte| byte.is_ascii_digit()).then(|| seconds.parse().ok()).flatten()
}
