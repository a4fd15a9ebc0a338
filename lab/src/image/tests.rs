//! Reads archives back, entry by entry.

use super::*;
use serde_json::Value;
use std::io::Read;

/// Path, mode and content of each entry, in order.
fn entries(bytes: &[u8]) -> Vec<(String, u32, Vec<u8>)> {
    let mut archive = tar::Archive::new(bytes);
    let read = |entry: io::Result<tar::Entry<'_, &[u8]>>| {
        let mut entry = entry.unwrap();
        let mut content = Vec::new();
        entry.read_to_end(&mut content).unwrap();
        let header = entry.header();
        assert_eq!((header.mtime().unwrap(), header.uid().unwrap(), header.gid().unwrap()), (0, 0, 0));
        (entry.path().unwrap().to_str().unwrap().to_owned(), header.mode().unwrap(), content)
    };
    archive.entries().unwrap().map(read).collect()
}

fn spec(directory: &Path) -> ImageSpec {
    let source = directory.join("binary");
    fs::write(&source, b"content").unwrap();
    ImageSpec {
        name: "registry.local/web:dev".to_owned(),
        entrypoint: vec!["/opt/web/web".to_owned(), "--serve".to_owned()],
        files: vec![ImageFile { source, destination: "/opt/web/web".to_owned(), mode: 0o755 }],
        user: Some("65532:65532".to_owned()),
        env: BTreeMap::from([("B".to_owned(), "2".to_owned()), ("A".to_owned(), "1".to_owned())]),
    }
}

#[test]
fn an_archive_reads_back_as_one_layer_with_its_config_and_manifest() {
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().join("web.tar");
    write_archive(&spec(directory.path()), &out).unwrap();
    let outer = entries(&fs::read(&out).unwrap());
    let [(config_path, _, config), (layer_path, _, layer), (manifest_path, _, manifest)] = &outer[..] else {
        panic!("three entries, not {}", outer.len());
    };
    assert_eq!(*config_path, format!("{}.json", hex_digest(config)));
    assert_eq!(*layer_path, format!("{}/layer.tar", hex_digest(layer)));
    assert_eq!(manifest_path, "manifest.json");
    let manifest: Value = serde_json::from_slice(manifest).unwrap();
    let expected =
        json!([{ "Config": config_path, "RepoTags": ["registry.local/web:dev"], "Layers": [layer_path] }]);
    assert_eq!(manifest, expected);
    let config: Value = serde_json::from_slice(config).unwrap();
    let expected = json!({
        "Entrypoint": ["/opt/web/web", "--serve"],
        "Env": ["PATH=/usr/local/bin:/usr/bin:/bin:/", "A=1", "B=2"],
        "User": "65532:65532",
        "WorkingDir": "/",
    });
    assert_eq!(config["config"], expected);
    assert_eq!(config["rootfs"]["diff_ids"], json!([format!("sha256:{}", hex_digest(layer))]));
}

#[test]
fn a_layer_holds_the_standard_directories_the_users_and_the_files() {
    let directory = tempfile::tempdir().unwrap();
    let names: Vec<(String, u32)> = entries(&layer(&spec(directory.path())).unwrap())
        .into_iter()
        .map(|(path, mode, _)| (path, mode))
        .collect();
    let expected = [
        ("dev/", 0o755),
        ("etc/", 0o755),
        ("etc/group", 0o644),
        ("etc/passwd", 0o644),
        ("opt/", 0o755),
        ("opt/web/", 0o755),
        ("opt/web/web", 0o755),
        ("proc/", 0o755),
        ("sys/", 0o755),
        ("tmp/", 0o1777),
    ];
    assert_eq!(names, expected.map(|(path, mode)| (path.to_owned(), mode)));
}

#[test]
fn the_same_input_gives_the_same_bytes() {
    let directory = tempfile::tempdir().unwrap();
    let spec = spec(directory.path());
    let write = |name: &str| {
        let out = directory.path().join(name);
        write_archive(&spec, &out).unwrap();
        fs::read(out).unwrap()
    };
    assert_eq!(write("one.tar"), write("two.tar"));
}

#[test]
fn a_name_without_a_tag_and_a_path_out_of_the_image_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let good = spec(directory.path());
    let out = directory.path().join("web.tar");
    let problem = |spec: ImageSpec| write_archive(&spec, &out).unwrap_err().to_string();
    let untagged = ImageSpec { name: "registry:5000/web".to_owned(), ..good.clone() };
    assert_eq!(problem(untagged), "image registry:5000/web: the name has no tag");
    let file = |destination: &str| ImageFile { destination: destination.to_owned(), ..good.files[0].clone() };
    let at = |destination: &str| ImageSpec { files: vec![file(destination)], ..good.clone() };
    let image = "image registry.local/web:dev:";
    assert_eq!(problem(at("web")), format!("{image} a destination is not absolute"));
    assert_eq!(problem(at("/opt/../../web")), format!("{image} a destination is not a plain path"));
}

#[test]
fn cargo_messages_name_the_executables() {
    let messages = [
        r#"{"reason":"compiler-artifact","target":{"name":"lab"},"executable":null}"#,
        r#"{"reason":"compiler-artifact","target":{"name":"lab-app"},"executable":"/t/lab-app"}"#,
        r#"{"reason":"build-finished","success":true}"#,
    ]
    .join("\n");
    assert_eq!(executables(&messages), BTreeMap::from([("lab-app".to_owned(), PathBuf::from("/t/lab-app"))]));
}

#[test]
fn only_an_elf_file_without_an_interpreter_is_static() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("binary");
    let mut elf = vec![0; 64 + 2 * 56];
    elf[..6].copy_from_slice(b"\x7fELF\x02\x01");
    (elf[32], elf[54], elf[56]) = (64, 56, 2);
    let judge = |bytes: &[u8]| {
        fs::write(&path, bytes).unwrap();
        is_static(&path).unwrap()
    };
    assert!(judge(&elf));
    elf[64 + 56] = 3;
    assert!(!judge(&elf));
    assert!(!judge(b"#!/bin/sh\n"));
}

#[test]
fn the_paper_file_finds_its_image_and_no_other_image_is_root() {
    let path = |name: &str| PathBuf::from(name);
    let images = project_images(&Binaries {
        operator: path("operator"),
        wakeup: path("wakeup"),
        agent: path("agent"),
        extender: path("extender"),
        app: path("app"),
    });
    let users: Vec<(&str, Option<&str>)> =
        images.iter().map(|image| (image.name.as_str(), image.user.as_deref())).collect();
    let nonroot = Some("65532:65532");
    let expected = [
        (OPERATOR_IMAGE, nonroot),
        (WAKEUP_IMAGE, nonroot),
        (AGENT_IMAGE, nonroot),
        (EXTENDER_IMAGE, nonroot),
        (APP_IMAGE, nonroot),
        (NGINX_IMAGE, None),
    ];
    assert_eq!(users, expected);
}
