//! The programs that tests need and Cargo does not build with them.

use lab::binaries::{self, CLUSTER, Component};
use lab::paths;
use lab::progress::Progress;

/// Builds what the cache lacks.
pub(crate) fn programs() -> anyhow::Result<()> {
    // Only root can start nodes.
    if paths::is_root() {
        binaries::ensure(&CLUSTER, Progress::Shown)?;
    } else {
        binaries::ensure_control_plane(Progress::Shown)?;
    }
    binaries::ensure(&[Component::Referee], Progress::Shown)?;
    if paths::set("HELM").is_none() {
        binaries::ensure(&[Component::Helm], Progress::Shown)?;
    }
    Ok(())
}
