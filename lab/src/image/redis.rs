//! The image of a real Redis, made from the package of this machine's distribution.
//!
//! It has what the example of a Redis pair needs of `redis:7.0`, and nothing else: server, client, and a shell.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::{Error, ImageFile, ImageSpec, NONROOT_ID, installed};

/// The name under which the example asks for Redis.
pub const REDIS_IMAGE: &str = "docker.io/library/redis:7.0";

/// The server is the same program as the check of its files, and acts by the name it is called by. That one is in the
/// package that starts no service when it is installed.
const SERVER: &str = "redis-check-rdb";

/// What the image is made from, and the Debian packages that have it.
pub const PROGRAMS: [(&str, &str); 3] =
    [(SERVER, "redis-tools"), ("redis-cli", "redis-tools"), ("busybox", "busybox-static")];

/// What the image consists of; see [`crate::packages::ensure_programs`] for [`PROGRAMS`].
///
/// # Errors
/// `RunTool` if a program is missing or the libraries that it needs cannot be listed.
pub fn redis_image() -> Result<ImageSpec, Error> {
    let (server, client, shell) = (installed(SERVER)?, installed("redis-cli")?, installed("busybox")?);
    let libraries: BTreeSet<PathBuf> = libraries(&server)?.into_iter().chain(libraries(&client)?).collect();
    let named = [
        (server, "/usr/bin/redis-server"),
        (client, "/usr/bin/redis-cli"),
        (shell.clone(), "/bin/sh"),
        (shell, "/bin/sleep"),
    ];
    let named = named.map(|(source, destination)| (source, destination.to_owned()));
    let as_here = libraries.into_iter().map(|path| (path.clone(), path.display().to_string()));
    let files = named
        .into_iter()
        .chain(as_here)
        .map(|(source, destination)| ImageFile { source, destination, mode: 0o755 })
        .collect();
    Ok(ImageSpec {
        name: REDIS_IMAGE.to_owned(),
        entrypoint: vec!["redis-server".to_owned()],
        files,
        user: Some(format!("{NONROOT_ID}:{NONROOT_ID}")),
        env: BTreeMap::new(),
    })
}

/// The shared libraries of a program and its loader, where they are.
fn libraries(program: &Path) -> Result<BTreeSet<PathBuf>, Error> {
    let mut command = Command::new("ldd");
    command.arg(program).stdin(Stdio::null()).stderr(Stdio::null());
    let output = command.output().map_err(|source| Error::RunTool { program: "ldd".into(), source })?;
    Ok(listed(&String::from_utf8_lossy(&output.stdout)))
}

/// One library in each line: `name => path (address)`, or the path alone.
fn listed(text: &str) -> BTreeSet<PathBuf> {
    let path = |line: &str| line.split_whitespace().find(|word| word.starts_with('/')).map(PathBuf::from);
    text.lines().filter_map(path).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_and_the_loader_are_found_and_what_the_kernel_brings_is_not() {
        let text = "\tlinux-vdso.so.1 (0x00007f)\n\tlibc.so.6 => /lib/libc.so.6 (0x00007f)\n\t/lib64/ld.so.2 (0x00007f)\n";
        assert_eq!(listed(text), ["/lib/libc.so.6", "/lib64/ld.so.2"].map(PathBuf::from).into());
    }
}
