//! Reads an example whose first lines say how to put the agent in.

use serde_json::Value;

/// Manifests and the arguments of the agent that the comment above them gives to `kubectl bps inject`.
pub struct Example {
    /// Every document.
    pub documents: Vec<Value>,
    /// As the shell hands them over.
    pub arguments: Vec<String>,
}

/// The example in a text.
pub fn example(text: &str) -> Example {
    let comment = text.lines().take_while(|line| line.starts_with('#'));
    let arguments = comment.filter_map(|line| {
        let quoted = line.split_once("--agent-argument='").and_then(|(_, rest)| rest.split_once('\''));
        // What `inject` passes on to the agent under the same name.
        let replicated = || line.split(' ').find(|word| word.starts_with("--replicate="));
        quoted.map(|(argument, _)| argument).or_else(replicated)
    });
    // As kubectl reads it.
    let options = serde_saphyr::options! { legacy_octal_numbers: true };
    Example {
        arguments: arguments.map(str::to_owned).collect(),
        documents: serde_saphyr::from_multiple_with_options(text, options).expect("YAML"),
    }
}
