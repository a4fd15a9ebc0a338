//! Patches: JSON merge patch, JSON patch, and server-side apply in a simplified form.
//!
//! Apply is a merge that also removes what the same manager applied before and no longer names. Lists are
//! replaced as a whole, and conflicts between managers are not simulated.

use serde_json::{Map, Value};

use crate::simulation::refusal::Refusal;

/// RFC 7386: objects are merged, null removes, anything else replaces.
pub fn merge(target: &mut Value, patch: &Value) {
    let Some(patch) = patch.as_object() else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    let fields = target.as_object_mut().expect("made an object above");
    for (name, value) in patch {
        if value.is_null() {
            fields.remove(name);
        } else {
            merge(fields.entry(name.clone()).or_insert(Value::Null), value);
        }
    }
}

/// Removes from `target` the leaves that `before` names and `after` does not.
pub fn prune(target: &mut Value, before: &Value, after: &Value) {
    let (Some(fields), Some(before)) = (target.as_object_mut(), before.as_object()) else { return };
    for (name, old) in before {
        match after.get(name) {
            None if old.is_object() => {
                if let Some(inner) = fields.get_mut(name) {
                    prune(inner, old, &Value::Object(Map::new()));
                }
            }
            None => {
                fields.remove(name);
            }
            Some(new) => {
                if let Some(inner) = fields.get_mut(name) {
                    prune(inner, old, new);
                }
            }
        }
    }
}

/// Whether a strategic merge patch means the same as a merge patch: no list of objects and no directive.
pub fn is_plain_merge(patch: &Value) -> bool {
    if let Some(fields) = patch.as_object() {
        return fields.iter().all(|(name, value)| !name.starts_with('$') && is_plain_merge(value));
    }
    patch.as_array().is_none_or(|items| !items.iter().any(Value::is_object))
}

/// RFC 6902 with `add`, `remove`, `replace` and `test`.
///
/// # Errors
/// 422 for a failed `test` or a missing path, 400 for an operation that is not simulated.
pub fn json_patch(target: &mut Value, operations: &Value) -> Result<(), Refusal> {
    let operations = operations.as_array().ok_or_else(|| Refusal::bad_request("a JSON patch is a list"))?;
    for operation in operations {
        let path = operation["path"].as_str().unwrap_or_default();
        let done = match operation["op"].as_str().unwrap_or_default() {
            "test" => target.pointer(path) == Some(&operation["value"]),
            "add" => add(target, path, &operation["value"]),
            "replace" => target.pointer_mut(path).map(|slot| *slot = operation["value"].clone()).is_some(),
            "remove" => remove(target, path),
            other => {
                return Err(Refusal::bad_request(&format!(
                    "JSON patch operation {other:?} is not simulated"
                )));
            }
        };
        if !done {
            return Err(Refusal {
                code: 422,
                reason: "Invalid",
                message: format!(
                    "the server rejected our request due to an error in our request: {operation}"
                ),
                details: Value::Null,
            });
        }
    }
    Ok(())
}

fn split(path: &str) -> Option<(&str, String)> {
    let (parent, last) = path.rsplit_once('/')?;
    Some((parent, last.replace("~1", "/").replace("~0", "~")))
}

fn add(target: &mut Value, path: &str, value: &Value) -> bool {
    let Some((parent, last)) = split(path) else { return false };
    let Some(parent) = target.pointer_mut(parent) else { return false };
    if let Some(fields) = parent.as_object_mut() {
        fields.insert(last, value.clone());
        return true;
    }
    let Some(items) = parent.as_array_mut() else { return false };
    let index = if last == "-" { Some(items.len()) } else { last.parse().ok() };
    let Some(index) = index.filter(|index| *index <= items.len()) else { return false };
    items.insert(index, value.clone());
    true
}

fn remove(target: &mut Value, path: &str) -> bool {
    let Some((parent, last)) = split(path) else { return false };
    let Some(parent) = target.pointer_mut(parent) else { return false };
    if let Some(fields) = parent.as_object_mut() {
        return fields.remove(&last).is_some();
    }
    let Some(items) = parent.as_array_mut() else { return false };
    let Some(index) = last.parse().ok().filter(|index: &usize| *index < items.len()) else { return false };
    items.remove(index);
    true
}
