//! Generates `docs/reference.md` and `docs/states.md` from the code and tells when they differ.
//!
//! `UPDATE=1 cargo test --test it reference` rewrites them.

use std::fs;
use std::path::Path;

fn is_current(path: &str, wanted: &str) -> bool {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    if std::env::var_os("UPDATE").is_some() {
        fs::write(&path, wanted).expect("the file can be written");
    }
    fs::read_to_string(&path).is_ok_and(|found| found == wanted)
}

#[test]
fn the_reference_is_what_the_code_says() {
    let is_current = is_current("docs/reference.md", &super::render::reference());
    assert!(is_current, "docs/reference.md is out of date: UPDATE=1 cargo test --test it reference");
}

#[test]
fn the_state_diagram_is_what_the_table_says() {
    let is_current = is_current("docs/states.md", &super::render::states());
    assert!(is_current, "docs/states.md is out of date: UPDATE=1 cargo test --test it reference");
}
