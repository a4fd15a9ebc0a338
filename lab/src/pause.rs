//! Makes the image of the process that keeps a Pod's namespaces: one small static program, compiled here.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::json;
use sha2::{Digest, Sha256};

use crate::config::PAUSE_IMAGE;
use crate::machine::{self, command, hexadecimal};

const SOURCE: &str = include_str!("pause.c");
/// File name of the archive.
pub const ARCHIVE: &str = "pause.tar";

const PROGRAM_MODE: u32 = 0o755;
const FILE_MODE: u32 = 0o644;

/// Compiles the program and writes its image as an archive that `ctr images import` reads; returns its path.
///
/// # Errors
/// `Start` or `Refuse` if there is no C compiler or it cannot link statically; `File` for the files.
pub fn build(directory: &Path) -> Result<PathBuf, machine::Error> {
    machine::create_directory(directory)?;
    let (source, program) = (directory.join("pause.c"), directory.join("pause"));
    machine::write_file(&source, SOURCE.as_bytes())?;
    let words = ["-Os", "-static", "-s", "-Wall", "-o"].map(PathBuf::from);
    command::run("cc", words.iter().chain([&program, &source]))?;
    let content = fs::read(&program).map_err(|error| machine::Error::file("read", &program, error))?;
    let path = directory.join(ARCHIVE);
    let written = archive(&content).map_err(|error| machine::Error::file("write", &path, error))?;
    machine::write_file(&path, &written)?;
    Ok(path)
}

/// The image archive: one layer with one file, its configuration, and the list of both.
fn archive(program: &[u8]) -> std::io::Result<Vec<u8>> {
    let layer = tar(&[("pause", program, PROGRAM_MODE)])?;
    let layer_digest = digest(&layer);
    let config = json!({
        "architecture": architecture(),
        "os": "linux",
        "config": {"Entrypoint": ["/pause"], "User": "65535:65535"},
        "rootfs": {"type": "layers", "diff_ids": [format!("sha256:{layer_digest}")]},
    })
    .to_string();
    let config_name = format!("{}.json", digest(config.as_bytes()));
    let layer_name = format!("{layer_digest}/layer.tar");
    let manifest =
        json!([{"Config": config_name, "RepoTags": [PAUSE_IMAGE], "Layers": [layer_name]}]).to_string();
    tar(&[
        (&config_name, config.as_bytes(), FILE_MODE),
        (&layer_name, &layer, FILE_MODE),
        ("manifest.json", manifest.as_bytes(), FILE_MODE),
    ])
}

fn tar(files: &[(&str, &[u8], u32)]) -> std::io::Result<Vec<u8>> {
    let mut builder = tar::Builder::new(Vec::new());
    for (name, content, mode) in files {
        let mut header = tar::Header::new_ustar();
        header.set_size(u64::try_from(content.len()).expect("a length fits 64 bits"));
        header.set_mode(*mode);
        builder.append_data(&mut header, name, *content)?;
    }
    builder.into_inner()
}

fn digest(content: &[u8]) -> String {
    hexadecimal(&Sha256::digest(content))
}

/// The machine's architecture in the words of container images.
fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_program_gives_the_same_archive() {
        assert_eq!(archive(b"program").unwrap(), archive(b"program").unwrap());
        assert_ne!(archive(b"program").unwrap(), archive(b"another").unwrap());
    }

    #[test]
    fn the_archive_names_the_image_and_its_layer() {
        let bytes = archive(b"program").unwrap();
        let mut archive = tar::Archive::new(bytes.as_slice());
        let names: Vec<String> = archive
            .entries()
            .unwrap()
            .map(|entry| entry.unwrap().path().unwrap().display().to_string())
            .collect();
        assert_eq!(names.len(), 3);
        assert_eq!(names[2], "manifest.json");
    }
}
