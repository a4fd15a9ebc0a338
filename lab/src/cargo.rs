//! Starts Cargo as a shell would, also from a program that Cargo started itself.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Command;

/// Beginnings of the variables by which Cargo tells a program about the program's own package.
///
/// A Cargo that inherits them hands them on, and build scripts that ask to be run again when one of them changes (those
/// of `ring` do) then take the tree for another one: what depends on them is compiled once with and once without.
const OWN_VARIABLES: [&str; 3] = ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_BIN_"];

/// The Cargo that runs this program, else the one in `PATH`; without what it told this program about itself.
pub fn command() -> Command {
    let mut command = Command::new(program());
    let is_own = |name: &str| OWN_VARIABLES.iter().any(|own| name.starts_with(own));
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_str().is_some_and(is_own)) {
        command.env_remove(name);
    }
    command
}

/// The file of a program that was compiled together with this one; `None` if nobody says where it is.
///
/// The suite says it to every test, in `BPS_TEST_bps-agent` and the like: without that, a test that needs a program of
/// another package has Cargo build it, with other features.
pub fn built(program: &str) -> Option<PathBuf> {
    std::env::var_os(format!("BPS_TEST_{program}")).map(PathBuf::from)
}

/// Which Cargo that is.
pub fn program() -> OsString {
    std::env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cargo_does_not_learn_which_package_started_it() {
        // Cargo has set it for this test.
        assert!(std::env::var_os("CARGO_MANIFEST_DIR").is_some());
        let command = command();
        let removed: Vec<_> =
            command.get_envs().filter(|(_, value)| value.is_none()).map(|(name, _)| name).collect();
        assert!(removed.iter().any(|name| *name == "CARGO_MANIFEST_DIR"), "{removed:?}");
        assert!(!removed.iter().any(|name| *name == "CARGO_TARGET_DIR"), "{removed:?}");
    }
}
