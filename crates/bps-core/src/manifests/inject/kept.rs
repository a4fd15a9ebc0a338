//! Reads what a container was before the agent, from the annotation that says it.

use bps_api::keys;
use serde_json::Value;

use super::InjectError;

/// What the container was, and its place among the containers; `None` if there is no agent.
///
/// # Errors
/// `Unreadable` if the annotation is not as we write it, `Renamed` if no container has the name that it says.
pub(super) fn kept(template: &Value) -> Result<Option<(Value, usize)>, InjectError> {
    let Some(annotation) = template["metadata"]["annotations"].get(keys::ANNOTATION_INJECTED) else {
        return Ok(None);
    };
    let (kept, was) = parsed(annotation).ok_or(InjectError::Unreadable)?;
    let containers = template["spec"]["containers"].as_array().into_iter().flatten();
    let known: Vec<&str> = containers.map(|item| item["name"].as_str().unwrap_or_default()).collect();
    match known.iter().position(|name| *name == was) {
        Some(index) => Ok(Some((kept, index))),
        None => Err(InjectError::Renamed { was, known: known.into_iter().map(str::to_owned).collect() }),
    }
}

/// The annotation and the name of its container; without a command there is nothing to go back to.
fn parsed(annotation: &Value) -> Option<(Value, String)> {
    let kept: Value = serde_json::from_str(annotation.as_str()?).ok()?;
    kept["command"].as_array().filter(|command| !command.is_empty())?;
    let was = kept["container"].as_str()?.to_owned();
    Some((kept, was))
}
