//! Builds static binaries and packs them into image archives that `ctr images import` and `docker load` read.
//!
//! Starts no container and talks to no registry. The bytes of an archive depend on its input only.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use bps_api::keys::AGENT_IMAGE_PROGRAM_PATH;
use serde_json::json;
use sha2::{Digest, Sha256};
use tar::{EntryType, Header};

use crate::cargo;
use crate::packages;

/// The operator's image in the lab.
pub const OPERATOR_IMAGE: &str = "registry.local/bps-operator:dev";
/// The image of the gate and of the wake-up client in the lab.
pub const WAKEUP_IMAGE: &str = "registry.local/bps-wakeup:dev";
/// The image that brings the agent in the lab.
pub const AGENT_IMAGE: &str = "registry.local/bps-agent:dev";
/// The image of the scheduler's extender in the lab.
pub const EXTENDER_IMAGE: &str = "registry.local/bps-extender:dev";
/// The stand-in application as a non-root image: user 65532, port 8080. It has the agent, too, where its own image has it.
pub const APP_IMAGE: &str = "registry.local/lab-app:dev";
/// The name under which the examples, as the paper's, ask for nginx.
///
/// In the lab this is **not** nginx: nodes reach no registry, so the stand-in application listens on port 80
/// under this name. It runs as root, as the real image does, for a port below 1024.
pub const NGINX_IMAGE: &str = "docker.io/library/nginx:1.14.2";

/// User of images that need no privilege, and its group: `nonroot` of the distroless images.
pub const NONROOT_ID: u32 = 65532;

/// Names of the binaries that the images are made from, by package.
const PROGRAMS: [Program; 5] = [
    Program { package: "backuppodset", name: "bps-operator" },
    Program { package: "bps-wakeup", name: "bps-wakeup" },
    Program { package: "bps-agent", name: "bps-agent" },
    Program { package: "bps-extender", name: "bps-extender" },
    Program { package: "lab-app", name: "lab-app" },
];
/// The program that is in no image, because it runs where a person is.
const PLUGIN: Program = Program { package: "kubectl-bps", name: "kubectl-bps" };
/// Directories of each image besides the parents of its files.
const DIRECTORIES: [&str; 5] = ["dev", "etc", "proc", "sys", "tmp"];

/// Why an image could not be made.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file that goes into the image.
    #[error("read {path}")]
    ReadFile {
        /// The file.
        path: PathBuf,
        /// The operating system's answer.
        #[source]
        source: io::Error,
    },
    /// The archive.
    #[error("write {path}")]
    WriteArchive {
        /// The archive.
        path: PathBuf,
        /// The operating system's answer.
        #[source]
        source: io::Error,
    },
    /// A name without a tag, or a file that is not at an absolute path below the root.
    #[error("image {name}: {problem}")]
    InvalidSpec {
        /// Name of the image.
        name: String,
        /// What is wrong.
        problem: &'static str,
    },
    /// cargo or rustc could not be run.
    #[error("run {program}")]
    RunTool {
        /// The program.
        program: PathBuf,
        /// The operating system's answer.
        #[source]
        source: io::Error,
    },
    /// cargo has printed why.
    #[error("cargo build ended with {0}")]
    BuildBinaries(std::process::ExitStatus),
    /// The build ended well but did not report one of the binaries.
    #[error("cargo built no binary {0}")]
    MissingBinary(&'static str),
    /// A binary that asks for a dynamic loader, which an image without a file system of its own does not have.
    #[error("{0} is not statically linked")]
    DynamicBinary(PathBuf),
}

/// One file of an image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageFile {
    /// Where it is on this machine.
    pub source: PathBuf,
    /// Absolute path in the image.
    pub destination: String,
    /// Permission bits.
    pub mode: u32,
}

/// What an image consists of.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ImageSpec {
    /// Full name with registry and tag, as kubelets look it up.
    pub name: String,
    /// Command line of the container.
    pub entrypoint: Vec<String>,
    /// Its files; parents are made as needed.
    pub files: Vec<ImageFile>,
    /// Numeric user, `uid` or `uid:gid`, so that `runAsNonRoot` can be checked. `None` is root.
    pub user: Option<String>,
    /// Environment, besides `PATH`.
    pub env: BTreeMap<String, String>,
}

/// Writes the image as an archive in docker's format: one layer, deterministic bytes.
///
/// # Errors
/// [`Error::InvalidSpec`], [`Error::ReadFile`] or [`Error::WriteArchive`].
pub fn write_archive(spec: &ImageSpec, out: &Path) -> Result<(), Error> {
    let write_failed = |source| Error::WriteArchive { path: out.to_owned(), source };
    let invalid = |problem| Error::InvalidSpec { name: spec.name.clone(), problem };
    if !spec.name.rsplit('/').next().is_some_and(|last| last.contains(':')) {
        return Err(invalid("the name has no tag"));
    }
    let layer = layer(spec)?;
    let layer_digest = hex_digest(&layer);
    let config = config(spec, &layer_digest).to_string().into_bytes();
    let (config_path, layer_path) =
        (format!("{}.json", hex_digest(&config)), format!("{layer_digest}/layer.tar"));
    let manifest = json!([{ "Config": config_path, "RepoTags": [spec.name], "Layers": [layer_path] }]);
    let mut archive = tar::Builder::new(File::create(out).map_err(write_failed)?);
    for (path, bytes) in [
        (config_path.as_str(), config.as_slice()),
        (layer_path.as_str(), layer.as_slice()),
        ("manifest.json", manifest.to_string().as_bytes()),
    ] {
        append(&mut archive, path, &Entry::File { mode: 0o644, bytes: bytes.to_vec() })
            .map_err(write_failed)?;
    }
    archive.into_inner().and_then(|file| file.sync_all()).map_err(write_failed)
}

#[derive(Debug)]
enum Entry {
    Directory { mode: u32 },
    File { mode: u32, bytes: Vec<u8> },
}

fn layer(spec: &ImageSpec) -> Result<Vec<u8>, Error> {
    let invalid = |problem| Error::InvalidSpec { name: spec.name.clone(), problem };
    let passwd = format!("root:x:0:0:root:/:/\nnonroot:x:{NONROOT_ID}:{NONROOT_ID}:nonroot:/tmp:/\n");
    let group = format!("root:x:0:\nnonroot:x:{NONROOT_ID}:\n");
    let mut entries = BTreeMap::from([
        ("etc/passwd".to_owned(), Entry::File { mode: 0o644, bytes: passwd.into_bytes() }),
        ("etc/group".to_owned(), Entry::File { mode: 0o644, bytes: group.into_bytes() }),
    ]);
    for directory in DIRECTORIES {
        let mode = if directory == "tmp" { 0o1777 } else { 0o755 };
        entries.insert(format!("{directory}/"), Entry::Directory { mode });
    }
    for ImageFile { source, destination, mode } in &spec.files {
        let path = destination.strip_prefix('/').ok_or_else(|| invalid("a destination is not absolute"))?;
        if path.split('/').any(|part| matches!(part, "" | "." | "..")) {
            return Err(invalid("a destination is not a plain path"));
        }
        for (end, _) in path.match_indices('/') {
            entries.entry(path[..=end].to_owned()).or_insert(Entry::Directory { mode: 0o755 });
        }
        let bytes =
            fs::read(source).map_err(|error| Error::ReadFile { path: source.clone(), source: error })?;
        entries.insert(path.to_owned(), Entry::File { mode: *mode, bytes });
    }
    let mut builder = tar::Builder::new(Vec::new());
    // The order of the map puts a directory before what it holds.
    for (path, entry) in &entries {
        append(&mut builder, path, entry).map_err(|_| invalid("a path does not fit into a tar header"))?;
    }
    builder.into_inner().map_err(|_| invalid("the layer does not fit into a tar archive"))
}

fn append<W: io::Write>(archive: &mut tar::Builder<W>, path: &str, entry: &Entry) -> io::Result<()> {
    let (kind, mode, bytes) = match entry {
        Entry::Directory { mode } => (EntryType::Directory, *mode, [].as_slice()),
        Entry::File { mode, bytes } => (EntryType::Regular, *mode, bytes.as_slice()),
    };
    let mut header = Header::new_ustar();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_mtime(0);
    header.set_uid(0);
    header.set_gid(0);
    header.set_size(bytes.len() as u64);
    archive.append_data(&mut header, path, bytes)
}

fn config(spec: &ImageSpec, layer_digest: &str) -> serde_json::Value {
    let path = "PATH=/usr/local/bin:/usr/bin:/bin:/".to_owned();
    let env: Vec<String> =
        [path].into_iter().chain(spec.env.iter().map(|(name, value)| format!("{name}={value}"))).collect();
    json!({
        "architecture": architecture(),
        "os": "linux",
        "config": {
            "Entrypoint": spec.entrypoint,
            "Env": env,
            "User": spec.user.as_deref().unwrap_or_default(),
            "WorkingDir": "/",
        },
        "rootfs": { "type": "layers", "diff_ids": [format!("sha256:{layer_digest}")] },
        "history": [{ "created": "1970-01-01T00:00:00Z", "created_by": "lab" }],
    })
}

/// The machine's architecture by the name that images use (Go's).
fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

fn hex_digest(bytes: &[u8]) -> String {
    use std::fmt::Write;
    Sha256::digest(bytes).iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").expect("writing to a string does not fail");
        text
    })
}

/// Where the static binaries are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Binaries {
    /// `bps-operator`.
    pub operator: PathBuf,
    /// `bps-wakeup`.
    pub wakeup: PathBuf,
    /// `bps-agent`.
    pub agent: PathBuf,
    /// `bps-extender`.
    pub extender: PathBuf,
    /// `lab-app`.
    pub app: PathBuf,
}

impl Binaries {
    /// Picks them from programs by name.
    fn among(built: &BTreeMap<String, PathBuf>) -> Result<Self, Error> {
        let find = |name: &'static str| {
            let path = built.get(name).cloned().ok_or(Error::MissingBinary(name))?;
            if is_static(&path)? { Ok(path) } else { Err(Error::DynamicBinary(path)) }
        };
        let [operator, wakeup, agent, extender, app] = PROGRAMS.map(|program| program.name);
        Ok(Self {
            operator: find(operator)?,
            wakeup: find(wakeup)?,
            agent: find(agent)?,
            extender: find(extender)?,
            app: find(app)?,
        })
    }
}

/// A program of an image, and the package that it is built from.
#[derive(Debug, Clone, Copy)]
struct Program {
    package: &'static str,
    name: &'static str,
}

/// How programs are optimised: profiles of the workspace's `Cargo.toml`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Profile {
    /// Built soon, for a person or a test that waits for it. One build makes all programs, and the lab that runs them: what
    /// they share is compiled once, with the features that any of them wants.
    Quick,
    /// As the container images ship, for measurements. Each package is built by itself, so that no program has features that
    /// another one wants.
    Dist,
}

impl Profile {
    fn name(self) -> &'static str {
        match self {
            Self::Quick => "quick",
            Self::Dist => "dist",
        }
    }

    /// The programs that one build makes, build by build.
    fn builds(self) -> Vec<&'static [Program]> {
        match self {
            Self::Quick => vec![&PROGRAMS],
            Self::Dist => PROGRAMS.chunks(1).collect(),
        }
    }
}

/// Builds the binaries of the images as static executables of this machine's own target.
///
/// `root` is the workspace; `cache` is a directory outside of it, for the build's files, unless
/// `CARGO_TARGET_DIR` names another. cargo prints its progress to standard error. Blocks for minutes when cold.
///
/// # Errors
/// [`Error::RunTool`], [`Error::BuildBinaries`], [`Error::MissingBinary`] or [`Error::DynamicBinary`].
pub fn build_static(root: &Path, cache: &Path, profile: Profile) -> Result<Binaries, Error> {
    let mut built = BTreeMap::new();
    for programs in profile.builds() {
        built.extend(build(root, cache, profile, programs)?);
    }

    Binaries::among(&built)
}

/// Builds the kubectl plugin as [`build_static`] builds the binaries of the images.
///
/// # Errors
/// [`Error::RunTool`], [`Error::BuildBinaries`] or [`Error::MissingBinary`].
pub fn build_plugin(root: &Path, cache: &Path, profile: Profile) -> Result<PathBuf, Error> {
    let mut built = build(root, cache, profile, &[PLUGIN])?;
    built.remove(PLUGIN.name).ok_or(Error::MissingBinary(PLUGIN.name))
}

/// The binaries that were built before, if the caller of this program says where they are; `None` if it does not.
///
/// The suite does: what it compiled for the tests is what they put into images, see [`cargo::built`]. Their symbols stay behind: with
/// them an agent has three times the size, and each Pod with one copies it.
///
/// # Errors
/// [`Error::RunTool`], [`Error::ReadFile`] or [`Error::DynamicBinary`].
pub fn prebuilt() -> Result<Option<Binaries>, Error> {
    let named = |program: &Program| Some((program.name.to_owned(), cargo::built(program.name)?));
    let files: BTreeMap<String, PathBuf> = PROGRAMS.iter().filter_map(named).collect();
    if files.len() < PROGRAMS.len() {
        return Ok(None);
    }
    let files = files.into_iter().map(|(name, path)| Ok((name, stripped(&path)?)));
    Binaries::among(&files.collect::<Result<_, Error>>()?).map(Some)
}

/// Writes a program without its symbols beside it. `strip` is a part of binutils, which linking takes, too.
fn stripped(program: &Path) -> Result<PathBuf, Error> {
    const STRIP: &str = "strip";
    let copy = program.with_extension("stripped");
    let status = Command::new(STRIP).arg("-o").arg(&copy).arg(program).status();
    let failed = |source| Error::RunTool { program: PathBuf::from(STRIP), source };
    let status = status.map_err(failed)?;
    if status.success() { Ok(copy) } else { Err(failed(io::Error::other(status.to_string()))) }
}

/// Runs cargo once; returns the programs by name.
fn build(
    root: &Path,
    cache: &Path,
    profile: Profile,
    programs: &[Program],
) -> Result<BTreeMap<String, PathBuf>, Error> {
    let cargo = cargo::program();
    let run_failed = |source| Error::RunTool { program: PathBuf::from(&cargo), source };
    let target = host_target()?;
    let flags = format!("CARGO_TARGET_{}_RUSTFLAGS", target.replace(['-', '.'], "_").to_uppercase());

    let mut command = cargo::command();
    command.current_dir(root).args(["build", "--profile", profile.name(), "--locked", "--target", &target]);
    command.args(["--message-format", "json-render-diagnostics"]);
    command.args(programs.iter().flat_map(|program| ["--package", program.package, "--bin", program.name]));
    command.env(flags, "-C target-feature=+crt-static");
    // Either of these would override the flag of the target.
    command.env_remove("RUSTFLAGS").env_remove("CARGO_ENCODED_RUSTFLAGS");
    if std::env::var_os("CARGO_TARGET_DIR").is_none() {
        command.arg("--target-dir").arg(cache.join("target"));
    }

    let output = command.stderr(Stdio::inherit()).output().map_err(run_failed)?;
    if !output.status.success() {
        return Err(Error::BuildBinaries(output.status));
    }
    Ok(executables(&String::from_utf8_lossy(&output.stdout)))
}

fn host_target() -> Result<String, Error> {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| OsString::from("rustc"));
    let run_failed = |source| Error::RunTool { program: PathBuf::from(&rustc), source };
    let output = Command::new(&rustc).arg("-vV").output().map_err(run_failed)?;
    let text = String::from_utf8_lossy(&output.stdout);
    let host = text.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(str::to_owned).ok_or_else(|| run_failed(io::ErrorKind::InvalidData.into()))
}

/// Where a program of this machine is.
fn installed(name: &str) -> Result<PathBuf, Error> {
    packages::find(name)
        .ok_or_else(|| Error::RunTool { program: name.into(), source: io::ErrorKind::NotFound.into() })
}

/// Binaries by name, from cargo's messages (one JSON document a line).
fn executables(messages: &str) -> BTreeMap<String, PathBuf> {
    messages
        .lines()
        .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
        .filter_map(|message| {
            let path = message["executable"].as_str()?;
            Some((message["target"]["name"].as_str()?.to_owned(), PathBuf::from(path)))
        })
        .collect()
}

/// Whether a 64-bit little-endian ELF file has no program header of type `PT_INTERP` (elf(5)).
fn is_static(path: &Path) -> Result<bool, Error> {
    const PT_INTERP: [u8; 4] = [3, 0, 0, 0];
    let bytes = fs::read(path).map_err(|source| Error::ReadFile { path: path.to_owned(), source })?;
    let number = |at: usize, length: usize| {
        let field = bytes.get(at..at + length)?;
        Some(field.iter().rev().fold(0, |sum, byte| sum << 8 | usize::from(*byte)))
    };
    let headers = || Some((number(32, 8)?, number(54, 2)?, number(56, 2)?));
    let Some((offset, size, count)) = headers().filter(|_| bytes.starts_with(b"\x7fELF\x02\x01")) else {
        return Ok(false);
    };
    let is_interpreter = |index: usize| {
        let at = offset.saturating_add(index * size);
        bytes.get(at..at.saturating_add(4)) == Some(PT_INTERP.as_slice())
    };
    Ok(!(0..count).any(is_interpreter))
}

/// The images of the lab: operator, wake-up binary, agent, extender, and the stand-in application under both of its names.
pub fn project_images(binaries: &Binaries) -> Vec<ImageSpec> {
    let Binaries { operator, wakeup, agent, extender, app } = binaries;
    let program = |binary: &Path, destination: &str| ImageFile {
        source: binary.to_owned(),
        destination: destination.to_owned(),
        mode: 0o755,
    };
    let image = |name: &str, binary: &Path, destination: &str| ImageSpec {
        name: name.to_owned(),
        entrypoint: vec![destination.to_owned()],
        files: vec![program(binary, destination)],
        user: Some(format!("{NONROOT_ID}:{NONROOT_ID}")),
        env: BTreeMap::new(),
    };
    let port = BTreeMap::from([(crate::app::arguments::PORT_VARIABLE.to_owned(), "8080".to_owned())]);
    let both = vec![program(app, "/lab-app"), program(agent, AGENT_IMAGE_PROGRAM_PATH)];
    vec![
        image(OPERATOR_IMAGE, operator, "/bps-operator"),
        image(WAKEUP_IMAGE, wakeup, "/bps-wakeup"),
        image(AGENT_IMAGE, agent, AGENT_IMAGE_PROGRAM_PATH),
        image(EXTENDER_IMAGE, extender, "/bps-extender"),
        ImageSpec { env: port, files: both, ..image(APP_IMAGE, app, "/lab-app") },
        ImageSpec { user: None, ..image(NGINX_IMAGE, app, "/lab-app") },
    ]
}

pub mod busybox;
pub mod redis;
#[cfg(test)]
mod tests;
