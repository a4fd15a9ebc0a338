//! Reads what Cargo tells about the workspace: where things are, and which programs its tests became.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde::Deserialize;

use crate::needs::TestName;

/// Why the workspace is not known.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// Cargo did not succeed.
    #[error("ask cargo for the packages of the workspace")]
    Ask(#[source] std::io::Error),
    /// Cargo refused.
    #[error("cargo does not list the packages of the workspace: {said}")]
    Refuse {
        /// What it said.
        said: String,
    },
    /// Cargo wrote something else than expected.
    #[error("read what cargo wrote")]
    Read(#[source] serde_json::Error),
}

/// The packages of the workspace.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(crate) struct Workspace {
    /// Where Cargo builds.
    pub(crate) target_directory: PathBuf,
    /// Where it is.
    #[serde(rename = "workspace_root")]
    pub(crate) root: PathBuf,
    packages: Vec<Package>,
}

/// One package.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
struct Package {
    id: String,
    name: String,
    version: String,
    manifest_path: PathBuf,
    targets: Vec<Target>,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
struct Target {
    src_path: PathBuf,
    doctest: bool,
}

/// A test that was compiled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TestProgram {
    /// What it is called.
    pub(crate) name: TestName,
    /// Whether it is a library's or a program's own unit tests, which share their name with it.
    pub(crate) is_unit: bool,
    /// The file to run.
    pub(crate) file: PathBuf,
    /// Where Cargo would run it.
    pub(crate) directory: PathBuf,
    /// Variables that Cargo would set, and that are not those of the package whose program this is.
    pub(crate) environment: BTreeMap<String, String>,
}

/// What was compiled.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Built {
    /// In the order of their names.
    pub(crate) tests: Vec<TestProgram>,
    /// Programs that are not tests, by name: Cargo builds those of packages whose tests run them.
    pub(crate) programs: BTreeMap<String, PathBuf>,
}

/// Name of the program that builds what Cargo does not.
pub(crate) const LAB: &str = "lab";
/// Beginning of the variables that name the files of programs, for tests of other packages. Without them these tests have
/// Cargo build the programs, with other features than here.
const PROGRAM_VARIABLE: &str = "BPS_TEST_";

/// One line of what Cargo writes.
#[derive(Deserialize)]
#[serde(tag = "reason", rename_all = "kebab-case")]
enum Message {
    CompilerArtifact(Artifact),
    #[serde(other)]
    Other,
}

#[derive(Deserialize)]
struct Artifact {
    package_id: String,
    target: MessageTarget,
    profile: MessageProfile,
    executable: Option<PathBuf>,
}

#[derive(Deserialize)]
struct MessageTarget {
    name: String,
    kind: Vec<String>,
}

#[derive(Deserialize)]
struct MessageProfile {
    test: bool,
}

impl Workspace {
    /// Asks Cargo.
    ///
    /// # Errors
    /// `Ask` or `Refuse` if it does not answer, `Read` if it answers something else.
    pub(crate) fn ask(cargo: &Path) -> Result<Self, Error> {
        // It reads the manifests, and waits for nothing.
        let metadata = Command::new(cargo).args(["metadata", "--format-version=1", "--no-deps"]).output();
        let metadata = metadata.map_err(Error::Ask)?;
        if !metadata.status.success() {
            return Err(Error::Refuse { said: String::from_utf8_lossy(&metadata.stderr).into_owned() });
        }
        serde_json::from_slice(&metadata.stdout).map_err(Error::Read)
    }

    /// What Cargo says it compiled.
    ///
    /// # Errors
    /// `Read` if a line is not a message of Cargo.
    pub(crate) fn built(&self, messages: &str) -> Result<Built, Error> {
        let mut built = Built::default();
        // What programs print that Cargo starts may come to the same place; messages are objects.
        for line in messages.lines().filter(|line| line.starts_with('{')) {
            let message: Message = serde_json::from_str(line).map_err(Error::Read)?;
            if let Message::CompilerArtifact(artifact) = message {
                self.note(artifact, &mut built);
            }
        }
        let variable = |(name, file): (&String, &PathBuf)| {
            (format!("{PROGRAM_VARIABLE}{name}"), file.display().to_string())
        };
        for test in &mut built.tests {
            test.environment.extend(built.programs.iter().map(variable));
        }
        built.tests.sort_by(|left, right| (&left.name, left.is_unit).cmp(&(&right.name, right.is_unit)));
        Ok(built)
    }

    /// Adds a program to what was built; libraries are none.
    fn note(&self, artifact: Artifact, built: &mut Built) {
        let package = self.packages.iter().find(|package| package.id == artifact.package_id);
        let (Some(file), Some(package)) = (artifact.executable, package) else { return };
        let name = TestName { package: package.name.clone(), target: artifact.target.name };
        if artifact.profile.test {
            built.tests.push(TestProgram {
                name,
                is_unit: !artifact.target.kind.iter().any(|kind| kind == "test"),
                file,
                directory: package.directory(),
                environment: package.environment(),
            });
        } else {
            built.programs.insert(name.target, file);
        }
    }

    /// Names of the packages whose libraries have examples in their documentation that are tests.
    ///
    /// `read` returns the texts of all sources below a folder. Cargo itself needs a minute to find out that there are none.
    pub(crate) fn packages_with_doc_tests(&self, read: impl Fn(&Path) -> Vec<String>) -> Vec<String> {
        let has_some = |target: &&Target| {
            let folder = target.src_path.parent().unwrap_or(Path::new("/"));
            target.doctest && read(folder).iter().any(|text| has_doc_test(text))
        };
        let packages =
            self.packages.iter().filter(|package| package.targets.iter().any(|one| has_some(&one)));
        packages.map(|package| package.name.clone()).collect()
    }
}

impl Package {
    fn directory(&self) -> PathBuf {
        self.manifest_path.parent().unwrap_or(Path::new("/")).to_owned()
    }

    fn environment(&self) -> BTreeMap<String, String> {
        let manifest = self.manifest_path.display().to_string();
        [
            ("CARGO_MANIFEST_DIR", self.directory().display().to_string()),
            ("CARGO_MANIFEST_PATH", manifest),
            ("CARGO_PKG_NAME", self.name.clone()),
            ("CARGO_PKG_VERSION", self.version.clone()),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into()
    }
}

/// Words behind the marks of a block of code that leave it a test of rustdoc.
const DOC_TEST_WORDS: [&str; 6] = ["", "rust", "should_panic", "no_run", "compile_fail", "test_harness"];

/// Whether a block of code in the documentation comments of a source is a test.
fn has_doc_test(source: &str) -> bool {
    let comments = source.lines().filter_map(|line| {
        let line = line.trim_start();
        line.strip_prefix("///").or_else(|| line.strip_prefix("//!"))
    });
    let marks = comments.filter_map(|comment| comment.trim().strip_prefix("```"));
    // Every other mark ends a block.
    let mut openings = marks.step_by(2);
    openings.any(|words| {
        words.split([',', ' ']).all(|word| DOC_TEST_WORDS.contains(&word) || word.starts_with("edition"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn workspace() -> Workspace {
        let target = |doctest| Target { src_path: "/w/lab/src/lib.rs".into(), doctest };
        let package = Package {
            id: "path+file:///w/lab#0.1.0".to_owned(),
            name: "lab".to_owned(),
            version: "0.1.0".to_owned(),
            manifest_path: "/w/lab/Cargo.toml".into(),
            targets: vec![target(true), target(false)],
        };
        Workspace { target_directory: "/w/target".into(), root: "/w".into(), packages: vec![package] }
    }

    /// What Cargo says about one target, as far as it is read.
    fn artifact(kind: &str, is_test: bool, executable: &str) -> String {
        format!(
            r#"{{"reason":"compiler-artifact","package_id":"path+file:///w/lab#0.1.0","target":{{"kind":["{kind}"],
            "name":"lab"}},"profile":{{"test":{is_test}}},"executable":{executable}}}"#
        )
        .replace('\n', "")
    }

    #[test]
    fn tests_are_the_programs_that_were_compiled_to_be_tests() {
        let messages = [
            artifact("lib", false, "null"),
            artifact("bin", false, r#""/w/target/debug/lab""#),
            artifact("test", true, r#""/w/target/debug/deps/lab-2""#),
            "a word of a build script".to_owned(),
            artifact("lib", true, r#""/w/target/debug/deps/lab-1""#),
            r#"{"reason":"build-finished","success":true}"#.to_owned(),
        ];
        let Built { tests, programs } = workspace().built(&messages.join("\n")).unwrap();
        assert_eq!(programs, BTreeMap::from([("lab".to_owned(), PathBuf::from("/w/target/debug/lab"))]));
        let seen: Vec<_> = tests.iter().map(|one| (one.is_unit, one.file.to_str().unwrap())).collect();
        assert_eq!(seen, [(false, "/w/target/debug/deps/lab-2"), (true, "/w/target/debug/deps/lab-1")]);

        let first = &tests[0];
        assert_eq!(first.name, TestName { package: "lab".to_owned(), target: "lab".to_owned() });
        assert_eq!(first.directory, Path::new("/w/lab"));
        assert_eq!(first.environment["CARGO_MANIFEST_DIR"], "/w/lab");
        assert_eq!(first.environment["CARGO_PKG_VERSION"], "0.1.0");
    }

    #[test]
    fn tests_are_told_where_programs_are() {
        let agent =
            artifact("bin", false, r#""/w/target/debug/bps-agent""#).replace(r#""lab""#, r#""bps-agent""#);
        let messages = [artifact("test", true, r#""/w/target/debug/deps/lab-2""#), agent];
        let Built { tests, .. } = workspace().built(&messages.join("\n")).unwrap();
        assert_eq!(tests[0].environment["BPS_TEST_bps-agent"], "/w/target/debug/bps-agent");
    }

    #[test]
    fn a_block_of_another_language_is_no_doc_test() {
        let block = |words: &str| format!("    /// ```{words}\n    /// let a = 1;\n    /// ```\n");
        let found =
            ["", "rust", "no_run,edition2024", "text", "console"].map(|words| has_doc_test(&block(words)));
        assert_eq!(found, [true, true, true, false, false]);
        assert!(!has_doc_test(&format!("{}{}", block("text"), block("text"))));
        assert!(has_doc_test(&format!("{}{}", block("text"), block(""))));
        assert!(!has_doc_test("// ```\nlet text = \"```\";"));
    }

    #[test]
    fn only_packages_with_doc_tests_are_asked_for_them() {
        let with = |text: &'static str| {
            workspace().packages_with_doc_tests(|folder| {
                assert_eq!(folder, Path::new("/w/lab/src"));
                vec![text.to_owned()]
            })
        };
        assert_eq!(with("//! ```\n//! ```"), ["lab"]);
        assert_eq!(with("//! Nothing."), [""; 0]);
    }
}
