//! Keeps the layers apart: what each module may name, and what every file must look like.
//!
//! Reads the sources as text, so that a violation is named by file even when it would compile.

use std::fs;
use std::path::{Path, PathBuf};

/// Longest file, in lines; beyond it nobody finds a decision in one minute.
const MOST_LINES: usize = 400;

/// The lints that fence clocks, the environment and unstable iteration out of a pure module.
const FENCE: &str = "#![deny(clippy::disallowed_methods, clippy::disallowed_types)]";

/// Modules that decide: they never wait, talk, or read a clock or the environment.
const PURE: [&str; 6] = ["model", "ha", "pairing", "plan", "manifests", "status"];

/// What a pure module must not name.
const IMPURE_NAMES: [&str; 10] = [
    "kube",
    "k8s_openapi",
    "tokio",
    "futures",
    "async",
    "Instant",
    "SystemTime",
    "Timestamp::now",
    "env::var",
    "std::net::TcpStream",
];

/// The one part of `k8s_openapi` that status may name: the wire form of its times.
const STATUS_TIMES: &str = "k8s_openapi::apimachinery::pkg::apis::meta::v1";

/// Each module and those it may import; arrows only point down.
const IMPORTS: &[(&str, &[&str])] = &[
    ("model", &[]),
    ("ha", &["model"]),
    ("pairing", &["model", "ha"]),
    ("api", &[]),
    ("plan", &["model"]),
    ("manifests", &["model", "api"]),
    ("status", &["model", "ha", "api", "plan", "pairing", "manifests"]),
    ("observe", &["model", "ha", "pairing", "api", "manifests", "agent"]),
    ("wakeup", &["model", "api"]),
    ("runtime", &["model", "api"]),
    ("agent", &["ha", "api", "runtime"]),
    ("apply", &["model", "api", "manifests", "wakeup", "observe", "runtime"]),
    (
        "controller",
        &[
            "model",
            "ha",
            "pairing",
            "api",
            "plan",
            "manifests",
            "status",
            "observe",
            "wakeup",
            "runtime",
            "agent",
            "apply",
        ],
    ),
    ("plugin", &["model", "ha", "pairing", "api", "plan", "manifests", "status", "observe", "agent"]),
    ("bin", &["agent", "api", "wakeup", "runtime", "controller", "plugin"]),
];

/// A source file by its path from the root of the repository.
struct Source {
    path: String,
    text: String,
}

#[test]
fn every_file_keeps_its_layer_and_form() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let sources: Vec<Source> =
        ["src", "lab/src", "tests"].iter().flat_map(|folder| sources(root, folder)).collect();
    assert!(sources.len() > 30, "only {} files were found", sources.len());
    let violations: Vec<String> = sources.iter().flat_map(violations).collect();
    assert!(violations.is_empty(), "\n{}", violations.join("\n"));
}

#[test]
fn every_kind_of_violation_is_caught() {
    let cases = [
        ("src/plan/a.rs", "use std::fmt;", "does not begin with //!"),
        ("src/plan/a.rs", "//! A.\nuse kube::Api;", "a pure module names kube"),
        ("src/plan/a.rs", "//! A.\nuse {kube::Api};", "a pure module names kube"),
        ("src/status.rs", "//! A.\nuse k8s_openapi::api::core::v1::Pod;", "a pure module names k8s_openapi"),
        ("src/model/a.rs", "//! A.\nlet now = jiff::Timestamp::now();", "a pure module names Timestamp::now"),
        ("src/model/a.rs", "//! A.\nuse crate::plan::plan;", "model imports plan"),
        ("src/plan/a.rs", "//! A.\nuse crate::{model::{Role, Plan}, api};", "plan imports api"),
        ("src/bin/a.rs", "//! A.\nuse backuppodset::plan;", "bin imports plan"),
        ("src/extra/a.rs", "//! A.\nuse crate::model;", "module extra is not in the table"),
        ("src/apply/a.rs", "//! A.\nlet a = b.unwrap();", "unwrap outside tests"),
        ("src/apply/a.rs", "//! A.\ntodo!()", "todo! left"),
        ("src/plan/mod.rs", "//! A.\nmod a;", "the root of a pure module lacks its fence"),
    ];
    for (path, text, expected) in cases {
        let source = Source { path: path.into(), text: text.into() };
        assert_eq!(violations(&source), [format!("{path}: {expected}")], "{text}");
    }
    let long = Source { path: "tests/a.rs".into(), text: format!("//! A.\n{}", "\n".repeat(MOST_LINES)) };
    assert_eq!(violations(&long), ["tests/a.rs: has 401 lines"]);
}

#[test]
fn words_in_comments_strings_and_tests_are_no_violation() {
    let text = "//! A.\n// use kube::Api, then .unwrap()\nconst A: &str = \"kube tokio \\\" todo!()\";\n\
        const B: char = '\"';\n/* todo!() */ const C: &str = r#\"crate::api \" kube\"#;\nfn kubelet<'a>() {}\n\
        #[cfg(test)]\nmod tests { fn a() { b.unwrap() } }\n";
    assert_eq!(violations(&Source { path: "src/plan/a.rs".into(), text: text.into() }), [""; 0]);
    let times = format!("//! A.\n{FENCE}\nuse {STATUS_TIMES}::Time;\nuse crate::api::keys;");
    assert_eq!(violations(&Source { path: "src/status.rs".into(), text: times }), [""; 0]);
}

fn sources(root: &Path, folder: &str) -> Vec<Source> {
    let mut found = Vec::new();
    let mut folders: Vec<PathBuf> = vec![root.join(folder)];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("the folder exists") {
            let path = entry.expect("the entry is readable").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = fs::read_to_string(&path).expect("sources are UTF-8");
                let path = path.strip_prefix(root).expect("it was found under the root");
                found.push(Source { path: path.display().to_string(), text });
            }
        }
    }
    found.sort_by(|left, right| left.path.cmp(&right.path));
    found
}

fn violations(source: &Source) -> Vec<String> {
    let mut found = form_violations(source);
    if let (Some(module), false) = (module(&source.path), is_test(&source.path)) {
        let code = code(&source.text);
        found.extend(layer_violations(module, &code));
        if code.contains(".unwrap()") {
            found.push("unwrap outside tests".into());
        }
        let is_root = [format!("src/{module}.rs"), format!("src/{module}/mod.rs")].contains(&source.path);
        let is_empty = code.trim().is_empty();
        if is_root && PURE.contains(&module) && !is_empty && !code.contains(FENCE) {
            found.push("the root of a pure module lacks its fence".into());
        }
    }
    // A missing fence matters only when nothing worse was found in the same file.
    if found.len() > 1 {
        found.retain(|violation| !violation.ends_with("lacks its fence"));
    }
    found.into_iter().map(|violation| format!("{}: {violation}", source.path)).collect()
}

fn form_violations(source: &Source) -> Vec<String> {
    let mut found = Vec::new();
    if !source.text.starts_with("//!") {
        found.push("does not begin with //!".into());
    }
    let lines = source.text.lines().count();
    if lines > MOST_LINES {
        found.push(format!("has {lines} lines"));
    }
    let code = code(&source.text);
    let unfinished = ["todo!", "unimplemented!", "dbg!"].into_iter().filter(|word| code.contains(word));
    found.extend(unfinished.map(|word| format!("{word} left")));
    found
}

fn layer_violations(module: &str, code: &str) -> Vec<String> {
    let mut found = Vec::new();
    if PURE.contains(&module) {
        let code = if module == "status" { code.replace(STATUS_TIMES, "") } else { code.into() };
        let named = IMPURE_NAMES.into_iter().filter(|name| names(&code, name));
        found.extend(named.map(|name| format!("a pure module names {name}")));
    }
    match IMPORTS.iter().find(|(name, _)| *name == module) {
        None => found.push(format!("module {module} is not in the table")),
        Some((_, allowed)) => {
            let own = imports(code).into_iter().filter(|import| import != module);
            let known = own.filter(|import| IMPORTS.iter().any(|(name, _)| name == import));
            let wrong = known.filter(|import| !allowed.contains(&import.as_str()));
            found.extend(wrong.map(|import| format!("{module} imports {import}")));
        }
    }
    found
}

/// The module of the library, or `bin`, that a file belongs to; `lib.rs` names them all and belongs to none.
fn module(path: &str) -> Option<&str> {
    let rest = path.strip_prefix("src/")?;
    let first = rest.split('/').next()?;
    let name = first.strip_suffix(".rs").unwrap_or(first);
    (name != "lib").then_some(name)
}

fn is_test(path: &str) -> bool {
    path.split('/').any(|part| ["tests", "tests.rs", "testing.rs", "fake.rs"].contains(&part))
}

/// Whether the code names this path, as a word and not as a part of one.
fn names(code: &str, name: &str) -> bool {
    let is_word = |byte: Option<&u8>| byte.is_some_and(|byte| byte.is_ascii_alphanumeric() || *byte == b'_');
    code.match_indices(name).any(|(start, _)| {
        let bytes = code.as_bytes();
        !is_word(start.checked_sub(1).and_then(|before| bytes.get(before)))
            && !is_word(bytes.get(start + name.len()))
    })
}

/// Top-level modules of the library that the code names.
fn imports(code: &str) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for root in ["crate::", "backuppodset::"] {
        for (start, _) in code.match_indices(root) {
            let rest = &code[start + root.len()..];
            match rest.strip_prefix('{') {
                Some(group) => found.extend(first_words(group)),
                None => found.push(first_word(rest)),
            }
        }
    }
    found.sort();
    found.dedup();
    found
}

fn first_word(text: &str) -> String {
    text.trim_start().chars().take_while(|letter| letter.is_alphanumeric() || *letter == '_').collect()
}

/// The first word of each item of a `{a::{b, c}, d}` group, whose opening brace is already gone.
fn first_words(group: &str) -> Vec<String> {
    let mut words = vec![first_word(group)];
    let mut depth = 1_usize;
    for (index, letter) in group.char_indices() {
        match letter {
            '{' => depth += 1,
            '}' if depth == 1 => return words,
            '}' => depth -= 1,
            ',' if depth == 1 => words.push(first_word(&group[index + 1..])),
            _ => {}
        }
    }
    words
}

/// The text without comments, contents of strings, and the test module at its end.
fn code(text: &str) -> String {
    let mut code = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(letter) = rest.chars().next() {
        let skipped = skipped(rest);
        if skipped > 0 {
            code.push(' ');
            rest = &rest[skipped..];
        } else {
            code.push(letter);
            rest = &rest[letter.len_utf8()..];
        }
    }
    match code.find("#[cfg(test)]\nmod tests {") {
        Some(end) => code[..end].into(),
        None => code,
    }
}

/// Bytes at the start of the text that are a comment, a string or a character.
fn skipped(rest: &str) -> usize {
    let until =
        |end: &str, from: usize| rest[from..].find(end).map_or(rest.len(), |at| from + at + end.len());
    if rest.starts_with("//") {
        return rest.find('\n').unwrap_or(rest.len());
    }
    if rest.starts_with("/*") {
        return until("*/", 2);
    }
    if rest.starts_with("r#\"") {
        return until("\"#", 3);
    }
    if let Some(string) = rest.strip_prefix('"') {
        let mut is_escaped = false;
        let end = string.find(|letter| {
            let is_end = letter == '"' && !is_escaped;
            is_escaped = letter == '\\' && !is_escaped;
            is_end
        });
        return end.map_or(rest.len(), |end| end + 2);
    }
    ["'\"'", "'\\''", "'\\\"'"].into_iter().find(|letter| rest.starts_with(letter)).map_or(0, str::len)
}
