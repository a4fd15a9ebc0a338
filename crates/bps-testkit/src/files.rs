//! Reads the manifests that tests share.

use serde_json::Value;
use std::path::{Path, PathBuf};

/// The repository.
pub fn repository() -> &'static Path {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent();
    crates.and_then(Path::parent).expect("this crate is below `crates`")
}

/// Files of a folder of the repository, sorted, without those of folders in it.
pub fn files(folder: &str) -> Vec<PathBuf> {
    let folder = repository().join(folder);
    let entries = std::fs::read_dir(folder).expect("the folder is there");
    let paths = entries.map(|entry| entry.expect("a readable entry").path());
    let mut files: Vec<_> = paths.filter(|path| path.is_file()).collect();
    files.sort();
    assert!(!files.is_empty());
    files
}

fn text(file: &Path) -> String {
    std::fs::read_to_string(file).expect("a readable file")
}

/// The documents of our kind among the documents of a file.
pub fn sets(file: &Path) -> Vec<Value> {
    let documents: Vec<Value> = serde_saphyr::from_multiple(&text(file)).expect("YAML");
    let sets: Vec<_> = documents.into_iter().filter(|document| document["kind"] == "BackupPodSet").collect();
    assert!(!sets.is_empty(), "{} has no BackupPodSet", file.display());
    sets
}

/// How a refused file is refused (`rule`, `schema` or `strict`) and the message, from its first line.
pub fn refusal(file: &Path) -> (String, String) {
    let text = text(file);
    let line = text.lines().next().and_then(|line| line.strip_prefix("# refused by ")).expect("a first line");
    let (kind, message) = line.split_once(": ").expect("kind and message");
    (kind.to_owned(), message.to_owned())
}
