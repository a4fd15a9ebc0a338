//! What Cargo cannot say about the sources, and what only Cargo can say about the crates.
//!
//! Which crate may use which is written in their `Cargo.toml` files. The two lists in `tests/architecture` name what an
//! earlier rule let in: they only shrink.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use syn::visit::{self, Visit};

/// Folders with sources.
const FOLDERS: [&str; 5] = ["src", "crates", "tests", "lab", "fuzz/fuzz_targets"];

/// Crates that decide, read or describe, and never wait or talk.
const PURE: [&str; 5] = ["bps-api", "bps-protocol", "bps-wire", "bps-core", "bps-observe"];

/// What a pure crate must not have among what it is built with, however far away.
const IMPURE: [&str; 4] = ["tokio", "kube", "kube-client", "hyper"];

/// A source file by its path from the root of the repository.
struct Source {
    path: String,
    text: String,
}

/// Functions with tuple parameters, and the types of each name that others than their own module can use.
#[derive(Default)]
struct Findings {
    path: String,
    tuple_parameters: BTreeSet<String>,
    types: BTreeMap<String, Vec<String>>,
}

#[test]
fn every_file_says_first_what_it_is_for() {
    let sources = sources();
    assert!(sources.len() > 600, "only {} files were found", sources.len());
    let silent = sources.iter().filter(|source| !source.text.starts_with("//!"));
    assert_eq!(silent.map(|source| &source.path).collect::<Vec<_>>(), Vec::<&String>::new());
}

#[test]
fn no_function_takes_a_tuple_but_those_that_are_listed() {
    let findings = findings(&sources());
    assert_is_list("tuple-parameters.txt", &findings.tuple_parameters);
}

#[test]
fn a_type_that_others_use_has_a_name_of_its_own_but_for_those_that_are_listed() {
    let findings = findings(&sources());
    let shared = findings.types.into_iter().filter(|(_, places)| places.len() > 1);
    assert_is_list("type-names.txt", &shared.map(|(name, _)| name).collect());
}

#[test]
fn the_table_of_what_to_change_names_files_that_are_there() {
    let missing = table().into_iter().filter(|path| !root().join(path).exists());
    assert_eq!(missing.collect::<Vec<_>>(), Vec::<String>::new(), "ARCHITECTURE.md names them");
}

#[test]
fn every_file_of_operator_and_agent_is_in_the_table_of_what_to_change() {
    let table = table();
    let is_named = |path: &str| {
        let (module, _) = path.rsplit_once('.').expect("it ends with .rs");
        // A row of a folder, or of the file whose submodules a folder holds, is one of all that is in it.
        table.iter().any(|row| {
            let row = row.strip_suffix(".rs").unwrap_or(row);
            module == row || module.strip_prefix(row).is_some_and(|rest| rest.starts_with('/'))
        })
    };
    let sources = sources();
    let paths = sources.iter().map(|source| source.path.as_str());
    let of_programs = paths.filter(|path| {
        let is_root = ["lib.rs", "mod.rs", "testing.rs"].iter().any(|name| path.ends_with(name));
        let is_test = path.contains("/tests/") || path.ends_with("/tests.rs");
        (path.starts_with("src/") || path.starts_with("crates/bps-agent/src/")) && !is_root && !is_test
    });
    let unnamed: Vec<_> = of_programs.filter(|path| !is_named(path)).collect();
    assert_eq!(unnamed, Vec::<&str>::new(), "ARCHITECTURE.md has no row for them");
}

#[test]
fn tuples_and_shared_names_are_found() {
    let source = |path: &str, text: &str| Source { path: path.into(), text: text.into() };
    let found = findings(&[
        source("a.rs", "fn free(a: u8, (b, c): (u8, u8)) {}\npub struct Plan;\nstruct Own;"),
        source(
            "b.rs",
            "impl A { fn method(&self, pair: &(u8, u8)) { let f = |(a, b): (u8, u8)| a; } }\nenum Own {}",
        ),
        source(
            "c.rs",
            "mod inner { pub(super) trait Plan { fn required(pair: (u8, u8)); } }\nfn unit(_: ()) {}",
        ),
    ]);
    let expected = ["a.rs free", "b.rs method", "c.rs required"].map(str::to_owned);
    assert_eq!(found.tuple_parameters, BTreeSet::from(expected));
    assert_eq!(
        found.types,
        BTreeMap::from([("Plan".to_owned(), vec!["a.rs".to_owned(), "c.rs".to_owned()])])
    );
}

#[test]
fn pure_crates_are_built_without_a_client_and_without_a_runtime() {
    let metadata = metadata();
    for package in PURE {
        let closure = closure(&metadata, package);
        assert!(closure.len() > 1, "{package} was not found");
        let impure: Vec<_> = IMPURE.iter().filter(|name| closure.contains(**name)).collect();
        assert_eq!(impure, Vec::<&&str>::new(), "{package} is built with them");
    }
}

#[test]
fn a_crate_that_is_not_pure_would_be_seen() {
    let closure = closure(&metadata(), "bps-runtime");
    assert_eq!(IMPURE.map(|name| closure.contains(name)), [true; IMPURE.len()]);
}

#[test]
fn the_protocol_needs_only_its_error_messages() {
    let metadata = metadata();
    let direct = dependencies(&metadata, &id(&metadata, "bps-protocol"));
    assert_eq!(direct.into_iter().map(|id| name(&metadata, &id)).collect::<Vec<_>>(), ["thiserror"]);
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn sources() -> Vec<Source> {
    let mut found = Vec::new();
    let mut folders: Vec<PathBuf> = FOLDERS.iter().map(|folder| root().join(folder)).collect();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("the folder exists") {
            let path = entry.expect("the entry is readable").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = fs::read_to_string(&path).expect("sources are UTF-8");
                let path = path.strip_prefix(root()).expect("it was found under the root");
                found.push(Source { path: path.display().to_string(), text });
            }
        }
    }
    found.sort_by(|left, right| left.path.cmp(&right.path));
    found
}

/// Paths in the last section of `ARCHITECTURE.md`, from the root of the repository.
fn table() -> Vec<String> {
    let text = fs::read_to_string(root().join("ARCHITECTURE.md")).expect("it is there");
    let (_, table) = text.split_once("## Where to change what").expect("the section is there");
    let words = table
        .lines()
        .filter(|line| line.starts_with('|'))
        .flat_map(|line| line.split('`').skip(1).step_by(2));
    let is_path = |word: &&str| word.contains(['/', '.']) || ["apply", "tickets"].contains(word);
    words.filter(is_path).filter(|word| !word.contains(' ')).map(from_root).collect()
}

/// The path of a row: it begins with the short name of a crate, with a module of the operator, or with a top folder.
fn from_root(row: &str) -> String {
    let (first, rest) = row.split_once('/').unwrap_or((row, ""));
    if root().join(format!("crates/bps-{first}")).exists() {
        return format!("crates/bps-{first}/src/{rest}");
    }
    match first {
        "apply" | "controller" | "tickets" | "main.rs" => format!("src/{row}"),
        _ => row.to_owned(),
    }
}

/// Holds if the file lists exactly what was found; `UPDATE=1` takes lines out of it, and never puts one in.
fn assert_is_list(file: &str, found: &BTreeSet<String>) {
    let path = root().join("tests/architecture").join(file);
    let text = fs::read_to_string(&path).expect("the list exists");
    let (comments, lines): (Vec<&str>, Vec<&str>) = text.lines().partition(|line| line.starts_with('#'));
    let listed: BTreeSet<String> = lines.into_iter().map(str::to_owned).collect();

    let new: Vec<_> = found.difference(&listed).collect();
    assert!(new.is_empty(), "not in {file}, which only shrinks: {new:#?}");

    let gone: Vec<_> = listed.difference(found).collect();
    if std::env::var_os("UPDATE").is_some() && !gone.is_empty() {
        let kept: Vec<&str> =
            comments.into_iter().chain(listed.intersection(found).map(String::as_str)).collect();
        fs::write(&path, kept.join("\n") + "\n").expect("the list can be written");
        return;
    }
    assert!(gone.is_empty(), "take these out of {file} (UPDATE=1 does it), they are gone: {gone:#?}");
}

fn findings(sources: &[Source]) -> Findings {
    let mut findings = Findings::default();
    for source in sources {
        let file = syn::parse_file(&source.text).unwrap_or_else(|error| panic!("{}: {error}", source.path));
        findings.path.clone_from(&source.path);
        findings.visit_file(&file);
    }
    findings
}

impl Findings {
    fn define(&mut self, visibility: &syn::Visibility, name: &syn::Ident) {
        if !matches!(visibility, syn::Visibility::Inherited) {
            self.types.entry(name.to_string()).or_default().push(self.path.clone());
        }
    }
}

impl Visit<'_> for Findings {
    fn visit_signature(&mut self, signature: &syn::Signature) {
        let is_tuple = |input: &syn::FnArg| match input {
            syn::FnArg::Typed(typed) => takes_tuple(&typed.ty),
            syn::FnArg::Receiver(_) => false,
        };
        if signature.inputs.iter().any(is_tuple) {
            self.tuple_parameters.insert(format!("{} {}", self.path, signature.ident));
        }
        visit::visit_signature(self, signature);
    }

    fn visit_item_struct(&mut self, item: &syn::ItemStruct) {
        self.define(&item.vis, &item.ident);
    }

    fn visit_item_enum(&mut self, item: &syn::ItemEnum) {
        self.define(&item.vis, &item.ident);
    }

    fn visit_item_trait(&mut self, item: &syn::ItemTrait) {
        self.define(&item.vis, &item.ident);
        visit::visit_item_trait(self, item);
    }

    fn visit_item_type(&mut self, item: &syn::ItemType) {
        self.define(&item.vis, &item.ident);
    }
}

/// Whether a parameter of this type is several in one.
fn takes_tuple(parameter: &syn::Type) -> bool {
    if let syn::Type::Reference(reference) = parameter {
        return takes_tuple(&reference.elem);
    }
    matches!(parameter, syn::Type::Tuple(tuple) if tuple.elems.len() > 1)
}

/// What Cargo says of all packages, with the features that they have together.
fn metadata() -> Value {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version=1", "--locked"])
        .current_dir(root())
        .output()
        .expect("cargo starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("JSON")
}

fn id(metadata: &Value, package: &str) -> String {
    let packages = metadata["packages"].as_array().expect("a list");
    let found = packages.iter().find(|one| one["name"] == package && one["source"].is_null());
    found.and_then(|one| one["id"].as_str()).unwrap_or_else(|| panic!("there is no {package}")).to_owned()
}

fn name(metadata: &Value, id: &str) -> String {
    let packages = metadata["packages"].as_array().expect("a list");
    let found = packages.iter().find(|one| one["id"] == id).expect("every dependency is a package");
    found["name"].as_str().expect("a name").to_owned()
}

/// Ids of what a package is built with; not what builds or tests it.
fn dependencies(metadata: &Value, id: &str) -> Vec<String> {
    let nodes = metadata["resolve"]["nodes"].as_array().expect("a list");
    let node = nodes.iter().find(|node| node["id"] == id).expect("every package is resolved");
    let is_normal = |dependency: &&Value| {
        let kinds = dependency["dep_kinds"].as_array().expect("a list");
        kinds.iter().any(|kind| kind["kind"].is_null())
    };
    let normal = node["deps"].as_array().expect("a list").iter().filter(is_normal);
    normal.map(|dependency| dependency["pkg"].as_str().expect("an id").to_owned()).collect()
}

/// Names of all packages that a package is built with, itself included.
fn closure(metadata: &Value, package: &str) -> BTreeSet<String> {
    let mut waiting = vec![id(metadata, package)];
    let mut seen: BTreeSet<String> = waiting.iter().cloned().collect();
    while let Some(next) = waiting.pop() {
        let new = dependencies(metadata, &next).into_iter().filter(|one| seen.insert(one.clone()));
        waiting.extend(new.collect::<Vec<_>>());
    }
    seen.iter().map(|id| name(metadata, id)).collect()
}
