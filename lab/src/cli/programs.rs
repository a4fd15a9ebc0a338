//! The programs that tests need and Cargo does not build with them.

use lab::binaries::{self, CLUSTER, Component};
use lab::image::Profile;
use lab::install::images;
use lab::paths;
use lab::progress::Progress;

/// Which programs to build.
#[derive(clap::Args)]
pub(crate) struct ProgramArguments {
    /// The programs in the images of the project, instead of those of Kubernetes and Helm.
    #[arg(long)]
    images: bool,
}

/// Builds what the cache lacks.
pub(crate) fn programs(arguments: &ProgramArguments) -> anyhow::Result<()> {
    if arguments.images {
        images::build_binaries(Profile::Quick)?;
        return Ok(());
    }

    // Only root can start nodes.
    if paths::is_root() {
        binaries::ensure(&CLUSTER, Progress::Shown)?;
    } else {
        binaries::ensure_control_plane(Progress::Shown)?;
    }
    if paths::set("HELM").is_none() {
        binaries::ensure(&[Component::Helm], Progress::Shown)?;
    }
    Ok(())
}
