//! The kustomize base is what the flat file installs, and an overlay moves all of it to another namespace.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use lab::binaries::{self, Component};
use lab::progress::Progress;
use serde_json::Value;

use crate::chart::whole_numbers;

/// Namespace of the base.
const HOME: &str = bps_api::keys::OPERATOR_NAMESPACE;
/// Namespace of `deploy/overlays/elsewhere`.
const ELSEWHERE: &str = "ops";

/// What `kubectl kustomize` prints for a folder of `deploy`.
fn render(folder: &str) -> String {
    let programs = binaries::ensure(&[Component::Kubectl], Progress::Shown).expect("kubectl can be built");
    let kubectl = programs.find(Component::Kubectl).expect("it was asked for");
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy").join(folder);
    let output = Command::new(kubectl).arg("kustomize").arg(path).output().expect("kubectl runs");
    assert!(output.status.success(), "{folder}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("UTF-8")
}

/// Objects by kind, namespace and name.
type Objects = BTreeMap<[String; 3], Value>;

fn objects(yaml: &str) -> Objects {
    let documents: Vec<Value> = serde_saphyr::from_multiple(yaml).expect("YAML");
    let keyed = documents.into_iter().filter(Value::is_object).map(|mut object| {
        whole_numbers(&mut object);
        let paths = ["/kind", "/metadata/namespace", "/metadata/name"];
        let field = |path| object.pointer(path).and_then(Value::as_str).unwrap_or_default().to_owned();
        (paths.map(field), object)
    });
    keyed.collect()
}

/// Objects that are not the same in both, or in one of them only: the whole of each would be thousands of lines.
fn differing(one: &Objects, other: &Objects) -> Vec<[String; 3]> {
    let keys = one.keys().chain(other.keys()).filter(|key| one.get(*key) != other.get(*key));
    keys.cloned().collect()
}

#[test]
fn the_base_is_what_the_flat_file_installs() {
    let install = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/install.yaml");
    let install = std::fs::read_to_string(install).expect("the flat file");
    assert_eq!(differing(&objects(&render("base")), &objects(&install)), Vec::<[String; 3]>::new());
}

#[test]
fn an_overlay_that_sets_the_namespace_leaves_nothing_in_that_of_the_base() {
    let moved = render("overlays/elsewhere");
    let left: Vec<_> = moved.lines().filter(|line| line.contains(HOME)).collect();
    assert_eq!(left, Vec::<&str>::new());
    let expected = objects(&render("base").replace(HOME, ELSEWHERE));
    assert_eq!(differing(&objects(&moved), &expected), Vec::<[String; 3]>::new());
}
