//! How the static programs of the images are linked.

use std::process::Command;

/// The first glibc whose static programs carry out packed relocations. Source: its release notes.
const GLIBC_MIN: (u32, u32) = (2, 36);

/// A position-independent program relocates itself when it starts. The list for that stays in an agent's memory: 400 KB, or
/// 10 if it is packed.
fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let is_static = variable("CARGO_CFG_TARGET_FEATURE").split(',').any(|feature| feature == "crt-static");
    if variable("CARGO_CFG_TARGET_OS") == "linux" && is_static && does_libc_unpack() {
        println!("cargo::rustc-link-arg-bins=-Wl,-z,pack-relative-relocs");
    }
}

/// Whether the C library that is linked in carries out packed relocations: a program with another one would crash at its
/// start.
fn does_libc_unpack() -> bool {
    match variable("CARGO_CFG_TARGET_ENV").as_str() {
        // The one that comes with this Rust is 1.2.5; they came with 1.2.4.
        "musl" => true,
        "gnu" => variable("HOST") == variable("TARGET") && own_glibc().is_some_and(|own| own >= GLIBC_MIN),
        _ => false,
    }
}

/// The version of this machine's glibc, which says for example `glibc 2.36`.
fn own_glibc() -> Option<(u32, u32)> {
    let said = Command::new("getconf").arg("GNU_LIBC_VERSION").output().ok()?.stdout;
    let said = String::from_utf8(said).ok()?;
    let (major, minor) = said.trim().strip_prefix("glibc ")?.split_once('.')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_default()
}
