//! Builds the project's images and loads them into a cluster's nodes; both are skipped when nothing changed.
//!
//! Archives are kept in the cache under the digest of what they are made from, never in the checkout.

use std::fs;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use crate::cluster::{self, Cluster};
use crate::image::{self, Binaries, ImageSpec, Profile};
use crate::machine::{self, hexadecimal};
use crate::paths;
use crate::progress::Progress;

/// How many digits of a digest name an archive: enough that two never meet.
const DIGEST_DIGITS: usize = 16;

/// Why there are no images.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The binaries or an archive could not be made.
    #[error("build the images")]
    Build(#[source] image::Error),
    /// The cache could not be used.
    #[error("keep the images")]
    Keep(#[source] machine::Error),
    /// A node did not take an archive.
    #[error("load {image}")]
    Load {
        /// Name of the image.
        image: String,
        /// Why not.
        #[source]
        source: Box<cluster::Error>,
    },
}

/// One archive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Archive {
    /// Full name of the image in it.
    pub image: String,
    /// Where it is.
    pub path: PathBuf,
    /// Digest of what it is made from.
    pub digest: String,
}

/// The sources of the project: the workspace that this program was built from.
pub fn workspace() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(Path::new("/"))
}

/// Builds the static binaries of the workspace; cargo decides what is to be done.
///
/// # Errors
/// `Build` if cargo does not succeed.
pub fn build_binaries(profile: Profile) -> Result<Binaries, Error> {
    image::build_static(workspace(), &paths::cache(), profile).map_err(Error::Build)
}

/// As [`build_binaries`], without holding up other tasks.
///
/// # Errors
/// As [`build_binaries`].
pub async fn await_binaries(profile: Profile) -> Result<Binaries, Error> {
    tokio::task::spawn_blocking(move || build_binaries(profile)).await.expect("a build does not panic")
}

/// Builds the kubectl plugin, which is in no image, without holding up other tasks.
///
/// # Errors
/// `Build` if cargo does not succeed.
pub async fn await_plugin(profile: Profile) -> Result<PathBuf, Error> {
    let build = move || image::build_plugin(workspace(), &paths::cache(), profile).map_err(Error::Build);
    tokio::task::spawn_blocking(build).await.expect("a build does not panic")
}

/// Makes the archives of all images, unless the cache has them.
///
/// # Errors
/// `Build` or `Keep` if a file cannot be read or written.
pub fn archives(binaries: &Binaries) -> Result<Vec<Archive>, Error> {
    let directory = paths::cache().join("images");
    machine::create_directory(&directory).map_err(Error::Keep)?;
    image::project_images(binaries).iter().map(|spec| archive(spec, &directory)).collect()
}

fn archive(spec: &ImageSpec, directory: &Path) -> Result<Archive, Error> {
    let digest = digest(spec)?;
    let short = spec.name.rsplit('/').next().unwrap_or_default().replace(':', "-");
    let path = directory.join(format!("{short}-{digest}.tar"));
    if !path.is_file() {
        // Written beside the final name, so that an interrupted run leaves nothing that looks whole.
        let partial = path.with_extension("partial");
        image::write_archive(spec, &partial).map_err(Error::Build)?;
        fs::rename(&partial, &path)
            .map_err(|error| Error::Keep(machine::Error::file("rename into place", &path, error)))?;
    }
    Ok(Archive { image: spec.name.clone(), path, digest })
}

fn digest(spec: &ImageSpec) -> Result<String, Error> {
    let mut hash = Sha256::new();
    // Everything but the place of the files on this machine is in here; their bytes follow.
    for file in &spec.files {
        let bytes = fs::read(&file.source)
            .map_err(|error| Error::Keep(machine::Error::file("read", &file.source, error)))?;
        hash.update(format!("{} {:o} {}\n", file.destination, file.mode, bytes.len()));
        hash.update(bytes);
    }
    hash.update(format!("{} {:?} {:?} {:?}", spec.name, spec.entrypoint, spec.user, spec.env));
    Ok(hexadecimal(&hash.finalize())[..DIGEST_DIGITS].to_owned())
}

/// What names all archives together.
pub fn combined_digest(archives: &[Archive]) -> String {
    let mut hash = Sha256::new();
    for archive in archives {
        hash.update(&archive.digest);
    }
    hexadecimal(&hash.finalize())[..DIGEST_DIGITS].to_owned()
}

/// Loads the archives that this cluster has not got yet.
///
/// # Errors
/// `Load` if a node does not take one.
pub fn load(cluster: &Cluster, archives: &[Archive]) -> Result<(), Error> {
    let directory = cluster.run_directory().images();
    machine::create_directory(&directory).map_err(Error::Keep)?;
    for archive in archives {
        let short = archive.path.file_stem().unwrap_or_default();
        let mark = directory.join(short).with_extension("loaded");
        if mark.exists() {
            continue;
        }
        let failed = |source| Error::Load { image: archive.image.clone(), source: Box::new(source) };
        cluster.load(&archive.path).map_err(failed)?;
        machine::write_file(&mark, &[]).map_err(Error::Keep)?;
    }
    Ok(())
}

/// Builds, packs and loads, and says which step takes how long.
///
/// # Errors
/// See [`enum@Error`].
pub fn provide(cluster: &Cluster, profile: Profile, progress: Progress) -> Result<Vec<Archive>, Error> {
    let step = progress.step("build the operator's binaries");
    let binaries = build_binaries(profile)?;
    step.done();
    let archives = archives(&binaries)?;
    let step = progress.step("load images into the nodes");
    load(cluster, &archives)?;
    step.done();
    Ok(archives)
}
