//! Images, installation and the demonstration.

use std::path::{Path, PathBuf};

use anyhow::Context;
use lab::cluster::Cluster;
use lab::image::Profile;
use lab::install::images;
use lab::progress::Progress;
use lab::state::Purpose;
use lab::story::{self, site};

/// Builds the images and loads them into the nodes of the local cluster, if one runs.
pub(crate) fn images() -> anyhow::Result<()> {
    let archives = match Cluster::attach() {
        Ok(cluster) => images::provide(&cluster, Profile::Quick, Progress::Shown)?,
        Err(lab::cluster::Error::FindNone { .. }) => {
            images::archives(&images::build_binaries(Profile::Quick)?)?
        }
        Err(error) => return Err(error.into()),
    };
    for archive in archives {
        println!("{} {}", archive.image, archive.path.display());
    }
    Ok(())
}

/// Installs the operator.
#[tokio::main]
pub(crate) async fn install(manifest: Option<&Path>) -> anyhow::Result<()> {
    let text = manifest.map(read).transpose()?;
    let (client, site) = site::choose(Progress::Shown, Purpose::Asked).await?;
    println!("{site}\n");
    Ok(story::provide(&client, (&site, Profile::Quick), text.as_deref()).await?)
}

/// Tells the paper's story.
#[tokio::main]
pub(crate) async fn demo(manifest: Option<&Path>) -> anyhow::Result<()> {
    let text = manifest.map(read).transpose()?;
    Ok(story::tell(text.as_deref()).await?)
}

fn read(path: &Path) -> anyhow::Result<String> {
    std::fs::read_to_string(path).with_context(|| format!("read {}", path.display()))
}

/// The operator's manifest.
#[derive(clap::Args)]
pub(crate) struct ManifestArguments {
    /// Instead of the manifest in deploy/install.yaml.
    #[arg(long)]
    pub(crate) manifest: Option<PathBuf>,
}
