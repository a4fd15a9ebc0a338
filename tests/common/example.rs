//! Reads an example whose first lines say how to put the agent in.

use serde_json::Value;

/// Manifests and the arguments of the agent that the comment above them gives to `kubectl bps inject`.
pub(crate) struct Example {
    /// Every document.
    pub(crate) documents: Vec<Value>,
    /// As the shell hands them over.
    pub(crate) arguments: Vec<String>,
}

/// The example in a text.
pub(crate) fn example(text: &str) -> Example {
    let comment = text.lines().take_while(|line| line.starts_with('#'));
    let quoted = comment.filter_map(|line| line.split_once("--agent-argument='")?.1.split_once('\''));
    Example {
        arguments: quoted.map(|(argument, _)| argument.to_owned()).collect(),
        documents: serde_saphyr::from_multiple(text).expect("YAML"),
    }
}
