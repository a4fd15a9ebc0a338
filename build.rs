//! How the static programs of the images are linked: the build script of each package that has one.

use std::process::Command;

/// The first glibc whose static programs carry out packed relocations. Source: its release notes.
const GLIBC_MIN: (u32, u32) = (2, 36);
/// The first Rust whose own musl does. Source: its release notes.
const RUST_MIN: (u32, u32) = (1, 93);

/// A position-independent program relocates itself when it starts. The list for that stays in an agent's memory: 400 KB, or
/// 10 if it is packed.
fn main() {
    // Cargo runs this again when it changes itself; nothing else decides. Several packages share this file.
    println!("cargo::rerun-if-env-changed=RUSTC");
    let is_static = variable("CARGO_CFG_TARGET_FEATURE").split(',').any(|feature| feature == "crt-static");
    if variable("CARGO_CFG_TARGET_OS") == "linux" && is_static && does_libc_unpack() {
        println!("cargo::rustc-link-arg-bins=-Wl,-z,pack-relative-relocs");
    }
}

/// Whether the C library that is linked in carries out packed relocations: a program with another one would crash at its
/// start.
fn does_libc_unpack() -> bool {
    let is_native = variable("HOST") == variable("TARGET");
    match variable("CARGO_CFG_TARGET_ENV").as_str() {
        // They came with 1.2.4; since 1.93 Rust brings 1.2.5.
        "musl" => is_native && version("rustc", &variable("RUSTC"), "--version") >= Some(RUST_MIN),
        "gnu" => is_native && version("glibc", "getconf", "GNU_LIBC_VERSION") >= Some(GLIBC_MIN),
        _ => false,
    }
}

/// The version that a program says after a name, for example `glibc 2.36` or `rustc 1.95.0 (...)`.
fn version(name: &str, program: &str, argument: &str) -> Option<(u32, u32)> {
    let said = String::from_utf8(Command::new(program).arg(argument).output().ok()?.stdout).ok()?;
    let mut numbers = said.trim().strip_prefix(name)?.trim_start().split(['.', ' ']).map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_default()
}
