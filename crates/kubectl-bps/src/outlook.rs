//! What is going to happen to a group or a set, as an object and as text.

use kube::ResourceExt;
use serde::Serialize;

use super::table::indented;

/// What the operator would do with an object, in words.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Outlook {
    /// Kind of the object.
    pub kind: &'static str,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Why nothing is done with it, whatever it may need.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idle_because: Option<String>,
    /// What is done now.
    pub steps: Vec<String>,
    /// What is done when that is done.
    pub later: Vec<String>,
    /// What is waited for.
    pub waits: Vec<String>,
    /// What is held back, and why.
    pub holds: Vec<String>,
    /// What only the operator knows.
    pub unknown: Vec<String>,
    /// When it looks again if nothing happens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub look_again_seconds: Option<f32>,
}

impl Outlook {
    /// Of this object; nothing is to be done with it.
    pub(super) fn of(kind: &'static str, object: &impl ResourceExt) -> Self {
        let (namespace, name) = (object.namespace().unwrap_or_default(), object.name_any());
        Self { kind, namespace, name, ..Self::default() }
    }

    /// The same if nothing is done whatever it may need.
    pub(super) fn idle(self, because: String) -> Self {
        Self { idle_because: Some(because), ..self }
    }

    /// For people.
    pub fn text(&self) -> String {
        let Self {
            kind,
            namespace,
            name,
            idle_because,
            steps,
            later,
            waits,
            holds,
            unknown,
            look_again_seconds,
        } = self;
        let title = format!("{kind} {namespace}/{name}");
        if let Some(because) = idle_because {
            return format!("{title}: the operator does nothing, because {because}\n");
        }
        let mut text = format!("{title}\n");
        if [steps, later, waits, holds].iter().all(|lines| lines.is_empty()) {
            text.push_str("\nNothing is to be done, and nothing is waited for.\n");
        }
        let sections = [
            ("It would now", steps),
            ("It would then", later),
            ("It waits", waits),
            ("It holds back", holds),
            ("Not known from outside", unknown),
        ];
        for (heading, lines) in sections.iter().filter(|(_, lines)| !lines.is_empty()) {
            let lines: Vec<String> = lines.iter().map(|line| format!("- {line}")).collect();
            text.extend(["\n", heading, ":\n", &indented(&lines.join("\n"))]);
        }
        if let Some(seconds) = look_again_seconds {
            let again = format!("\nIf nothing happens, it looks again in {seconds:.1} s.\n");
            text.push_str(&again);
        }
        text
    }
}
