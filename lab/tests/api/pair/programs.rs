//! What a stage needs to run: a control plane, the agent and the stand-in application.

use std::fs;
use std::io::{self, PipeReader, PipeWriter, Write as _};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use lab::cargo;
use lab::control_plane::ControlPlane;

pub(super) async fn start() -> ControlPlane {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("pair-tests");
    if directory.exists() {
        // Of an earlier run, which has ended: cargo runs one at a time in a target directory.
        fs::remove_dir_all(&directory).expect("an old directory can be removed");
    }
    ControlPlane::start(directory.join("control-plane")).await.expect("a control plane")
}

/// The programs of other packages that pairs run, as the sources have them now.
#[derive(Debug)]
pub(super) struct Programs {
    /// `bps-agent`.
    pub(super) agent: PathBuf,
    /// `lab-app`.
    pub(super) app: PathBuf,
}

/// Finds them, or has Cargo build them: it builds programs only for the tests of their own package.
pub(super) fn programs() -> &'static Programs {
    static PROGRAMS: OnceLock<Programs> = OnceLock::new();
    PROGRAMS.get_or_init(|| match (cargo::built("bps-agent"), cargo::built("lab-app")) {
        (Some(agent), Some(app)) => Programs { agent, app },
        _ => build(),
    })
}

fn build() -> Programs {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().expect("it is in the target directory");
    // With the lab, so that all share the features of their dependencies, and what is built of them.
    let built = cargo::command()
        .args(["build", "--quiet", "--locked", "--package", "lab"])
        .args(["--package", "bps-agent", "--bin", "bps-agent", "--package", "lab-app", "--bin", "lab-app"])
        .args(["--manifest-path", concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml")])
        .env("CARGO_TARGET_DIR", target)
        // The directory above is already the one of a target if Cargo was told one.
        .env_remove("CARGO_BUILD_TARGET")
        .status();
    assert!(built.expect("cargo starts").success());
    Programs { agent: target.join("debug/bps-agent"), app: target.join("debug/lab-app") }
}

/// The end of a pipe in which there is no room for another byte; the other end is kept there.
pub(super) fn full_pipe(unread: &mut Vec<PipeReader>) -> PipeWriter {
    let (reader, mut writer) = io::pipe().expect("a pipe");
    rustix::io::ioctl_fionbio(&writer, true).expect("it is ours");
    while writer.write(b".").is_ok() {}
    rustix::io::ioctl_fionbio(&writer, false).expect("it is ours");
    unread.push(reader);
    writer
}
