//! Holds the facts of an exchange against its answer, and fills earlier answers into later requests.

use serde_json::Value;

use super::{Answer, Exchange, Memory};

/// Replaces every text that begins with `$` by what it names.
///
/// # Errors
/// A name that no earlier answer has.
pub(super) fn filled(value: &Value, memory: &Memory) -> Result<Value, String> {
    if let Some(text) = value.as_str().filter(|text| text.starts_with('$')) {
        return named(text, memory);
    }
    if let Some(items) = value.as_array() {
        return items.iter().map(|item| filled(item, memory)).collect();
    }
    let Some(fields) = value.as_object() else { return Ok(value.clone()) };
    fields.iter().map(|(name, value)| Ok((name.clone(), filled(value, memory)?))).collect()
}

/// `$first.uid` is a field of the metadata of the answer that was called `first`.
fn named(text: &str, memory: &Memory) -> Result<Value, String> {
    let (name, field) = text.trim_start_matches('$').split_once('.').unwrap_or((text, ""));
    let found = memory.get(name).map(|answer| &answer["metadata"][field]).filter(|value| !value.is_null());
    found.cloned().ok_or_else(|| format!("`{text}` names nothing that was answered"))
}

/// What of an answer is not as its exchange says, as lines; the whole answer follows them.
pub(super) fn differences(exchange: &Exchange, answer: &Answer, memory: &Memory) -> String {
    let mut lines = String::new();
    let mut compare = |what: &str, expected: String, answered: String, is_same: bool| {
        if !is_same {
            lines.extend([format!("    - expected  {what}: {expected}\n")]);
            lines.extend([format!("    + answered  {what}: {answered}\n")]);
        }
    };
    let says = says(answer);
    compare("says", exchange.says.clone(), says.clone(), says == exchange.says);
    for (path, expected) in &exchange.facts {
        let found = find(&answer.body, path);
        let shown = found.map_or_else(|| "absent".to_owned(), Value::to_string);
        match holds(expected, found, memory) {
            Ok(is_same) => compare(path, expected.to_string(), shown, is_same),
            Err(error) => compare(path, error, shown, false),
        }
    }
    if lines.is_empty() { lines } else { format!("{lines}    | {}\n", answer.body) }
}

fn says(Answer { code, body }: &Answer) -> String {
    match body["reason"].as_str() {
        Some(reason) if *code >= 400 => format!("{code} {reason}"),
        Some(_) | None => code.to_string(),
    }
}

/// The value at a path of names and numbers with dots between them.
fn find<'a>(body: &'a Value, path: &str) -> Option<&'a Value> {
    let step = |value: &'a Value, name: &str| match value.as_array() {
        Some(items) => name.parse::<usize>().ok().and_then(|index| items.get(index)),
        None => value.get(name),
    };
    path.split('.').try_fold(body, step).filter(|value| !value.is_null())
}

fn holds(expected: &Value, found: Option<&Value>, memory: &Memory) -> Result<bool, String> {
    let words: Vec<&str> = expected.as_str().unwrap_or_default().split(' ').collect();
    match words[..] {
        ["absent"] => Ok(found.is_none()),
        ["present"] => Ok(found.is_some()),
        ["other", "than", name] => {
            named(name, memory).map(|other| found.is_some_and(|found| *found != other))
        }
        ["more", "than", name] => Ok(number(found) > number(Some(&named(name, memory)?))),
        _ => Ok(found == Some(&filled(expected, memory)?)),
    }
}

/// A number, or a text of digits: resource versions are compared as numbers.
fn number(value: Option<&Value>) -> Option<u64> {
    let value = value?;
    value.as_u64().or_else(|| value.as_str()?.parse().ok())
}
