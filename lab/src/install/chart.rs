//! Renders the Helm chart of this repository.
//!
//! `HELM` may name a helm program; else a pinned one is built from its Go module, once, into the lab's cache.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use crate::binaries::{self, Component};
use crate::paths;
use crate::progress::Progress;

/// Where the chart is.
fn chart() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/chart")
}

/// The helm program; the first caller builds it if the cache lacks it, and the others wait.
///
/// # Panics
/// If it cannot be built.
pub fn helm() -> &'static Path {
    static HELM: OnceLock<PathBuf> = OnceLock::new();
    HELM.get_or_init(|| {
        let build = || {
            let built = binaries::ensure(&[Component::Helm], Progress::Shown).expect("Helm can be built");
            built.find(Component::Helm).expect("it was asked for").to_owned()
        };
        paths::set("HELM").unwrap_or_else(build)
    })
}

/// Returns what `helm template` prints for a release in a namespace of a cluster of this version, with further arguments.
///
/// # Errors
/// What helm says instead.
///
/// # Panics
/// If helm cannot be built or run.
pub fn render(namespace: &str, kubernetes: &str, arguments: &[&str]) -> Result<String, String> {
    let fixed = ["template", "bps", "--namespace", namespace, "--kube-version", kubernetes];
    let output = Command::new(helm()).args(fixed).args(arguments).arg(chart()).output().expect("helm runs");
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    if output.status.success() { Ok(text(output.stdout)) } else { Err(text(output.stderr)) }
}
