//! The Helm chart renders what the flat file installs, and says so when a value is misspelled.
//!
//! `HELM` may name a helm program; else a pinned one is built from its Go module, once, into the lab's cache.

use lab::binaries::{self, Component};
use lab::paths;
use lab::progress::Progress;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// Version of Kubernetes that the chart is rendered for; the oldest that it admits.
const KUBERNETES: &str = "1.33.0";

/// Kind, namespace and name of an object.
type Key = (String, String, String);

fn file(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// What objects hold besides their metadata, by key. Labels differ: those of Helm name the release.
fn objects(yaml: &str) -> BTreeMap<Key, Value> {
    let documents: Vec<Value> = serde_saphyr::from_multiple(yaml).expect("YAML");
    let field = |document: &Value, path: &str| {
        document.pointer(path).and_then(Value::as_str).unwrap_or_default().to_owned()
    };
    let keyed = documents.into_iter().filter(Value::is_object).map(|mut document| {
        let [kind, namespace, name] =
            ["/kind", "/metadata/namespace", "/metadata/name"].map(|path| field(&document, path));
        document["metadata"].take();
        whole_numbers(&mut document);
        ((kind, namespace, name), document)
    });
    keyed.collect()
}

/// Helm prints 1.0 as 1.
fn whole_numbers(value: &mut Value) {
    match value {
        Value::Object(fields) => fields.values_mut().for_each(whole_numbers),
        Value::Array(items) => items.iter_mut().for_each(whole_numbers),
        Value::Number(number) => *value = Value::from(number.as_f64().expect("a number")),
        Value::Null | Value::Bool(_) | Value::String(_) => {}
    }
}

/// The helm program; the first test builds it if the cache lacks it, and the others wait.
fn helm() -> &'static Path {
    static HELM: OnceLock<PathBuf> = OnceLock::new();
    HELM.get_or_init(|| {
        let build = || {
            let built = binaries::ensure(&[Component::Helm], Progress::Shown).expect("Helm can be built");
            built.find(Component::Helm).expect("it was asked for").to_owned()
        };
        paths::set("HELM").unwrap_or_else(build)
    })
}

/// Output of `helm template` with extra arguments, or its complaint.
fn render(arguments: &[&str]) -> Result<String, String> {
    let chart = file("../deploy/chart");
    let fixed = ["template", "bps", "--namespace", "backuppodset-system", "--kube-version", KUBERNETES];
    let output = Command::new(helm()).args(fixed).args(arguments).arg(chart).output().expect("helm runs");
    let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
    if output.status.success() { Ok(text(output.stdout)) } else { Err(text(output.stderr)) }
}

#[test]
fn the_chart_renders_what_the_flat_file_installs() {
    let install = std::fs::read_to_string(file("../deploy/install.yaml")).expect("the flat file");
    let mut expected = objects(&install);
    // Helm makes the namespace itself.
    expected.retain(|(kind, ..), _| kind != "Namespace");
    assert_eq!(objects(&render(&[]).expect("the chart renders")), expected);
}

#[test]
fn watched_namespaces_get_roles_and_the_cluster_grants_only_what_has_no_namespace() {
    let rendered = render(&["--set", "watchNamespaces={one,two}"]).expect("the chart renders");
    let keys: Vec<_> = objects(&rendered).into_keys().collect();
    let grants = |kind: &str| {
        let of_kind =
            keys.iter().filter(|(found, _, name)| found == kind && name.starts_with("bps-operator"));
        of_kind.map(|(_, namespace, name)| format!("{namespace}/{name}")).collect::<Vec<_>>()
    };
    let roles = ["backuppodset-system/bps-operator", "one/bps-operator-watched", "two/bps-operator-watched"];
    assert_eq!(grants("RoleBinding"), roles);
    assert_eq!(grants("ClusterRoleBinding"), ["/bps-operator-cluster"]);
    assert!(rendered.contains("--watch-namespace=one") && rendered.contains("--watch-namespace=two"));
}

#[test]
fn a_misspelled_value_is_refused() {
    let refused = render(&["--set", "replicaCuont=3"]).expect_err("the schema knows no such value");
    assert!(refused.contains("replicaCuont"), "{refused}");
}
