//! Conversations with an API server as data: reads the files of this folder and holds a server to each of them.
//!
//! Says nothing about which server it talks to: the simulated and the real one are held to the same words, so that
//! the first cannot become kinder or stricter than the second. The words are explained in `README.md`.

mod ask;
mod facts;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use kube::Client;
use serde::Deserialize;
use serde_json::{Value, json};

/// Fewer files than this means that the folder was not found or lost files.
const LEAST_CONVERSATIONS: usize = 20;

/// A claim about the API server, and the requests that show it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Conversation {
    title: String,
    why: String,
    exchanges: Vec<Exchange>,
}

/// One request and what is expected of its answer.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Exchange {
    /// `verb Kind name`; no name for `list` and `watch`.
    ask: String,
    #[serde(default)]
    query: BTreeMap<String, String>,
    body: Option<Value>,
    /// How many events of a watch are read.
    events: Option<usize>,
    /// The code, and the reason of a refusal: `409 Conflict`.
    says: String,
    /// Path in the answer's body, and what is there.
    #[serde(default)]
    facts: BTreeMap<String, Value>,
    /// The name under which later exchanges find the answer.
    r#as: Option<String>,
}

/// An answer as a client sees it; that of a watch is `{events: [{type, object}]}`.
struct Answer {
    code: u16,
    body: Value,
}

/// Answers by the names that their exchanges give them.
type Memory = BTreeMap<String, Value>;

/// A conversation that is ready to be held.
pub struct File {
    /// Name of the file without its ending; it also serves as a name of a namespace.
    pub name: String,
    conversation: Conversation,
}

/// Every conversation of a folder, by name.
pub fn all(folder: &Path) -> Vec<File> {
    let entries = std::fs::read_dir(folder).expect("the folder of conversations exists");
    let mut paths: Vec<_> = entries.map(|entry| entry.expect("readable").path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "yaml"));
    paths.sort();
    assert!(paths.len() >= LEAST_CONVERSATIONS, "only {} conversations", paths.len());
    let read = |path: &PathBuf| {
        let text = std::fs::read_to_string(path).expect("readable");
        File::read(&path.file_stem().expect("a name").display().to_string(), &text)
    };
    paths.iter().map(read).collect()
}

impl File {
    /// Understands a file, or stops the test with what is wrong in it.
    pub fn read(name: &str, text: &str) -> Self {
        let conversation: Conversation =
            serde_saphyr::from_str(text).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(!conversation.exchanges.is_empty(), "{name}: nothing is asked");
        Self { name: name.to_owned(), conversation }
    }
}

/// Holds a conversation in a namespace; what was answered otherwise than expected, and nothing if all was as expected.
///
/// Goes on after a wrong answer, because the answers after it say what the server made of it.
pub async fn differences(file: &File, client: &Client, namespace: &str) -> String {
    let File { name, conversation } = file;
    // Some objects must name their namespace; `$namespace.name` is it.
    let mut memory = Memory::from([("namespace".to_owned(), json!({"metadata": {"name": namespace}}))]);
    let mut differences = String::new();
    for (index, exchange) in conversation.exchanges.iter().enumerate() {
        let ask = &exchange.ask;
        let found = match ask::ask(exchange, &memory, (client, namespace)).await {
            Ok(answer) => {
                let found = facts::differences(exchange, &answer, &memory);
                memory.extend(exchange.r#as.clone().map(|name| (name, answer.body)));
                found
            }
            Err(error) => format!("    ! {error}\n"),
        };
        if !found.is_empty() {
            differences.extend([format!("  exchange {}: {ask}\n{found}", index + 1)]);
        }
    }
    if differences.is_empty() {
        return differences;
    }
    format!("{name}: {}\n  why: {}\n{differences}", conversation.title, conversation.why.trim())
}

/// Fails with all differences of all conversations, if there are any.
pub fn assert_none(differences: &[String]) {
    let failed: Vec<&str> = differences.iter().map(String::as_str).filter(|text| !text.is_empty()).collect();
    assert!(failed.is_empty(), "{} of {} differ\n\n{}", failed.len(), differences.len(), failed.join("\n"));
}
