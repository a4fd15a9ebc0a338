//! Label and field selectors in the server's query syntax.

use serde_json::Value;

use crate::simulation::kinds::Kind;
use crate::simulation::refusal::Refusal;

#[derive(Clone, Debug, PartialEq, Eq)]
enum Test {
    In(Vec<String>),
    NotIn(Vec<String>),
    Exists,
    Absent,
}

/// What an object must satisfy to be listed or watched.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selector {
    labels: Vec<(String, Test)>,
    fields: Vec<(&'static str, Test)>,
}

/// Field paths that may be selected on, and the kinds (plural; empty for all) that allow it.
const FIELDS: &[(&str, &str, &str)] = &[
    ("metadata.name", "", "/metadata/name"),
    ("metadata.namespace", "", "/metadata/namespace"),
    ("spec.nodeName", "pods", "/spec/nodeName"),
    ("spec.schedulerName", "pods", "/spec/schedulerName"),
    ("status.phase", "pods", "/status/phase"),
    ("status.podIP", "pods", "/status/podIP"),
];

impl Selector {
    /// Parses the query parameters `labelSelector` and `fieldSelector`; empty selects all.
    ///
    /// # Errors
    /// 400 for syntax, and for a field that the kind cannot be selected by.
    pub fn parse(kind: &Kind, labels: &str, fields: &str) -> Result<Self, Refusal> {
        let labels = split_outside_parentheses(labels)
            .into_iter()
            .map(|part| requirement(part.trim()))
            .collect::<Result<_, _>>()?;
        let fields = fields
            .split(',')
            .filter(|part| !part.is_empty())
            .map(|part| field(kind, part))
            .collect::<Result<_, _>>()?;
        Ok(Self { labels, fields })
    }

    /// Whether everything is selected.
    pub fn is_everything(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    /// Whether an object is selected.
    pub fn matches(&self, object: &Value) -> bool {
        let labels = &object["metadata"]["labels"];
        self.labels.iter().all(|(key, test)| test.holds(labels[key].as_str()))
            && self.fields.iter().all(|(pointer, test)| {
                test.holds(Some(object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()))
            })
    }
}

impl Test {
    fn holds(&self, value: Option<&str>) -> bool {
        match self {
            Self::In(values) => value.is_some_and(|value| values.iter().any(|one| one == value)),
            // As the real server: an absent label satisfies `!=` and `notin`.
            Self::NotIn(values) => value.is_none_or(|value| values.iter().all(|one| one != value)),
            Self::Exists => value.is_some(),
            Self::Absent => value.is_none(),
        }
    }
}

fn split_outside_parentheses(text: &str) -> Vec<&str> {
    let mut depth = 0_i32;
    let separator = |c: char| {
        depth += i32::from(c == '(') - i32::from(c == ')');
        c == ',' && depth == 0
    };
    text.split(separator).filter(|part| !part.trim().is_empty()).collect()
}

fn syntax(text: &str) -> Refusal {
    Refusal::bad_request(&format!("unable to parse requirement: {text:?}"))
}

fn requirement(text: &str) -> Result<(String, Test), Refusal> {
    if let Some((key, value)) = text.split_once("!=") {
        return Ok((key.trim().to_owned(), Test::NotIn(vec![value.trim().to_owned()])));
    }
    if let Some((key, value)) = text.split_once("==").or_else(|| text.split_once('=')) {
        return Ok((key.trim().to_owned(), Test::In(vec![value.trim().to_owned()])));
    }
    if let Some((head, values)) = text.split_once('(') {
        let values = values.strip_suffix(')').ok_or_else(|| syntax(text))?;
        let values = values.split(',').map(|value| value.trim().to_owned()).collect();
        return match head.split_whitespace().collect::<Vec<_>>()[..] {
            [key, "in"] => Ok((key.to_owned(), Test::In(values))),
            [key, "notin"] => Ok((key.to_owned(), Test::NotIn(values))),
            _ => Err(syntax(text)),
        };
    }
    match text.strip_prefix('!') {
        Some(key) => Ok((key.trim().to_owned(), Test::Absent)),
        None if text.contains(char::is_whitespace) => Err(syntax(text)),
        None => Ok((text.to_owned(), Test::Exists)),
    }
}

fn field(kind: &Kind, text: &str) -> Result<(&'static str, Test), Refusal> {
    let (path, wanted) = requirement(text)?;
    let row =
        FIELDS.iter().find(|(name, only, _)| *name == path && (only.is_empty() || *only == kind.plural));
    match (row, wanted) {
        (Some((_, _, pointer)), Test::In(_) | Test::NotIn(_)) if !text.contains('(') => {
            Ok((pointer, requirement(text)?.1))
        }
        (Some(_), _) => Err(syntax(text)),
        (None, _) => Err(Refusal::bad_request(&format!("field label not supported: {path}"))),
    }
}
